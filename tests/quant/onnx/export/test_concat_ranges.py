"""What a Concat joins has one range, so that the runtimes join bytes as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_networks import Draft
from optional_packages import needs_openvino
from quantized_networks import Quantized, executed, of, run

from qbench.quant.onnx.export import concat_ranges
from qbench.quant.onnx.export.deploy_model import write
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.graph.graph import Graph


def joining(scale: float = 1.0) -> Quantized:
    """As in a U-Net: a side that a pool reads, too, joined with a convolution that is scaled."""
    draft = Draft()
    side = draft.add("Relu", [draft.conv("x", "one", 4, 8)], "side")
    pooled = draft.add("MaxPool", [side], "pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    up = draft.conv(draft.add("Relu", [draft.conv(pooled, "two", 8, 8)], "relu"), "up", 8, 8)
    for tensor in draft.initializers:
        if tensor.name.startswith("up."):
            tensor.raw_data = (scale * np.frombuffer(tensor.raw_data, np.float32)).tobytes()
    both = draft.add("Concat", [up, side], "join", axis=1)
    draft.conv(draft.add("Relu", [draft.conv(both, "three", 16, 8)], "relu3"), "four", 8, 4)
    draft.nodes[-1].output[0] = "y"
    return of(draft.model({"x": ["batch", 4, 16, 16]}, {"y": ["batch", 4, 16, 16]}))


def test_what_is_joined_has_one_range() -> None:
    """What a Concat reads and gives, and what a pool gives of it, are the same bytes, which hold the widest values."""
    network = joining()
    ranges = concat_ranges.ranges(network.graph, network.sites, network.record)
    assert set(ranges) == {"join:0", "join:1", "pool:0", "two", "three"}
    assert len({(ends.scale_d, ends.offset_d) for ends in ranges.values()}) == 1
    assert ranges["three"].scale_d == pytest.approx(network.record["three"].scale_d, rel=0.05)


def test_a_range_that_is_read_elsewhere_widens_by_two_at_most() -> None:
    """The pool would read a side whose values are a tenth of the Concat's with 3 bits fewer."""
    network = joining(10.0)
    assert concat_ranges.ranges(network.graph, network.sites, network.record) == {}


@needs_openvino
def test_openvino_joins_bytes(tmp_path: Path) -> None:
    """OpenVINO runs every convolution and the Concat on bytes and quantizes the input alone in a step of its own; with
    AMX it gives the first convolution signed bytes (its kernel then ends in ``_i8``), without it unsigned ones."""
    openvino_model = pytest.importorskip("qbench.quant.artifacts.openvino_model")
    network = joining()
    write(network.graph, network.sites, network.record, tmp_path / "int8.onnx", runtime="openvino")
    nodes = openvino_model.compile_file(tmp_path / "int8.onnx").get_runtime_model().get_ordered_ops()
    message = [
        {key: str(getattr(entry, "value", entry)) for key, entry in node.get_rt_info().items()} for node in nodes
    ]
    kinds = [(entry["layerType"], entry["primitiveType"]) for entry in message]
    assert [kernel.lower().endswith("_i8") for kind, kernel in kinds if kind == "Convolution"] == [True] * 5
    assert [kernel for kind, kernel in kinds if kind == "Concatenation"] == ["ref_I8"]
    assert [kind for kind, _ in kinds].count("FakeQuantize") == 1


def test_onnx_runtime_joins_bytes_of_one_scale(tmp_path: Path) -> None:
    """ONNX Runtime's QLinearConcat copies where all scales are equal, and the file gives the simulated values."""
    network = joining()
    write(network.graph, network.sites, network.record, tmp_path / "int8.onnx", runtime="onnxruntime")
    graph = Graph.load(tmp_path / "int8.onnx")
    layers = executed(graph)
    (concat,) = (node for node in layers if node.op_type == "QLinearConcat")
    scales = [float(graph.constant(name)) for name in (concat.input[0], *concat.input[3::3])]
    assert len(scales) == 3
    assert len(set(scales)) == 1
    assert [node.op_type for node in layers].count("QLinearConv") == 5
    record = {**network.record, **concat_ranges.ranges(network.graph, network.sites, network.record)}
    (arguments,), (expected,) = (
        run(graph, network.feed),
        run(fake_quant(network.graph, network.sites, record), network.feed),
    )
    assert np.abs(arguments - expected).max() <= 0.05 * np.abs(expected).max()


def test_trained_scales_stay_as_they_are(tmp_path: Path) -> None:
    """A network that was trained with its scales is written with these."""
    network = joining()
    write(network.graph, network.sites, network.record, tmp_path / "int8.onnx", runtime="onnxruntime", learned=True)
    graph = Graph.load(tmp_path / "int8.onnx")
    (concat,) = (node for node in executed(graph) if node.op_type == "QLinearConcat")
    scales = {float(graph.constant(name)) for name in (concat.input[0], *concat.input[3::3])}
    assert {round(network.record[key].scale_d, 6) for key in ("join:0", "join:1")} <= {
        round(scale, 6) for scale in scales
    }
