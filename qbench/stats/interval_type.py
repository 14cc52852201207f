"""An estimate with its confidence limits; light, since every record is made of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with its confidence limits; limits are null where the samples support none."""

    value: float
    low: float | None = None
    high: float | None = None
