"""Rules of qbench/quant/calibrators/entropy.py beside those of all calibrators: the divergence, step by step."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qbench.quant.calibrators import entropy
from qbench.quant.calibrators.bins import Bins

Array = NDArray[Any]


def reference(counts: Array, outside: float, levels: int) -> float:
    """The divergence of the kept bins, written out bin by bin."""
    kept, size = counts.tolist(), len(counts)
    merged = [0.0] * size
    for level in range(levels):
        part = range(level * size // levels, (level + 1) * size // levels)
        filled = [i for i in part if kept[i] > 0]
        for i in filled:
            merged[i] = sum(kept[j] for j in part) / len(filled)
    clipped = [*kept[:-1], kept[-1] + outside]
    total = sum(clipped)
    pairs = [(p / total, max(q, 1e-4)) for p, q in zip(clipped, merged, strict=True) if p > 0]
    whole = sum(q for _, q in pairs)
    return sum(p * math.log(p / (q / whole)) for p, q in pairs)


@pytest.mark.parametrize("levels", [2, 5, 16])
@pytest.mark.parametrize("outside", [0.0, 7.5])
@pytest.mark.parametrize("size", [16, 24, 37])
def test_the_divergence_is_its_definition(levels: int, outside: float, size: int) -> None:
    """Empty bins stay empty; one that holds nothing but what lies outside counts as 1e-4 of a value."""
    counts = np.random.default_rng(size).integers(0, 4, size).astype(float)
    for last in (0.0, 3.0):
        counts[-1] = last
        actual = entropy._divergence(counts, outside, levels)
        assert actual == pytest.approx(reference(counts, outside, levels), rel=1e-9)


def test_nothing_diverges_without_end() -> None:
    """Where the kept bins hold nothing there is no distribution."""
    assert entropy._divergence(np.zeros(8), 0.0, 4) == math.inf
    assert entropy._divergence(np.zeros(8), 5.0, 4) == math.inf
    assert entropy._divergence(np.ones(8), 0.0, 4) == pytest.approx(0)


@pytest.mark.parametrize("levels", [128, 256])
def test_the_best_end_is_that_of_every_eighth_bin(levels: int) -> None:
    """From as many as there are levels; the largest of equals, the first bin like the second."""
    counts = np.random.default_rng(levels).integers(0, 50, 2048) * np.exp(-np.arange(2048) / 150)
    expected = counts.copy()
    expected[0] = expected[1]
    ends = range(levels, 2049, 8)
    best = min(sorted(ends, reverse=True), key=lambda end: reference(expected[:end], expected[end:].sum(), levels))
    before = counts.copy()
    assert entropy._find_best_end(counts, levels) == best
    assert np.array_equal(counts, before)
    assert levels < best < 2048
    assert entropy._find_best_end(np.ones(2048), levels) == 2048


@pytest.mark.parametrize(
    ("low", "high", "asymmetric", "levels", "expected"),
    [
        (0.0, 8.0, True, 256, 256),
        (-8.0, 0.0, True, 256, 256),
        (-8.0, -1.0, True, 256, 256),
        (-8.0, 4.0, True, 256, 128),
        (0.0, 8.0, False, 256, 128),
        (0.0, 8.0, True, 128, 128),
        (-8.0, 8.0, True, 128, 64),
    ],
)
def test_all_levels_are_for_values_of_one_sign(
    low: float, high: float, asymmetric: bool, levels: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a quantization with an offset; the end is a share of what reaches furthest, within the values."""
    asked = []
    monkeypatch.setattr(entropy, "_find_best_end", lambda counts, levels: asked.append((len(counts), levels)) or 512)
    instance = entropy.Entropy(asymmetric=asymmetric)
    instance.levels = levels
    bins = Bins(edges=np.array([low, high]), counts=np.array([100]))
    instance._histogram = SimpleNamespace(low=low, high=high, bins=lambda: bins)  # type: ignore[assignment]
    actual = instance.range()
    assert asked == [(2048, expected)]
    if asymmetric:
        assert actual == (max(low, -2.0), min(high, 2.0))
    else:
        assert actual == pytest.approx((max(low, -2 * 128 / 127), min(high, 2.0)))
