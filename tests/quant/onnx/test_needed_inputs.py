"""Which inputs are quantized so that convolutions run on bytes, and which convolutions at the end stay float."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_networks import Draft, save
from quantized_networks import of

from qbench.quant.onnx import needed_inputs
from qbench.quant.onnx.export import deploy_openvino, executed_layers, narrow_weights
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import layers
from qbench.quant.onnx.graph.prepare import prepare

BINS = 4


def detector(channels: int, *, refined: bool = False) -> Draft:
    """Two layers of ``channels`` each, then heads for four distances of ``BINS`` bins and for three classes, decoded:
    distances by a Softmax and a convolution, scores by a Sigmoid, both in one output. ``refined``: a layer as large as
    the first reads the heads, too."""
    draft = Draft()
    x = draft.add("Relu", [draft.conv("x", "one", 3, channels)], "relu")
    x = draft.add("Relu", [draft.conv(x, "two", channels, channels)], "relu2")
    boxes, classes = draft.conv(x, "boxes", channels, 4 * BINS, 1), draft.conv(x, "classes", channels, 3, 1)
    joined = draft.add("Concat", [boxes, classes], "joined", axis=1)
    if refined:
        joined = draft.conv(joined, "refine", 4 * BINS + 3, 4 * BINS + 3)
    sizes = draft.constant("sizes", np.array([4 * BINS, 3]))
    draft.add("Split", [joined, sizes], "parts", outputs=["distances", "logits"], axis=1)
    shape = draft.constant("shape", np.array([0, 4, BINS, 64]))
    bins = draft.add("Reshape", ["distances", shape], "bins")
    moved = draft.add("Transpose", [bins], "moved", perm=[0, 2, 1, 3])
    likely = draft.add("Softmax", [moved], "likely", axis=1)
    bin_values = draft.constant("values", np.arange(BINS, dtype=np.float32).reshape(1, BINS, 1, 1))
    distance = draft.add("Conv", [likely, bin_values], "decode", kernel_shape=[1, 1])
    flat = draft.add("Reshape", [distance, draft.constant("flat", np.array([0, 4, 64]))], "flat_boxes")
    scores = draft.add("Reshape", ["logits", draft.constant("flat2", np.array([0, 3, 64]))], "flat_scores")
    draft.add("Concat", [flat, draft.add("Sigmoid", [scores], "scores")], "end", outputs=["y"], axis=1)
    return draft


def model_of(draft: Draft) -> object:
    return draft.model({"x": ["batch", 3, 8, 8]}, {"y": ["batch", 7, 64]})


def places(graph: Graph) -> set[str]:
    """The nodes that read a convolution's bytes without being a layer."""
    every = layers(graph)
    enabled = {layer.name for layer in every if layer.kind == "layer" and layer.reason is None}
    return {name for name, _ in needed_inputs.find(graph, {layer.name: layer.kind for layer in every}, enabled, ())}


@pytest.mark.parametrize(
    ("channels", "refined", "read"),
    [(64, False, set()), (12, False, {"joined"}), (64, True, {"joined", "parts"})],
    ids=["small heads", "large heads", "heads that a layer reads"],
)
def test_heads_of_a_detector_stay_float_where_they_are_small(
    channels: int, refined: bool, read: set[str], tmp_path: Path
) -> None:
    """Also though a convolution of next to no work decodes them; where they are a larger share, or a layer reads them,
    what reads their bytes is quantized; what decodes them stays float."""
    graph = prepare(save(model_of(detector(channels, refined=refined)), tmp_path))  # type: ignore[arg-type]
    assert places(graph) - {"two"} == read


def test_small_heads_are_called_so(tmp_path: Path) -> None:
    """ONNX Runtime runs the three of them in float, and the record says why."""
    planned = of(model_of(detector(64)))  # type: ignore[arg-type]
    fitted = narrow_weights.fitted(planned.graph, planned.sites, planned.record, None)
    floats = executed_layers.settled(planned.graph, planned.sites, fitted).floats
    assert floats.keys() == {"boxes", "classes", "decode"}
    why = "ONNX Runtime would round the outputs of the network to 8 bits, for too little work to gain by it"
    assert set(floats.values()) == {why}


def test_openvino_joins_heads_for_the_caller_in_float() -> None:
    """One range for boxes and scores would round the scores away; its convolutions give floats from bytes."""
    planned = of(model_of(detector(12)))  # type: ignore[arg-type]
    fitted = narrow_weights.fitted(planned.graph, planned.sites, planned.record)
    graph = deploy_openvino.deploy(planned.graph, planned.sites, fitted)
    makers = [graph.maker(name) for name in graph.node("joined").input]
    assert [maker.op_type for maker in makers if maker is not None] == ["Add", "Add"]
    assert graph.maker(graph.node("boxes").input[0]).op_type == "DequantizeLinear"


@pytest.mark.parametrize("classifier", ["Gemm", "Conv"])
def test_a_small_classifier_behind_a_pool_is_a_layer(classifier: str, tmp_path: Path) -> None:
    """The last convolutions before it are no ends, however little work it has: as in a ResNet."""
    draft = Draft()
    x = draft.add("Relu", [draft.conv("x", "one", 3, 32)], "relu")
    x = draft.add("Relu", [draft.conv(x, "two", 32, 32)], "relu2")
    x = draft.add("Relu", [draft.conv(x, "three", 32, 8, 1)], "relu3")
    x = draft.add("GlobalAveragePool", [x], "pool")
    if classifier == "Gemm":
        draft.linear(draft.add("Flatten", [x], "flat"), "end", 8, 4)
    else:
        draft.add("Flatten", [draft.conv(x, "end", 8, 4, 1)], "flat")
    draft.nodes[-1].output[0] = "y"
    graph = prepare(save(draft.model({"x": ["batch", 3, 16, 16]}, {"y": ["batch", 4]}), tmp_path))
    assert needed_inputs.find_small_ends(graph, {"one", "two", "three", "end"}) == (
        set() if classifier == "Gemm" else {"end"}
    )
