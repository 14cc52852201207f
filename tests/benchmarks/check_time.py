"""How long `qbench check` takes, by the size of the file, and where the time goes.

    python tests/benchmarks/check_time.py FOLDER [--only large] [--stages]

Writes three files of convolutions and ReLUs with random weights into the folder, as ONNX Runtime's own quantizer makes
them (QDQ, weights per channel): 0.2, 5 and 104 MB. Prints the seconds of the command, a process of its own, for each;
``--stages``: of its parts, too, in this process. Target: 30 s for 100 MB. The core's peak is measured once for a
machine, so the first command on it takes 5 s more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from qbench.check import beside_fp32, check_file, core_peak, float_form, runtimes, tried_causes


@dataclass(frozen=True, kw_only=True)
class Chain:
    """So many convolutions of 3 x 3, each from ``channels`` to as many, on a picture of ``size`` pixels square."""

    layers: int
    channels: int
    size: int


CHAINS = {
    "small": Chain(layers=4, channels=64, size=56),
    "middle": Chain(layers=8, channels=256, size=28),
    "large": Chain(layers=11, channels=1024, size=14),
}


def main() -> None:
    """Writes what is not there, and times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=CHAINS)
    parser.add_argument("--stages", action="store_true")
    chosen = parser.parse_args()
    for name, chain in CHAINS.items():
        if chosen.only in (None, name):
            file = chosen.folder / f"{name}.onnx"
            if not file.exists():
                write(file, chain)
            print(f"{name}: {file.stat().st_size / 1e6:.1f} MB, {time_command(file):.1f} s", flush=True)
            if chosen.stages:
                print_stages(file)


def time_command(file: Path) -> float:
    """Seconds of the command; raises ``RuntimeError`` where it does not end with a verdict."""
    before = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "qbench", "check", str(file)], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - before
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    return seconds


def write(file: Path, chain: Chain) -> None:
    """A chain as an fp32 file beside it, and quantized by ONNX Runtime's tool on random data."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    rng, channels = np.random.default_rng(0), chain.channels
    shape, nodes, weights, tensor = [1, channels, chain.size, chain.size], [], [], "x"
    for number in range(chain.layers):
        scale = np.sqrt(2 / (9 * channels))
        value = rng.standard_normal((channels, channels, 3, 3), dtype=np.float32) * np.float32(scale)
        weights.append(numpy_helper.from_array(value, f"w{number}"))
        nodes.append(helper.make_node("Conv", [tensor, f"w{number}"], [f"c{number}"], f"conv{number}", pads=[1] * 4))
        tensor = f"r{number}"
        nodes.append(helper.make_node("Relu", [f"c{number}"], [tensor], f"relu{number}"))
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name in ("x", tensor)]
    graph = helper.make_graph(nodes, "chain", *ends, weights)
    fp32 = file.with_suffix(".fp32.onnx")
    fp32.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(fp32))

    class Random(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = [{"x": rng.standard_normal(shape, dtype=np.float32)} for _ in range(2)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self._left.pop() if self._left else None

    quantize_static(str(fp32), str(file), Random(), per_channel=True, weight_type=QuantType.QInt8)


def print_stages(file: Path) -> None:
    """What each child process of a check takes, in the order in which they end, and all of it."""
    for module in (beside_fp32, check_file, core_peak, runtimes, tried_causes):
        for name in ("call", "measure_peak"):
            if hasattr(module, name):
                setattr(module, name, timed(getattr(module, name)))
    float_form.write_float = timed(float_form.write_float)
    before = read_processor_seconds()
    timed(check_file.check_file)(file)
    print(f"  {read_processor_seconds() - before:5.1f} s of processor time, whatever else runs")


def read_processor_seconds() -> float:
    """Those of this process and of all that it started, also of what has ended."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    times = [process.cpu_times() for process in processes]
    return sum(each.user + each.system + each.children_user + each.children_system for each in times)


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which prints what it takes; of a child process the name of what runs there."""

    def run(*arguments: Any, **options: Any) -> Any:
        before = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            name = arguments[0].__name__ if function.__name__ == "call" else function.__name__
            print(f"  {time.perf_counter() - before:5.1f} s {name}", flush=True)

    return run


if __name__ == "__main__":
    main()
