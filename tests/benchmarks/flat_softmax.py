"""A Softmax in ONNX Runtime as it stands, and with the dimensions behind its own joined to one.

    python tests/benchmarks/flat_softmax.py

Printed for each shape: the microseconds of a call of either, medians of calls in random order on one thread, and the
largest difference of a value. ``qbench.quant.onnx.export.flat_softmax`` cites them.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.export import flat_softmax
from qbench.quant.onnx.graph.graph import Graph

CALLS = 200
# the shape, and the dimension of the Softmax
SHAPES = (
    ((1, 16, 4, 2100), 1), ((1, 3, 400, 400), 1), ((1, 21, 128, 128), 1), ((4, 21, 128, 128), 1), ((1, 256, 32, 32), 1),
    ((1, 8, 16, 7, 7), 2), ((1, 2, 8, 8), 1),
)  # fmt: skip


def write_files(shape: tuple[int, ...], axis: int, folder: Path) -> list[Path]:
    """A file of one Softmax as it stands, and a flat one."""
    from onnx import TensorProto, helper

    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name in ("x", "y"))
    node = helper.make_node("Softmax", ["x"], ["y"], axis=axis, name="softmax")
    network = helper.make_graph([node], "softmax", inputs, outputs)
    graph = Graph(helper.make_model(network, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    files = [folder / "stands.onnx", folder / "flat.onnx"]
    graph.save(files[0])
    flat_softmax.flatten(graph)
    graph.save(files[1])
    return files


def main() -> None:
    """A line for each shape."""
    rng = np.random.default_rng(0)
    for shape, axis in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            runs = [onnxruntime_session.open_run(file) for file in write_files(shape, axis, Path(folder))]
        example = rng.standard_normal(shape).astype(np.float32)
        answers = [run((example,)) for run in runs]
        seconds = np.zeros((len(runs), CALLS))
        for call in range(CALLS):
            for number in rng.permutation(len(runs)):
                start = time.perf_counter()
                runs[number]((example,))
                seconds[number, call] = time.perf_counter() - start
        stands, flat = np.median(seconds, axis=1) * 1e6
        difference = np.abs(answers[1] - answers[0]).max()
        print(f"{shape} over {axis}: {stands:6.0f} us as it stands, {flat:6.0f} us flat, difference {difference}")


if __name__ == "__main__":
    main()
