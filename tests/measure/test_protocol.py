"""The protocols as pure schedulers: a fake machine with its own clock, no time passes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timed_machine import Machine

from qbench.errors import CaseError
from qbench.measure.block_size import Block, block_for, cold_calls, pilot_calls
from qbench.measure.protocol import SequentialProtocol


def measure(machine, protocol, contenders=("a",)):
    return protocol.measure("base", list(contenders), machine.open_arm, lambda case: None)


def test_sequential_is_the_literatures_protocol():
    """10 calls unseen, 100 timed, one case after the other, each alone."""
    machine = Machine({"base": 1e-3, "a": 0.5e-3})
    outcome = measure(machine, SequentialProtocol())
    assert machine.log == [("base", 10), ("base", 100), ("a", 10), ("a", 100)]
    assert outcome["a"].calls_ns.tolist() == [500_000] * 100
    assert (outcome["a"].stopped, len(outcome["a"].log_ratios)) == ("fixed", 0)


def test_sequential_survives_a_case_that_dies():
    """The others are measured."""
    machine = Machine({"base": 1e-3, "a": 1e-3, "b": 1e-3}, die={"a": 1})
    outcome = measure(machine, SequentialProtocol(), ("a", "b"))
    assert isinstance(outcome["a"], CaseError)
    assert len(outcome["b"].calls_ns) == 100
    assert machine.open == set()
    assert ("a", 10) not in machine.log  # it did not load


@pytest.mark.parametrize(
    ("curve", "cold"),
    [
        ((1.57, 1.11, 1.05, 1.01, 1, 1, 1, 1), 3),
        ((1, 1, 1, 1, 1, 1), 1),
        ((1.2, 1.1, 1, 1), 2),
        ((1.3, 1.0, 1.2, 1.0, 1, 1, 1, 1), 1),
        ((1.2, 1.009, 1, 1, 1), 1),
        ((1.2, 1.011, 1, 1, 1), 2),
        ((1.1, 1.1, 1.0, 1.0, 1.3), 2),
        ((3, 2.5, 2, 1.5, 1.2, 1.1, 1.05, 1), 4),
    ],
)
def test_the_position_curve_tells_how_many_calls_are_cold(curve, cold):
    """The first position within 1 % of the plateau is kept; a block that never gets warm loses its first half."""
    pilots = [np.asarray(curve) * 1e6 * factor for factor in (1.0, 1.001, 0.999)]
    assert cold_calls(pilots) == cold


def test_one_slow_pilot_does_not_decide():
    """The curve is a median over pilots: an interruption in one of five is passed over."""
    pilots = [np.full(8, 1e6) for _ in range(5)]
    pilots[2][0:4] *= 5
    assert cold_calls(pilots) == 1


@given(st.floats(1e-6, 1.0))
def test_pilots_are_short(seconds):
    """4 to 16 calls, about 10 ms."""
    assert 4 <= pilot_calls(seconds) <= 16


@pytest.mark.parametrize(
    ("seconds", "pilot", "block"),
    [
        (0.0, 16, Block(discard=4, keep=60)),
        (1e-5, 16, Block(discard=4, keep=60)),
        (1e-4, 16, Block(discard=4, keep=50)),
        (1e-3, 10, Block(discard=4, keep=5)),
        (1.25e-3, 8, Block(discard=4, keep=4)),
        (0.005, 4, Block(discard=4, keep=3)),
        (0.010, 4, Block(discard=4, keep=3)),
        (0.0101, 4, Block(discard=1, keep=2)),
    ],
)
def test_a_pilot_lasts_ten_milliseconds_and_a_block_keeps_five(seconds, pilot, block):
    """Within 4 to 16 calls of a pilot, 3 to 60 of a block; ten milliseconds themselves are no long call."""
    assert pilot_calls(seconds) == pilot
    assert block_for(seconds, 4) == block


@given(st.floats(1e-6, 1.0), st.integers(1, 8))
def test_blocks_are_short_and_never_empty(seconds, cold):
    """A block keeps about 5 to 10 ms of calls, at most 60 and at least 2; above 10 ms it is 1 and 2."""
    block = block_for(seconds, cold)
    assert 2 <= block.keep <= 60
    assert block.discard in (1, cold)
    if seconds > 0.010:
        assert block == Block(discard=1, keep=2)
    elif seconds > 1e-4:
        assert block.keep * seconds <= 0.03


def test_one_after_the_other_says_which_is_alone():
    """The literature's protocol names the case that runs and how many there are."""
    told, done = [], []
    machine = Machine({"base": 0.002, "a": 0.001})
    SequentialProtocol(calls=10).measure(
        "base", ["a"], machine.open_arm, done.append, tell=lambda text, share: told.append((text, share))
    )
    assert told == [("base: alone in its process, 1 of 2 here", 0.0), ("a: alone in its process, 2 of 2 here", 0.5)]
    assert done == ["base", "a"]


def test_the_literatures_block_keeps_what_the_system_and_the_canary_told_of_it():
    """One block of one process, as a race stores its own."""
    outcome = measure(Machine({"base": 1e-3, "a": 1e-3}), SequentialProtocol(warmup=3, calls=4))["a"]
    assert (outcome.protocol, outcome.block.tolist(), outcome.process.tolist()) == ("sequential", [0] * 4, [0])
    assert (outcome.involuntary.tolist(), outcome.faults.tolist(), outcome.canary_ns.tolist()) == (
        [1],
        [2],
        [[5602, 5603]],
    )
