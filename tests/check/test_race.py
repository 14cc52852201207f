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
    [(0, 0.0, True), (2, 600.0, True), (3, 7.9, True), (3, 8.0, False), (4, 7.0, True), (5, 0.0, False)],
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


def test_the_distance_of_a_race_is_that_of_its_first_process():
    """They all have the same inputs."""
    laps = [Lap(ratio=0.5, sqnr_db=sqnr, broken=False) for sqnr in (20.0, None, 30.0)]
    assert race.combine(laps, "onnxruntime", "fp32").sqnr_db == 20.0


@pytest.mark.parametrize(("inputs", "examples"), [((np.ones((4, 3)),), 4), ((np.float32(1), np.ones((4, 3))), 1)])
def test_an_arm_has_as_many_examples_as_its_first_input(inputs, examples):
    """A scalar is one."""
    arm = Arm(file=Path("m"), inputs=inputs, threads=1)
    assert (arm.examples, arm.flushed) == (examples, False)


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
    simulated = Clock()
    monkeypatch.setattr(race, "time", simulated)
    return simulated


class Timed(Runner):
    """Takes that long, notes that it was called, and answers ``results``."""

    def __init__(self, clock, name, seconds, results, log):
        self.clock, self.name, self.seconds, self.results, self.log = clock, name, seconds, results, log

    def prepare(self, inputs):
        return inputs

    def __call__(self, prepared):
        self.clock.now += self.seconds
        self.log.append(self.name)
        return prepared[0]

    def outputs(self, result):
        return result

    def all_outputs(self, result):
        return [result] if self.results is None else self.results

    def observed(self):
        return {}


@pytest.fixture
def start(clock, monkeypatch):
    """A race of files by their names, seconds a call and what they answer; an arm a name."""

    def run(seconds, results=None, *, budget=0.5, **changes):
        log = []

        class Backend:
            def load(self, file, *, threads):
                return Timed(clock, file.name, seconds[file.name], (results or {}).get(file.name), log)

        monkeypatch.setattr(race.registry, "load", lambda kind, name: Backend())
        arms = [
            Arm(file=Path(name), inputs=(np.ones((1, 3), np.float32),), threads=1, flushed=changes.get(name, False))
            for name in seconds
        ]
        return race.race_here("fake", arms, budget, progress=None), log

    return run


def shorten(log):
    """Who was called, each row of calls once."""
    return [name for place, name in enumerate(log) if place == 0 or log[place - 1] != name]


def test_blocks_take_turns_and_whoever_comes_first_changes(start):
    """Each has as many calls as fill a block after a warm-up, one at least."""
    lap, log = start({"fast": 0.002, "slow": 1.0}, budget=1.0)
    assert lap.ratio == pytest.approx(0.002)
    assert log[:2] == ["fast", "slow"]
    behind = log[2:]
    assert behind.count("slow") == 1 + 3
    assert behind.count("fast") == 100 + 3 * 10
    assert shorten(behind) == ["fast", "slow", "fast", "slow", "fast", "slow"]


def test_a_race_takes_as_long_as_it_may_and_more_for_further_arms(start):
    """Three rounds at least, but never five times as long."""
    _, alone = start({"a": 0.03, "b": 0.03}, budget=1.0)
    _, with_others = start({"a": 0.03, "b": 0.03, "c": 0.03}, budget=1.0)
    assert [log.count("a") - 1 - 7 for log in (alone, with_others)] == [17, 15]
    _, long = start({"a": 0.7, "b": 0.7}, budget=1.0)
    _, longer = start({"a": 2.0, "b": 2.0}, budget=1.0)
    _, just = start({"a": 2.5, "b": 2.5}, budget=1.0)
    _, longest = start({"a": 2.75, "b": 2.75}, budget=1.0)
    assert [log.count("a") - 1 - 1 for log in (long, longer, just, longest)] == [3, 2, 2, 1]


def test_a_short_race_is_warmed_up_for_a_fifth_of_its_time(start):
    """A long one for a fifth of a second."""
    _, short = start({"a": 0.005, "b": 0.005}, budget=0.1)
    assert short.count("a") == 1 + 4 + 3 * 4
    _, long = start({"a": 0.005, "b": 0.005}, budget=2.0)
    assert shorten(long)[:2] == ["a", "b"]
    assert long[2:].index("b") == 40


@pytest.mark.parametrize(
    ("own", "fp32", "broken", "decibels"),
    [
        ([[1.0, 1.1]], [[1.0, 1.0]], False, 20 * np.log10(np.sqrt(2) / 0.1)),
        ([[1.0, 1.0]], [[1.0, 1.0]], False, None),
        ([[1.0, np.nan]], [[1.0, 1.0]], True, None),
        ([[1.0, np.inf]], [[1.0, np.inf]], False, None),
        ([[1.0, 1.0]], [[1.0, np.inf]], False, None),
        ([[1.0, 1.1], [1.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]], False, 20 * np.log10(np.sqrt(2))),
        ([[1.0, 1.1]], [[0.0, 0.0]], False, None),
        ([[1.0, 1.0, 1.0]], [[1.0, 1.0]], False, None),
    ],
)
def test_answers_are_held_against_fp32s(start, own, fp32, broken, decibels):
    """By the worst output; what is no number where fp32's is one is broken, and two forms have no distance."""
    results = {"int8": [np.array(each) for each in own], "fp32": [np.array(each) for each in fp32]}
    lap, _ = start({"int8": 0.5, "fp32": 0.5}, results, budget=1.0)
    assert (lap.broken, lap.outputs) == (broken, len(own))
    assert lap.sqnr_db == (None if decibels is None else pytest.approx(decibels))


def test_outputs_that_one_file_alone_has_are_not_compared(start):
    """The others are."""
    results = {"int8": [np.array([1.0, 2.0]), np.ones(3)], "fp32": [np.array([1.0, 1.0])]}
    lap, _ = start({"int8": 0.5, "fp32": 0.5}, results, budget=1.0)
    assert (lap.outputs, lap.broken) == (1, False)
    assert lap.sqnr_db == pytest.approx(20 * np.log10(np.sqrt(2)))


def test_denormals_are_flushed_for_the_arm_that_asks_for_it(start, monkeypatch):
    """While it is timed, and not for the others."""
    flushed = []
    monkeypatch.setattr(race.denormals, "flush", flushed.append)
    start({"int8": 0.5, "fp32": 0.5}, budget=1.0)
    assert flushed == []
    start({"int8": 0.5, "fp32": 0.5, "part": 0.5}, budget=1.0, part=True)
    assert flushed == [True, False] * 3


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
