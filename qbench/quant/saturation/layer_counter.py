"""One layer whose kernel adds products in 16 bits: its outputs put right, and what its sums lost counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.saturation import pair_sums
from qbench.quant.saturation.pair_sums import Lost, PairedProduct, Pairs

Array = NDArray[Any]
# Exact sums and their output channels -> what the layer gives for them.
Finish = Callable[[Array, Array], Array]
_LAST_BITS = 1e-6  # of a float
_FACTORS = 1 << 16  # gathered at a time for exact sums: they stay in the cache


@dataclass(frozen=True, kw_only=True)
class LayerSaturation:
    """A layer that adds in 16 bits. ``pairs``: how many pairs of weights could leave them with the largest inputs (0:
    its sums are exact for every input); over the examples that were run: how many ``sums`` it made, how many were
    ``saturated`` in how many ``outputs`` and ``examples``, and the ``largest_excess`` that one lost; ``rounded``: how
    many of those outputs are natively neither what exact nor what saturated sums give by the formula, so that the
    prediction may be off by one rounding."""

    name: str
    operator: str
    pairs: int
    sums: int = 0
    saturated: int = 0
    outputs: int = 0
    examples: int = 0
    largest_excess: int = 0
    rounded: int = 0


@dataclass(kw_only=True)
class LayerCounter:
    """A layer and what is counted of it. ``weight``: that of its ``product`` less its zero point."""

    name: str
    operator: str
    product: PairedProduct
    weight: Array
    pairs: Pairs = field(init=False)
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pairs = pair_sums.find_pairs(self.product)

    def correct(self, x: Array, zero: int, y: Array, finish: Finish, *, rows: int = 1) -> Array:
        """Writes into the layer's exact output ``y`` [examples, channels, ...] what it is with sums of 16 bits, for its
        bytes ``x`` in the same order; which examples had a saturated sum. ``rows``: how many of a matrix product's one
        example has."""
        self._add(sums=y.size * self.product.pairs_per_output)
        lost = pair_sums.find_lost(self.product, self.pairs, x)
        if not lost.saturated:
            return np.zeros(0, np.int64)
        sums = self._exact_sums(x, zero, lost)
        example, *at = np.unravel_index(lost.place, (len(y), *y.shape[2:]))
        index = (example, lost.channel, *at)
        exact, saturated = (finish(values, lost.channel) for values in (sums, sums - lost.amount))
        rounded = np.count_nonzero(_differ(y[index], exact) & _differ(y[index], saturated))
        y[index] = saturated
        hit: Array = np.flatnonzero(np.bincount(example // rows))
        self._add(saturated=lost.saturated, outputs=len(example), examples=len(hit), rounded=int(rounded))
        self.counts["largest_excess"] = max(self.counts.get("largest_excess", 0), lost.largest)
        return hit

    def report(self) -> LayerSaturation:
        """What is known of the layer so far."""
        return LayerSaturation(name=self.name, operator=self.operator, pairs=len(self.pairs), **self.counts)

    def _add(self, **counts: int) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def _exact_sums(self, x: Array, zero: int, lost: Lost) -> Array:
        """The exact sums of the outputs that lose something, some at a time."""
        several = max(1, _FACTORS // self.weight.shape[1])
        parts = [slice(start, start + several) for start in range(0, len(lost.place), several)]
        return np.concatenate(
            [
                pair_sums.exact_sums(self.product, self.weight, x, zero, lost.place[part], lost.channel[part])
                for part in parts
            ]
        )


def _differ(given: Array, expected: Array) -> Array:
    """Which outputs are others; floats but for the last bits, which depend on how their scales were multiplied."""
    floats = given.dtype.kind == "f"
    others: Array = ~np.isclose(given, expected, rtol=_LAST_BITS, atol=0) if floats else given != expected
    return others
