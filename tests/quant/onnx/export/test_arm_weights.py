"""Weights for ONNX Runtime on ARM: no channel has two of -128, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import NETWORKS
from quantized_networks import of, quantized

from qbench.quant.onnx.export import deploy_model
from qbench.quant.onnx.export.arm_weights import widen_for_arm
from qbench.quant.onnx.export.narrow_weights import Fitted
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Scales, Sites, WeightSite
from qbench.record.schema import TargetFacts


def widen(value: np.ndarray, scales: tuple[float, ...], axis: int | None = 0, kind: str = "Conv") -> Any:
    """The scales of one layer's weight, and how many channels got a wider one."""
    node = helper.make_node(kind, ["x", "w"], ["y"], name="layer")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    tensor = numpy_helper.from_array(value.astype(np.float32), "w")
    graph = Graph(helper.make_model(helper.make_graph([node], "net", ends[:1], ends[1:], [tensor])))
    site: Any = WeightSite(layer="layer", tensor="w", axis=axis, params=None)  # type: ignore[arg-type]
    record = {"layer": Scales(scale_w=scales)}
    fitted = Fitted(choice="U8S8", form="U8S8", record=record)
    result = widen_for_arm(graph, Sites(weights=(site,), activations=()), fitted, record)
    assert result.widened is not None
    return np.asarray(result.record["layer"].scale_w), result.widened["layer"]


def test_only_a_channel_with_two_of_the_least_bytes_gets_a_wider_step() -> None:
    """-128 and 127 fit, and so does one -128 among others; a step that clips weights grows until they round to -127."""
    value = np.array([[-128, -128, 5], [-128, 127, 127], [-127.4, -127.4, 0], [-127.6, -127.6, 0], [-150, -140, 1]])
    scales, widened = widen(value.reshape(5, 3, 1, 1), (1.0,) * 5)
    assert (scales > 1).tolist() == [True, False, False, True, True]
    assert widened == 3
    assert scales.max() == pytest.approx(150 / 127.49)
    assert np.rint(value / scales[:, None].astype(np.float32))[[0, 2, 3, 4]].min() == -127


def test_one_step_for_a_whole_weight_grows_for_its_worst_channel() -> None:
    """The channels of a MatMul are its columns."""
    both = np.array([[-128.0, 1.0], [-128.0, 1.0]])
    assert widen(both, (1.0,), axis=None, kind="MatMul")[0] == pytest.approx(128 / 127.49)
    assert widen(both.T, (1.0,), axis=None, kind="MatMul")[0] == 1.0
    assert widen(both, (1.0, 1.0), axis=1, kind="MatMul")[0].tolist() == [pytest.approx(128 / 127.49), 1.0]


def lowest() -> Any:
    """A network whose depthwise layer has the lowest weight of its channel everywhere."""
    model = NETWORKS["depthwise"]()
    for tensor in model.graph.initializer:
        if tuple(tensor.dims) == (24, 1, 3, 3):
            value = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(np.full_like(value, -0.5), tensor.name))
    return of(model)


@pytest.mark.parametrize("target", [("arm",), ("avx2", "arm"), ("avx2",)])
def test_a_file_for_arm_has_no_two_of_them_in_a_channel(target: tuple[str, ...], tmp_path: Path) -> None:
    """Of depthwise layers, too, which no kernel for AVX2 asks to be narrowed; other targets leave those as they are."""
    network, file = lowest(), tmp_path / "model.onnx"
    for_arm = "arm" in target

    def write(runtime: str, **options: Any) -> tuple[TargetFacts, int]:
        written = deploy_model.write(
            network.graph, network.sites, network.record, file, runtime=runtime, target=target, **options
        )
        assert written.target is not None
        weights = [numpy_helper.to_array(tensor) for tensor in onnx.load(file).graph.initializer]
        kernels = [value for value in weights if value.dtype == np.int8 and value.shape[2:] == (3, 3)]
        return written.target, max(int((value == -128).sum(axis=(1, 2, 3)).max()) for value in kernels)

    facts, least = write("onnxruntime")
    assert least <= 1 if for_arm else least == 9
    assert ("arm" in facts.cpus and not facts.overflowing) is for_arm
    assert facts.channels_narrowed >= (24 if for_arm else 0)
    assert facts.layers_narrowed <= facts.layers
    left, least = write("onnxruntime", narrow_weights=False)
    assert least == 9
    assert left.overflowing
    assert write("openvino")[1] == 9


def test_a_network_without_such_channels_is_written_as_it_was(tmp_path: Path) -> None:
    """For ARM nothing else is asked of weights: the bytes of the file are those for this machine."""
    network = quantized("mlp")
    files = [tmp_path / "native.onnx", tmp_path / "arm.onnx"]
    for file, target in zip(files, ((), ("arm",)), strict=True):
        deploy_model.write(network.graph, network.sites, network.record, file, runtime="onnxruntime", target=target)
    assert files[0].read_bytes() == files[1].read_bytes()
