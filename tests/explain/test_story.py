"""Rules of explain/story: which changes are tried on a case, and what it is held against."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from made_records import failed, fp32, int8, latency
from made_situations import situation
from made_trials import evaluate, loss_trial, race, trial

from qbench.errors import CaseError, CaseSkipped, UsageError
from qbench.explain import story
from qbench.explain.causes.base import Counterfactual
from qbench.explain.change import Change
from qbench.explain.explanation import MOST_STEPS, Round
from qbench.explain.story import (
    Explained,
    _changes,
    _count_faults,
    _find_fastest,
    _find_goals,
    _return_layers,
    _try_in_rounds,
)
from qbench.progress.live import Silent
from qbench.record.schema import read_case_id

CASE, FAST = "net/static/onednn/t1/b1", "net/static/fbgemm/t1/b1"
PEAK = SimpleNamespace(ratio=4.0)


def test_a_case_could_be_as_fast_as_the_fastest_of_the_run_or_as_arithmetic_allows():
    """The first only where it is faster; fp32 in as many times less as this core multiplies int8 faster."""
    raced = replace(race(case=2.0, fp32=1.6), rival="rival", rival_seconds=1.0)
    assert [(goal.left, goal.name) for goal in _find_goals(raced, PEAK)] == [
        (0.5, "as rival does, the fastest of the run"),
        (0.2, "fp32 in 4.0 times less, which is what int8 arithmetic gains on this core"),
    ]
    assert [goal.left for goal in _find_goals(replace(raced, rival_seconds=2.0), PEAK)] == [0.2]
    assert [goal.left for goal in _find_goals(replace(raced, fp32_seconds=None), PEAK)] == [0.5]
    assert _find_goals(race(), None) == []


@pytest.mark.parametrize(
    ("stored", "faults"),
    [
        ({"faults": [3, 5], "calls_ns": [1, 2, 3, 4]}, 2.0),
        ({"faults": [0, 0], "calls_ns": [1, 2]}, 0.0),
        ({"faults": [], "calls_ns": [1, 2]}, None),
        ({"faults": [1]}, None),
        ({}, None),
    ],
)
def test_page_faults_are_those_of_a_call(stored, faults):
    """Blocks hold several calls; what nobody counted is not 0."""
    opened = SimpleNamespace(record=None, run=SimpleNamespace(samples=lambda record: stored))
    assert _count_faults(opened) == faults


def with_seconds(case, seconds):
    """An int8 case whose calls take so long."""
    return replace(int8(), case=read_case_id(case), latency=latency(seconds))


@pytest.mark.parametrize(
    ("fastest", "seconds", "expected"),
    [
        (FAST, 0.5e-3, FAST),
        (FAST, 2e-3, None),
        ("net/fp32/torch/t1/b1", 0.5e-3, "net/fp32/torch/t1/b1"),
        ("net/static/fbgemm/t2/b1", 0.5e-3, None),
        ("net/static/fbgemm/t1/b8", 0.5e-3, None),
        ("other/static/fbgemm/t1/b1", 0.5e-3, None),
        (f"{FAST}/avx2", 0.5e-3, None),
    ],
)
def test_the_rival_is_the_fastest_other_case_of_the_setting(fastest, seconds, expected):
    """At the same threads and batch size on this machine, of whatever mode; the case itself is none."""
    own = with_seconds(CASE, 1e-3)
    records = [
        own,
        with_seconds(fastest, seconds),
        failed("net/static/x86/t1/b1"),
        with_seconds("net/dynamic/x86/t1/b1", 3e-3),
    ]
    opened = SimpleNamespace(record=own, run=SimpleNamespace(records=records), case_of=lambda key: key.id)
    assert _find_fastest(opened) == expected


def test_a_rival_that_the_suite_has_no_more_is_left_out():
    """Its recipe was removed since."""

    def case_of(key):
        raise UsageError("no such recipe")

    records = [with_seconds(CASE, 1e-3), with_seconds(FAST, 0.5e-3)]
    assert (
        _find_fastest(SimpleNamespace(record=records[0], run=SimpleNamespace(records=records), case_of=case_of)) is None
    )
    assert _find_fastest(SimpleNamespace(record=fp32(), run=SimpleNamespace(records=[]), case_of=case_of)) is None


BATCH, MODE = Change(batch_size=8), Change(mode="dynamic")
FLOAT, BACK = Change(recipe={"skip_layers": ("a",)}), Change(recipe={"skip_layers": ()})


@pytest.mark.parametrize(
    ("base", "change", "differs"),
    [
        (Change(), MODE, True),
        (MODE, MODE, False),
        (BATCH, Change(batch_size=16), False),
        (BATCH, MODE, True),
        (MODE, BATCH, True),
        (FLOAT, BACK, False),
        (Change(), BACK, True),
        (Change(), Change(environment={"A": "1"}), True),
        (Change(environment={"A": "1"}), Change(environment={"A": "1"}), False),
        (Change(), Change(flush_denormals=True), True),
        (Change(flush_denormals=True), Change(flush_denormals=True), False),
        (Change(), Change(calibrate=("test", 8)), True),
        (Change(calibrate=("test", 8)), Change(), True),
        (Change(), Change(), False),
    ],
)
def test_a_change_that_changes_nothing_is_not_tried(base, change, differs):
    """Nor one more step of what was changed, nor one that takes it back; what cannot be seen in the case is."""
    opened = SimpleNamespace(
        case=SimpleNamespace(variant=SimpleNamespace(recipe=SimpleNamespace(skip_layers=()))),
        apply=lambda asked: (asked.mode, asked.batch_size, asked.recipe),
    )
    counterfactual = Counterfactual(cause="cause", text="text", change=change)
    assert _changes(base, counterfactual, opened, opened.apply(base)) == differs


class Together:
    """Evaluates layers that were put in float together, by how many there are."""

    def __init__(self, *shares):
        self.shares, self.tried = shares, []

    def try_change(self, names):
        """What so many of them take away."""
        self.tried.append(names)
        return loss_trial("layers", self.shares[len(names) - 1])


@pytest.mark.parametrize(("shares", "steps"), [((0.3, 0.4, 0.5), 3), ((0.3, 1.0, 1.0), 2)])
def test_layers_that_cost_accuracy_are_put_in_float_together(shares, steps, monkeypatch):
    """The one that costs most first, until nothing is left of the error; none where no layer is shown to cost some."""
    monkeypatch.setattr(story, "put_in_float", lambda cause, situation, names: names)
    tried = evaluate(
        *(loss_trial("layers", share, part=name) for name, share in (("b", 0.2), ("a", 0.3), ("c", 0.001)))
    )
    evaluation = Together(*shares)
    layers = _return_layers(evaluation, tried, None)
    assert evaluation.tried == [["a", "b", "c"][: count + 1] for count in range(steps)]
    assert [layer.trial.counterfactual.part for layer in layers] == ["a", "b", "c"]
    assert [layer.together for layer in layers] == [*shares[:steps], *[None] * (3 - steps)]
    nothing = evaluate(*(loss_trial("layers", 0.001, part=name) for name in "ab"))
    assert [layer.together for layer in _return_layers(Together(), nothing, None)] == [None, None]


def test_no_more_layers_are_put_in_float_together_than_causes_are():
    """Each takes a build."""
    many = evaluate(*(loss_trial("layers", 0.3, part=f"l{number}") for number in range(MOST_STEPS + 2)))
    evaluation = Together(*[0.5] * (MOST_STEPS + 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(story, "put_in_float", lambda cause, situation, names: names)
        _return_layers(evaluation, many, None)
    assert len(evaluation.tried) == MOST_STEPS


@pytest.mark.parametrize(("outcome", "little"), [("PASS", True), ("FAIL", False), ("INCONCLUSIVE", False)])
def test_a_loss_is_little_where_that_is_shown(outcome, little):
    """Against fp32, by the suite's margin; of time alone nothing is."""
    opened = SimpleNamespace(assess_loss=lambda delta: outcome if delta == "delta" else None)
    losses = SimpleNamespace(tried=SimpleNamespace(against_fp32="delta"))
    assert Explained(opened=opened, time=None, losses=losses).loses_little == little
    assert not Explained(opened=opened, time=None, losses=None).loses_little


