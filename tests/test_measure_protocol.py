"""The protocols as pure schedulers: a fake machine with its own clock, no time passes."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.errors import CaseError, WorkerError
from qbench.measure import estimate
from qbench.measure.protocol import CONTROL, Block, Paired, Sequential, block_for


class Machine:
    """A clock that only calls move, a speed that drifts, and a log of which arm ran."""

    def __init__(self, seconds, *, drift=0.0, noise=0.0, cold=(), seed=0, die=None):
        self.seconds, self.drift, self.noise, self.cold = seconds, drift, noise, cold
        self.random = random.Random(seed)
        self.now = 0.0
        self.log: list[tuple[str, int]] = []
        self.open: set[str] = set()
        self.die = die or {}

    def clock(self):
        return self.now

    def open_arm(self, case):
        if self.die.get(case) == 0:
            raise WorkerError("could not be loaded")
        self.open.add(case)
        return FakeArm(self, case)


class FakeArm:
    def __init__(self, machine, case):
        self.machine, self.case, self.blocks = machine, case, 0

    def block(self, calls):
        machine = self.machine
        self.blocks += 1
        if self.blocks > machine.die.get(self.case, math.inf):
            raise WorkerError("the process was ended by SIGKILL")
        machine.log.append((self.case, calls))
        base = machine.seconds["base" if self.case == CONTROL else self.case]
        seen = []
        for position in range(calls):
            cold = machine.cold[position] if position < len(machine.cold) else 1.0
            slow = 1 + machine.drift * math.sin(machine.now) + abs(machine.random.gauss(0, machine.noise))
            seen.append(base * cold * slow)
            machine.now += seen[-1]
        return np.asarray(np.round(np.asarray(seen) * 1e9), dtype=np.int64)

    def close(self):
        self.machine.open.discard(self.case)


def paired(machine, **changes):
    settings_ = {"precision": 0.01, "max_seconds": 5.0, "warmup_seconds": 0.0, **changes}
    return Paired(half_width=estimate.half_width, seconds=machine.clock, **settings_)


def measure(machine, protocol, contenders=("a",)):
    return protocol.measure("base", list(contenders), machine.open_arm, lambda case: None)


@given(speed=st.floats(0.2, 5.0), noise=st.floats(0.0, 0.05), drift=st.floats(0.0, 0.3), seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=30)
def test_paired_finds_the_true_ratio_under_drift_and_noise(speed, noise, drift, seed):
    """With a machine that drifts by up to 30 %, the median of neighbours' log ratios is right to 2 %."""
    machine = Machine({"base": 1e-3, "a": 1e-3 / speed}, noise=noise, drift=drift, seed=seed)
    samples = measure(machine, paired(machine))["a"]
    assert math.exp(float(np.median(samples.log_ratios))) == pytest.approx(1 / speed, rel=0.02)


def test_the_cold_first_calls_of_a_block_are_discarded():
    """Calls after a switch (+57, +11, +5, +1 %) do not reach the samples."""
    machine = Machine({"base": 1e-3, "a": 0.7e-3}, cold=(1.57, 1.11, 1.05, 1.01))
    samples = measure(machine, paired(machine))["a"]
    assert samples.calls_ns.max() == round(0.7e6)
    assert len(samples.calls_ns) == len(samples.block)


def test_every_contender_block_has_a_baseline_block_beside_it():
    """After warm-up the log of arms is a sequence of pairs, each with the baseline, in both orders."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 2e-3}, noise=0.01)
    measure(machine, paired(machine), ("a", "b"))
    order = [case for case, _ in machine.log[4:]]
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert all("base" in pair and len(set(pair)) == 2 for pair in pairs)
    assert {pair[0] == "base" for pair in pairs} == {True, False}


def test_rounds_come_in_fresh_random_order():
    """Neither contender is always first in a round."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, noise=0.02)
    measure(machine, paired(machine, precision=1e-9, max_seconds=1.0), ("a", "b"))
    order = [case for case, _ in machine.log[4:] if case in "ab"]
    assert {tuple(order[i : i + 2]) for i in range(0, 20, 2)} >= {("a", "b"), ("b", "a")}


def test_it_stops_at_the_precision_and_says_so():
    """A quiet machine is done after the least number of rounds."""
    machine = Machine({"base": 1e-3, "a": 1e-3}, noise=1e-6)
    samples = measure(machine, paired(machine, least_rounds=7))["a"]
    assert (samples.stopped, len(samples.log_ratios)) == ("precision", 7)


