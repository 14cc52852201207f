"""What ONNX Runtime's int8 kernels take by how many cores the process may use while it imports ONNX Runtime.

    python tests/benchmarks/import_cores.py [FILE.onnx ...]

Products of bytes of several sizes, and the files (inputs of normal noise, of size 1 where a file leaves one open), on
one thread on the last core: in processes that are pinned before they import ONNX Runtime and in processes that are
pinned afterwards, in turns, ``TURNS`` of each. Printed: the median over processes of each one's median call, with the
range, and whether AMX tiles were in use afterwards. Needs two cores.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = ((1, 64, 256), (1, 1024, 1024), (16, 256, 256), (64, 256, 256), (384, 1024, 1024))  # rows, depth, columns
TURNS = 5
CORES = sorted(os.sched_getaffinity(0))
TIME = """
import json, os, sys, time
core, files = json.loads(sys.argv[2]), sys.argv[3:]
if sys.argv[1] == "before":
    os.sched_setaffinity(0, {core})
import numpy, onnxruntime
os.sched_setaffinity(0, {core})
from qbench.machine import amx_tiles

def time_calls(file):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    draw, feed = numpy.random.default_rng(0), {}
    for given in session.get_inputs():
        shape = [size if isinstance(size, int) and size > 0 else 1 for size in given.shape]
        kind = {"tensor(uint8)": "uint8", "tensor(int64)": "int64"}.get(given.type, "float32")
        feed[given.name] = draw.integers(0, 255, shape).astype(kind) if kind == "uint8" else (
            numpy.zeros(shape, kind) if kind == "int64" else draw.standard_normal(shape, dtype=kind))
    times, begun = [], time.perf_counter()
    while time.perf_counter() - begun < 0.4:
        before = time.perf_counter()
        session.run(None, feed)
        times.append(time.perf_counter() - before)
    return sorted(times[len(times) // 4 :])[len(times) * 3 // 8]

seconds = [time_calls(file) for file in files]
print(json.dumps([seconds, amx_tiles.are_in_use()]))
"""


def write_product(rows: int, depth: int, columns: int, folder: Path) -> Path:
    """A file with one product of unsigned by signed bytes."""
    weight = np.random.default_rng(0).integers(-127, 127, (depth, columns)).astype(np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [rows, depth])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [rows, columns])],
        [numpy_helper.from_array(weight, "w")],
    )
    file = folder / f"{rows} x {depth} x {columns}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


def time_files(pinned: str, files: list[Path]) -> tuple[list[float], bool | None]:
    """The median call of each file in a process that is pinned ``before`` or ``after`` the import, and AMX's use."""
    command = [sys.executable, "-c", TIME, pinned, json.dumps(CORES[-1]), *map(str, files)]
    seconds, tiles = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return seconds, tiles


def main(files: list[Path]) -> None:
    """Prints a line a file."""
    if len(CORES) < 2:
        raise SystemExit("needs two cores that this process may use")
    times: dict[str, list[list[float]]] = {"before": [], "after": []}
    tiles: dict[str, bool | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = [*(write_product(*size, Path(folder)) for size in SIZES), *files]
        for _ in range(TURNS):
            for pinned in times:
                seconds, tiles[pinned] = time_files(pinned, files)
                times[pinned].append(seconds)
    print(f"AMX tiles in use: imported on one core {tiles['before']}, on {len(CORES)} cores {tiles['after']}")
    for number, file in enumerate(files):
        pinned_before, pinned_after = ([each[number] * 1e6 for each in times[pinned]] for pinned in ("before", "after"))
        texts = [
            f"{statistics.median(each):8.1f} us ({min(each):.1f} to {max(each):.1f})"
            for each in (pinned_before, pinned_after)
        ]
        ratio = statistics.median(pinned_before) / statistics.median(pinned_after)
        print(f"{file.stem:>20}: on one core {texts[0]}, on {len(CORES)} {texts[1]}: {ratio:.2f} times as long on one")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
