"""What a trial says of its gain."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from made_trials import trial

from qbench.errors import CaseError, CaseSkipped
from qbench.explain import time_trials
from qbench.explain.change import Change
from qbench.explain.explanation import confirm
from qbench.explain.time_trials import FP32, GENERATIONS, ORIGINAL, RIVAL, _build_arm, race_artifacts, try_changes
from qbench.explain.trial import RACE_SPREAD, Tried, save_time
from qbench.measure.paired_difference import difference_over_generations
from qbench.measure.samples import Samples


def draw_races(random, gain, races):
    """Trials of a true gain, each of a race of its own: what slows it and what slows one of its processes differ."""
    for _ in range(races):
        here = -math.log(gain) + random.normal(0, RACE_SPREAD)
        blocks = {number: here + random.normal(0, 0.01) + random.normal(0, 0.01, 8) for number in range(GENERATIONS)}
        yield replace(trial("layers", 0.5), saving=save_time(difference_over_generations(blocks)))


def test_the_limits_of_a_gain_hold_for_other_races():
    """About 95 of 100 hold the true one; those of one race alone hold it half of the time."""
    trials = list(draw_races(np.random.default_rng(0), 1.3, 1000))
    held = sum(each.interval.low <= 1.3 <= each.interval.high for each in trials)
    alone = sum(
        each.saving.difference.limits()[0] <= -math.log(1.3) <= each.saving.difference.limits()[1] for each in trials
    )
    assert 930 <= held <= 985
    assert alone < 600


def test_what_is_not_there_is_not_confirmed_by_what_differs_between_races():
    """The larger part of the error is that of the race, which no number of its processes shows."""
    races = draw_races(np.random.default_rng(1), 1.0, 1000)
    hits = sum(bool(confirm(Tried(trials=(each,)))) for each in races)
    assert hits <= 40


def test_a_file_of_another_batch_size_is_not_raced():
    """Its calls would fail one by one; the reason says which batches it takes."""
    file = SimpleNamespace(built=SimpleNamespace(fixed_batch=4), sha256="of the file")
    case = SimpleNamespace(threads=1, batch_size=8, variant=SimpleNamespace(backend="fake", mode="static"))
    opened = SimpleNamespace(cores=(0,), artifact=file, apply=lambda change: case)
    with pytest.raises(CaseSkipped, match="the file takes batches of 4 only"):
        _build_arm(opened, Change(batch_size=8), (case, file, Change()))


@pytest.mark.parametrize(("base", "beyond"), [(None, False), (Change(batch_size=8), True)])
def test_a_trial_says_whether_the_case_was_changed_before(base, beyond, monkeypatch):
    """Its saving is then beyond that of the change that the case and all trials have already."""
    case = SimpleNamespace(variant=None)
    opened = SimpleNamespace(apply=lambda change: case, artifact=None, fp32_case=case, fp32=None)
    tried = SimpleNamespace(cause="layers", change=Change())
    samples = {time_trials.ORIGINAL: None, "layers-0": None}
    monkeypatch.setattr(time_trials, "_build_arm", lambda *_: (case, None, Change()))
    monkeypatch.setattr(time_trials, "race_artifacts", lambda *_: (samples, {}))
    monkeypatch.setattr(time_trials, "_compare_examples", lambda *_: None)
    monkeypatch.setattr(time_trials, "_conclude", lambda opened, case, samples, trials, *_: trials)
    (result,) = time_trials.try_changes(opened, [tried], max_seconds=1.0, base=base)
    assert (result.beyond, result.reason) == (beyond, "it shares no round with the case")


def make_case(mode="static", *, threads=1, batch_size=1, name=""):
    """A case on a backend of no consequence."""
    variant = SimpleNamespace(backend="fake", mode=mode)
    return SimpleNamespace(id=name or mode, threads=threads, batch_size=batch_size, variant=variant)


def make_artifact(sha256="of the case", fixed_batch=None):
    """A file of these bytes."""
    return SimpleNamespace(sha256=sha256, built=SimpleNamespace(fixed_batch=fixed_batch))


def make_opened(**facts):
    """A case on two cores that changes as a change says; what is built anew has other bytes."""
    case = make_case()
    opened = SimpleNamespace(
        cores=(0, 1), artifact=make_artifact(), case=case, fp32_case=make_case("fp32"), fp32=make_artifact("of fp32"),
        build=lambda variant: make_artifact(f"built {variant.mode}"),
        apply=lambda change: make_case(
            change.mode or "static", threads=change.threads or 1, batch_size=change.batch_size or 1
        ),
    )  # fmt: skip
    return SimpleNamespace(**{**vars(opened), **facts})


@pytest.mark.parametrize(
    ("change", "sha256"),
    [
        (Change(mode="dynamic"), "built dynamic"),
        (Change(threads=2), "of the case"),
        (Change(batch_size=8), "of the case"),
        (Change(environment={"A": "1"}), "of the case"),
        (Change(flush_denormals=True), "of the case"),
    ],
)
def test_a_change_is_raced_with_what_it_changes(change, sha256):
    """Another file only where it takes one."""
    opened = make_opened()
    _, artifact, raced = _build_arm(opened, change, (opened.case, opened.artifact, Change()))
    assert (artifact.sha256, raced) == (sha256, change)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Change(threads=3), "it takes 3 cores, 2 may be used here"),
        (Change(mode="qat"), "would have to be trained anew"),
        (Change(mode="static"), time_trials.SAME_ARTIFACT),
        (Change(), time_trials.SAME_ARTIFACT),
    ],
)
def test_what_cannot_be_raced_says_why(change, reason):
    """More cores than there are, a training, or nothing that differs."""
    opened = make_opened(build=lambda variant: make_artifact())
    with pytest.raises(CaseSkipped, match=reason):
        _build_arm(opened, change, (opened.case, opened.artifact, Change()))


def make_samples(milliseconds):
    """Three generations of four blocks of three calls; the longest calls of all are alike."""
    return Samples(
        protocol="paired", stopped="processes", block=np.repeat(np.arange(12), 3),
        calls_ns=(np.tile([milliseconds, milliseconds, 90.0], 12) * 1e6).astype(np.int64),
        round=np.tile(np.arange(4), 3), process=np.repeat(np.arange(3), 4),
    )  # fmt: skip


def race_in_memory(monkeypatch, milliseconds, errors=None):
    """Races that take these milliseconds a call; the arms that were raced are kept."""
    raced = {}

    def race(opened, arms, max_seconds):
        raced.update(arms)
        return {name: make_samples(each) for name, each in milliseconds.items() if name in arms}, errors or {}

    monkeypatch.setattr(time_trials, "race_artifacts", race)
    return raced


MODE = SimpleNamespace(cause="mode", change=Change(mode="dynamic"))
EIGHT = SimpleNamespace(cause="batch", change=Change(batch_size=8))
CORES = SimpleNamespace(cause="cores", change=Change(threads=3))


def test_a_race_tells_what_an_example_takes(monkeypatch):
    """Of calls of several examples, too: a call of eight in four times the time takes half of it for each; the rival
    and fp32 by the difference to the case."""
    times = {ORIGINAL: 4.0, FP32: 8.0, RIVAL: 1.0, "mode-0": 2.0, "batch-1": 16.0}
    raced = race_in_memory(monkeypatch, times)
    rival = make_case(batch_size=2, name="the rival")
    result = try_changes(make_opened(), [MODE, EIGHT, CORES], max_seconds=1.0, base=None, rival=rival)
    assert list(raced) == [ORIGINAL, FP32, "mode-0", "batch-1", RIVAL]
    assert (result.original_seconds, result.fp32_seconds) == (pytest.approx(0.004), pytest.approx(0.008))
    assert (result.rival, result.rival_seconds) == ("the rival", pytest.approx(0.0005))
    assert result.over_fp32.value == pytest.approx(0.5)
    assert result.off_core is None
    faster, batched, untried = result.trials
    assert [each.interval.value for each in (faster, batched)] == pytest.approx([2.0, 2.0])
    assert (faster.reason, batched.reason, faster.beyond) == (None, None, False)
    assert (untried.saving, untried.reason) == (None, "it takes 3 cores, 2 may be used here")


def test_a_case_that_was_changed_before_is_raced_with_that(monkeypatch):
    """And so is every trial; its own file is built where it takes another one."""
    raced = race_in_memory(monkeypatch, {ORIGINAL: 16.0, "batch-0": 32.0})
    result = try_changes(make_opened(), [EIGHT], max_seconds=1.0, base=MODE.change)
    case, artifact, change = raced[ORIGINAL]
    assert (case.variant.mode, artifact.sha256, change) == ("dynamic", "built dynamic", MODE.change)
    assert raced["batch-0"][2] == MODE.change.then(EIGHT.change)
    assert raced[FP32][2] == Change()
    assert (result.fp32_seconds, result.over_fp32, result.rival, result.rival_seconds) == (None, None, None, None)
    (batched,) = result.trials
    assert (batched.interval.value, batched.beyond) == (pytest.approx(4.0), True)


def test_what_died_says_how_and_the_case_itself_must_not(monkeypatch):
    """A rival that cannot be built is left out."""

    def build(variant):
        raise CaseError("no compiler")

    race_in_memory(monkeypatch, {ORIGINAL: 1.0}, {"batch-0": "killed by signal 9"})
    opened = make_opened(build=build)
    result = try_changes(opened, [EIGHT, MODE], max_seconds=1.0, base=None, rival=make_case())
    assert [each.reason for each in result.trials] == ["killed by signal 9", "no compiler"]
    assert result.rival is None
    for errors, reason in (({ORIGINAL: "out of memory"}, "out of memory"), ({}, "it has no samples")):
        race_in_memory(monkeypatch, {FP32: 1.0}, errors)
        with pytest.raises(CaseError, match=f"^the case could not be measured: {reason}$"):
            try_changes(opened, [], max_seconds=1.0, base=None)


def test_all_are_raced_to_the_end_against_the_case(monkeypatch):
    """fp32 as the one that a control runs beside; each called as its change says."""
    asked = {}

    def measure_group(baseline, contenders, *, protocol, limits, tell):
        asked.update(baseline=baseline, contenders=contenders, protocol=protocol)
        dead = SimpleNamespace(samples=None, error=CaseError("it died"))
        return {FP32: SimpleNamespace(samples="samples", error=None), ORIGINAL: dead}

    monkeypatch.setattr(time_trials, "measure_group", measure_group)
    monkeypatch.setattr(time_trials, "replace", lambda spec, **changes: {**spec, **changes})
    opened = make_opened(
        specify_worker=lambda name, case, artifact, **environment: {"name": name, "environment": environment},
        suite=SimpleNamespace(measure=SimpleNamespace(seed=7)), limits=None,
        progress=SimpleNamespace(advance=None),
    )  # fmt: skip
    arm = (opened.case, opened.artifact, Change())
    changed = (opened.case, opened.artifact, Change(environment={"A": "1"}, flush_denormals=True))
    arms = {ORIGINAL: arm, FP32: arm, "a-0": changed}
    assert race_artifacts(opened, arms, 9.0) == ({FP32: "samples"}, {ORIGINAL: "it died"})
    assert asked["baseline"] == {"name": FP32, "environment": {}, "flush_denormals": False}
    assert asked["contenders"] == [
        {"name": ORIGINAL, "environment": {}, "flush_denormals": False},
        {"name": "a-0", "environment": {"A": "1"}, "flush_denormals": True},
    ]
    race = asked["protocol"]
    assert [(each.case, each.role, each.baseline) for each in race.arms] == [
        (ORIGINAL, "candidate", None), (FP32, "fp32", None), ("a-0", "candidate", ORIGINAL),
    ]  # fmt: skip
    assert (race.rules.everything, race.rules.max_seconds, race.seed) == (True, 9.0, 7)
    assert (race.rules.least, race.rules.most) == (4, 9)
    assert (race.rules.tie, race.rules.precision) == (0.04, 0.04)


def test_the_arm_that_others_disturbed_most_tells_how_far_they_did(monkeypatch):
    """Of the race; it is the largest share of all arms."""
    shares = {ORIGINAL: 0.1, FP32: 0.3, "mode-0": 0.2}
    samples = {
        name: replace(make_samples(4.0), off_core=np.full(12, share, np.float32)) for name, share in shares.items()
    }
    monkeypatch.setattr(time_trials, "race_artifacts", lambda *_: (samples, {}))
    assert try_changes(make_opened(), [MODE], max_seconds=1.0, base=None).off_core == pytest.approx(0.3)


@pytest.mark.parametrize(("modes", "alike"), [(("static", "dynamic"), True), (("fp32", "fp32"), True),
                                              (("static", "fp32"), False)])  # fmt: skip
def test_int8_beside_fp32_is_another_kind_of_comparison(modes, alike, monkeypatch):
    """Processes of two kinds of work differ otherwise than those of one."""
    told = []
    monkeypatch.setattr(time_trials, "compare_times", lambda *_, alike: told.append(alike))
    case, other = map(make_case, modes)
    assert time_trials._compare_examples(make_samples(1.0), case, make_samples(2.0), other) is None
    assert told == [alike]


def test_a_rival_that_was_not_measured_is_none(monkeypatch):
    """However fast the run says it is."""
    race_in_memory(monkeypatch, {ORIGINAL: 4.0, FP32: 8.0})
    result = try_changes(make_opened(), [], max_seconds=1.0, base=None, rival=make_case(name="the rival"))
    assert (result.rival, result.rival_seconds) == (None, None)
