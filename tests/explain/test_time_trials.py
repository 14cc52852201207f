"""What a trial says of its gain."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from made_trials import trial

from qbench.errors import CaseSkipped
from qbench.explain.change import Change
from qbench.explain.explanation import confirm
from qbench.explain.time_trials import GENERATIONS, _build_arm
from qbench.explain.trial import RACE_SPREAD, Tried, save_time
from qbench.measure.paired_difference import difference_over_generations


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
    from qbench.explain import time_trials

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