def test_each_race_is_without_the_cause_that_the_one_before_it_confirmed(monkeypatch):
    """Until none is left to be tried; the rival is measured once, and what was taken away is not proposed again."""
    proposed = [Counterfactual(cause=name, text=name, change=change) for name, change in (("a", MODE), ("b", BATCH))]
    raced = []

    def try_changes(opened, counterfactuals, *, max_seconds, base, rival):
        raced.append(([each.cause for each in counterfactuals], base, rival))
        seconds = {"a": 0.3, "b": 0.5}
        return race(*(replace(trial(each.cause, seconds[each.cause]), counterfactual=each) for each in counterfactuals))

    monkeypatch.setattr(story, "propose", lambda concern, situation: proposed)
    monkeypatch.setattr(story, "try_changes", try_changes)
    monkeypatch.setattr(story, "_find_fastest", lambda opened: "rival")
    monkeypatch.setattr(story, "_changes", lambda *_: True)
    opened = SimpleNamespace(apply=lambda change: change)
    rounds = _try_in_rounds(opened, situation(), 1.0)
    assert raced == [(["a", "b"], Change(), "rival"), (["b"], MODE, None)]
    assert [each.chosen.counterfactual.cause for each in rounds] == ["a", "b"]


def make_described(**facts):
    """A case with all that causes are judged from, beside a backend that is not installed."""
    built = SimpleNamespace(layers=("layer",), conversion=SimpleNamespace(layer_numbers={"layer": 1}))
    plain = {
        "case": SimpleNamespace(variant=SimpleNamespace(backend="here")),
        "artifact": SimpleNamespace(built=built),
        "backends": {
            "here": SimpleNamespace(machine_code=True, missing=lambda: None),
            "gone": SimpleNamespace(machine_code=False, missing=lambda: "not installed"),
        },
        "record": SimpleNamespace(observed={"amx_tiles": True}, interference=None, accuracy=None),
        "run": SimpleNamespace(samples=lambda record: {"faults": [4], "calls_ns": [1, 1]}),
        "record_seconds": 0.5, "cores": (2, 3), "cache": "cache", "limits": "limits",
    }  # fmt: skip
    return SimpleNamespace(**{**plain, **facts})


