"""A layer's outputs are put right, and what its sums lost is counted."""

from __future__ import annotations

import numpy as np

from qbench.quant.saturation.layer_counter import LayerCounter, LayerSaturation
from qbench.quant.saturation.pair_sums import PairedProduct

WEIGHT = np.array([[127, 127, 1, 1], [-100, -100, 0, 5], [1, 2, 3, 4]], np.int8)
FULL, SMALL = [255, 255, 1, 1], [10, 20, 30, 40]


def counter() -> LayerCounter:
    """A matrix product whose first two outputs can saturate."""
    return LayerCounter(
        name="layer",
        operator="MatMul",
        product=PairedProduct(weight=WEIGHT, pairing="flat"),
        weight=WEIGHT.astype(np.int32),
    )


def correct(layer: LayerCounter, rows: list[list[int]], per_example: int = 1) -> tuple[np.ndarray, list[int]]:
    """The integers of the layer with sums of 16 bits, and which examples had one too large."""
    x = np.array(rows, np.uint8)
    y = x.astype(np.int32) @ WEIGHT.T.astype(np.int32)
    hit = layer.correct(x, 0, y, lambda sums, channel: sums, rows=per_example)
    return y, hit.tolist()


def test_sums_stop_at_sixteen_bits_on_both_sides() -> None:
    """64770 becomes 32767, -51000 becomes -32768; what fits stays."""
    y, hit = correct(counter(), [SMALL, FULL])
    assert y[1].tolist() == [32767 + 2, -32768 + 5, 255 * 3 + 7]
    assert (y[0] == np.array(SMALL) @ WEIGHT.T.astype(int)).all()
    assert hit == [1]


def test_counts_add_up_over_batches() -> None:
    """Sums, saturated ones, outputs and examples; the largest loss is that of all."""
    layer = counter()
    correct(layer, [SMALL, FULL])
    correct(layer, [FULL, FULL, SMALL])
    report = layer.report()
    assert (report.name, report.operator, report.pairs) == ("layer", "MatMul", 2)
    assert (report.sums, report.saturated, report.outputs, report.examples) == (5 * 3 * 2, 6, 6, 3)
    assert report.largest_excess == 2 * 255 * 127 - 32767
    assert report.rounded == 0


def test_where_nothing_is_lost_only_sums_are_counted() -> None:
    """Outputs stay exact, and no example is hit."""
    layer = counter()
    y, hit = correct(layer, [SMALL, SMALL])
    assert (y == np.array([SMALL, SMALL]) @ WEIGHT.T.astype(int)).all()
    assert hit == []
    assert layer.report() == LayerSaturation(
        name="layer", operator="MatMul", pairs=2, sums=2 * 3 * 2, saturated=0, outputs=0, examples=0,
        largest_excess=0, rounded=0,
    )  # fmt: skip


def test_rows_of_an_example_count_as_one_example() -> None:
    """Tokens of a sequence are rows of the product."""
    layer = counter()
    _, hit = correct(layer, [SMALL, SMALL, FULL, FULL, SMALL, FULL], per_example=2)
    assert hit == [1, 2]
    assert layer.report().examples == 2


def test_an_output_that_is_neither_exact_nor_saturated_is_counted_as_rounded() -> None:
    """The formula of the kernel is held against what it gave, wherever it is used."""
    layer, x = counter(), np.array([FULL], np.uint8)
    y = x.astype(np.int32) @ WEIGHT.T.astype(np.int32) + 1
    layer.correct(x, 0, y, lambda sums, channel: sums)
    assert layer.report().rounded == 2
