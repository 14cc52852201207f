"""What the kernels of a backend say in this process: the instruction sets that the libraries name, and the bits.

A product of bytes of ones tells more than names: the sum of two largest products, 2 x 255 x 127, does not fit in 16
bits, so its result shows how a kernel adds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qbench.hosts.base import KernelView, Sums
from qbench.machine import runtime
from qbench.process.child_process import Limits, call

_DEPTH, _OUTPUTS, _ROWS = 64, 16, 4
_LARGEST_BYTE, _LARGEST_WEIGHT = 255, 127
_EXACT = _DEPTH * _LARGEST_BYTE * _LARGEST_WEIGHT
_IN_16_BITS = 0.75  # of the exact sum; pairs that are clipped to 32,767 give 0.51 of it
_ENGINES = {"fbgemm": "fbgemm", "x86": "x86", "onednn": "onednn", "inductor": "onednn"}
# qnnpack widens before it multiplies, so its answer is the same everywhere; torch computes fp32.
_TORCH = ("torch", "qnnpack", *_ENGINES)
# Of these the answer shows whether a limit holds.
PROBED = (*_ENGINES, "openvino", "onnxruntime")


def read_kernels(
    backend: str, *, environment: dict[str, str], limits: Limits, run_child: Callable[..., Any] = call
) -> KernelView:
    """What the kernels of a backend say in a child process with these variables, started by ``run_child``; raises
    ``CaseError`` where none can be started."""
    view: KernelView = run_child(_read_in_child, backend, limits=limits, environment=environment)
    return view


def _read_in_child(backend: str, *, progress: Any) -> KernelView:
    return read_here(backend)


def read_here(backend: str) -> KernelView:
    """What the kernels of a backend say in this process."""
    sums = _find_sums(backend)
    if backend not in _TORCH:
        return KernelView(int8_sums=sums)
    inside = runtime.in_this_process()
    return KernelView(torch_isa=inside.torch_isa, onednn_isa=inside.onednn_isa, mkl_isa=inside.mkl_isa, int8_sums=sums)


def _find_sums(backend: str) -> Sums | None:
    """How the backend adds products of bytes here; None for one that is not probed."""
    if backend not in PROBED:
        return None
    by_runtime: dict[str, Callable[[], float]] = {"openvino": _sum_by_openvino, "onnxruntime": _sum_by_onnxruntime}
    total = by_runtime[backend]() if backend in by_runtime else _sum_by_torch(backend)
    return "16 bits" if total < _IN_16_BITS * _EXACT else "32 bits"


def _sum_by_torch(backend: str) -> float:
    """The largest sum of a linear layer on the backend's engine."""
    import torch

    torch.backends.quantized.engine = _ENGINES[backend]
    weight = torch.quantize_per_channel(
        torch.full((_OUTPUTS, _DEPTH), float(_LARGEST_WEIGHT)),
        torch.ones(_OUTPUTS),
        torch.zeros(_OUTPUTS, dtype=torch.long),
        0,
        torch.qint8,
    )
    x = torch.quantize_per_tensor(torch.full((_ROWS, _DEPTH), float(_LARGEST_BYTE)), 1.0, 0, torch.quint8)
    packed = torch.ops.quantized.linear_prepack(weight, None)
    return float(torch.ops.quantized.linear(x, packed, _EXACT / _LARGEST_BYTE, 0).dequantize().min())


def _sum_by_openvino() -> float:
    """The same product by OpenVINO, from a graph that its int8 kernels take."""
    import numpy as np
    import openvino
    from openvino import opset13

    low, high = np.float32(0), np.float32(_LARGEST_BYTE)
    x = opset13.parameter([_ROWS, _DEPTH], np.float32, name="x")
    quantized = opset13.fake_quantize(x, low, high, low, high, 256)
    weight = opset13.convert(opset13.constant(np.full((_OUTPUTS, _DEPTH), _LARGEST_WEIGHT, np.int8)), "f32")
    product = opset13.matmul(quantized, opset13.multiply(weight, np.ones((_OUTPUTS, 1), np.float32)), False, True)
    settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(openvino.Model([product], [x], "probe"), "CPU", settings)
    result = compiled(np.full((_ROWS, _DEPTH), high, np.float32))
    return float(next(iter(result.values())).min())


def _sum_by_onnxruntime() -> float:
    """The same product by ONNX Runtime."""
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.full((_DEPTH, _OUTPUTS), _LARGEST_WEIGHT, np.int8), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "probe",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [_ROWS, _DEPTH])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [_ROWS, _OUTPUTS])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    result = session.run(None, {"x": np.full((_ROWS, _DEPTH), _LARGEST_BYTE, np.uint8)})
    return float(np.asarray(result[0]).min())
