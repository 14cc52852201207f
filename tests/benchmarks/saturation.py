"""What ONNX Runtime's int8 file of a suite answers on AVX2: predicted here, and seen on an emulated CPU.

    python tests/benchmarks/saturation.py suites/imagenet-lite0.yaml
    python tests/benchmarks/saturation.py SUITE --set KEY=VALUE --emulate 200        # of the evaluation examples

Needs Debian's qemu-user to see (about 3 s an EfficientNet-Lite0 image, some 10 s to start); ``--emulate 0`` predicts
only. Printed: the layers whose sums saturate, the processor time of a predicted example as a multiple of a native one
(batches of eight against single examples), top-1 where there are labels, and how many predicted examples are the
emulated ones bit for bit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import api, suite
from qbench.cache.root import open_cache
from qbench.data import Data, request_of
from qbench.data_preparation import prepare_data
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.saturation.onnxruntime_prediction import Predictor
from qbench.record.stored_run import read_run

Array = NDArray[Any]
BATCH = 8
EMULATED = """
import sys
import numpy, onnxruntime
file, examples, outputs = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.log_severity_level = 1, 3
session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
arrays = numpy.load(examples)
names = [value.name for value in session.get_inputs()]
count = len(arrays[arrays.files[0]])
feeds = [{name: arrays[key][i : i + 1] for name, key in zip(names, arrays.files)} for i in range(count)]
numpy.save(outputs, numpy.concatenate([session.run(None, feed)[0] for feed in feeds]))
"""


def build(path: Path, overrides: list[str], folder: Path) -> tuple[Path, Data]:
    """The static int8 file of ONNX Runtime that a suite makes, and the suite's data."""
    quick = ["measure.max_seconds=1", "measure.cold_starts=1", "matrix.threads=[1]", "matrix.batch_sizes=[1]"]
    read = suite.read(path, (*overrides, *quick))
    run = api.run(read, out=folder, only="*/static/onnxruntime/*")
    record = next(record for record in read_run(run.folder).records if record.case.mode == "static")
    root = open_cache()
    request = request_of(read.data, read.base, train=False)
    data = prepare_data(request, root, progress=lambda *_: None)
    return root / "artifacts" / str(record.artifact.key) / "model.onnx", data


def predict(file: Path, data: Data) -> tuple[Array, Array, float]:
    """Native outputs, predicted ones, and processor times of these as a multiple of those; prints the layers."""
    native, predictor = onnxruntime_session.open_run(file), Predictor(file)
    count, times = data.evaluation_count, [0.0, 0.0]
    outputs: list[list[Array]] = [[], []]
    native(data.evaluation(0, 1))  # the first call takes memory
    for start in range(0, count, BATCH):
        batch = data.evaluation(start, min(start + BATCH, count))
        singles = [tuple(array[i : i + 1] for array in batch) for i in range(len(batch[0]))]
        begin = time.process_time()
        outputs[0] += [native(single) for single in singles]
        middle = time.process_time()
        outputs[1].append(predictor(batch))
        times[0], times[1] = times[0] + middle - begin, times[1] + time.process_time() - middle
    for layer in predictor.layers:
        print(
            f"{layer.name}: {layer.pairs:,} pairs, {layer.saturated:,} of {layer.sums:,} sums in {layer.examples} "
            f"examples, at most by {layer.largest_excess:,}; {layer.rounded} rounded otherwise"
        )
    print(*(f"{name}: {why}" for name, why in predictor.unknown.items()), sep="\n")
    return np.concatenate(outputs[0]), np.concatenate(outputs[1]), times[1] / times[0]


def emulate(file: Path, data: Data, count: int, folder: Path) -> Array:
    """What an emulated Haswell answers for the first examples."""
    examples, outputs = folder / "examples.npz", folder / "outputs.npy"
    np.savez(examples, *data.evaluation(0, count))
    command = ["qemu-x86_64", "-cpu", "Haswell", sys.executable, "-c", EMULATED, str(file), str(examples), str(outputs)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    emulated: Array = np.load(outputs)
    return emulated


def main() -> None:
    """Builds, predicts, emulates and compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path)
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--emulate", type=int, default=4, metavar="N")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, data = build(options.suite, options.overrides, Path(folder))
        native, predicted, ratio = predict(file, data)
        print(f"{len(native)} examples, predicted in {ratio:.1f} times the native processor time")
        print(f"largest difference {np.abs(native - predicted).max():.3g}")
        labels = data.evaluation_labels()
        if labels is not None and native.ndim == 2:
            answers = [outputs.argmax(axis=1) for outputs in (native, predicted)]
            rates = [float((answer == labels).mean()) for answer in answers]
            same = int((answers[0] == answers[1]).sum())
            print(f"top-1 here {rates[0]:.1%}, predicted {rates[1]:.1%}; {same} of {len(native)} answers agree")
        if options.emulate:
            emulated = emulate(file, data, options.emulate, Path(folder))
            equal = sum(np.array_equal(*pair) for pair in zip(emulated, predicted, strict=False))
            print(f"bit for bit as emulated: {equal} of {len(emulated)}")


if __name__ == "__main__":
    main()
