"""Rules of measure/warm_up: how many calls come before the timed ones."""

from __future__ import annotations

import numpy as np
import pytest

from qbench.measure.block_size import Block
from qbench.measure.samples import BlockTiming
from qbench.measure.warm_up import count_left, find_block, warm


@pytest.mark.parametrize(("calls", "loading", "left"), [(10, 5, 5), (5, 5, 1), (0, 5, 1), (200, 5, 195)])
def test_the_calls_of_loading_are_part_of_the_warm_up(calls: int, loading: int, left: int) -> None:
    """Of the ten calls that a suite asks for, loading makes five; one is always left to size the blocks."""
    assert count_left(calls, loading) == left


class Slower:
    """A worker with a clock that only its calls move; ``seconds`` of each call, the last for all that follow."""

    def __init__(self, *seconds: float) -> None:
        self.now, self.seconds, self.calls = 0.0, list(seconds), 0

    def load(self) -> None:
        """Nothing."""

    def block(self, calls: int) -> BlockTiming:
        """That many calls."""
        taken = [self.seconds[min(self.calls + i, len(self.seconds) - 1)] for i in range(calls)]
        self.calls += calls
        self.now += sum(taken)
        return BlockTiming(calls_ns=np.asarray([round(each * 1e9) for each in taken], dtype=np.int64))

    def close(self) -> None:
        """Nothing."""


def test_a_worker_is_called_for_the_longer_of_calls_and_seconds() -> None:
    """One call, then blocks of so many calls until the time is up; what it returns is the fastest of the last block."""
    worker = Slower(0.001)
    assert warm(worker, calls=5, seconds=0.012, clock=lambda: worker.now) == pytest.approx(0.001)
    assert worker.calls == 16
    assert warm(worker, calls=5, seconds=0.0, clock=lambda: worker.now) == pytest.approx(0.001)
    assert worker.calls == 22
    assert warm(worker, calls=1, seconds=0.0, clock=lambda: worker.now) == pytest.approx(0.001)
    assert worker.calls == 23


@pytest.mark.parametrize(
    ("seconds", "calls", "fastest"),
    [
        ((0.05, 0.049), 2, 0.049),
        ((0.08, 0.06, 0.05, 0.049, 0.049), 4, 0.049),
        ((0.10, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04), 5, 0.06),
    ],
)
def test_a_slow_network_is_warm_when_a_call_is_about_as_fast_as_the_one_before(
    seconds: tuple[float, ...], calls: int, fastest: float
) -> None:
    """However long it has run; at the latest after the calls that were asked for."""
    worker = Slower(*seconds)
    assert warm(worker, calls=5, seconds=9.0, clock=lambda: worker.now) == pytest.approx(fastest)
    assert worker.calls == calls


@pytest.mark.parametrize(("seconds", "calls"), [(0.005, 2), (0.0049, 1 + 5)])
def test_a_call_is_slow_from_five_milliseconds_on(seconds: float, calls: int) -> None:
    """It is compared with the next; a faster network is called as often as the suite asks."""
    worker = Slower(seconds)
    assert warm(worker, calls=5, seconds=0.0, clock=lambda: worker.now) == pytest.approx(seconds)
    assert worker.calls == calls


def test_a_slow_call_up_to_a_twentieth_faster_than_the_one_before_is_as_fast() -> None:
    """5 % is warm, 6 % is not; the faster of the two is what a call takes, whichever came first."""
    for seconds, calls, fastest in (((0.0525, 0.05), 2, 0.05), ((0.053, 0.05, 0.06), 3, 0.05)):
        worker = Slower(*seconds)
        assert warm(worker, calls=9, seconds=0.0, clock=lambda worker=worker: worker.now) == pytest.approx(fastest)
        assert worker.calls == calls


class Switched(Slower):
    """A worker whose first ``cold`` calls after a switch take twice as long."""

    def __init__(self, seconds: float, cold: int) -> None:
        super().__init__(seconds)
        self.typical, self.cold, self.switches = seconds, cold, list[int]()

    def switch(self, calls: int) -> None:
        """Another worker's calls."""
        self.switches.append(calls)
        self.calls, self.seconds = 0, [2 * self.typical] * self.cold + [self.typical]


def test_as_many_calls_are_discarded_as_are_cold_after_a_switch() -> None:
    """Five pilot blocks tell, each behind as many calls of another worker."""
    worker = Switched(0.001, cold=3)
    assert find_block(worker, 0.001, worker.switch) == Block(discard=3, keep=5)
    assert worker.switches == [10] * 5


def test_pilots_tell_nothing_of_long_calls_and_without_another_worker() -> None:
    """Above ten milliseconds one call is discarded; alone, four are. Neither costs a call."""
    worker = Switched(0.02, cold=3)
    assert find_block(worker, 0.0101, worker.switch) == Block(discard=1, keep=2)
    assert find_block(worker, 0.001, None) == Block(discard=4, keep=5)
    assert (worker.switches, worker.calls) == ([], 0)
    assert find_block(worker, 0.010, worker.switch) == Block(discard=2, keep=3)  # half of a pilot of four
