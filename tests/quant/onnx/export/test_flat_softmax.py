"""Softmax over channels that lie before several dimensions, for ONNX Runtime."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from onnx_networks import Draft, save
from quantized_networks import run

from qbench.quant.onnx.export import flat_softmax
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.prepare import prepare


def of_channels(*sizes: int | str, axis: int | None = 1, kind: str = "Softmax", opset: int = 17) -> Graph:
    """A Softmax of tensors of these sizes."""
    draft = Draft()
    draft.add(kind, ["x"], "softmax", outputs=["y"], **({} if axis is None else {"axis": axis}))
    with tempfile.TemporaryDirectory() as folder:
        return prepare(save(draft.model({"x": list(sizes)}, {"y": list(sizes)}, opset=opset), Path(folder)))


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(
    ("sizes", "axis", "forth", "back"),
    [
        (["batch", 5, 4, 3], 1, [0, 0, -1], [0, 0, 4, 3]),
        (["batch", 5, 4, 3], -3, [0, 0, -1], [0, 0, 4, 3]),
        ([2, 3, 5, 4, 3, 2], 2, [0, 0, 0, -1], [0, 0, 0, 4, 3, 2]),
        ([5, 4, 3], 0, [0, -1], [0, 4, 3]),
        (["batch", 5, "height", 3], 1, [0, 0, -1], [0, 0, -1, 3]),
    ],
    ids=["pixels", "from the back", "four behind", "nothing before", "an open height"],
)
def test_what_lies_behind_is_joined_with_the_same_values(
    kind: str, sizes: list, axis: int, forth: list[int], back: list[int]
) -> None:
    """Every value is the same bit for bit, in the shape that it had."""
    graph = of_channels(*sizes, axis=axis, kind=kind)
    flat = graph.copy()
    assert flat_softmax.flatten(flat)
    reshapes = [node for node in flat.nodes if node.op_type == "Reshape"]
    assert [flat.constant(node.input[1]).tolist() for node in reshapes] == [forth, back]
    feed = {"x": np.random.default_rng(1).standard_normal([s if isinstance(s, int) else 2 for s in sizes], np.float32)}
    assert np.array_equal(run(flat, feed, optimized=False)[0], run(graph, feed, optimized=False)[0])


@pytest.mark.parametrize(
    "graph",
    [
        of_channels("batch", 5, 4, 3, axis=2),
        of_channels("batch", 5, 4, 3, axis=None),
        of_channels("batch", 5, 4, axis=1),
        of_channels("batch", 5, "height", "width", axis=1),
        of_channels("batch", 5, 4, 3, kind="Hardmax"),
    ],
    ids=["one behind", "the last", "three dimensions", "two open sizes", "no Softmax"],
)
def test_other_forms_stay(graph: Graph) -> None:
    """With one dimension behind it is fast as it stands, and with two of unknown sizes no Reshape could give them
    back."""
    before = graph.model.SerializeToString()
    assert not flat_softmax.flatten(graph)
    assert graph.model.SerializeToString() == before


def test_before_opset_13_a_softmax_is_over_all_that_is_behind() -> None:
    """There the axis begins a matrix: no dimension is the one that it is over."""
    draft = Draft()
    draft.add("Softmax", ["x"], "softmax", outputs=["y"], axis=1)
    model = draft.model({"x": [2, 5, 4, 3]}, {"y": [2, 5, 4, 3]}, opset=12)
    assert not flat_softmax.flatten(Graph(model))
