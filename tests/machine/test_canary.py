"""qbench.machine.canary: a fixed piece of arithmetic, on a clock that does not pass by itself."""

from __future__ import annotations

import numpy as np
import pytest

from qbench.machine.canary import Canary, calm_level, share_disturbed, wait_for_calm


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


@pytest.mark.parametrize(("readings", "rank"), [(1, 0), (4, 0), (5, 1), (8, 1), (9, 2), (100, 2)])
def test_of_few_readings_a_smaller_one_is_the_level(readings: int, rank: int) -> None:
    """The smallest of up to four, the second of up to eight, the third of more, in whatever order they were read."""
    values = np.arange(5600, 5600 + readings)
    assert calm_level(np.random.default_rng(0).permutation(values)) == 5600 + rank


def test_what_is_known_of_the_core_counts_where_it_is_less() -> None:
    """A core that was shared all the while is seen against an earlier reading; one that is faster now, by itself."""
    readings = np.asarray([9000, 9000])
    assert calm_level(readings, 5600.0) == 5600.0
    assert calm_level(readings, 9500.0) == 9000


def test_a_reading_is_disturbed_from_five_quarters_of_the_level_on() -> None:
    """In the valley between the two states; of nothing there is no share."""
    assert share_disturbed(np.asarray([4000, 4999, 5000, 9000]), 4000.0) == 0.5
    assert share_disturbed(np.asarray([], dtype=np.int64), 4000.0) is None


@pytest.mark.parametrize(
    ("readings", "seconds", "calm"),
    [
        ([4999], [0], True),
        ([5000, 4000], [0, 1], True),
        ([5000, 4000], [0, 2.999], True),
        ([5000, 5000], [0, 1, 3], False),
        ([5000], [7, 10], False),
        ([5000, 4000], [7, 8], True),
    ],
)
def test_the_wait_ends_with_the_first_calm_reading_or_after_three_seconds(
    readings: list[int], seconds: list[float], calm: bool
) -> None:
    """Calm is what is not disturbed; the three seconds begin as it starts to wait."""
    left, passed = iter(readings), iter(seconds)
    assert wait_for_calm(lambda: next(left), 4000.0, clock=lambda: round(next(passed) * 1e9)) is calm
    assert (list(left), list(passed)) == ([], [])


def test_the_arithmetic_is_that_of_values_between_minus_one_and_one() -> None:
    """No overflow, no denormal: those take another time than the polynomial."""
    values = Canary()._values
    assert (len(values), values[0], values[-1]) == (1024, -1, 1)


def test_a_part_is_eight_exponentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """6 us, of which there are three: long against what reading the clock takes."""
    calls = []
    monkeypatch.setattr(np, "exp", lambda values, results: calls.append(values))
    Canary().read()
    assert len(calls) == 24
