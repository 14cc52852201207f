"""Square matrix products in fp32 and int8, by every library that may hold this core's record; for child processes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.machine import half_floats

Array = NDArray[Any]
Call = Callable[[], object]

# x86 stands for fbgemm or onednn, which are tried themselves.
ENGINES = ("onednn", "fbgemm", "qnnpack")


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One way to multiply two square matrices; ``make(size)`` gives a call that does it once."""

    name: str
    precision: str  # fp32, bf16 or int8
    make: Callable[[int], Call]


def kernels() -> list[Kernel]:
    """Both layouts of torch's products, its quantized engines with packed weights (as linear and as 1 x 1
    convolution), and ONNX Runtime's products.

    Every int8 product sums in 32 bits. A kernel that this build or CPU lacks raises ``RuntimeError`` when it is made
    or called. Changes the process's quantized engine.
    """
    bf16 = (
        Kernel(name="torch bf16 mm", precision="bf16", make=_mm_bf16),
        Kernel(name="torch bf16 linear", precision="bf16", make=_linear_bf16),
    )
    return [
        Kernel(name="torch.mm", precision="fp32", make=_mm(transposed=False)),
        Kernel(name="torch.mm transposed", precision="fp32", make=_mm(transposed=True)),
        Kernel(name="torch linear", precision="fp32", make=_linear),
        Kernel(name="onnxruntime MatMul", precision="fp32", make=_ort_fp32),
        *(bf16 if half_floats.explain_missing("bf16") is None else ()),
        Kernel(name="torch._int_mm", precision="int8", make=_int_mm(transposed=False)),
        Kernel(name="torch._int_mm transposed", precision="int8", make=_int_mm(transposed=True)),
        *(
            Kernel(name=f"quantized linear, {engine}", precision="int8", make=_quantized_linear(engine))
            for engine in ENGINES
        ),
        *(
            Kernel(name=f"quantized conv 1x1, {engine}", precision="int8", make=_quantized_conv(engine))
            for engine in ENGINES
        ),
        Kernel(name="onnxruntime MatMulInteger U8S8", precision="int8", make=make_onnxruntime_int8),
        Kernel(name="onnxruntime MatMulInteger S8S8", precision="int8", make=_ort_int8("int8", "MatMulInteger")),
        Kernel(name="onnxruntime QLinearMatMul U8S8", precision="int8", make=_ort_int8("uint8", "QLinearMatMul")),
    ]


def _mm(*, transposed: bool) -> Callable[[int], Call]:
    def make(size: int) -> Call:
        import torch

        a, b = torch.randn(size, size), torch.randn(size, size)
        right = b.T if transposed else b
        return lambda: torch.mm(a, right)

    return make


def _linear(size: int) -> Call:
    import torch

    x, weight = torch.randn(size, size), torch.randn(size, size)
    return lambda: torch.nn.functional.linear(x, weight)


def _mm_bf16(size: int) -> Call:
    import torch

    a, b = (torch.randn(size, size).bfloat16() for _ in range(2))
    return lambda: torch.mm(a, b)


def _linear_bf16(size: int) -> Call:
    import torch

    x, weight = (torch.randn(size, size).bfloat16() for _ in range(2))
    return lambda: torch.nn.functional.linear(x, weight)


def _int_mm(*, transposed: bool) -> Callable[[int], Call]:
    def make(size: int) -> Call:
        import torch

        from qbench.torch_private import multiply_bytes

        a, b = (torch.randint(-8, 8, (size, size), dtype=torch.int8) for _ in range(2))
        right = b.T if transposed else b
        return lambda: multiply_bytes(a, right)

    return make


def _quantized_linear(engine: str) -> Callable[[int], Call]:
    def make(size: int) -> Call:
        import torch

        torch.backends.quantized.engine = engine  # decides how the weights are packed, and that decides who multiplies
        x, weight = _quantized((size, size), torch.quint8), _quantized((size, size), torch.qint8)
        packed = torch.ops.quantized.linear_prepack(weight, torch.zeros(size))
        return lambda: torch.ops.quantized.linear(x, packed, 1.0, 64)

    return make


def _quantized_conv(engine: str) -> Callable[[int], Call]:
    """The same product as ``size`` pixels of ``size`` channels: on AMX oneDNN blocks it better (3.4 against 2.8 TOP/s
    at 640), and there is no Winograd in 1 x 1."""

    def make(size: int) -> Call:
        import torch

        torch.backends.quantized.engine = engine
        width = math.gcd(size, 32)
        x = _quantized((1, size, size // width, width), torch.quint8).contiguous(memory_format=torch.channels_last)
        weight = _quantized((size, size, 1, 1), torch.qint8)
        packed = torch.ops.quantized.conv2d_prepack(weight, torch.zeros(size), [1, 1], [0, 0], [1, 1], 1)
        return lambda: torch.ops.quantized.conv2d(x, packed, 1.0, 64)

    return make


def _quantized(shape: tuple[int, ...], dtype: Any) -> Any:
    import torch

    with warnings.catch_warnings():
        # torch 2.13 announces the end of its int8 tensors, once, wherever the first one is made.
        warnings.filterwarnings("ignore", message=r"torch\.quantize_per_tensor", category=UserWarning)
        return torch.quantize_per_tensor(torch.randn(shape), 0.05, 64 if dtype is torch.quint8 else 0, dtype)


def make_onnxruntime_int8(size: int) -> Call:
    """ONNX Runtime's product of unsigned and signed bytes; raises ``ImportError`` without it."""
    return _ort_int8("uint8", "MatMulInteger")(size)


def _ort_fp32(size: int) -> Call:
    from onnx import TensorProto

    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    return _ort("MatMul", ["x", "w"], x, {"w": weight}, TensorProto.FLOAT)


def _ort_int8(left: str, operator: str) -> Callable[[int], Call]:
    def make(size: int) -> Call:
        from onnx import TensorProto

        rng = np.random.default_rng(0)
        x = rng.integers(0, 8, (size, size)).astype(left)
        values: dict[str, Array] = {"w": rng.integers(-8, 8, (size, size)).astype(np.int8)}
        if operator == "MatMulInteger":
            return _ort(operator, ["x", "w"], x, values, TensorProto.INT32)
        values |= {"scale": np.array(0.1, np.float32), "zx": np.array(0, left), "zw": np.array(0, np.int8)}
        inputs = ["x", "scale", "zx", "w", "scale", "zw", "scale", "zx"]
        return _ort(operator, inputs, x, values, TensorProto.UINT8 if left == "uint8" else TensorProto.INT8)

    return make


def _ort(operator: str, inputs: list[str], x: Array, values: dict[str, Array], output: int) -> Call:
    """One operator on one thread; ``x`` is given and the result is taken without a copy."""
    import onnxruntime as ort
    from onnx import helper, numpy_helper

    result = np.empty(x.shape, helper.tensor_dtype_to_np_dtype(output))
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, ["y"])],
        "product",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", output, result.shape)],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    # The oldest versions that have every operator here, so that every onnxruntime takes them.
    model: Any = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, result.dtype, result.shape, result.ctypes.data)

    def call(keep: tuple[Array, Array] = (x, result)) -> None:  # the binding knows addresses only
        session.run_with_iobinding(binding)

    return call
