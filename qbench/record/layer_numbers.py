"""How far the layers of an int8 variant are from fp32, as a build measures it and a run stores it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LayerNumbers:
    """How far a layer's output is from fp32's, over all examples and all its calls.

    ``sqnr_db`` is 10 log10(sum x^2 / sum (x - q)^2); ``cosine`` that of the two outputs as vectors, -1 to 1; ``n`` the
    number of values compared. A layer that cannot be compared has null for both, n = 0 and a ``reason``. ``clipped`` is
    the share (0 to 1) of fp32's values on evaluation examples that int8 cannot represent there; null where that is not
    known.
    """

    name: str
    sqnr_db: float | None = None
    cosine: float | None = None
    n: int = 0
    reason: str | None = None
    clipped: float | None = None
