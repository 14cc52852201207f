"""The products that a peak is measured by: what each multiplies, and in which layout."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from qbench.machine import gemm


def look_into(call: Any) -> dict[str, Any]:
    """What a call multiplies."""
    return dict(inspect.getclosurevars(call).nonlocals)


@pytest.mark.parametrize("name", ["torch.mm", "torch._int_mm"])
def test_both_layouts_of_torchs_products_are_tried(name: str) -> None:
    """A library may prefer either; each is of two square matrices, and of bytes where it says so."""
    calls = {kernel.name: kernel.make(16) for kernel in gemm.kernels() if kernel.name.startswith(name)}
    assert set(calls) == {name, f"{name} transposed"}
    for title, call in calls.items():
        right = look_into(call)["right"]
        assert right.is_contiguous() is ("transposed" not in title)
        assert tuple(right.shape) == tuple(look_into(call)["a"].shape) == (16, 16)
        assert str(right.dtype) == ("torch.int8" if "int" in name else "torch.float32")


def test_every_kernel_says_its_precision_and_has_a_name_of_its_own() -> None:
    """A peak names the kernel that reached it."""
    listed = gemm.kernels()
    assert len({kernel.name for kernel in listed}) == len(listed)
    for kernel in listed:
        is_int8 = any(word in kernel.name for word in ("_int_mm", "quantized", "Integer", "QLinear"))
        assert kernel.precision == ("int8" if is_int8 else "bf16" if "bf16" in kernel.name else "fp32")


def test_bf16_is_tried_where_the_cpu_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere torch converts each value, and what that takes is no peak."""
    monkeypatch.setattr(gemm.half_floats, "explain_missing", lambda precision: None)
    bf16 = [kernel for kernel in gemm.kernels() if kernel.precision == "bf16"]
    assert [kernel.name for kernel in bf16] == ["torch bf16 mm", "torch bf16 linear"]
    held = [value for kernel in bf16 for value in look_into(kernel.make(16)).values()]
    factors = [value for value in held if hasattr(value, "is_contiguous")]
    assert [str(factor.dtype) for factor in factors] == ["torch.bfloat16"] * 4
    monkeypatch.setattr(gemm.half_floats, "explain_missing", lambda precision: f"no {precision}")
    assert all(kernel.precision != "bf16" for kernel in gemm.kernels())


def read_product(call: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The left side and the result of a product of ONNX Runtime, which writes it in place."""
    call()
    x, result = call.__defaults__[0]
    return x, result


@pytest.mark.parametrize(("left", "operator"), [("uint8", "MatMulInteger"), ("int8", "MatMulInteger")])
def test_onnxruntimes_sums_are_those_of_the_product_alone(left: str, operator: str) -> None:
    """No zero point, whose row sums would be further work; in 32 bits."""
    pytest.importorskip("onnxruntime")
    x, result = read_product(gemm._ort_int8(left, operator)(32))
    weight = draw_weight(32)
    assert result.dtype == np.int32
    assert np.array_equal(result, x.astype(np.int64) @ weight)


def test_onnxruntimes_requantized_product_has_no_zero_point_either() -> None:
    """Scales of a tenth: the sum over ten."""
    pytest.importorskip("onnxruntime")
    x, result = read_product(gemm._ort_int8("uint8", "QLinearMatMul")(32))
    assert result.dtype == np.uint8
    assert np.array_equal(result, np.clip(np.rint(x.astype(np.int64) @ draw_weight(32) * np.float32(0.1)), 0, 255))


def draw_weight(size: int) -> np.ndarray[Any, Any]:
    """The right side, drawn behind the left one."""
    rng = np.random.default_rng(0)
    rng.integers(0, 8, (size, size))
    return rng.integers(-8, 8, (size, size))


def test_onnxruntimes_floats_are_multiplied() -> None:
    """One thread, no copy."""
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal((32, 32), dtype=np.float32) for _ in range(2))
    _, result = read_product(gemm._ort_fp32(32))
    assert np.allclose(result, x @ weight, atol=1e-4)


@pytest.mark.parametrize("kind", ["linear", "conv 1x1"])
@pytest.mark.usefixtures("engine_put_back")
def test_quantized_layers_do_the_product_and_nothing_else(kind: str) -> None:
    """A convolution of one pixel with as many channels has no stride, no border and no groups: the pixels are the rows
    of the product. Either side has numbers on both sides of zero."""
    kernels = {kernel.name: kernel for kernel in gemm.kernels()}
    for engine in gemm.ENGINES:
        try:
            call: Any = kernels[f"quantized {kind}, {engine}"].make(64)
            result = call()
        except RuntimeError:  # this build has no such engine
            continue
        x = look_into(call)["x"]
        assert tuple(x.shape) == tuple(result.shape) == ((64, 64) if kind == "linear" else (1, 64, 2, 32))
        assert (x.q_scale(), x.q_zero_point()) == (0.05, 64)
        assert (result.q_scale(), result.q_zero_point()) == (1.0, 64)
        weight = look_into(call)["packed"].unpack()[0]
        assert (weight.q_scale(), weight.q_zero_point()) == (pytest.approx(0.05), 0)
        floats = x.dequantize() if kind == "linear" else x.dequantize().permute(0, 2, 3, 1).reshape(64, 64)
        product = floats @ weight.dequantize().reshape(64, 64).T
        output = result.dequantize() if kind == "linear" else result.dequantize().permute(0, 2, 3, 1).reshape(64, 64)
        assert float((output - product.clamp(-64, 191)).abs().max()) <= 0.51


def test_the_bytes_of_torchs_product_lie_on_both_sides_of_zero() -> None:
    """From -8 to 7, so that sums stay far from the ends of 32 bits."""
    for transposed in (False, True):
        held = look_into(gemm._int_mm(transposed=transposed)(64))
        assert [(int(side.min()), int(side.max())) for side in (held["a"], held["right"])] == [(-8, 7)] * 2


def test_onnxruntimes_products_run_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a file of the oldest versions that have every operator, so that every ONNX Runtime takes it."""
    ort, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    make, asked = ort.InferenceSession, []

    def look(model: bytes, options: Any, **rest: Any) -> Any:
        opened = onnx.load_from_string(model)
        asked.append((opened.ir_version, [each.version for each in opened.opset_import]))
        asked.append((options.intra_op_num_threads, options.inter_op_num_threads))
        return make(model, options, **rest)

    monkeypatch.setattr(ort, "InferenceSession", look)
    gemm._ort_fp32(16)
    assert asked == [(8, [17]), (1, 1)]
