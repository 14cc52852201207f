"""Means over whole images are pools on bytes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_networks import Draft
from quantized_networks import Quantized, executed, of, run

from qbench.quant.onnx.export import executed_layers, narrow_weights
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.export.global_pool import as_pools


def squeezed(*, keepdims: int, axes: list[int], opset: int) -> Quantized:
    """A convolution, a mean over the image, and a layer that reads it."""
    draft = Draft()
    x = draft.add("Relu", [draft.conv("x", "one", 8, 16)], "relu")
    if opset >= 18:
        x = draft.add("ReduceMean", [x, draft.constant("axes", np.array(axes))], "mean", keepdims=keepdims)
    else:
        x = draft.add("ReduceMean", [x], "mean", axes=axes, keepdims=keepdims)
    if keepdims:
        draft.conv(x, "two", 16, 4, 1)
    else:
        draft.linear(x, "two", 16, 4)
    draft.nodes[-1].output[0] = "y"
    shape = ["batch", 4, 1, 1] if keepdims else ["batch", 4]
    return of(draft.model({"x": ["batch", 8, 9, 7]}, {"y": shape}, opset=opset))


@pytest.mark.parametrize(
    ("keepdims", "axes", "opset"), [(1, [2, 3], 17), (0, [3, 2], 17), (1, [-1, -2], 18), (0, [2, -1], 18)]
)
def test_a_mean_over_an_image_runs_on_bytes(keepdims: int, axes: list[int], opset: int) -> None:
    """ONNX Runtime has no float mean left, and gives what the simulation gives."""
    planned = squeezed(keepdims=keepdims, axes=axes, opset=opset)
    fitted = narrow_weights.fitted(planned.graph, planned.sites, planned.record, None)
    settled = executed_layers.settled(planned.graph, planned.sites, fitted)
    kinds = [node.op_type for node in executed(settled.graph)]
    assert kinds.count("QLinearGlobalAveragePool") == 1
    assert "ReduceMean" not in kinds
    simulated = fake_quant(planned.graph, settled.sites, planned.record)
    (expected,), (outputs,) = run(simulated, planned.feed), run(settled.graph, planned.feed)
    assert outputs.shape == expected.shape
    assert np.abs(outputs - expected).max() <= 0.02 * np.abs(expected).max()


@pytest.mark.parametrize("axes", [[1], [2], [1, 2, 3]])
def test_other_means_stay(axes: list[int]) -> None:
    """A mean over channels or one side of the image is no pool; the graph is left as it is."""
    draft = Draft()
    x = draft.add("ReduceMean", [draft.conv("x", "one", 8, 16)], "mean", axes=axes, keepdims=1)
    draft.add("Identity", [x], "end", outputs=["y"])
    shape = ["batch", *(1 if axis in axes else size for axis, size in ((1, 16), (2, 9), (3, 7)))]
    graph = of(draft.model({"x": ["batch", 8, 9, 7]}, {"y": shape})).graph
    before = [node.op_type for node in graph.nodes]
    as_pools(graph)
    assert [node.op_type for node in graph.nodes] == before