def test_it_stops_at_max_seconds_and_says_so():
    """A noisy machine ends at the time limit of its own measuring, not later than one pair."""
    machine = Machine({"base": 1e-3, "a": 1e-3}, noise=0.5)
    samples = measure(machine, paired(machine, precision=1e-9, max_seconds=0.5))["a"]
    assert samples.stopped == "max_seconds"
    spent = (samples.calls_ns.sum() + samples.baseline_ns.sum()) / 1e9
    assert 0.2 < spent < 0.6


def test_the_control_is_a_second_copy_of_the_baseline():
    """An arm named control is opened and its ratios, whose truth is 1, are kept with every contender."""
    machine = Machine({"base": 1e-3, "a": 0.5e-3}, noise=0.01)
    samples = measure(machine, paired(machine))["a"]
    assert math.exp(float(np.median(samples.control_log_ratios))) == pytest.approx(1.0, rel=0.02)


def test_a_contender_that_dies_ends_alone():
    """Its outcome is its error; the other contender and the baseline are measured to the end."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, die={"a": 3})
    outcome = measure(machine, paired(machine), ("a", "b"))
    assert isinstance(outcome["a"], CaseError)
    assert "SIGKILL" in str(outcome["a"])
    assert len(outcome["b"].log_ratios) >= 20
    assert len(outcome["base"].calls_ns) > 0


def test_a_contender_that_cannot_be_loaded_ends_alone():
    """A failure to open is that case's error."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, die={"a": 0})
    outcome = measure(machine, paired(machine), ("a", "b"))
    assert "could not be loaded" in str(outcome["a"])
    assert len(outcome["b"].log_ratios) >= 20


@pytest.mark.parametrize("after", [0, 5])
def test_a_baseline_that_dies_ends_its_group_by_name(after):
    """Without a baseline there is no ratio: every contender says that it was the baseline."""
    machine = Machine({"base": 1e-3, "a": 1e-3}, die={"base": after})
    outcome = measure(machine, paired(machine))
    assert "the baseline base died" in str(outcome["a"])


@pytest.mark.parametrize("die", [{}, {"a": 3}, {"base": 4}, {"control": 2}, {"b": 0}])
def test_every_arm_is_closed_however_it_ends(die):
    """No process outlives its group."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, die=die)
    measure(machine, paired(machine), ("a", "b"))
    assert machine.open == set()


def test_several_processes_are_told_apart():
    """Each generation of processes is numbered in the samples."""
    machine = Machine({"base": 1e-3, "a": 1e-3}, noise=0.01)
    samples = measure(machine, paired(machine, processes=3))["a"]
    assert sorted(set(samples.process.tolist())) == [0, 1, 2]


def test_the_same_seed_gives_the_same_order():
    """The schedule depends on its seed alone."""
    logs = []
    for _ in range(2):
        machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, noise=0.01)
        measure(machine, paired(machine, seed=3), ("a", "b"))
        logs.append(machine.log)
    assert logs[0] == logs[1]


def test_sequential_is_the_literatures_protocol():
    """10 calls unseen, 100 timed, one case after the other, each alone."""
    machine = Machine({"base": 1e-3, "a": 0.5e-3})
    outcome = measure(machine, Sequential())
    assert machine.log == [("base", 10), ("base", 100), ("a", 10), ("a", 100)]
    assert outcome["a"].calls_ns.tolist() == [500_000] * 100
    assert (outcome["a"].stopped, len(outcome["a"].log_ratios)) == ("fixed", 0)


def test_sequential_survives_a_case_that_dies():
    """The others are measured."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, die={"a": 1})
    outcome = measure(machine, Sequential(), ("a", "b"))
    assert isinstance(outcome["a"], CaseError)
    assert len(outcome["b"].calls_ns) == 100
    assert machine.open == set()


@given(st.floats(1e-6, 1.0))
def test_blocks_are_short_and_never_empty(seconds):
    """A block keeps about 5 to 10 ms of calls, at most 60 and at least 2; above 10 ms it is 1 and 2."""
    block = block_for(seconds)
    assert 2 <= block.keep <= 60
    assert block.discard >= 1
    if seconds > 0.010:
        assert block == Block(discard=1, keep=2)
    elif seconds > 1e-4:
        assert block.keep * seconds <= 0.03
