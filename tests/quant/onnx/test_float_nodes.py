"""Nodes of ONNX files that int8 would spoil: found as in networks of torch, and left alone by ONNX Runtime's own
quantizer where it is asked to."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from qbench.quant.onnx import onnxruntime_quantizers, onnxruntime_session
from qbench.quant.onnx.export_torch import export
from qbench.quant.onnx.float_nodes import find_float_nodes, name_joins
from qbench.quant.recipe import Recipe
from qbench.quant.sqnr import measure_sqnr

IMAGES = np.random.default_rng(0).random((12, 3, 16, 16), dtype=np.float32)


class Net(nn.Module):
    """Boxes, ``factor`` times as large, joined to scores; ``read``: a convolution reads what is joined."""

    def __init__(self, factor, read):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, 2, 1)
        self.boxes, self.scores = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 3, 1)
        self.last = nn.Conv2d(7, 2, 1) if read else None
        with torch.no_grad():
            self.boxes.weight.mul_(factor)
            self.boxes.bias.mul_(factor)

    def forward(self, x):
        x = torch.relu(self.first(x))
        joined = torch.cat([torch.relu(self.boxes(x)), torch.sigmoid(self.scores(x))], 1)
        return joined.flatten(2) if self.last is None else self.last(joined)


def write(folder, factor=500.0, read=False):
    torch.manual_seed(0)
    file = folder / "net.onnx"
    export(Net(factor, read).eval(), (torch.from_numpy(IMAGES[:1]),), file)
    return file


@pytest.mark.parametrize(
    ("network", "joins", "kinds"),
    [
        pytest.param({}, 1, ["Concat", "Reshape"], id="boxes and scores"),
        pytest.param({"factor": 500.0, "read": True}, 0, [], id="read by a layer with weights"),
        pytest.param({"factor": 1.0, "read": True}, 0, [], id="of one size"),
    ],
)
def test_joins_are_found_with_what_hands_on_their_values(tmp_path, network, joins, kinds):
    """Behind the last layers, or where the values of one would be lost; not what layers with weights alone read."""
    file = write(tmp_path, **network)
    assert [node.op_type for node in find_float_nodes(file, (IMAGES,))] == kinds
    assert len(name_joins(file, (IMAGES,))) == joins


def test_the_frameworks_own_quantizer_keeps_scores_where_joins_are_float(tmp_path):
    """Untouched it gives boxes and scores one scale, and the scores are gone."""
    file, decibels = write(tmp_path), {}
    expected = onnxruntime_session.run(file, (IMAGES,))[:, 4:]
    for floats in (None, True):
        recipe = Recipe(flow="onnx", framework_default=True, float_joins=floats)
        onnxruntime_quantizers.framework_static(file, tmp_path / "int8.onnx", recipe, (IMAGES,))
        scores = onnxruntime_session.run(tmp_path / "int8.onnx", (IMAGES,))[:, 4:]
        decibels[floats] = measure_sqnr(expected, scores)
    assert decibels[None] < 20
    assert decibels[True] > 35
