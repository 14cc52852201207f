"""Whether int8 layers answer with AMX as with VNNI, and with AVX2 as with either; which kernels oneDNN names.

    python tests/benchmarks/vnni_and_amx.py

Each engine runs eight kinds of layers with weights and inputs over the whole range of a byte: as this CPU is, limited
to AVX512-VNNI, and limited to AVX2. Printed: of how many layers the bytes are those of this CPU, and what oneDNN used.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys

import numpy as np

ENGINES = ("fbgemm", "x86", "onednn", "qnnpack", "openvino")
LIMITS = {
    "as it is": {},
    "VNNI": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
    "AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
}
# Kind: shapes of weight and input, groups (None: a product of matrices).
LAYERS = {
    "linear": ((64, 64), (4, 64), None),
    "linear, large": ((1000, 1280), (2, 1280), None),
    "3x3": ((32, 16, 3, 3), (1, 16, 14, 14), 1),
    "1x1": ((24, 96, 1, 1), (1, 96, 14, 14), 1),
    "3x3, odd channels": ((33, 15, 3, 3), (1, 15, 9, 9), 1),
    "depthwise 3x3": ((144, 1, 3, 3), (1, 144, 14, 14), 144),
    "depthwise 5x5": ((24, 1, 5, 5), (1, 24, 14, 14), 24),
    "grouped 3x3": ((64, 16, 3, 3), (1, 64, 14, 14), 4),
}


def run_torch(engine: str, weight: np.ndarray, x: np.ndarray, groups: int | None) -> np.ndarray:
    """The bytes of a layer of torch.ao's."""
    import torch

    torch.set_num_threads(1)
    torch.backends.quantized.engine = engine
    scales, zeros = torch.full((len(weight),), 0.01), torch.zeros(len(weight), dtype=torch.long)
    w = torch.quantize_per_channel(torch.tensor(weight * 0.01), scales, zeros, 0, torch.qint8)
    quantized = torch.quantize_per_tensor(torch.tensor(x * 0.02), 0.02, 77, torch.quint8)
    ops = torch.ops.quantized
    if groups is None:
        y = ops.linear(quantized, ops.linear_prepack(w, None), 0.31, 120)
    else:
        y = ops.conv2d(quantized, ops.conv2d_prepack(w, None, [1, 1], [1, 1], [1, 1], groups), 0.31, 120)
    return y.int_repr().numpy()


def run_openvino(weight: np.ndarray, x: np.ndarray, groups: int | None) -> np.ndarray:
    """The outputs of a layer of OpenVINO's, rounded to 256 steps."""
    import openvino
    from openvino import opset13 as ops

    def quantize(node, low, high):
        low, high = np.float32(low), np.float32(high)
        return ops.fake_quantize(node, low, high, low, high, 256)

    parameter = ops.parameter(list(x.shape), np.float32, name="x")
    grouped = weight if groups in (None, 1) else weight.reshape(groups, -1, *weight.shape[1:])
    axes = 1 if groups is None else 3
    scale = np.full(grouped.shape[: grouped.ndim - axes] + (1,) * axes, 0.01, np.float32)
    w = ops.multiply(ops.convert(ops.constant(grouped.astype(np.int8)), "f32"), scale)
    inputs = quantize(parameter, 0, 5.1)
    if groups is None:
        y = ops.matmul(inputs, w, False, True)
    else:
        convolve = ops.convolution if groups == 1 else ops.group_convolution
        y = convolve(inputs, w, [1, 1], [1, 1], [1, 1], [1, 1])
    settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.Model([quantize(y, -30, 30)], [parameter], "layer")
    compiled = openvino.Core().compile_model(model, "CPU", settings)
    for node in compiled.get_runtime_model().get_ops():
        kernel = node.get_rt_info()["primitiveType"].astype(str)
        if "I8" in kernel and "ncsp" not in kernel:
            print(f"kernel {kernel}", file=sys.stderr)
    return np.array(next(iter(compiled((x + 77) * np.float32(0.02)).values())))  # its own memory goes with the model


def run_engine(engine: str) -> None:
    """Prints a digest of each layer's outputs."""
    rng = np.random.default_rng(0)
    for name, (weight_shape, shape, groups) in LAYERS.items():
        weight = rng.integers(-127, 128, weight_shape).astype(np.float32)
        x = (rng.integers(0, 256, shape) - 77).astype(np.float32)
        outputs = (
            run_openvino(weight, x, groups) if engine == "openvino" else run_torch(engine, weight, x, groups)
        )  # fmt: skip
        digest = hashlib.sha256(np.ascontiguousarray(outputs).tobytes()).hexdigest()
        print(f"layer {name}: {digest}", file=sys.stderr)  # oneDNN writes to stdout, in the middle of a line


def main() -> None:
    """Runs every engine under every limit in a process of its own, and compares."""
    for engine in ENGINES:
        digests: dict[str, list[str]] = {}
        for limit, variables in LIMITS.items():
            command = [sys.executable, "-W", "ignore", __file__, engine]
            # OpenVINO 2026.4 leaves depthwise outputs unwritten with both this and a limit; it names kernels itself.
            verbose = {} if engine == "openvino" else {"ONEDNN_VERBOSE": "1"}
            environment = {**os.environ, **variables, **verbose}
            said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            digests[limit] = re.findall(r"^layer .+$", said.stderr, flags=re.MULTILINE)
            same = sum(map(str.__eq__, digests[limit], digests["as it is"]))
            kernels = re.findall(r"exec,cpu,(?:convolution|matmul|inner_product),([^,]+)", said.stdout)
            kernels += re.findall(r"^kernel (.+)$", said.stderr, flags=re.MULTILINE)
            print(
                f"{engine}, {limit}: {same} of {len(LAYERS)} the same; {', '.join(sorted(set(kernels))) or 'its own'}"
            )


if __name__ == "__main__":
    run_engine(sys.argv[1]) if len(sys.argv) > 1 else main()
