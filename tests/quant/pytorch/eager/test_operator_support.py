"""What eager mode can do in int8: which layers fuse with a ReLU, and why others stay float."""

from __future__ import annotations

import re
from typing import Any

import pytest
from torch import nn

from qbench.quant.pytorch.eager import operator_support


class Own(nn.Conv2d):
    """A subclass, which no quantizer matches."""


@pytest.mark.parametrize(
    ("layer", "count", "fuses"),
    [
        (nn.Conv1d(1, 1, 1), 2, True),
        (nn.Conv2d(1, 1, 1), 3, True),
        (nn.Conv3d(1, 1, 1), 3, True),
        (nn.Linear(1, 1), 2, True),
        (nn.Linear(1, 1), 3, False),
        (nn.ConvTranspose2d(1, 1, 1), 2, False),
        (nn.BatchNorm2d(1), 2, False),
    ],
)
def test_layers_that_fuse_with_a_relu(layer: nn.Module, count: int, fuses: bool) -> None:
    """Linear only where nothing lies between."""
    module = nn.Sequential(layer, nn.BatchNorm2d(1), nn.ReLU())
    assert operator_support.fuses_with_relu(module, ["0", "1", "2"][:count]) is fuses


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (nn.LSTM(1, 1), "no static int8 kernel for recurrent layers"),
        (nn.GRUCell(1, 1), "no static int8 kernel for recurrent layers"),
        (nn.Embedding(1, 1), "a table look-up multiplies nothing"),
        (nn.MultiheadAttention(2, 1), "reads weights past its Linear layers"),
        (nn.TransformerDecoderLayer(2, 1), "reads weights past its Linear layers"),
        (nn.Bilinear(1, 1, 1), "no int8 kernel for Bilinear"),
        (Own(1, 1, 1), "^Own is a subclass of Conv2d, which quantizers do not match; canonicalize rewrites it$"),
        (nn.Conv2d(1, 1, 1), None),
        (nn.ReLU(), None),
    ],
)
def test_why_a_layer_has_no_int8_class(layer: Any, said: str | None) -> None:
    """Nothing is said of one that has, and of what has no weights."""
    why = operator_support.why_float(layer)
    assert why is None if said is None else re.search(said, why or "")
