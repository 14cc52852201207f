"""The biases of a deploy model give back what rounded weights do on average."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_networks import Draft
from optional_packages import needs_openvino
from quantized_networks import Quantized, of, run, values

from qbench.quant.onnx.export import deploy_model, slow_in_int8
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.weights.mean_inputs import MeanInputs


def two_layers(*, transposed: bool = False) -> Quantized:
    """Two convolutions, each behind a ReLU; ``transposed``: beside the second a ConvTranspose, "float", which ONNX
    Runtime runs in float."""
    draft = Draft()
    x = draft.add("Relu", ["x"], "positive")
    x = draft.add("Relu", [draft.conv(x, "one", 4, 16, 3)], "relu")
    outputs = {draft.conv(x, "two", 16, 4, 1): ["batch", 4, 8, 8]}
    if transposed:
        y = draft.add("ConvTranspose", [x, draft.weight("float.weight", 16, 4, 3, 3)], "float")
        outputs |= {y: ["batch", 4, 10, 10]}
    return of(draft.model({"x": ["batch", 4, 8, 8]}, outputs))


def means_of(network: Quantized, **factors: float) -> dict[str, Any]:
    """What its layers are given on average, that of some times a factor."""
    inputs = MeanInputs(network.graph, network.sites)
    tensors = [node.output[0] for node in network.graph.nodes if node.op_type == "Relu"]
    inputs.add(dict(zip(tensors, values(network.graph, network.feed, *tensors), strict=True)))
    return {layer: means * np.float32(factors.get(layer, 1.0)) for layer, means in inputs.means().items()}


def outputs_of(network: Quantized, file: Path, runtime: str, **options: Any) -> Any:
    """All that a file gives that is written of a copy of the network, by example."""
    deploy_model.write(network.graph.copy(), network.sites, network.record, file, runtime=runtime, **options)
    if runtime == "onnxruntime":
        outputs = run(Graph.load(file), network.feed)
        return np.concatenate([values.reshape(len(values), -1) for values in outputs], axis=1)
    from qbench.quant.artifacts import openvino_model

    return openvino_model.run(openvino_model.compile_file(file), tuple(network.feed.values()))


@pytest.mark.parametrize("runtime", ["onnxruntime", pytest.param("openvino", marks=needs_openvino)])
def test_the_mean_error_of_the_outputs_is_nearly_gone(tmp_path: Path, runtime: str) -> None:
    """Channel by channel, on the examples whose means are known: less than half of what it is without."""
    network, file = two_layers(), tmp_path / "model.onnx"
    (exact,) = run(network.graph, network.feed)
    errors = [
        outputs_of(network, file, runtime, **options).reshape(exact.shape) - exact
        for options in ({}, {"mean_inputs": means_of(network)})
    ]
    errors = [np.linalg.norm(error.mean(axis=(0, 2, 3))) for error in errors]
    assert errors[1] < errors[0] / 2


def test_a_layer_that_runs_in_float_keeps_its_bias(tmp_path: Path) -> None:
    """Where ONNX Runtime has no kernel for a layer its weights are not rounded, and nothing is taken off, be its inputs
    however large. The others stay corrected."""
    network, file = two_layers(transposed=True), tmp_path / "model.onnx"
    plain = outputs_of(network, file, "onnxruntime")
    as_they_are, huge = (
        outputs_of(network, file, "onnxruntime", mean_inputs=means_of(network, float=factor)) for factor in (1.0, 1e4)
    )
    np.testing.assert_allclose(as_they_are, huge, atol=1e-4 * np.abs(plain).max())
    assert np.abs(as_they_are - plain).max() > 1e-4 * np.abs(plain).max()


def test_a_layer_that_is_faster_in_float_keeps_its_bias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left float for its time is not rounded either."""
    network, file = two_layers(), tmp_path / "model.onnx"
    monkeypatch.setattr(slow_in_int8, "find_slow", lambda graph, sites: {"two": "slow"})
    as_they_are, huge = (
        outputs_of(network, file, "onnxruntime", leave_slow_float=True, mean_inputs=means_of(network, two=factor))
        for factor in (1.0, 1e4)
    )
    np.testing.assert_array_equal(as_they_are, huge)


def test_on_openvino_a_layer_is_int8_whatever_is_slow_on_onnx_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of slow layers is ONNX Runtime's: OpenVINO's file has the weights of all of them rounded, so all are
    corrected."""
    network = two_layers()
    monkeypatch.setattr(slow_in_int8, "find_slow", lambda graph, sites: {"two": "slow"})
    graph = network.graph.copy()
    before = graph.constant("two.bias")
    options = {"runtime": "openvino", "leave_slow_float": True, "mean_inputs": means_of(network)}
    deploy_model.write(graph, network.sites, network.record, tmp_path / "model.onnx", **options)
    after = graph.constant("two.bias")
    assert before is not None
    assert after is not None
    assert np.abs(before - after).max() > 0
