"""Memory and time of calibration: qbench's calibrators against plain fp32 inference and ONNX Runtime's own calibrators.

    python tests/benchmarks/onnx_calibration.py                      # about twenty minutes
    python tests/benchmarks/onnx_calibration.py --images 200 --calibrators minmax hfmg --theirs 32

A ResNet-18-shaped network, 3x224x224, random weights. Each arm is a fresh process that makes its images as it goes, and
is told nothing of the others; peak memory is the process's own, time is from opening the model to the end.
Arms of one comparison are run in turn, fp32 before and after them. The targets: peak memory at most 1.3 times that of
fp32 plus 256 KB a tensor; time at most 1.5 times fp32 for minmax and hfmg, twice for the others.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

SHAPE = (3, 224, 224)
OURS = ("minmax", "moving_average", "hfmg", "percentile", "entropy", "mse", "ifmr")
THEIRS = ("MinMax", "Entropy", "Percentile")
STAGES = (64, 128, 256, 512)


def images(count: int, batch: int) -> Iterator[Any]:
    """Batches of images, each another blend of two of eight noise images, so that making them costs next to nothing."""
    random = np.random.default_rng(0)
    base = random.standard_normal((8, *SHAPE), dtype=np.float32)
    for start in range(0, count, batch):
        weights = random.uniform(0.5, 1.5, (min(batch, count - start), 2)).astype(np.float32)
        pairs = random.integers(0, 8, weights.shape)
        yield np.stack([base[a] * u + base[b] * v for (a, b), (u, v) in zip(pairs, weights, strict=True)])


class ResNet18:
    """The network as onnx nodes; BatchNorm is folded already, as it is before any of the arms starts."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        import onnx

        self.nodes.append(onnx.helper.make_node(kind, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def weight(self, name: str, shape: tuple[int, ...], size: float) -> str:
        import onnx

        value = (self.random.standard_normal(shape) * size).astype(np.float32)
        self.weights.append(onnx.numpy_helper.from_array(value, name))
        return name

    def conv(self, x: str, name: str, before: int, width: int, kernel: int, stride: int) -> str:
        size = float(np.sqrt(2 / (before * kernel**2)))
        inputs = [x, self.weight(f"{name}.weight", (width, before, kernel, kernel), size)]
        inputs.append(self.weight(f"{name}.bias", (width,), 0.1))
        return self.add("Conv", inputs, name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4)

    def model(self) -> Any:
        import onnx

        x = self.add("Relu", [self.conv("input", "stem", 3, 64, 7, 2)], "stem_relu")
        x, before = self.add("MaxPool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
        for stage, width in enumerate(STAGES):
            for block in range(2):
                name, stride = f"stage{stage}.{block}", 2 if stage and not block else 1
                y = self.add("Relu", [self.conv(x, f"{name}.conv1", before, width, 3, stride)], f"{name}.relu1")
                y = self.conv(y, f"{name}.conv2", width, width, 3, 1)
                short = x if before == width else self.conv(x, f"{name}.down", before, width, 1, stride)
                x, before = self.add("Relu", [self.add("Add", [y, short], f"{name}.add")], f"{name}.relu2"), width
        x = self.add("Flatten", [self.add("GlobalAveragePool", [x], "mean")], "flat")
        head = [x, self.weight("head.weight", (1000, before), 0.05), self.weight("head.bias", (1000,), 0.1)]
        x = self.add("Gemm", head, "head", transB=1)
        kind, value = onnx.TensorProto.FLOAT, onnx.helper.make_tensor_value_info
        ends = [value("input", kind, ["batch", *SHAPE])], [value(x, kind, ["batch", 1000])]
        graph = onnx.helper.make_graph(self.nodes, "resnet18", *ends, self.weights)
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def make(folder: Path) -> None:
    """The fp32 file, prepared."""
    import onnx

    from qbench.quant.onnx.graph.prepare import prepare

    onnx.save(ResNet18().model(), str(folder / "resnet18.onnx"))
    prepare(folder / "resnet18.onnx").save(folder / "fp32.onnx")


def quantize(folder: Path, calibrator: str, batch_num: int) -> int:
    """The calibration model and the record of the weights; how many tensors are calibrated."""
    from qbench.quant.onnx.calibration import complete_scales
    from qbench.quant.onnx.formats import calibration_file, config, scale_record
    from qbench.quant.onnx.formats.rules import ActivationRule, Rules
    from qbench.quant.onnx.graph.graph import Graph

    graph = Graph.load(folder / "fp32.onnx")
    rules = Rules(batch_num=batch_num, common=_rule(ActivationRule(algorithm=calibrator)))
    file = folder / f"{calibrator}.onnx"
    model = calibration_file.write(graph, config.default(graph, rules), file)
    scale_record.write(complete_scales.with_weights({}, model), folder / f"{calibrator}.txt")
    return len(model.tensors)


def _rule(activation: Any) -> Any:
    from qbench.quant.onnx.formats.rules import Rule

    return Rule(activation=activation)


def fp32(folder: Path, count: int, batch: int, threads: int) -> None:
    """Plain inference, with the session options that qbench measures with."""
    from qbench.quant.onnx import onnxruntime_session

    session = onnxruntime_session.open_session(folder / "fp32.onnx", threads=threads)
    for x in images(count, batch):
        session.run(None, {"input": x})


def ours(folder: Path, count: int, batch: int, threads: int, calibrator: str) -> None:
    """qbench."""
    from qbench.quant.onnx.formats import calibration_file

    data = images(count, batch)
    calibration_file.run(folder / f"{calibrator}.onnx", data, folder / f"{calibrator}.txt", threads=threads)


def theirs(folder: Path, count: int, batch: int, threads: int, calibrator: str) -> None:
    """ONNX Runtime's own, as quantize_static calls it."""
    from onnxruntime.quantization import CalibrationMethod
    from onnxruntime.quantization.calibrate import CalibrationDataReader, create_calibrator

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = images(count, batch)

        def get_next(self) -> Any:
            x = next(self.batches, None)
            return None if x is None else {"input": x}

    collector = create_calibrator(
        str(folder / "fp32.onnx"), augmented_model_path=str(folder / "theirs.onnx"),
        calibrate_method=CalibrationMethod[calibrator],
    )  # fmt: skip
    collector.collect_data(Reader())
    collector.compute_data()


ARMS = {"fp32": fp32, "ours": ours, "theirs": theirs}


def arm(folder: Path, kind: str, *settings: Any) -> dict[str, Any]:
    """One arm in a fresh process: peak memory in MB, wall time and CPU time in seconds."""
    command = [sys.executable, __file__, "--arm", kind, str(folder), *map(str, settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": f"exit {done.returncode}: {(done.stderr.strip().splitlines() or ['killed'])[-1][:100]}"}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_arm(kind: str, folder: str, count: str, batch: str, threads: str, *calibrator: str) -> None:
    """The child's part. Reading the modules is not timed, the model's is."""
    import onnxruntime  # noqa: F401  # read before the clock starts

    begun, used = time.perf_counter(), time.process_time()
    ARMS[kind](Path(folder), int(count), int(batch), int(threads), *calibrator)
    wall, cpu = time.perf_counter() - begun, time.process_time() - used
    print(json.dumps({"megabytes": peak_megabytes(), "wall": wall, "cpu": cpu}))


def peak_megabytes() -> float:
    """The most memory that this process has held. Linux starts ru_maxrss at what the parent held at the fork."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if "VmHWM" in line)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


def show(name: str, figures: dict[str, Any], base: dict[str, Any] | None, limit: float | None = None) -> None:
    """One line; ``limit``: megabytes that are allowed."""
    if "failed" in figures:
        print(f"{name:34s} {figures['failed']}", flush=True)
        return
    line = f"{name:34s} {figures['megabytes']:8.0f} MB {figures['wall']:8.1f} s {figures['cpu']:8.1f} s cpu"
    if base is not None:
        ratios = (figures[key] / base[key] for key in ("megabytes", "wall", "cpu"))
        line += "   x fp32: {:5.2f} memory {:5.2f} time {:5.2f} cpu".format(*ratios)
    if limit is not None:
        line += f"   {'within' if figures['megabytes'] <= limit else 'ABOVE'} {limit:.0f} MB"
    print(line, flush=True)


def main() -> None:
    """Prints every comparison as it is known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--calibrators", nargs="*", default=OURS)
    parser.add_argument("--theirs", nargs="*", type=int, default=(32, 64, 128), help="numbers of images")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        print(f"{options.images} images in batches of {options.batch}, {options.threads} threads")
        settings = (options.images, options.batch, options.threads)
        base = arm(folder, "fp32", *settings)
        show("fp32", base, None)
        for calibrator in options.calibrators:
            tensors = quantize(folder, calibrator, -(-options.images // options.batch))
            limit = 1.3 * base["megabytes"] + tensors / 4
            show(f"qbench {calibrator}", arm(folder, "ours", *settings, calibrator), base, limit)
        show("fp32 again", arm(folder, "fp32", *settings), base)
        for count in options.theirs:
            print(f"\n{count} images one by one")
            base = arm(folder, "fp32", count, 1, options.threads)
            show("fp32", base, None)
            for mine, other in (("minmax", "MinMax"), ("entropy", "Entropy"), ("percentile", "Percentile")):
                quantize(folder, mine, count)
                show(f"qbench {mine}", arm(folder, "ours", count, 1, options.threads, mine), base)
                show(f"onnxruntime {other}", arm(folder, "theirs", count, 1, options.threads, other), base)


if __name__ == "__main__":
    run_arm(*sys.argv[2:]) if sys.argv[1:2] == ["--arm"] else main()
