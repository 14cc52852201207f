"""What a terminal says of lost accuracy."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from made_trials import evaluate, loss_trial

from qbench.explain.change import Change
from qbench.explain.explanation import confirm, explain_error
from qbench.explain.text import ERROR, describe_error_head, list_causes, list_other_errors
from qbench.record.stored_run import MetricInfo

TITLES = {name: SimpleNamespace(title=f"{name} is wrong") for name in ("scale", "layers", "data")}
METRIC = MetricInfo(name="top1")


def explain(*trials, steps):
    """These trials with the confirmed ones in a row, which take those shares away."""
    known = evaluate(*trials)
    confirmed = confirm(known)[: len(steps)]
    taken = tuple(
        loss_trial(each.counterfactual.cause, share, part=each.counterfactual.part)
        for each, share in zip(confirmed, steps, strict=True)
    )
    return list_lines(explain_error(known, confirmed, taken))


def list_lines(explanation):
    """All that a terminal says of one."""
    causes = list_causes(explanation, TITLES, ERROR, METRIC)
    return [describe_error_head(explanation.tried, METRIC), *causes, *list_other_errors(explanation)]


def test_causes_are_numbered_and_only_later_ones_say_what_they_add():
    """The first is beyond nothing."""
    lines = explain(loss_trial("scale", 0.6), loss_trial("layers", 0.5, part="a"), steps=(0.6, 0.8))
    assert lines == [
        "Against fp32, on 200 examples: 15.0 dB signal to noise.",
        "1. Scale is wrong (scale). Without it (without scale ): 60.0 [58.0, 62.0] % of the error gone.",
        "2. Layers is wrong (layers). Without it (without layers a): 50.0 [48.0, 52.0] % of the error gone; "
        "20.0 % beyond those before it.",
        "Without all of these: 80.0 [78.0, 82.0] % of the error gone.",
        "Not explained: 20.0 % of the error.",
    ]


def test_what_showed_nothing_is_one_sentence_and_what_failed_one_for_each_reason():
    """However many layers were tried."""
    nothing = [loss_trial("layers", 0.001, part=name) for name in "ab"]
    failed = [loss_trial("layers", None, part=name) for name in "cd"]
    lines = explain(*nothing, *failed, steps=())
    assert lines[1:] == [
        "No change that was tried takes error away.",
        "Not shown to take 2 % of the error away: without layers a (0.1 [-1.9, 2.1] %), "
        "without layers b (0.1 [-1.9, 2.1] %).",
        "Not tried: without layers c, without layers d: it cannot be built.",
    ]
    assert explain(*failed, steps=())[1] == "No change could be tried."


def test_examples_that_are_evaluated_are_no_calibration_set():
    """The mend proves the cause; another one is asked for."""
    data = loss_trial("data", 0.9)
    change = Change(calibrate=("test", 8))
    object.__setattr__(data.counterfactual, "change", change)
    assert any("bring calibration examples like those" in line for line in explain(data, steps=(0.9,)))


def test_what_another_draw_does_is_told():
    """And the least that a cause takes away follows from it."""
    drawn = replace(evaluate(loss_trial("layers", 0.01, part="a")), draws=(0.03, -0.03, 0.03))
    lines = list_lines(explain_error(drawn, (), ()))
    assert any("changes the error by 3.0 % (3 draws); a cause takes away 3 times as much" in line for line in lines)
    assert any(line.startswith("Not shown to take 9 % of the error away: without layers a") for line in lines)
