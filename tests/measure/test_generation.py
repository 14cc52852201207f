"""One generation of processes: who is opened, warmed and visited in which round, and for how long. No time passes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from timed_machine import Machine

from qbench.errors import WorkerError
from qbench.measure.block_size import Block
from qbench.measure.generation import Generation, Pace
from qbench.measure.series import Series


def generate(machine: Any, *series: Series, rounds: int = 4, seed: int = 0, **pace: Any) -> list[int]:
    """Runs a generation, number 5, of these series; the rounds that began."""
    values = {"most_seconds": 1e9, "warmup_calls": 3, "warmup_seconds": 0.0, "clock": machine.clock, **pace}
    begun: list[int] = []
    Generation(
        number=5,
        entries=[(each, each.case) for each in series],
        pace=Pace(rounds=rounds, **values),
        open_worker=machine.open_arm,
        shuffle=random.Random(seed),
        advance=begun.append,
    ).run()
    assert machine.open == set()
    return begun


def arm(case: str, keep: int = 2, discard: int = 1) -> Series:
    """An arm whose blocks are known."""
    return Series(case=case, block=Block(discard=discard, keep=keep))


def test_each_arm_has_a_block_in_each_round() -> None:
    """Without its cold calls, with the number of the generation and of the round; the seconds are those of the whole
    block."""
    a, b = arm("a"), arm("b", keep=3, discard=2)
    assert generate(Machine({"a": 0.25, "b": 0.5}), a, b) == [0, 1, 2, 3]
    for series, kept, taken in ((a, 2, 0.75), (b, 3, 2.5)):
        assert [len(timing.calls_ns) for timing in series.timings] == [kept] * 4
        assert (series.process, series.round, series.seconds) == ([5] * 4, [0, 1, 2, 3], 4 * taken)
        assert series.error is None


def test_the_order_within_a_round_is_drawn_by_the_seed() -> None:
    """Always the same one would give whoever is first a colder cache."""
    orders = []
    for seed in (0, 0, 1):
        machine = Machine({"a": 0.25, "b": 0.25})
        generate(machine, arm("a"), arm("b"), rounds=8, seed=seed)
        orders.append([case for case, calls in machine.log][-16:])
    assert orders[0] == orders[1] != orders[2]
    assert all(set(orders[0][at : at + 2]) == {"a", "b"} for at in range(0, 16, 2))
    assert len({tuple(orders[0][at : at + 2]) for at in range(0, 16, 2)}) == 2


@pytest.mark.parametrize(("most", "rounds"), [(1.5, 2), (1.51, 3), (0.75, 1), (1e9, 4)])
def test_no_round_begins_once_an_arm_has_had_its_seconds(most: float, rounds: int) -> None:
    """Those of this generation alone; a round that has begun is finished."""
    a = arm("a")
    a.seconds = 100.0
    assert len(generate(Machine({"a": 0.25, "b": 0.01}), a, arm("b"), most_seconds=most)) == rounds
    assert a.seconds == 100.0 + 0.75 * rounds


@pytest.mark.parametrize(("slow", "visited"), [(0.5, [0, 1, 2, 3]), (0.51, [0, 2])])
def test_a_contender_whose_blocks_take_more_than_twice_the_shortest_runs_in_every_second_round(
    slow: float, visited: list[int]
) -> None:
    """Of those that are looked at for the first time; whoever is none of them is in every round."""
    series = [arm("a"), arm("slow"), arm("fp32")]
    machine = Machine({"a": 0.25, "slow": slow, "fp32": 9.0})
    generate(machine, *series, contenders=frozenset({"a", "slow"}))
    assert [each.round for each in series] == [[0, 1, 2, 3], visited, [0, 1, 2, 3]]
    again = [arm("a"), arm("slow")]
    generate(machine, *again)
    assert again[1].round == [0, 1, 2, 3]


def test_the_blocks_of_an_arm_are_found_once() -> None:
    """After pilots, each behind calls of the neighbour whose call is nearest to 5 ms, about one block of them; who has
    blocks already is warmed up and no more."""
    machine = Machine({"new": 0.001, "near": 0.004, "far": 0.0001})
    new = Series(case="new")
    generate(machine, new, arm("near"), arm("far"), rounds=1)
    assert new.block is not None
    assert new.block.keep == 5
    pilots = machine.log[6:16]
    assert pilots == [("near", 2), ("new", 10)] * 5
    assert [case for case, _ in machine.log[:6]] == ["new", "new", "near", "near", "far", "far"]


def test_a_warm_up_is_halved_where_pilots_follow() -> None:
    """They are the rest of it."""
    for block, seconds in ((None, 0.5), (Block(discard=1, keep=2), 1.0)):
        machine = Machine({"a": 0.001})
        generate(machine, Series(case="a", block=block), rounds=0, warmup_seconds=1.0)
        assert machine.now == pytest.approx(seconds, abs=0.01)


def test_an_arm_that_dies_is_visited_no_more() -> None:
    """Its error stays with it; the others go on, and where all are dead no round begins."""
    machine = Machine({"a": 0.25, "b": 0.25}, die={"b": 3})
    a, b = arm("a"), arm("b")
    assert generate(machine, a, b) == [0, 1, 2, 3]
    assert (len(a.timings), len(b.timings)) == (4, 1)
    assert isinstance(b.error, WorkerError)
    alone = arm("b")
    assert generate(Machine({"b": 0.25}, die={"b": 0}), alone) == []
    assert isinstance(alone.error, WorkerError)


def test_a_neighbour_that_dies_in_a_pilot_ends_alone() -> None:
    """The arm whose blocks are found goes on without it."""
    machine = Machine({"new": 0.001, "near": 0.004}, die={"near": 4})
    new, near = Series(case="new"), arm("near")
    generate(machine, new, near, rounds=2)
    assert isinstance(near.error, WorkerError)
    assert len(new.timings) == 2


def test_every_process_is_open_before_one_loads() -> None:
    """They start side by side, and each is loaded before one is warmed up."""
    done: list[tuple[str, str]] = []

    class Told(Machine):
        """A machine that keeps what is asked of it."""

        def open_arm(self, case: str) -> Any:
            """An arm that tells."""
            done.append(("open", case))
            opened = super().open_arm(case)
            load, block = opened.load, opened.block
            opened.load = lambda: (done.append(("load", case)), load())[1]
            opened.block = lambda calls: (done.append(("block", case)), block(calls))[1]
            return opened

    generate(Told({"a": 0.25, "b": 0.25}), arm("a"), arm("b"), rounds=1)
    assert done[:5] == [("open", "a"), ("open", "b"), ("load", "a"), ("load", "b"), ("block", "a")]


def test_a_neighbour_whose_call_is_long_is_called_once_between_pilots() -> None:
    """That is more than a block of 5 ms already."""
    machine = Machine({"new": 0.001, "long": 0.02})
    generate(machine, Series(case="new"), arm("long"), rounds=0)
    assert [step for step in machine.log if step[0] == "long"][-5:] == [("long", 1)] * 5
