"""What the int8 files of a run answer on AVX2: predicted here, and seen where its engines were limited or on an
emulated CPU, in one table.

    qbench run SUITE --hosts native,avx2 --filter '*/static/*'
    python tests/benchmarks/saturation.py reports/SUITE/latest
    python tests/benchmarks/saturation.py RUN --backends onnxruntime --emulate 200      # of the evaluation examples

fbgemm, x86, onednn and openvino are seen in the run's own cases on avx2; ONNX Runtime on an emulated Haswell (Debian's
qemu-user; about 3 s an EfficientNet-Lite0 image, some 10 s to start). Each file is evaluated natively and predicted
from the artifact in the cache. Printed for each: top-1 here, predicted and seen, in how many examples predicted and
seen classes agree, which differ, how many outputs are equal bit for bit, the largest difference, and the processor time
of a predicted example as a multiple of a native one (batches of eight against single examples). ``--layers`` prints
what each layer loses.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry, suite
from qbench.cache.root import open_cache
from qbench.data import Data, request_of
from qbench.data_preparation import prepare_data
from qbench.quant.saturation import onnxruntime_prediction, openvino_prediction, torch_prediction
from qbench.record.schema import NATIVE, Record
from qbench.record.stored_run import StoredRun, read_run

Array = NDArray[Any]
Inputs = tuple[Array, ...]
BATCH = 8
BACKENDS = ("fbgemm", "x86", "onednn", "onnxruntime", "openvino")
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


def read_data(run: StoredRun) -> Data:
    """The data of a run's suite."""
    described = run.info.suite
    read = suite.parse(described.text, file=described.file, overrides=described.overrides)
    return prepare_data(request_of(read.data, read.base, train=False), open_cache(), progress=lambda *_: None)


def find_file(record: Record) -> Path:
    """The artifact of a record in the cache."""
    assert record.artifact is not None
    folder = open_cache() / "artifacts" / str(record.artifact.key)
    return next(file for file in folder.iterdir() if file.suffix in (".onnx", ".pt"))


def open_predictor(record: Record, example: Inputs) -> Any:
    """What predicts a record's artifact."""
    file, backend = find_file(record), record.case.backend
    if backend == "onnxruntime":
        return onnxruntime_prediction.OnnxRuntimePredictor(file)
    if backend == "openvino":
        return openvino_prediction.OpenVinoPredictor(file, example)
    return torch_prediction.TorchPredictor(file, backend)


def evaluate(record: Record, data: Data) -> tuple[Array, Array, float, Any]:
    """Native outputs, predicted ones, the processor time of these as a multiple of those, and the predictor."""
    runner = registry.load("backend", record.case.backend).load(find_file(record), threads=1)
    outputs: list[list[Array]] = [[], []]

    def run(inputs: Inputs) -> Array:
        return np.array(runner.outputs(runner(runner.prepare(inputs))))

    with runner.context():
        predictor = open_predictor(record, data.evaluation(0, 1))
        run(data.evaluation(0, 1))  # the first call takes memory
        times = [0.0, 0.0]
        for start in range(0, data.evaluation_count, BATCH):
            batch = data.evaluation(start, min(start + BATCH, data.evaluation_count))
            singles = [tuple(array[i : i + 1] for array in batch) for i in range(len(batch[0]))]
            outputs[0] += timed(times, 0, lambda singles=singles: [run(single) for single in singles])
            outputs[1].append(timed(times, 1, lambda batch=batch: predictor(batch)))
    return np.concatenate(outputs[0]), np.concatenate(outputs[1]), times[1] / times[0], predictor


def timed(times: list[float], which: int, work: Callable[[], Any]) -> Any:
    """What some work gives; its processor time is added up."""
    begin = time.process_time()
    result = work()
    times[which] += time.process_time() - begin
    return result


def emulate(file: Path, data: Data, count: int) -> Array:
    """What an emulated Haswell answers for the first examples."""
    with tempfile.TemporaryDirectory() as folder:
        examples, outputs = Path(folder) / "examples.npz", Path(folder) / "outputs.npy"
        np.savez(examples, *data.evaluation(0, count))
        command = ["qemu-x86_64", "-cpu", "Haswell", sys.executable, "-c", EMULATED]
        subprocess.run([*command, str(file), str(examples), str(outputs)], check=True, stderr=subprocess.DEVNULL)
        emulated: Array = np.load(outputs)
        return emulated


def find_seen(run: StoredRun, record: Record, data: Data, emulated: int) -> Array | None:
    """What was seen on AVX2 of the first examples: by the limited engine, else by an emulated CPU."""
    if record.case.backend == "onnxruntime":
        return emulate(find_file(record), data, emulated) if emulated else None
    there = f"{record.case.id}/avx2"
    other = next((other for other in run.records if other.case.id == there and other.status == "ok"), None)
    return None if other is None else run.predictions(other).get("outputs")


def describe(record: Record, data: Data, native: Array, predicted: Array, observed: Array | None, ratio: float) -> str:
    """The row of one artifact, and which examples get a class that was not predicted."""
    labels, ids = data.evaluation_labels(), list(data.evaluation_ids())
    here, there = native.argmax(axis=1), predicted.argmax(axis=1)
    rates = [f"{np.mean(answer == labels):.1%}" if labels is not None else "-" for answer in (here, there)]
    row = f"{record.case.id}: top-1 {rates[0]} here, {rates[1]} predicted"
    if observed is None:
        return f"{row}; not seen; {ratio:.1f} x the native processor time"
    n, classes = len(observed), observed.argmax(axis=1)
    if labels is not None:
        row += f", {np.mean(classes == labels[:n]):.1%} seen of {n} ({np.mean(there[:n] == labels[:n]):.1%} predicted)"
    turned, foreseen = classes != here[:n], there[:n] != here[:n]
    other = np.flatnonzero(there[:n] != classes)
    same = int((observed == predicted[:n]).reshape(n, -1).all(axis=1).sum())
    return (
        f"{row}; class turns for {turned.sum()} seen, {foreseen.sum()} predicted, {(turned & foreseen).sum()} of both; "
        f"class as seen for {n - len(other)} of {n}{': not ' if len(other) else ''}"
        f"{', '.join(str(ids[i]) for i in other)}; bit for bit {same} of {n}; largest difference "
        f"{np.abs(observed - predicted[:n]).max():.3g} (seen from native {np.abs(observed - native[:n]).max():.3g}); "
        f"{ratio:.1f} x the native processor time"
    )


def main() -> None:
    """Evaluates, predicts and compares each static or QAT artifact of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--emulate", type=int, default=0, metavar="N")
    parser.add_argument("--layers", action="store_true")
    options = parser.parse_args()
    run = read_run(options.run)
    data = read_data(run)
    for record in run.records:
        case = record.case
        wanted = case.mode in ("static", "qat") and case.host == NATIVE and case.backend in options.backends.split(",")
        if not wanted or record.status != "ok" or find_file(record).suffix == ".zip":
            continue
        native, predicted, ratio, predictor = evaluate(record, data)
        observed = find_seen(run, record, data, options.emulate)
        print(describe(record, data, native, predicted, observed, ratio), flush=True)
        for layer in predictor.layers if options.layers else ():
            print(f"    {layer.name}: {layer.saturated:,} of {layer.sums:,} sums, {layer.rounded} rounded otherwise")
        for name, why in predictor.unknown.items():
            print(f"    {name}: {why}")


if __name__ == "__main__":
    main()
