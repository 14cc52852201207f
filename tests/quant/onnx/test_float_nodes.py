"""Nodes of ONNX files that int8 would spoil: found as in networks of torch, and left alone by ONNX Runtime's own
quantizer where it is asked to."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
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


ROWS = np.random.default_rng(1).random((12, 4), dtype=np.float32)


def find_outputs(folder, *nodes, names=False):
    """The first outputs of the nodes found in a graph of ``Kind out a b``; ``x`` is its input of 4 values, ``w`` a
    4 x 4 matrix, ``k`` the whole numbers 0 to 3, ``far`` and ``near`` constant rows."""
    constants = {
        "w": np.eye(4, dtype=np.float32),
        "w8": np.ones((8, 4), np.float32),
        "k": np.arange(4),
        "far": np.full((1, 4), 500, np.float32),
        "near": np.full((1, 4), 0.5, np.float32),
    }
    graph_nodes = []
    for text in nodes:
        kind, output, *reads = text.split()
        more = {"Concat": {"axis": -1}, "Cast": {"to": TensorProto.FLOAT}}.get(kind, {})
        graph_nodes.append(
            helper.make_node(kind, reads, output.split(","), name="" if names else f"n_{output}", **more)
        )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    ends = [helper.make_empty_tensor_value_info("y")]
    used = {name for text in nodes for name in text.split()[2:]}
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items() if name in used]
    graph = helper.make_graph(graph_nodes, "g", [x], ends, tensors)
    file = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    if names:
        return list(name_joins(file, (ROWS,)))
    return [node.output[0] for node in find_float_nodes(file, (ROWS,))]


BOXES = ("MatMul a x w", "Mul big a far", "Sigmoid small a")  # 500 times as large, and up to 1


@pytest.mark.parametrize(
    ("nodes", "apart"),
    [
        pytest.param(["MatMul a x w", "Mul y a near"], ["y"], id="arithmetic behind the last layer"),
        pytest.param(["MatMul a x w", "Sub y a near"], ["y"], id="a difference"),
        pytest.param(["MatMul a x w", "Add b a near", "Relu y b"], ["b", "y"], id="what reads it"),
        pytest.param(["MatMul a x w", "Relu b a", "Div y b near"], ["y"], id="not what it reads"),
        pytest.param(["MatMul a x w", "Mul b a near", "MatMul y b w"], [], id="before a layer"),
        pytest.param(["Mul y x near"], [], id="without a layer"),
        pytest.param(["MatMul y x w", "Mul z x near"], [], id="beside the layers"),
        pytest.param(["MatMul a x w", "Concat y a a"], ["y"], id="a join behind the last layer"),
        pytest.param([*BOXES, "Concat c big small", "MatMul y c w8"], [], id="read by a layer alone"),
        pytest.param([*BOXES, "Concat c big small", "Relu d c", "MatMul y d w8"], [], id="by a layer over a carrier"),
        pytest.param([*BOXES, "Concat c big small", "Tanh d c", "MatMul y d w8"], ["c"], id="by something else"),
        pytest.param(
            [*BOXES, "Concat c big small", "Relu d c", "Identity e d", "Tanh f e", "MatMul y f w8"],
            ["c", "d", "e"],
            id="with the carriers behind it",
        ),
        pytest.param([*BOXES, "Concat c big small", "Tanh d c", "MatMul z c w8", "MatMul y d w8"], ["c"], id="by both"),
        pytest.param(["MatMul a x w", "Sigmoid b a", "Concat c b b", "Tanh d c", "MatMul y d w8"], [], id="alike"),
        pytest.param(["MatMul a x w", "Concat c far near", "Tanh d c", "MatMul y d w8"], [], id="of constants"),
    ],
)
def test_what_stays_float(tmp_path, nodes, apart):
    """Arithmetic behind the last layer with all that reads it, and before it joins of what one scale cannot hold with
    what hands on their values."""
    assert find_outputs(tmp_path, *nodes) == apart


def test_whole_numbers_are_nobodys(tmp_path):
    """Shapes are computed so, behind the last layer too; what is made a float of them is one."""
    assert find_outputs(tmp_path, "MatMul a x w", "Add n k k", "Reshape y a n", "Shape s a", "Mul z s s") == []
    assert find_outputs(tmp_path, "MatMul a x w", "Shape s a", "Mul b s s", "Cast f b", "Mul y f f") == ["y"]


def test_joins_have_names(tmp_path):
    """Their own, else that of what they give; carriers are none."""
    nodes = ["MatMul a x w", "Mul b a near", "Relu c b", "Concat y c c"]
    assert find_outputs(tmp_path, *nodes) == ["b", "c", "y"]
    assert find_outputs(tmp_path, *nodes, names=True) == ["b", "y"]
