"""Where an axis begins and ends, and what is shown of a value that lies far beyond the others; pure.

A few values far from all others would press the rest into a line: they are drawn at the edge, as an arrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

FENCE = 3.0  # quartile distances beyond which a value is drawn at the edge
_FEW = 3  # fewer values are no group that anything presses together
_TICKS = 6
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
# Values that are nearer to each other, as a share of the largest and by themselves, are one value: a float holds no
# steps between them.
_SAME, _LEAST = 1e-12, 1e-300


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A linear or logarithmic axis from ``low`` to ``high``; values beyond it are drawn at its edges."""

    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()
    words: Callable[[float], str] = "{:g}".format

    def clip(self, value: float) -> float:
        """The value, or the edge that it lies beyond."""
        edge = 0.015
        return min(max(value, self.at(edge)), self.at(1 - edge)) if self.side_of(value) else value

    def side_of(self, value: float) -> int:
        """-1 or 1 where the value lies beyond the lower or upper edge, else 0."""
        return -1 if value < self.low else 1 if value > self.high else 0

    def fraction(self, value: float) -> float:
        """Where on the axis, 0 to 1, the value is drawn."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    @property
    def size(self) -> float:
        """How much it spans: a factor's logarithm, or a difference."""
        return math.log(self.high / self.low) if self.log else self.high - self.low

    def at(self, fraction: float) -> float:
        """The value there."""
        if self.log:
            return float(self.low * (self.high / self.low) ** fraction)
        return self.low + (self.high - self.low) * fraction

    def apply(self, axes: Any, title: str, axis: str = "x") -> None:
        """Sets limits, ticks and title of one axis of matplotlib's."""
        from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

        getattr(axes, f"set_{axis}scale")("log" if self.log else "linear")
        getattr(axes, f"set_{axis}lim")(self.low, self.high)
        chosen = axes.xaxis if axis == "x" else axes.yaxis
        chosen.set_major_locator(FixedLocator(list(self.ticks)))
        chosen.set_minor_locator(NullLocator())
        chosen.set_major_formatter(FixedFormatter([self.words(tick) for tick in self.ticks]))
        getattr(axes, f"set_{axis}label")(title, labelpad=3)


def linear(values: Sequence[float], ends: Sequence[float], must: Sequence[float], *, words: Any = None) -> Axis:
    """An axis for estimates ``values`` with limits ``ends``, on which ``must`` lie in any case."""
    low, high = _window(values, ends, must)
    largest = max(abs(low), abs(high))
    apart = high - low > max(_SAME * largest, _LEAST)
    room = (high - low if apart else largest if largest > _LEAST else 1.0) * 0.06
    low, high = low - room, high + room
    ticks = _round_ticks(low, high)
    return Axis(low=low, high=high, ticks=ticks, words=words or _decimals(ticks))


def fit(
    make: Callable[[Sequence[float], Sequence[float], Sequence[float]], Axis],
    values: Sequence[float],
    ends: Sequence[float],
    must: Sequence[float],
    beside: Sequence[float],
    *,
    share: float,
) -> Axis:
    """The axis that ``make`` gives for values, their limits and what must be on it; of ``beside``, the nearest first,
    it holds what leaves at least that share of it to these."""
    if len(values) < _FEW:
        return make([*values, *beside], ends, [*must, *beside])
    axis = make(values, ends, must)
    fitted, middle = axis.size, axis.at(0.5)
    for value in sorted(beside, key=lambda value: abs(value - middle)):
        wider = make(values, ends, [*must, value])
        if fitted >= share * wider.size:
            axis, must = wider, [*must, value]
    return axis


def from_zero(values: Sequence[float], *, words: Any = None) -> Axis:
    """An axis from zero to just beyond the largest value."""
    largest = max(values, default=1.0)
    high = (largest if largest > _LEAST else 1.0) * 1.04
    ticks = _round_ticks(0.0, high)
    return Axis(low=-0.03 * high, high=high, ticks=ticks, words=words or _decimals(ticks))


def logarithmic(
    values: Sequence[float], ends: Sequence[float], must: Sequence[float], *, words: Any = None, ticks: int = _TICKS
) -> Axis:
    """A logarithmic axis for values above 0."""
    logs = [[math.log(value) for value in group if value > 0] for group in (values, ends, must)]
    low, high = _window(*logs)
    room = max((high - low) * 0.07, 0.03)
    low, high = math.exp(low - room), math.exp(high + room)
    return Axis(low=low, high=high, log=True, ticks=_log_ticks(low, high, ticks), words=words or "{:g}".format)


def _window(values: Sequence[float], ends: Sequence[float], must: Sequence[float]) -> tuple[float, float]:
    """From the least to the greatest that is shown: all values but outliers, and of the limits what fits beside."""
    finite = sorted(value for value in (*values, *must) if math.isfinite(value))
    if not finite:
        return 0.0, 1.0
    quartiles = finite[len(finite) // 4], finite[(3 * len(finite)) // 4]
    reach = FENCE * max(quartiles[1] - quartiles[0], (max(must) - min(must)) if must else 0.0)
    near = finite
    if reach > 0 and len(finite) > 4:
        near = [value for value in finite if quartiles[0] - reach <= value <= quartiles[1] + reach]
    low, high = min((*near, *must)), max((*near, *must))
    span = high - low
    widths = sorted(max(low - end, end - high, 0.0) for end in ends if math.isfinite(end))
    beyond = max(span * 0.6, widths[(2 * len(widths)) // 3] if widths else 0.0)
    reached = [end for end in ends if math.isfinite(end) and low - beyond <= end <= high + beyond]
    return min((low, *reached)), max((high, *reached))


def _round_ticks(low: float, high: float, most: int = _TICKS) -> tuple[float, ...]:
    span = high - low
    base = 10.0 ** math.floor(math.log10(span / most))
    step = next(base * factor for factor in (*_STEPS, 20.0) if span / (base * factor) <= most)
    edge = span * 0.04  # a number nearer to the end would be cut
    first, last = math.ceil((low + edge) / step - 1e-9), math.floor((high - edge) / step + 1e-9)
    if low == 0:
        first = 0
    return tuple(number * step for number in range(first, last + 1))


def _log_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    """Powers of two or ten, or 1-2-5 numbers: the densest that are no more than ``most``."""
    ratio = (high / low) ** 0.03
    inner = low * ratio, high / ratio
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    fine = tuple(m / 20 for m in range(20, 40)) + tuple(m / 10 for m in range(40, 100, 5))
    for factors in (
        fine,
        fine[::2],
        (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8),
        (1, 1.5, 2, 3, 5, 7),
        (1, 2, 5),
        (1, 3),
        (1,),
    ):
        ticks = tuple(
            round(f * 10.0**e, 12 - e) for e in exponents for f in factors if inner[0] <= f * 10.0**e <= inner[1]
        )
        if len(ticks) <= most:
            return ticks
    step = max(1, math.ceil(math.log10(high / low) / most))
    return tuple(10.0**e for e in exponents if e % step == 0 and inner[0] <= 10.0**e <= inner[1])


def _decimals(ticks: Sequence[float]) -> Callable[[float], str]:
    """All ticks of an axis with as many decimals, and a true minus sign."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    if abs(round(step, digits) - step) > 1e-9 * step:
        digits += 1

    def words(value: float) -> str:
        text = f"{value:.{digits}f}"
        return text.replace("-", "" if float(text) == 0 else "\N{MINUS SIGN}")

    return words


def times(value: float) -> str:
    """``2`` with the sign of times."""
    return f"{value:g}\N{MULTIPLICATION SIGN}"
