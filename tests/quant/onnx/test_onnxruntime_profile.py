"""Where the time of a call goes on the runtimes of ONNX files, by their own counters."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_networks
import pytest
from onnx_networks import save
from onnxruntime.quantization import QuantType, quantize_dynamic
from optional_packages import needs_openvino

from qbench.quant.onnx import onnxruntime_layers, onnxruntime_profile

CALLS = 3
X = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A convolution and a linear layer, in fp32 and dynamic int8."""
    folder = tmp_path_factory.mktemp("profiled")
    draft = onnx_networks.Draft()
    x = draft.add("Relu", [draft.conv("image", "conv", 4, 8)], "relu")
    x = draft.linear(draft.add("Flatten", [x], "flatten"), "head", 512, 10)
    fp32 = save(draft.model({"image": ["batch", 4, 8, 8]}, {x: ["batch", 10]}), folder)
    quantize_dynamic(str(fp32), str(folder / "int8.onnx"), weight_type=QuantType.QInt8)
    return fp32, folder / "int8.onnx"


def test_products_of_fp32_are_float(files):
    """With the seconds of each, and the call beside them."""
    profile = onnxruntime_layers.time_nodes(files[0], (X,), threads=1, calls=CALLS)
    assert [node.operator for node in profile.nodes if node.kind == "float product"] == ["Conv", "Gemm"]
    assert profile.call_seconds > 0
    assert profile.watched_seconds >= profile.node_seconds > 0


def test_conversions_and_int8_products_are_told_apart(files):
    """Dynamic quantization looks for a range at each call."""
    profile = onnxruntime_layers.time_nodes(files[1], (X,), threads=1, calls=CALLS)
    kinds = {node.operator: node.kind for node in profile.nodes}
    assert kinds["ConvInteger"] == "int8 product"
    assert kinds["DynamicQuantizeLinear"] == "conversion"
    assert "float product" not in kinds.values()


def test_every_call_has_events_of_its_own(files):
    """As many calls as were made, each with the same nodes."""
    profile = onnxruntime_profile.profile_calls(files[0], (X,), calls=CALLS)
    names = [[name for name, _ in call] for call in profile.calls]
    assert len(names) == len(profile.call_seconds) == CALLS
    assert names[0] == names[1] == names[2]


@needs_openvino
def test_openvino_tells_its_nodes_too(files):
    """Float products of an fp32 file, the convolution under its name in the file."""
    from qbench.quant.onnx import openvino_layers

    profile = openvino_layers.time_nodes(files[0], (X,), threads=1, calls=CALLS)
    products = {node.layer: node.operator.split()[0] for node in profile.nodes if node.kind == "float product"}
    assert products == {"conv": "Convolution", "head_out": "FullyConnected"}


def test_weights_in_files_beside_it_are_no_obstacle(files, tmp_path):
    """torch exports them so: the optimized graph lies elsewhere, and would look for them there."""
    apart = tmp_path / "apart.onnx"
    model = onnx.load(str(files[0]))
    onnx.save(model, str(apart), save_as_external_data=True, location="apart.onnx.data", size_threshold=0)
    assert (tmp_path / "apart.onnx.data").exists()
    profile = onnxruntime_layers.time_nodes(apart, (X,), threads=1, calls=CALLS)
    assert [node.operator for node in profile.nodes if node.kind == "float product"] == ["Conv", "Gemm"]
