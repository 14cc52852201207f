"""An estimate with its confidence limits; light, since every record is made of them."""

from __future__ import annotations

from dataclasses import dataclass

# The largest score that is one: a float holds the squares of such numbers, and the sums of those.
LARGEST = 1e100


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with its confidence limits; limits are null where the samples support none."""

    value: float
    low: float | None = None
    high: float | None = None
