"""qbench.machine.canary: a fixed piece of arithmetic, on a clock that does not pass by itself."""

from __future__ import annotations

import numpy as np
import pytest

from qbench.machine.canary import Canary, calm_level, wait_for_calm


def read_with(parts: list[int]) -> int:
    """The reading where the parts take that many nanoseconds, one after the other."""
    ticks = iter(np.cumsum([moment for part in parts for moment in (1, part)]).tolist())
    return Canary(lambda: next(ticks)).read()


@pytest.mark.parametrize("parts", [[6000, 6000, 6000], [90_000, 6000, 6000], [9000, 50_000, 6000]])
def test_an_interrupt_or_a_cold_start_does_not_reach_the_reading(parts: list[int]) -> None:
    """The least part is the reading: one part that is interrupted, or that runs cold, says nothing of the core."""
    assert read_with(parts) == 6000


def test_a_core_that_is_shared_reaches_the_reading() -> None:
    """Where every part is slow, so is the reading."""
    assert read_with([9000, 9100, 9300]) == 9000


def test_what_it_touches_fits_a_first_level_cache() -> None:
    """8 KiB, each half at the start of a page: neither chance nor the block's own data decides how fast it is."""
    canary = Canary()
    buffers = (canary._values, canary._results)
    assert sum(buffer.nbytes for buffer in buffers) == 8192
    assert all(buffer.ctypes.data % 4096 == 0 for buffer in buffers)
    canary.read()
    assert np.array_equal(canary._results, np.exp(canary._values))


def test_one_reading_that_is_too_fast_does_not_set_the_level() -> None:
    """A clock that is raised for a moment: the third smallest of many readings is the level."""
    rows = np.full((20, 2), 5600)
    rows[3, 0] = 5600 // 2
    assert calm_level(rows) == 5600
    assert calm_level(np.asarray([(5600, 9000)])) == 5600
    assert calm_level(rows[:0]) is None
    assert calm_level(rows[:0], 123.0) == 123.0


@pytest.mark.parametrize(
    ("readings", "calm"),
    [([5600], True), ([9000, 8000, 6900], True), ([9000] * 3, False)],
    ids=["now", "soon", "not within three seconds"],
)
def test_calm_is_waited_for_a_few_seconds(readings: list[int], calm: bool) -> None:
    """A neighbour's spell lasts seconds: the first calm reading ends the wait, three seconds without one as well."""
    left, passed = iter(readings), iter(range(0, 4_000_000_000, 1_000_000_000))
    assert wait_for_calm(lambda: next(left), 5600.0, clock=lambda: next(passed)) is calm
    assert list(left) == []
