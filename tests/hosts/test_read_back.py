"""What kernels say in a child process, with and without a limit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from optional_packages import needs_openvino

from qbench import registry
from qbench.hosts import read_back
from qbench.hosts.limited import AVX2
from qbench.hosts.read_back import read_kernels
from qbench.machine import fingerprint
from qbench.process.child_process import Limits

LIMITS = Limits(seconds=120)
limitable = pytest.mark.skipif(AVX2.missing() is not None, reason=f"{AVX2.missing()}")
vnni = pytest.mark.skipif("avx512_vnni" not in fingerprint.isa(), reason="this CPU adds in 16 bits natively")


@limitable
@pytest.mark.parametrize("backend", ["torch", "fbgemm", "onednn", "qnnpack", "openvino"])
def test_the_switches_change_the_kernels(backend):
    """Names and bits are those of AVX2, although the server of children imported torch before they were set."""
    if (reason := registry.load("backend", backend).missing()) is not None:
        pytest.skip(reason)
    view = read_kernels(backend, environment=dict(AVX2.environment()), limits=LIMITS)
    assert AVX2.contradict(backend, view) is None
    assert view.torch_isa in (None, "AVX2")


@limitable
@vnni
@pytest.mark.skipif(bool(fingerprint.switches()), reason="a variable limits this process already")
def test_without_switches_the_kernels_contradict_the_limit():
    """The read-back can fail: sums in 32 bits are no AVX2."""
    view = read_kernels("onednn", environment={}, limits=LIMITS)
    assert view.int8_sums == "32 bits"
    assert AVX2.contradict("onednn", view) is not None


@pytest.mark.parametrize(
    ("backend", "share", "sums"),
    [
        ("onednn", 0.51, "16 bits"),
        ("onednn", 0.7499, "16 bits"),
        ("inductor", 0.75, "32 bits"),
        ("onednn", 1.0, "32 bits"),
        ("qnnpack", 0.51, None),
        ("torch", 0.51, None),
        ("openvino", 0.51, "16 bits"),
        ("openvino", 0.75, "32 bits"),
        ("onnxruntime", 0.51, "16 bits"),
    ],
)
def test_a_sum_that_lost_a_quarter_was_clipped(monkeypatch, backend, share, sums):
    """Rounding loses less, and clipping about half; of backends whose answer is the same everywhere nobody asks."""
    own = f"_sum_by_{backend}" if backend in ("openvino", "onnxruntime") else None
    for name in ("_sum_by_openvino", "_sum_by_onnxruntime"):
        monkeypatch.setattr(read_back, name, lambda: pytest.fail("another engine was asked"))
    monkeypatch.setattr(read_back, "_sum_by_torch", lambda backend: share * read_back._EXACT)
    if own is not None:
        monkeypatch.setattr(read_back, own, lambda: share * read_back._EXACT)
        monkeypatch.setattr(read_back, "_sum_by_torch", lambda backend: pytest.fail("torch was asked"))
    assert read_back._find_sums(backend) == sums


@pytest.mark.usefixtures("engine_put_back")
@pytest.mark.parametrize("backend", ["torch_ao", "openvino", "onnxruntime"])
def test_the_largest_sum_is_exact_or_clipped(backend):
    """Whatever this CPU does, and the rounding to a byte of its scale is the only other loss."""
    if backend == "openvino" and (reason := registry.load("backend", backend).missing()) is not None:
        pytest.skip(reason)
    ask = {"openvino": read_back._sum_by_openvino, "onnxruntime": read_back._sum_by_onnxruntime}
    total = ask.get(backend, lambda: read_back._sum_by_torch("onednn"))()
    clipped = 32_767 / (2 * 255 * 127)
    assert any(total / read_back._EXACT == pytest.approx(share, abs=0.005) for share in (1.0, clipped))


@pytest.mark.parametrize(("backend", "isa"), [("torch", "AVX2"), ("qnnpack", "AVX2"), ("openvino", None)])
def test_what_torch_says_of_itself_is_told_of_its_own_engines(monkeypatch, backend, isa):
    """Another runtime has kernels of its own, which only their sums tell of."""
    inside = SimpleNamespace(torch_isa="AVX2", onednn_isa="AVX2", mkl_isa="AVX2")
    monkeypatch.setattr(read_back.runtime, "in_this_process", lambda: inside)
    monkeypatch.setattr(read_back, "_find_sums", lambda backend: "32 bits")
    view = read_back.read_here(backend)
    assert (view.torch_isa, view.onednn_isa, view.mkl_isa, view.int8_sums) == (isa, isa, isa, "32 bits")


def test_the_product_fills_whole_blocks_of_a_kernel():
    """64 bytes and 16 sums are what a vector holds; what is left over may be added by other code."""
    assert (read_back._DEPTH, read_back._OUTPUTS, read_back._ROWS) == (64, 16, 4)
    assert read_back._EXACT == 64 * 255 * 127


class Sum:
    """The result of a product: so much everywhere."""

    def __init__(self, value):
        self.value = value

    def dequantize(self):
        return torch.full((2,), self.value)


@pytest.mark.usefixtures("engine_put_back")
def test_torch_multiplies_the_largest_bytes(monkeypatch):
    """Without zero points, and the result in 255 steps up to the exact sum."""
    asked = []

    def linear(x, packed, scale, zero):
        asked.append((x, *torch.ops.quantized.linear_unpack(packed), scale, zero))
        return Sum(3.0)

    monkeypatch.setattr(torch.ops.quantized, "linear", linear)
    assert read_back._sum_by_torch("onednn") == 3.0
    ((x, weight, bias, scale, zero),) = asked
    assert (tuple(x.shape), tuple(weight.shape), bias) == ((4, 64), (16, 64), None)
    assert set(x.int_repr().flatten().tolist()) == {255}
    assert set(weight.int_repr().flatten().tolist()) == {127}
    assert (x.q_scale(), x.q_zero_point(), scale, zero) == (1.0, 0, 64 * 127.0, 0)


@needs_openvino
def test_openvino_is_given_a_product_of_bytes(monkeypatch):
    """256 levels from 0 to 255 are bytes of scale 1; one thread, and no float of 16 bits."""
    import openvino

    asked = []

    class Core:
        def compile_model(self, model, device, settings):
            asked.append((model, device, settings))
            return lambda x: {0: x * 0 + 5}

    monkeypatch.setattr(openvino, "Core", Core)
    assert read_back._sum_by_openvino() == 5.0
    ((model, device, settings),) = asked
    assert (device, settings) == (
        "CPU",
        {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"},
    )
    operators = {operator.get_type_name(): operator for operator in model.get_ops()}
    quantizing = operators["FakeQuantize"]
    ends = [float(quantizing.input_value(place).get_node().get_data().item()) for place in range(1, 5)]
    assert (quantizing.get_attributes()["levels"], ends) == (256, [0.0, 255.0, 0.0, 255.0])


def test_onnx_runtime_multiplies_on_one_thread(monkeypatch):
    """By a file of the oldest versions that have the operator, so that every ONNX Runtime takes it."""
    import onnx
    import onnxruntime

    asked = []

    class Session:
        def __init__(self, model, options, providers):
            asked.append((onnx.load_from_string(model), options.intra_op_num_threads))

        def run(self, names, values):
            return [values["x"] * 0 + 7]

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    assert read_back._sum_by_onnxruntime() == 7.0
    ((model, threads),) = asked
    assert (threads, model.ir_version, [each.version for each in model.opset_import]) == (1, 8, [13])