def test_a_situation_tells_what_is_known_of_the_case(monkeypatch):
    """The last core is the timed one; backends that are not installed are left out."""
    monkeypatch.setattr(story.fingerprint, "switches", lambda: ("A=1",))
    monkeypatch.setattr(story.fingerprint, "pinned_core", lambda: 0)
    opened = make_described()
    described = story.describe(opened, "times")
    assert (described.case, described.layers, described.times) == (opened.case, ("layer",), "times")
    assert (described.layer_numbers, described.backends) == ({"layer": 1}, ("here",))
    assert (described.hiding_variables, described.faults_per_call, described.call_seconds) == (("A=1",), 2.0, 0.5)
    assert (described.machine_code, described.amx_tiles, described.timed_core, described.pinned) == (
        True,
        True,
        3,
        True,
    )


def test_what_a_worker_did_not_tell_is_not_known(monkeypatch):
    """And a process without a core of its own is not pinned."""
    monkeypatch.setattr(story.fingerprint, "pinned_core", lambda: None)
    described = story.describe(make_described(record=SimpleNamespace(observed=None)))
    assert (described.amx_tiles, described.pinned, described.times) == (None, False, None)


@pytest.mark.parametrize(("interference", "calm"), [(None, None), (SimpleNamespace(calm_seconds=2.0), 2.0)])
def test_the_peak_is_measured_as_calmly_as_the_case(interference, calm, monkeypatch):
    """On its cores; a machine that cannot tell its peak has none."""
    opened = make_described(record=SimpleNamespace(interference=interference))
    monkeypatch.setattr(story, "measure_peak", lambda *words, **named: (words, named))
    assert story._measure_peak(opened) == (
        ("cache",),
        {"limits": "limits", "cores": (2, 3), "calm_seconds": calm},
    )

    def fail(*words, **named):
        raise CaseError("it crashed")

    monkeypatch.setattr(story, "measure_peak", fail)
    assert story._measure_peak(opened) is None


def try_rounds(monkeypatch, names, seconds, **facts):
    """The rounds of causes with these names, and the situation, the causes and the base of each race."""
    raced, situations = [], []

    def propose(concern, described):
        situations.append(described)
        changes = {"env": Change(environment={"A": ""}), "mode": MODE}
        return [Counterfactual(cause=name, text=name, change=changes.get(name, BATCH)) for name in names]

    def try_changes(opened, counterfactuals, *, max_seconds, base, rival):
        raced.append([each.cause for each in counterfactuals])
        return race(*(replace(trial(each.cause, seconds[each.cause]), counterfactual=each) for each in counterfactuals))

    monkeypatch.setattr(story, "propose", propose)
    monkeypatch.setattr(story, "try_changes", try_changes)
    monkeypatch.setattr(story, "_find_fastest", lambda opened: None)
    monkeypatch.setattr(story, "_changes", lambda *_: True)
    rounds = _try_in_rounds(SimpleNamespace(apply=lambda change: change), situation(**facts), 1.0)
    return rounds, raced, situations


