"""Rules of measure/warm_up: how many calls come before the timed ones."""

from __future__ import annotations

import numpy as np
import pytest

from qbench.measure.samples import BlockTiming
from qbench.measure.warm_up import count_left, warm


@pytest.mark.parametrize(("calls", "loading", "left"), [(10, 5, 5), (5, 5, 1), (0, 5, 1), (200, 5, 195)])
def test_the_calls_of_loading_are_part_of_the_warm_up(calls: int, loading: int, left: int) -> None:
    """Of the ten calls that a suite asks for, loading makes five; one is always left to size the blocks."""
    assert count_left(calls, loading) == left


def test_a_worker_is_called_for_the_longer_of_calls_and_seconds() -> None:
    """Blocks of so many calls until the time is up; what it returns is the fastest of the last block."""

    class Slower:
        def __init__(self) -> None:
            self.now, self.blocks = 0.0, 0

        def load(self) -> None:
            """Nothing."""

        def block(self, calls: int) -> BlockTiming:
            self.blocks += 1
            self.now += calls * 0.01
            return BlockTiming(calls_ns=np.full(calls, 10_000_000, dtype=np.int64))

        def close(self) -> None:
            """Nothing."""

    worker = Slower()
    assert warm(worker, calls=5, seconds=0.12, clock=lambda: worker.now) == pytest.approx(0.01)
    assert worker.blocks == 3
    assert warm(worker, calls=5, seconds=0.0, clock=lambda: worker.now) == pytest.approx(0.01)
    assert worker.blocks == 4
