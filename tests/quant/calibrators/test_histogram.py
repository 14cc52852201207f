"""Rules of qbench/quant/calibrators/histogram.py and extremes.py beside those of ``test_calibrators``: exact bins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qbench.quant.calibrators.base import LEVELS
from qbench.quant.calibrators.bins import Bins
from qbench.quant.calibrators.extremes import CHUNK, find_extremes
from qbench.quant.calibrators.histogram import SIDE, Counting, Histogram
from qbench.quant.calibrators.minmax import MinMax


class Own(Counting):
    """A range of its own."""

    name = "own"

    def range(self) -> tuple[float, float]:
        """None."""
        raise NotImplementedError


def points(*values: float) -> Bins:
    """One value at each of these."""
    counts = np.zeros(2 * len(values) - 1, int)
    counts[::2] = 1
    return Bins(edges=np.repeat(np.array(values, float), 2), counts=counts)


@pytest.mark.parametrize("power", [-60, 0, 40])
@pytest.mark.parametrize(
    ("levels", "asymmetric", "low", "high", "exact", "beyond"),
    [
        (256, True, 0.0, 255.0, (0.0, 1.0, 254.0, 255.0), ((256.0, 1.0), (-2.0, 4.0), (0.5, 0.25))),
        (256, True, -255.0, 0.0, (0.0, -255.0), ((-256.0, 1.0), (1.0, 1.0))),
        (256, False, -100.0, 127.0, (-128.0, 127.0), ((128.0, 1.0), (-129.0, 1.0))),
        (128, True, 0.0, 127.0, (0.0, 1.0, 127.0), ((128.0, 1.0), (-1.0, 1.0))),
        (128, True, -127.0, 0.0, (0.0, -127.0), ((1.0, 1.0), (-128.0, 1.0))),
    ],
)
def test_an_error_is_that_of_the_quantization_with_so_many_levels(
    power: int, levels: int, asymmetric: bool, low: float, high: float, exact: Any, beyond: Any
) -> None:
    """Levels are exact, what lies beyond the last goes to it; a tiny range is judged like a wide one."""
    instance, by = Own(asymmetric=asymmetric), 2.0**power
    assert instance.levels == LEVELS == 256
    instance.levels = levels
    step = by**2
    assert instance.error(points(*sorted(v * by for v in exact)), low * by, high * by) <= 1e-9 * step
    for value, error in beyond:
        actual = instance.error(points(value * by), low * by, high * by)
        assert actual == pytest.approx(error * step, rel=1e-3)


def test_a_symmetric_range_reaches_a_level_further_below() -> None:
    """But not beyond the values."""
    instance = Own(asymmetric=False)
    instance.add(np.float32([-1000, 1000]))
    assert instance.mirrored(127.0) == (-128.0, 127.0)
    instance._histogram.low, instance._histogram.high = -3.0, 5.0
    assert instance.mirrored(127.0) == (-3.0, 5.0)


def test_a_value_lies_in_the_bin_of_its_own_width() -> None:
    """Zero has one of each sign; 1024 bins below c, and in each doubling above."""
    assert SIDE == 10 * 1024 + 2
    histogram = Histogram()
    histogram.add(np.float32([1.0, -1.0, 0.0, 0.5, -0.5]))
    assert histogram.exponent == 1  # 1 is below 2
    filled = np.flatnonzero(histogram.counts)
    assert filled.tolist() == sorted(
        [SIDE, *(SIDE + i for i in (_bin(0.5), _bin(1.0))), *(SIDE - 1 - i for i in (_bin(0.5), _bin(1.0)))]
    )
    assert histogram.counts.sum() == 5


def _bin(value: float) -> int:
    """The number of the bin of a positive value, where c is 2 / 1024."""
    c = 2 / 1024
    whole = (value + c) / c
    doublings = int(np.floor(np.log2(whole)))
    return doublings * 1024 + int((whole / 2**doublings - 1) * 1024)


def test_the_least_range_of_bins_is_that_of_2_to_the_minus_100() -> None:
    """Smaller values are counted all the same."""
    histogram = Histogram()
    assert histogram.exponent == -100
    histogram.add(np.float32([1e-38, 2.0**-101]))
    assert histogram.exponent == -100
    histogram.add(np.float32([2.0**-100]))
    assert histogram.exponent == -99
    histogram.add(np.float32([]))
    assert histogram.counts.sum() == 3
    bins = histogram.bins()
    bins.counts[:] = 0  # a copy
    assert histogram.counts.sum() == 3


@pytest.mark.parametrize("at", [0, CHUNK - 1, CHUNK, CHUNK + 3])
def test_the_ends_of_many_values_are_looked_for_in_all(at: int) -> None:
    """Of every chunk; what is no number is counted."""
    values = np.zeros((5, (CHUNK + 5) // 5), np.float32)
    values.reshape(-1)[at] = 3
    row, low, high = find_extremes(values)
    assert (row.shape, low, high) == ((values.size,), 0, 3)
    assert find_extremes(-values)[1:] == (-3, 0)
    values.reshape(-1)[at] = np.nan
    with pytest.raises(ValueError, match="^1 value is NaN or inf$"):
        find_extremes(values)
    values[0, 0] = np.inf
    with pytest.raises(ValueError, match=f"^{1 if at == 0 else 2} value"):
        find_extremes(values)
    assert find_extremes(np.empty(0))[1:] == (np.inf, -np.inf)


def test_minmax_has_no_range_before_a_value() -> None:
    """One value is a range."""
    with pytest.raises(ValueError, match="^no value was seen$"):
        MinMax().range()
    instance = MinMax()
    instance.add(np.float32([2]))
    assert instance.range() == (2, 2)
