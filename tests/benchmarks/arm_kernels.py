"""Whether ONNX Runtime's int8 kernels for ARM add exactly: each kind of layer against sums of whole numbers.

    qbench doctor --prepare qemu:arm64-max
    python tests/benchmarks/arm_kernels.py [CPU ...]        # as `qemu-aarch64 -cpu help` names them

Each emulated CPU runs every kind of layer with inputs and weights (unsigned or signed: ``us`` is the usual file) drawn
from the whole range of a byte, and with all of them at an end of it; weights of -127 are the least that symmetric
quantization takes. What a layer gives is compared with sums of int64. Printed: of how many layers all outputs are
equal, and by how much the others are off. About a minute a CPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qbench.hosts.emulated_arm import EmulatedArm

CPUS = ("max", "neoverse-n1", "cortex-a76", "cortex-a53")
BYTES = {"u": np.uint8, "s": np.int8}
# Kind: operator, shapes of the input and the weight, groups.
LAYERS = {
    "linear": ("MatMulInteger", (4, 64), (64, 48), 1),
    "linear, odd": ("MatMulInteger", (3, 67), (67, 17), 1),
    "linear to bytes": ("QLinearMatMul", (4, 64), (64, 48), 1),
    "3x3": ("QLinearConv", (1, 16, 9, 9), (32, 16, 3, 3), 1),
    "1x1": ("QLinearConv", (1, 96, 9, 9), (24, 96, 1, 1), 1),
    "3x3, odd channels": ("QLinearConv", (1, 15, 9, 9), (33, 15, 3, 3), 1),
    "depthwise 3x3": ("QLinearConv", (1, 48, 9, 9), (48, 1, 3, 3), 48),
    "depthwise 5x5": ("QLinearConv", (1, 24, 9, 9), (24, 1, 5, 5), 24),
    "grouped 3x3": ("QLinearConv", (1, 64, 9, 9), (64, 16, 3, 3), 4),
}
VALUES = (
    ("random", "random"),
    *((x, weight) for x in ("least", "largest") for weight in ("least", "above", "largest")),
)
ANSWER = """
import sys
from pathlib import Path
import numpy, onnxruntime
folder, cpu = sys.argv[1:]
for file in sorted(Path(folder).glob("*.onnx")):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    x = numpy.load(file.with_suffix(".npy"))
    numpy.save(file.with_suffix(f".{cpu}.npy"), session.run(None, {"x": x})[0])
"""


def make_layer(kind: str, types: str, values: tuple[str, str], folder: Path) -> tuple[Path, np.ndarray]:
    """Writes a layer's file and its input; what it gives where sums are exact."""
    operator, x_shape, w_shape, groups = LAYERS[kind]
    rng = np.random.default_rng(0)
    x_type, w_type = (BYTES[letter] for letter in types)
    x, weight = draw(rng, x_shape, x_type, values[0]), draw(rng, w_shape, w_type, values[1])
    zero = np.array(x_type(0 if types[0] == "s" else 77))
    w_zero = np.array(w_type(0 if types[1] == "s" else 128))
    shifted, centred = x.astype(np.int64) - int(zero), weight.astype(np.int64) - int(w_zero)
    sums = shifted @ centred if len(x_shape) == 2 else convolve(shifted, centred, groups)
    scale = np.float32(max(np.abs(sums).max(), 1) / 127)
    file = folder / f"{len(list(folder.glob('*.onnx')))}.onnx"
    onnx.save(describe(operator, (x, weight, zero, w_zero, scale), groups), file)
    np.save(file.with_suffix(".npy"), x)
    if operator == "MatMulInteger":
        return file, sums
    low = np.iinfo(x_type).min
    rounded = np.rint(sums.astype(np.float32) * (np.float32(1) / scale)) + (128 if types[0] == "u" else 0)
    return file, np.clip(rounded, low, low + 255)


def draw(rng: np.random.Generator, shape: tuple[int, ...], kind: Any, values: str) -> np.ndarray:
    """Bytes over the whole range, or all of one value: its ``least``, the one ``above``, or its ``largest``."""
    limits = np.iinfo(kind)
    if values == "random":
        return rng.integers(limits.min, limits.max + 1, shape).astype(kind)
    return np.full(shape, {"least": limits.min, "above": limits.min + 1, "largest": limits.max}[values], kind)


def convolve(x: np.ndarray, weight: np.ndarray, groups: int) -> np.ndarray:
    """A convolution in whole numbers, padded so that the output has the size of the input."""
    size = weight.shape[2] // 2
    padded = np.pad(x, ((0, 0), (0, 0), (size, size), (size, size)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], axis=(2, 3))
    windows = windows.reshape(1, groups, -1, *windows.shape[2:])
    split = weight.reshape(groups, -1, *weight.shape[1:])
    return np.einsum("bgchwij,gocij->bgohw", windows, split).reshape(1, len(weight), *x.shape[2:])


def describe(operator: str, arrays: tuple[Any, ...], groups: int) -> onnx.ModelProto:
    """A model of one layer."""
    x, weight, zero, w_zero, scale = arrays
    constants = {"w": weight, "xz": zero, "wz": w_zero}
    if operator == "MatMulInteger":
        node = helper.make_node(operator, ["x", "w", "xz", "wz"], ["y"])
        output = TensorProto.INT32
    else:
        y_zero = np.array(x.dtype.type(128 if x.dtype == np.uint8 else 0))
        constants |= {"one": np.float32(1), "ys": scale, "yz": y_zero}
        attributes = {} if operator == "QLinearMatMul" else {"group": groups, "auto_pad": "SAME_UPPER"}
        node = helper.make_node(operator, ["x", "one", "xz", "w", "one", "wz", "ys", "yz"], ["y"], **attributes)
        output = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def answer(folder: Path, cpu: str) -> None:
    """Writes what each layer gives on an emulated CPU, or on this one (``native``)."""
    command, variables = [sys.executable], {}
    if cpu != "native":
        work = folder / cpu
        work.mkdir()
        python = EmulatedArm(cpu).start_python(work)
        command, variables = list(python.command), python.variables
    subprocess.run([*command, "-c", ANSWER, str(folder), cpu], env={**os.environ, **variables}, check=True)


def main() -> None:
    """Makes the layers, runs them everywhere and compares."""
    cpus = ("native", *(sys.argv[1:] or CPUS))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        layers = {
            f"{kind}, {types}, inputs {values[0]}, weights {values[1]}": make_layer(kind, types, values, folder)
            for kind in LAYERS
            for types in ("us", "uu", "ss")
            for values in VALUES
        }
        for cpu in cpus:
            answer(folder, cpu)
            off = {}
            for layer, (file, exact) in layers.items():
                outputs = np.load(file.with_suffix(f".{cpu}.npy")).astype(np.int64)
                wrong = (outputs != exact).sum()
                if wrong:
                    largest = np.abs(outputs - exact).max()
                    off[layer] = f"{wrong} of {exact.size} by up to {largest:.0f}"
            print(f"{cpu}: {len(layers) - len(off)} of {len(layers)} layers exact", flush=True)
            for layer, how in off.items():
                print(f"    {layer}: {how}")


if __name__ == "__main__":
    main()
