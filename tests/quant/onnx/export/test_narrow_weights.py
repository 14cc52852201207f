"""Weights with room for sums of 16 bits: which forms there are, which weights are narrowed, and that sums then hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import NETWORKS, Draft
from quantized_networks import Quantized, of, quantized, run

from qbench.errors import UsageError
from qbench.machine import fingerprint
from qbench.quant.onnx.export import deploy_model, deploy_onnxruntime, narrow_weights, slow_in_int8
from qbench.quant.onnx.export.deploy_onnxruntime import deploy
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.export.narrow_weights import Fitted, widen_for_arm
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Scales, Sites, WeightSite
from qbench.quant.onnx.weights.narrow_steps import narrow_steps
from qbench.quant.saturation.onnxruntime_prediction import OnnxRuntimePredictor
from qbench.record.schema import TargetFacts

ADDS_IN_16_BITS = deploy_onnxruntime.form_for() == "U8U8" and "avx2" in fingerprint.isa()
Array = NDArray[Any]


@pytest.mark.parametrize(
    ("own", "asked", "expected"),
    [
        ("U8S8", None, ("U8S8", "U8S8", False)),
        ("S8S8", None, ("S8S8", "S8S8", False)),
        ("U8U8", None, ("U8S8-narrow", "U8S8", True)),
        ("U8U8", "U8U8", ("U8U8", "U8U8", False)),
        ("U8U8", "U8S8", ("U8S8", "U8S8", False)),
        ("U8S8", "U8S8-narrow", ("U8S8-narrow", "U8S8", True)),
    ],
)
def test_the_form_is_what_is_fast_and_exact_here_or_what_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, own: str, asked: str | None, expected: tuple[str, str, bool]
) -> None:
    """Only where products are added in 16 bits, or it is asked for, weights are narrowed; otherwise they stay."""
    monkeypatch.setattr(deploy_onnxruntime, "form_for", lambda: own)
    network = quantized("residual_cnn")
    fitted = narrow_weights.fitted(network.graph, network.sites, network.record, asked)
    assert (fitted.choice, fitted.form, fitted.narrowed is not None) == expected
    assert (fitted.record == network.record) is not expected[2]
    if fitted.widened is not None:
        assert set(fitted.widened) == {site.layer for site in network.sites.weights}
        assert fitted.narrowed == sum(fitted.widened.values()) / fitted.channels


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_a_file_for_older_cpus_has_no_pair_that_overflows(runtime: str, tmp_path: Path) -> None:
    """Whatever this machine adds in; what was done is told, and that nothing was where weights are left alone."""
    network, file = quantized("residual_cnn"), tmp_path / "model.onnx"

    def write(**options: Any) -> deploy_model.Written:
        return deploy_model.write(network.graph, network.sites, network.record, file, runtime=runtime, **options)

    written = write(target=("avx2", "arm"))
    if runtime == "onnxruntime":
        assert [layer.pairs for layer in OnnxRuntimePredictor(file).layers if layer.pairs] == []
    assert written.target is not None
    assert written.target.cpus == ("avx2", "arm")
    assert 0 < written.target.layers_narrowed <= written.target.layers == len(network.sites.weights)
    assert written.target.channels_narrowed >= written.target.layers_narrowed
    assert not written.target.overflowing
    left = write(target=("avx2",), narrow_weights=False)
    assert left.target is not None
    assert left.target.overflowing
    assert any("may overflow; narrow_weights: true avoids it" in note for note in left.notes)
    assert write().target is None


def test_a_layer_that_stays_float_counts_for_no_other_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What ONNX Runtime runs faster in float has no sums that could overflow, and no steps to widen."""
    network, file = quantized("residual_cnn"), tmp_path / "model.onnx"
    names = [site.layer for site in network.sites.weights]

    def write(**options: Any) -> Any:
        return deploy_model.write(
            network.graph, network.sites, network.record, file, runtime="onnxruntime", target=("avx2",), **options
        ).target

    before = write(), write(narrow_weights=False)
    monkeypatch.setattr(slow_in_int8, "find_slow", lambda graph, sites: {names[0]: "faster in float"})
    facts, left = write(leave_slow_float=True), write(leave_slow_float=True, narrow_weights=False)
    assert (before[0].layers, facts.layers) == (len(names), len(names) - 1)
    assert facts.layers_narrowed <= facts.layers
    assert names[0] in before[1].overflowing
    assert names[0] not in left.overflowing


