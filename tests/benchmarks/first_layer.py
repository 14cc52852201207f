"""A first convolution on bytes against the same in float, in ONNX Runtime, with an int8 layer behind it.

    python tests/benchmarks/first_layer.py               # about three minutes

Printed for each shape: the median processor time of a call with the first layer in float and on bytes (one thread,
random order), and the median of their ratio. ``qbench.quant.onnx.export.slow_in_int8`` decides by these figures.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# input channels, output channels, kernel, stride, size of the image
SHAPES = (
    (3, 16, 3, 2, 224), (3, 24, 3, 2, 224), (3, 32, 3, 2, 224), (3, 48, 3, 2, 224), (3, 64, 3, 2, 224),
    (3, 32, 5, 2, 224), (3, 64, 7, 2, 224), (3, 96, 4, 4, 224), (3, 32, 3, 2, 96), (3, 16, 3, 1, 32), (3, 32, 3, 1, 32),
    (3, 64, 3, 1, 32), (1, 8, 3, 1, 28), (1, 32, 3, 1, 28), (1, 64, 9, 1, 64), (4, 32, 3, 2, 160), (8, 32, 3, 1, 112),
    (16, 32, 3, 1, 112), (32, 64, 3, 1, 56),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class QdqGraph:
    """Nodes and constants of a graph that is being written."""

    rng: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, name: str, values: Any) -> str:
        """A constant with that name."""
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """A node with one output."""
        from onnx import helper

        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def quantized(self, tensor: str) -> str:
        """The tensor, quantized to bytes and back."""
        scale, zero = self.constant(f"{tensor}_s", np.float32(0.05)), self.constant(f"{tensor}_z", np.uint8(128))
        integers = self.node("QuantizeLinear", [tensor, scale, zero], f"{tensor}_q")
        return self.node("DequantizeLinear", [integers, scale, zero], f"{tensor}_d")

    def conv(self, tensor: str, shape: tuple[int, ...], *, int8: bool, stride: int = 1) -> str:
        """A convolution with random weights, in float or as bytes with a scale for each channel."""
        weight = (self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        bias = (0.1 * self.rng.standard_normal(shape[0])).astype(np.float32)
        inputs = [f"{tensor}_weight", f"{tensor}_bias"]
        if int8:
            scale = (np.abs(weight).reshape(shape[0], -1).max(1) / 127).astype(np.float32)
            self._integers(inputs[0], np.round(weight / scale[:, None, None, None]).astype(np.int8), scale)
            self._integers(inputs[1], np.round(bias / (scale * 0.05)).astype(np.int32), scale * np.float32(0.05))
        else:
            self.constant(inputs[0], weight)
            self.constant(inputs[1], bias)
        pads = [shape[-1] // 2] * 4
        return self.node("Conv", [tensor, *inputs], f"{tensor}_conv", pads=pads, strides=[stride] * 2)

    def _integers(self, name: str, values: Any, scale: Any) -> None:
        zero = self.constant(f"{name}_z", np.zeros(scale.shape, values.dtype))
        parts = [self.constant(f"{name}_q", values), self.constant(f"{name}_s", scale), zero]
        self.node("DequantizeLinear", parts, name, axis=0)


def write_model(shape: tuple[int, ...], behind: str, *, int8: bool) -> bytes:
    """First convolution, Relu or Hardswish, a convolution 1x1 on bytes, a global pool."""
    from onnx import TensorProto, helper

    channels, width, kernel, stride, size = shape
    graph = QdqGraph(rng=np.random.default_rng(0))
    first = graph.conv(
        graph.quantized("x") if int8 else "x", (width, channels, kernel, kernel), int8=int8, stride=stride
    )
    if behind == "hardswish":
        read = graph.quantized(first) if int8 else first
        gate = graph.node("HardSigmoid", [read], "gate", alpha=1 / 6, beta=0.5)
        first = graph.node("Mul", [read, gate], "first")
    elif not int8:  # on bytes the zero point does it
        first = graph.node("Relu", [first], "first")
    second = graph.quantized(graph.conv(graph.quantized(first), (32, width, 1, 1), int8=True))
    graph.node("GlobalAveragePool", [second], "y")
    ends = [("x", [1, channels, size, size]), ("y", [1, 32, 1, 1])]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)] for name, dims in ends)
    proto = helper.make_graph(graph.nodes, "first", inputs, outputs, graph.constants)
    opset = [helper.make_opsetid("", 17)]
    content: bytes = helper.make_model(proto, opset_imports=opset, ir_version=9).SerializeToString()
    return content


def measure(models: tuple[bytes, ...], example: Any, calls: int) -> list[Any]:
    """Processor seconds of each call, an array for each model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    sessions = [onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"]) for model in models]
    for session in sessions * 3:
        session.run(None, {"x": example})
    rng, seconds = np.random.default_rng(0), np.zeros((len(sessions), calls))
    for call in range(calls):
        for i in rng.permutation(len(sessions)):
            start = time.process_time()
            sessions[i].run(None, {"x": example})
            seconds[i, call] = time.process_time() - start
    return list(seconds)


def main() -> None:
    """A line for each shape and what is behind it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=40)
    calls = parser.parse_args().calls
    for behind in ("relu", "hardswish"):
        for shape in SHAPES:
            example = np.random.default_rng(1).standard_normal((1, shape[0], shape[4], shape[4])).astype(np.float32)
            models = tuple(write_model(shape, behind, int8=int8) for int8 in (False, True))
            in_float, on_bytes = measure(models, example, calls)
            channels, width, kernel, stride, size = shape
            print(
                f"{channels:>2} -> {width:<2} channels, {kernel}x{kernel} / {stride}, image {size:>3}, {behind:<9} "
                f"float {np.median(in_float) * 1e6:6.0f} us, bytes {np.median(on_bytes) * 1e6:6.0f} us, "
                f"ratio {np.median(on_bytes / in_float):.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
