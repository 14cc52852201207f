"""Rules of explain/json_text: a program reads what the words say, and a run keeps it."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from made_situations import layer_time, node
from made_trials import evaluate, loss_trial, race, trial

from qbench.explain.advice import Alternative, MendedAccuracy
from qbench.explain.change import Change
from qbench.explain.explanation import Goal, LayerLoss, Round, chain, choose, confirm, explain_error, explain_time
from qbench.explain.json_text import as_json, store_error, store_time
from qbench.explain.not_covered import NotCovered
from qbench.explain.story import Explained, TimeExplained
from qbench.explain.text import FLATTERS
from qbench.explain.where_time_goes import TimeShares
from qbench.quant.artifacts.node_profile import CallProfile
from qbench.quant.recipe import DEFAULT
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval

VARIANT = SimpleNamespace(mode="dynamic", backend="onnxruntime", recipe=SimpleNamespace(name=DEFAULT))
ACCURACY = SimpleNamespace(floor=None, margin=1.0)
OPENED = SimpleNamespace(
    case=SimpleNamespace(id="net/dynamic/onnxruntime/t1/b1", variant=VARIANT, batch_size=1),
    recipe_keys={},
    recipes=(DEFAULT,),
    notes=("built anew",),
    metric_info=MetricInfo(name="top1"),
    suite=SimpleNamespace(gate=SimpleNamespace(accuracy=ACCURACY)),
    assess_loss=lambda delta: "FAIL" if delta is not None and delta.value < -0.01 else "PASS",
)
STATIC, BATCH = Change(mode="static"), Change(batch_size=8)
VARIABLE = Change(environment={"A": "1"})
TITLES = {name: SimpleNamespace(title=f"{name} is slow") for name in ("mode", "batch", "layers", "data", "other")}
OVER_FP32 = Interval(value=0.8, low=0.7, high=0.9)
SMALL, LARGE = Interval(value=-0.002, low=-0.004, high=0.0), Interval(value=-0.02, low=-0.03, high=-0.015)


def explain_rounds(*races):
    """Races of these trials, which took 2 s in the case and 0.2 s in the fastest of the run."""
    rounds = []
    for trials in races:
        tried = race(*trials, case=2.0, fp32=1.6, over_fp32=OVER_FP32, off_core=0.01)
        rounds.append(Round(tried=tried, chosen=choose(tried, rounds)))
    return explain_time(rounds, [Goal(left=0.1, name="as the fastest")])


MODE, HIDDEN = trial("mode", 0.4, change=STATIC), trial("other", 0.82, change=VARIABLE)
EIGHT = replace(trial("batch", 0.5, change=BATCH), beyond=True)
IN_VAIN, UNTRIED = trial("layers", 1.0), trial("data", None)
TWO_CAUSES = explain_rounds([MODE, HIDDEN, IN_VAIN, UNTRIED], [EIGHT])


def explain(explanation=TWO_CAUSES, **facts):
    """An explanation of time alone."""
    return TimeExplained(**{"times": None, "no_times": None, "accuracy": None, "explanation": explanation, **facts})


def read(time=None, losses=None):
    """What a program reads."""
    return json.loads(as_json(Explained(opened=OPENED, time=time, losses=losses)))


def limits(interval):
    """A value with limits as data."""
    return {"value": interval.value, "low": interval.low, "high": interval.high}


def gain(of):
    """A trial of time as data."""
    return {"cause": of.counterfactual.cause, "change": of.counterfactual.text, "gain": limits(of.interval)}


def test_only_what_was_asked_is_explained():
    """null is not asked; the text ends with its line."""
    assert read() == {"case": OPENED.case.id, "notes": ["built anew"], "time": None, "accuracy": None}
    written = as_json(Explained(opened=OPENED, time=None, losses=None))
    assert written == json.dumps(json.loads(written), indent=2) + "\n"


def test_a_gap_of_time_stands_with_all_that_was_tried():
    """Seconds of the best from the share that is left; what single requests gain apart from the option."""
    time = read(explain(no_times="it does not tell", not_covered=None))["time"]
    causes = time.pop("causes")
    hidden = time.pop("hidden")
    assert [{key: each[key] for key in ("cause", "change", "gain")} for each in causes] == [gain(MODE), gain(EIGHT)]
    assert [each["share"] for each in causes] == pytest.approx([0.6 / 0.9, 0.2 / 0.9])
    assert hidden == [{**gain(HIDDEN), "share_alone": pytest.approx(0.18 / 0.9)}]
    assert TWO_CAUSES.together is not None
    assert time == {
        "case_seconds": 2.0,
        "fp32_seconds": 1.6,
        "over_fp32": limits(OVER_FP32),
        "best_seconds": pytest.approx(0.2),
        "best": "as the fastest",
        "off_core": 0.01,
        "where": None,
        "no_profile": "it does not tell",
        "together": limits(TWO_CAUSES.together.interval),
        "unexplained": pytest.approx(0.1 / 0.9),
        "unconfirmed": [gain(IN_VAIN)],
        "untried": [{"cause": "data", "change": "without data", "reason": "it cannot be built"}],
        "not_covered": None,
        "suite": "matrix:\n  modes: [static]",
        "option": "matrix:\n  batch_sizes: [8]",
        "environment": [],
        "option_environment": [],
        "mended": None,
        "alternative": None,
    }


def test_one_cause_is_not_told_twice():
    """Without it and without all of these are the same then; variables of the process are what to set."""
    time = read(explain(explain_rounds([HIDDEN])))["time"]
    assert (len(time["causes"]), time["together"]) == (1, None)
    assert (time["suite"], time["environment"], time["option_environment"]) == (None, ["export A=1"], ["export A=1"])


def test_what_else_is_known_of_a_case_stands_by_name():
    """What the change costs, what else gains, what no recipe makes int8, and where the time of a call goes."""
    mended = MendedAccuracy(metric="top1", n=200, against_case=SMALL, against_fp32=None)
    other = replace(mended, n=100)
    call = CallProfile(nodes=(node("int8 product", "a", 5e-4),), call_seconds=1e-3, watched_seconds=1.25e-3, scale=0.9)
    fp32 = CallProfile(nodes=(node("float product", "a", 8e-4),), call_seconds=9e-4, watched_seconds=9e-4)
    row = layer_time("a", 5e-4, 8e-4)
    explained = explain(
        times=TimeShares(case=call, fp32=fp32, layers=(row,)),
        accuracy=mended,
        alternative=Alternative(trial=HIDDEN, accuracy=other, single=True),
        not_covered=NotCovered(layers=(("b", "Einsum"),), macs_share=0.25, time_share=None),
    )
    time = read(explained)["time"]
    assert time["mended"] == {"metric": "top1", "n": 200, "against_case": limits(SMALL), "against_fp32": None}
    assert time["alternative"] == {
        **gain(HIDDEN),
        "single_requests": True,
        "suite": None,
        "environment": ["export A=1"],
        "mended": {**time["mended"], "n": 100},
    }
    assert time["not_covered"] == {"layers": [["b", "Einsum"]], "macs_share": 0.25, "time_share": None}
    assert time["where"] == {
        "call_seconds": 1e-3,
        "fp32_call_seconds": 9e-4,
        "overhead_seconds": call.overhead_seconds,
        "watching_seconds": pytest.approx(2.5e-4),
        "node_scale": 0.9,
        "kinds": [
            {"kind": "int8 product", "seconds": 5e-4, "fp32_seconds": 0.0},
            {"kind": "float product", "seconds": 0.0, "fp32_seconds": 8e-4},
        ],
        "layers": [
            {"layer": "a", "operator": row.operator, "kind": row.kind, "seconds": 5e-4, "fp32_seconds": 8e-4}
            | {"macs": row.macs, "peak_fraction": row.peak_fraction}
        ],
        "nodes": [
            {"layer": "a", "operator": call.nodes[0].operator, "kind": "int8 product", "seconds": 5e-4},
        ],
    }


def explain_losses(*trials):
    """The first of these is a cause and takes its share away; the second layer was tried together with it."""
    tried = replace(evaluate(*trials), against_fp32=LARGE, draws=(0.001,))
    confirmed = confirm(tried)[:1]
    steps = [replace(each, counterfactual=step) for each, step in zip(confirmed, chain(confirmed), strict=True)]
    layers = (LayerLoss(trial=trials[0], together=0.7), LayerLoss(trial=trials[-1], together=None))
    return explain_error(tried, confirmed, steps, layers)


LAYER = replace(loss_trial("layers", 0.6, part="a"), metric_change=SMALL)
FAILED = loss_trial("layers", None, part="d")
LOSSES = explain_losses(LAYER, loss_trial("layers", 0.5, part="b"), loss_trial("data", 0.001, part="c"), FAILED)


def loss(of):
    """A trial of lost accuracy as data."""
    removed, change = (None if each is None else limits(each) for each in (of.interval, of.metric_change))
    return {
        "cause": of.counterfactual.cause, "change": of.counterfactual.text, "removed": removed, "metric_change": change,
    }  # fmt: skip


def test_a_lost_score_stands_with_its_layers():
    """``left`` of the error is what no cause takes away."""
    accuracy = read(losses=LOSSES)["accuracy"]
    _, beside, in_vain, _ = LOSSES.tried.trials
    assert accuracy == {
        "n": 200,
        "sqnr_db": 15.0,
        "against_fp32": limits(LARGE),
        "causes": [{**loss(LAYER), "share": pytest.approx(0.6)}],
        "together": loss(LAYER),
        "left": pytest.approx(0.4),
        "draws": [0.001],
        "layers": [
            {**loss(LAYER), "layer": "a", "together": 0.7},
            {**loss(FAILED), "layer": "d", "together": None},
        ],
        "hidden": [loss(beside)],
        "unconfirmed": [loss(in_vain)],
        "untried": [{"cause": "layers", "change": "without layers d", "reason": "it cannot be built"}],
        "suite": "quantize:\n  dynamic:\n    backends:\n      onnxruntime:\n        skip_layers: [a]",
    }
    nothing = explain_error(evaluate(FAILED), (), ())
    unknown = read(losses=nothing)["accuracy"]
    assert (unknown["together"], unknown["left"], unknown["suite"]) == (None, None, None)


def test_a_run_keeps_the_seconds_that_each_cause_takes():
    """Of the whole case; those that overlap by their share alone of the gap."""
    kept = store_time(OPENED, explain(), TITLES)
    assert (kept.case, kept.note, kept.unexplained) == (OPENED.case.id, None, pytest.approx(0.1 / 0.9))
    assert [(each.title, each.change, each.saving) for each in kept.causes] == [
        ("mode is slow", "without mode", MODE.interval), ("batch is slow", "without batch", EIGHT.interval),
    ]  # fmt: skip
    assert [each.seconds for each in kept.causes] == pytest.approx([1.2, 0.4])
    assert [each.share for each in kept.causes] == pytest.approx([0.6 / 0.9, 0.2 / 0.9])
    figures = kept.figures
    assert (figures.seconds, figures.fp32_seconds, figures.best) == (2.0, 1.6, "as the fastest")
    assert (figures.best_seconds, figures.over_fp32, figures.off_core) == (pytest.approx(0.2), OVER_FP32, 0.01)
    (overlapping,) = figures.overlapping
    assert (overlapping.title, overlapping.share) == ("other is slow", pytest.approx(0.2))
    assert overlapping.seconds == pytest.approx(0.36)
    assert kept.suite is not None
    assert kept.suite.startswith("matrix:\n  modes: [static]\n# Optional")


@pytest.mark.parametrize("floor", [None, 0.5])
def test_what_the_advice_costs_is_kept_in_words(floor, monkeypatch):
    """With what else gains, and by which of both limits it is too much."""
    monkeypatch.setattr(ACCURACY, "floor", floor)
    mended = MendedAccuracy(metric="top1", n=200, against_case=SMALL, against_fp32=LARGE)
    other = replace(mended, against_fp32=None)
    notes = [
        store_time(OPENED, explain(accuracy=mended, alternative=alternative), TITLES).note
        for alternative in (None, Alternative(trial=HIDDEN, accuracy=None), Alternative(
            trial=HIDDEN, accuracy=other, single=True))
    ]  # fmt: skip
    too_much = "is below the least score of 0.5" if floor else "loses more than the margin of 1"
    cost = (
        "Its top1, on 200 examples: -0.2 [-0.4, 0.0] points against the case, -2.0 [-3.0, -1.5] points against fp32. "
        f"That {too_much}."
    )
    gains = "without other (other): 1.22 [1.17, 1.27] times as fast."
    assert notes[0] == cost
    assert notes[1] == f"{cost} Not shown to: {gains}"
    assert notes[2] == (
        f"{cost} For single requests: {gains} Its top1, on 200 examples: -0.2 [-0.4, 0.0] points against the case."
    )
    fine = replace(mended, against_fp32=SMALL)
    assert "That" not in str(store_time(OPENED, explain(accuracy=fine), TITLES).note)


def test_a_run_keeps_the_layers_that_could_be_tried():
    """And says where the score is flattered."""
    kept = store_error(OPENED, LOSSES, TITLES)
    assert (kept.case, kept.note, kept.unexplained) == (OPENED.case.id, None, pytest.approx(0.4))
    (cause,) = kept.causes
    assert (cause.title, cause.saving, cause.metric_change) == ("layers is slow", LAYER.interval, SMALL)
    assert (cause.share, cause.seconds) == (pytest.approx(0.6), None)
    assert "skip_layers: [a]" in str(kept.suite)
    figures = kept.figures
    assert (figures.metric, figures.n, figures.sqnr_db) == ("top1", 200, 15.0)
    assert (figures.against_fp32, figures.metric_change) == (LARGE, SMALL)
    (layer,) = figures.layers
    assert (layer.name, layer.saving, layer.metric_change, layer.together) == ("a", LAYER.interval, SMALL, 0.7)
    data = loss_trial("data", 0.6)
    evaluated = replace(data.counterfactual, change=Change(calibrate=("test", 8)))
    flattered = store_error(OPENED, explain_losses(replace(data, counterfactual=evaluated), FAILED), TITLES)
    assert flattered.note == FLATTERS
    assert store_error(OPENED, explain_error(evaluate(FAILED), (), ()), TITLES).figures.metric_change is None


def test_what_closes_no_share_of_its_own_takes_no_seconds_of_its_own():
    """A gain that was shown beyond other changes alone."""
    beyond = replace(TWO_CAUSES, hidden=(replace(HIDDEN, beyond=True),))
    (overlapping,) = store_time(OPENED, explain(beyond), TITLES).figures.overlapping
    assert (overlapping.share, overlapping.seconds) == (None, 0.0)