def test_a_changed_case_has_no_times_of_its_own(monkeypatch):
    """Nor the seconds of the run, nor a variable that was just taken away; the case is the changed one."""
    _, raced, (first, second, *_) = try_rounds(
        monkeypatch, ["env", "mode"], {"env": 0.3, "mode": 0.5}, hiding_variables=("A=1", "B=2"), call_seconds=0.5
    )
    assert raced == [["env", "mode"], ["mode"]]
    assert (first.hiding_variables, first.call_seconds) == (("A=1", "B=2"), 0.5)
    assert first.times is not None
    assert (second.hiding_variables, second.call_seconds, second.times) == (("B=2",), None, None)
    assert second.case == Change(environment={"A": ""})


def test_races_end_where_no_other_cause_may_show(monkeypatch):
    """One small gain hides nothing; a case for which nothing is proposed is raced all the same, for its time."""
    rounds, raced, _ = try_rounds(monkeypatch, ["env", "mode"], {"env": 0.8, "mode": 1.0})
    assert raced == [["env", "mode"]]
    assert rounds[0].chosen.counterfactual.cause == "env"
    rounds, raced, _ = try_rounds(monkeypatch, [], {})
    assert (raced, rounds[0].chosen) == ([[]], None)


@pytest.mark.parametrize("concerns", [("time",), ("accuracy",), ("time", "accuracy")])
def test_what_is_asked_of_a_case_is_explained(concerns, tmp_path, monkeypatch):
    """And nothing else; a stage of its own, of nobody knows how many steps."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path))
    stages = []
    progress = Silent()
    progress.stage = lambda *stage: stages.append(stage)
    monkeypatch.setattr(story, "find_record", lambda run, case, asked: (case, asked))
    monkeypatch.setattr(story, "read_suite", lambda run, file: file)
    monkeypatch.setattr(story, "open_case", lambda run, record, suite, cache, progress: (record, suite))
    monkeypatch.setattr(story, "_explain_time", lambda opened, seconds: ("time", seconds))
    monkeypatch.setattr(story, "_explain_losses", lambda opened: "losses")
    explained = story.explain_case(
        "run", CASE, concerns=concerns, suite_file="suite.yaml", progress=progress, max_seconds=9.0
    )
    assert explained.opened == ((CASE, concerns), "suite.yaml")
    assert explained.time == (("time", 9.0) if "time" in concerns else None)
    assert explained.losses == ("losses" if "accuracy" in concerns else None)
    assert stages == [("explain", None)]


@pytest.mark.parametrize("seconds", [0.5, 1.0])
def test_what_the_advised_change_costs_is_evaluated(seconds, monkeypatch):
    """Where one is advised; the situation has what was looked at beside the profile."""
    situations = []
    only = replace(trial("mode", seconds), counterfactual=Counterfactual(cause="mode", text="m", change=MODE))

    def try_in_rounds(opened, described, most):
        situations.append((described, most))
        outcome = race(only, fp32=None)
        return [Round(tried=outcome, chosen=only if seconds < 1 else None)]

    monkeypatch.setattr(story, "_measure_peak", lambda opened: None)
    monkeypatch.setattr(story, "_profile", lambda opened, peak: (None, "it does not tell"))
    monkeypatch.setattr(story.probes, "find_reading_seconds", lambda opened: 0.25)
    monkeypatch.setattr(story.probes, "find_flushing_gain", lambda opened: 1.5)
    monkeypatch.setattr(story, "_try_in_rounds", try_in_rounds)
    monkeypatch.setattr(story, "evaluate_mended", lambda opened, change: change)
    monkeypatch.setattr(story, "find_not_covered", lambda *words: "not covered")
    monkeypatch.setattr(story, "find_alternative", lambda opened, explanation, accuracy: ("instead of", accuracy))
    opened = make_described(fp32=SimpleNamespace(built="fp32"))
    explained = story._explain_time(opened, 9.0)
    cost = MODE if seconds < 1 else None
    assert (explained.accuracy, explained.alternative) == (cost, ("instead of", cost))
    assert (explained.times, explained.no_times, explained.not_covered) == (None, "it does not tell", "not covered")
    ((described, most),) = situations
    assert (described.reading_seconds, described.flushing_gain, most) == (0.25, 1.5, 9.0)


@pytest.mark.parametrize("error", [CaseSkipped("it tells no times"), CaseError("it died"), None])
def test_a_case_whose_time_nobody_tells_says_why(error, monkeypatch):
    """The rest of the explanation stands without it."""

    def profile_case(opened, peak):
        if error is not None:
            raise error
        return "times"

    monkeypatch.setattr(story, "profile_case", profile_case)
    assert story._profile("opened", PEAK) == (("times", None) if error is None else (None, str(error)))


class Losses:
    """Evaluates layers in float: the share that each set of them takes away."""

    shares: dict[tuple[str, ...], float]

    def __init__(self, opened, folder):
        assert folder.is_dir()

    def try_change(self, counterfactual):
        """The share of the layers that it puts in float."""
        share = self.shares.get(counterfactual.change.recipe["skip_layers"])
        return replace(loss_trial(counterfactual.cause, share), counterfactual=counterfactual)

    def conclude(self, trials):
        """The trials as they are."""
        return evaluate(*trials)


def explain_losses(monkeypatch, shares, accuracy=None):
    """The explanation of what these layers take, and the situation that proposed them."""
    situations = []

    def propose(concern, described):
        situations.append(described)
        alone = [names for names in shares if len(names) == 1]
        return [
            Counterfactual(cause=names[0], text=names[0], change=Change(recipe={"skip_layers": names}))
            for names in alone
        ]

    monkeypatch.setattr(story, "propose", propose)
    monkeypatch.setattr(story, "Evaluation", Losses)
    monkeypatch.setattr(Losses, "shares", shares, raising=False)
    monkeypatch.setattr(story, "offer_calibration", lambda opened: ("test", 8))
    monkeypatch.setattr(story.probes, "find_fixed_ranges", lambda opened: ("gate",))
    monkeypatch.setattr(story.probes, "find_joins", lambda opened: ("cat",))
    opened = make_described(record=SimpleNamespace(observed=None, accuracy=accuracy))
    return story._explain_losses(opened), situations[0]


def test_what_takes_nothing_beyond_the_others_is_left_out_and_the_rest_tried_again(monkeypatch):
    """Until each of them takes something beyond those before it."""
    shares = {("a",): 0.5, ("b",): 0.4, ("c",): 0.3, ("a", "b"): 0.505, ("a", "b", "c"): 0.7, ("a", "c"): 0.8}
    result, _ = explain_losses(monkeypatch, shares)
    assert [loss.trial.counterfactual.cause for loss in result.confirmed] == ["a", "c"]
    assert [loss.saved for loss in result.confirmed] == [pytest.approx(0.5), pytest.approx(0.3)]
    assert [trial.counterfactual.cause for trial in result.hidden] == ["b"]
    assert result.change == Change(recipe={"skip_layers": ("a", "c")})


def test_no_more_causes_of_an_error_are_taken_away_together_than_that(monkeypatch):
    """The rest is told as what takes no more beside them."""
    names = "abcdefgh"
    shares = {tuple(names[:count]): 0.1 * count for count in range(2, len(names) + 1)}
    shares |= {(name,): 0.3 - 0.01 * place for place, name in enumerate(names)}
    shares["a", "b"], shares["a", "b", "c"] = 0.35, 0.38
    result, _ = explain_losses(monkeypatch, shares)
    assert [loss.trial.counterfactual.cause for loss in result.confirmed] == list(names[:MOST_STEPS])
    assert [trial.counterfactual.cause for trial in result.hidden] == list(names[MOST_STEPS:])


@pytest.mark.parametrize(
    ("accuracy", "inputs"),
    [(None, ()), (SimpleNamespace(inputs=None), ()), (SimpleNamespace(inputs=("fit",)), ("fit",))],
)
def test_causes_of_an_error_are_judged_from_what_data_and_network_tell(accuracy, inputs, monkeypatch):
    """Runs of before have no inputs."""
    result, described = explain_losses(monkeypatch, {("a",): 0.0}, accuracy)
    assert described.inputs == inputs
    assert (described.evaluation, described.fixed_ranges, described.joins) == (("test", 8), ("gate",), ("cat",))
    assert (result.confirmed, result.together) == ((), None)