def test_a_form_that_there_is_not_is_named() -> None:
    """The message lists those that exist."""
    network = quantized("residual_cnn")
    with pytest.raises(UsageError, match="no form named 'U8'; available: U8S8, U8S8-narrow, U8U8, S8S8"):
        narrow_weights.fitted(network.graph, network.sites, network.record, "U8")


def layer(kind: str, inputs: int, outputs: int, kernel: int = 1, dims: int = 2, group: int = 1) -> Quantized:
    """A layer whose weights are all 127 and whose inputs are all 255: the largest sums that there are."""
    draft = Draft()
    if kind == "Conv":
        draft.constant("w", np.ones((outputs, inputs // group, *[kernel] * dims), np.float32))
        draft.add("Conv", ["x", "w"], "one", kernel_shape=[kernel] * dims, pads=[kernel // 2] * 2 * dims, group=group,
                  outputs=["y"])  # fmt: skip
        shape, result = ["n", inputs, *[6] * dims], ["n", outputs, *[6] * dims]
    else:
        draft.constant("w", np.ones((inputs, outputs), np.float32))
        draft.add(kind, ["x", "w"], "one", outputs=["y"])
        shape, result = ["n", inputs], ["n", outputs]
    # What ONNX Runtime needs to compute a convolution in integers: that its output is quantized.
    draft.nodes[-1].output[0] = "inner"
    draft.add("MaxPool" if kind == "Conv" else "Identity", ["inner"], "last", outputs=["y"],
              **({"kernel_shape": [1] * dims} if kind == "Conv" else {}))  # fmt: skip
    network = of(draft.model({"x": shape}, {"y": result}), batch=1)
    largest = float(inputs // group * kernel**dims if kind == "Conv" else inputs)
    ranges = {key: largest if key != "one" else 1.0 for key in network.record}
    record = {key: replace(network.record[key], scale_d=top / 255, offset_d=-128) for key, top in ranges.items()}
    return replace(network, record=record, feed={name: np.ones_like(value) for name, value in network.feed.items()})


LAYERS: list[dict[str, Any]] = [
    {"kind": "Conv", "inputs": 1, "outputs": 8, "kernel": 3},  # the channels of one place meet those of the next
    {"kind": "Conv", "inputs": 3, "outputs": 8, "kernel": 3},
    {"kind": "Conv", "inputs": 8, "outputs": 8, "kernel": 3},
    {"kind": "Conv", "inputs": 16, "outputs": 8},
    {"kind": "Conv", "inputs": 4, "outputs": 8, "kernel": 3, "group": 4},
    {"kind": "Conv", "inputs": 6, "outputs": 6, "kernel": 3, "group": 2},
    {"kind": "Conv", "inputs": 8, "outputs": 8, "kernel": 3, "group": 8},
    {"kind": "Conv", "inputs": 2, "outputs": 4, "kernel": 3, "dims": 3},
    {"kind": "MatMul", "inputs": 65, "outputs": 8},
    {"kind": "Gemm", "inputs": 8, "outputs": 32},
]


@pytest.mark.parametrize("shape", LAYERS, ids=lambda sizes: "-".join(map(str, sizes.values())))
def test_narrowed_weights_hold_where_others_saturate(shape: dict[str, Any]) -> None:
    """With the largest weights and inputs that there are, the integer kernels give what the simulation gives; with
    weights that are not narrowed they do so on CPUs that add products in 32 bits, for every kind of layer, and on
    others for a depthwise layer."""
    row = layer(**shape)
    depthwise = shape.get("group") == shape["outputs"] or not ADDS_IN_16_BITS
    for record, exact in (
        (narrow_steps(row.graph, row.sites, row.record), True),
        (row.record, depthwise),
    ):
        (actual,) = run(deploy(row.graph, row.sites, record, form="U8S8"), row.feed)
        (expected,) = run(fake_quant(row.graph, row.sites, record), row.feed)
        assert (np.abs(actual - expected).max() <= 0.006 * expected.max()) is np.bool_(exact)


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
