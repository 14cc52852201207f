"""How many processes race, and what their medians say together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qbench.backends.base import Runner
from qbench.check import race
from qbench.check.race import Arm, Lap
from qbench.errors import BuildError


@pytest.mark.parametrize(
    ("processes", "seconds", "more"),
    [(0, 0.0, True), (2, 600.0, True), (3, 7.0, True), (3, 9.0, False), (4, 7.0, True), (5, 0.0, False)],
)
def test_a_race_of_a_large_file_ends_after_the_fewest_processes(processes, seconds, more):
    """Five where there is time; never fewer than three, whose limits are wider."""
    assert race.goes_on(processes, seconds) is more


def test_the_limits_are_those_of_the_processes():
    """Of the logarithms of their medians; more processes that agree are narrower."""
    laps = [Lap(ratio=ratio, sqnr_db=20.0, broken=False) for ratio in (0.5, 0.52, 0.48)]
    three, more = race.combine(laps, "onnxruntime", "fp32"), race.combine([*laps, *laps], "onnxruntime", "fp32")
    assert three.ratio == pytest.approx((0.5 * 0.52 * 0.48) ** (1 / 3))
    assert three.low < more.low < more.ratio < more.high < three.high
    assert (three.processes, more.processes) == (3, 6)


def test_limits_of_several_trials_hold_for_all_of_them_together():
    """Wider than those of one alone, about the same value; a trial that could not run says why."""
    laps = [Lap(ratio=1.0, sqnr_db=None, broken=False, gains=(gain, "no kernel")) for gain in (1.2, 1.25, 1.3)]
    alone, together = race.combine_gains(laps, 0, 1), race.combine_gains(laps, 0, 3)
    assert alone.value == together.value == pytest.approx((1.2 * 1.25 * 1.3) ** (1 / 3))
    assert together.low < alone.low < alone.high < together.high
    assert race.combine_gains(laps, 1, 3) == "no kernel"


class Clock:
    """Time that passes as runners say."""

    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(race, "time", made)
    return made


def test_every_arm_is_held_against_the_file_for_one_example(clock, monkeypatch):
    """A larger batch takes longer and is faster; an arm that does not load has a reason, and ends nothing."""

    class Timed(Runner):
        def __init__(self, seconds):
            self.seconds = seconds

        def prepare(self, inputs):
            return inputs

        def __call__(self, prepared):
            clock.now += self.seconds
            return prepared[0]

        def outputs(self, result):
            return result

        def observed(self):
            return {}

    class Backend:
        def load(self, file, *, threads):
            if file.stem == "broken":
                raise BuildError("it does not load")
            return Timed({"int8": 0.002, "fp32": 0.008, "batch": 0.004, "part": 0.001}[file.stem])

    monkeypatch.setattr(race.registry, "load", lambda kind, name: Backend())
    names = (("int8", 1), ("fp32", 1), ("batch", 8), ("broken", 1), ("part", 1))
    arms = [Arm(file=Path(name), inputs=(np.ones((count, 3), np.float32),), threads=1) for name, count in names]
    lap = race.race_here("fake", arms, 0.5, progress=None)
    assert lap.ratio == pytest.approx(0.25)
    assert lap.gains == (pytest.approx(4.0), "it does not load", pytest.approx(2.0))
    assert (lap.outputs, lap.broken) == (1, False)
