"""What releases of a runtime do to one file, by hand: nothing of qbench is used, so that its answers can be held
against this.

    python tests/benchmarks/releases_by_hand.py onnxruntime|openvino FILE INPUTS.npz FOLDER VERSION...

Each release is installed by pip into a folder of its own below FOLDER, once (40 to 220 MB each). All releases run at
the same time, each in a process of its own with one thread on the last core, which takes turns: in each of 20 rounds,
in random order, every process makes a block of calls of about 20 ms, of which the fastest counts; of these 20 the
median of the fastest five is the time of the process. It is processor time, since others may use the core. All that is
done with GENERATIONS (4) sets of fresh processes, since equal processes differ by 1 %. INPUTS.npz has the examples:
arrays in the order of the model's inputs, first axis n; the first one is timed, all are answered.

A row a release: its time over the first one's, with 95 % limits over the generations (Student's t); of how many
examples the outputs have other bits than those of the release before, and how many have another largest output.
FILE.openvino.json, or FILE.onnxruntime.json, in FOLDER gets the same.
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

GENERATIONS = int(os.environ.get("GENERATIONS", "4"))
ROUNDS, BLOCK_SECONDS = 20, 0.02
WORKER = """
import json, os, sys, time
runtime, file, inputs, core = sys.argv[1:5]
import importlib
import numpy as np
importlib.import_module(runtime)
os.sched_setaffinity(0, {int(core)})  # from 1.32 on ONNX Runtime leaves AMX out where it is imported on one core
examples = [array for _, array in sorted(np.load(inputs).items(), key=lambda item: int(item[0].rpartition("_")[2]))]
if runtime == "onnxruntime":
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    version = onnxruntime.__version__
    def prepare(row):
        return {name: array[row : row + 1] for name, array in zip(names, examples)}
    def call(feed):
        return session.run(None, feed)
else:
    import openvino
    version = openvino.__version__ if hasattr(openvino, "__version__") else openvino.runtime.get_version()
    settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": "1", "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(file, "CPU", settings).create_infer_request()
    def prepare(row):
        rows = [np.ascontiguousarray(array[row : row + 1]) for array in examples]
        return {place: openvino.Tensor(array, shared_memory=True) for place, array in enumerate(rows)}
    def call(feed):
        return list(request.infer(feed, share_inputs=True, share_outputs=True).values())
first = prepare(0)
for _ in range(20):
    call(first)
answers = [[np.array(part) for part in call(prepare(row))] for row in range(len(examples[0]))]
np.savez(sys.argv[5], **{str(place): np.concatenate(part) for place, part in enumerate(zip(*answers))})
print(json.dumps(version), flush=True)
for line in sys.stdin:
    calls, fastest = int(line), None
    for _ in range(calls):
        start = time.process_time_ns()
        call(first)
        took = time.process_time_ns() - start
        fastest = took if fastest is None else min(fastest, took)
    print(fastest, flush=True)
"""


def install(runtime: str, version: str, folder: Path) -> Path:
    """The folder that holds the release."""
    place = folder / f"{runtime}-{version}"
    if not (place / "done").exists():
        words = ["install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(place)]
        subprocess.run([sys.executable, "-m", "pip", *words, f"{runtime}=={version}"], check=True)
        (place / "done").touch()
    return place


class Release:
    """A running process of one release; ``failed`` says why there is none."""

    def __init__(self, runtime: str, file: Path, inputs: Path, place: Path, answers: Path) -> None:
        core = max(os.sched_getaffinity(0))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", WORKER, runtime, str(file), str(inputs), str(core), str(answers)],
            env={**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.failed = None
        if not self.process.stdout.readline():
            said = self.process.communicate()[1].strip().splitlines()
            self.failed = next((line for line in said if "NumPy" in line), said[-1] if said else "no word")

    def block(self, calls: int) -> int:
        """The nanoseconds of the fastest of so many calls."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{calls}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        """Ends it."""
        self.process.communicate()


def run_generation(
    runtime: str, file: Path, inputs: Path, folder: Path, versions: Sequence[str], shuffle: random.Random
) -> tuple[dict[str, float], dict[str, str]]:
    """The time of each release, as the logarithm of the ratio to the first one's, and why others do not run."""
    releases = {}
    for version in versions:
        place = folder / f"{runtime}-{version}"
        releases[version] = Release(runtime, file, inputs, place, folder / f"answers-{file.stem}-{version}.npz")
    running = {version: release for version, release in releases.items() if release.failed is None}
    calls = {version: max(3, int(BLOCK_SECONDS * 1e9 / release.block(3))) for version, release in running.items()}
    blocks: dict[str, list[int]] = {version: [] for version in running}
    for _ in range(ROUNDS):
        order = list(running)
        shuffle.shuffle(order)
        for version in order:
            blocks[version].append(running[version].block(calls[version]))
    for release in running.values():
        release.close()
    failed = {version: str(release.failed) for version, release in releases.items() if release.failed is not None}
    times = {version: statistics.median(sorted(taken)[:5]) for version, taken in blocks.items()}
    base = times[next(iter(running))]
    return {version: math.log(took / base) for version, took in times.items()}, failed


def limit(logs: Sequence[float]) -> tuple[float, float, float]:
    """A ratio with its 95 % limits."""
    from scipy.special import stdtrit

    middle, half = statistics.fmean(logs), math.inf
    if len(logs) > 1:
        half = float(stdtrit(len(logs) - 1, 0.975)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def count_changes(folder: Path, stem: str, before: str, version: str) -> tuple[int, int, int]:
    """Of how many examples any output has other bits, of how many the largest of the first output is another, and how
    many there are."""
    old, new = (np.load(folder / f"answers-{stem}-{each}.npz") for each in (before, version))
    other = np.zeros(len(new["0"]), dtype=bool)
    for name in new.files:
        rows = [part[name].reshape(len(part[name]), -1) for part in (old, new)]
        other |= (rows[0].view(np.uint32) != rows[1].view(np.uint32)).any(axis=1)
    answers = [part["0"].reshape(len(part["0"]), -1).argmax(axis=1) for part in (old, new)]
    return int(other.sum()), int((answers[0] != answers[1]).sum()), len(other)


def main(runtime: str, file: Path, inputs: Path, folder: Path, versions: Sequence[str]) -> None:
    """Prints the table."""
    folder.mkdir(parents=True, exist_ok=True)
    for version in versions:
        install(runtime, version, folder)
    shuffle, logs, failed = random.Random(0), dict[str, list[float]](), dict[str, str]()
    for number in range(GENERATIONS):
        times, failed = run_generation(runtime, file, inputs, folder, versions, shuffle)
        for version, log in times.items():
            logs.setdefault(version, []).append(log)
        print(f"generation {number + 1} of {GENERATIONS}", file=sys.stderr, flush=True)
    rows, before = [], None
    for version in versions:
        if version in failed:
            print(f"{version:10} does not run: {failed[version][:150]}")
            rows.append({"version": version, "failed": failed[version]})
            continue
        value, low, high = limit(logs[version])
        bits, answers, count = (0, 0, 0) if before is None else count_changes(folder, file.stem, before, version)
        step = "" if before is None else f"  other bits {bits} of {count}, other answers {answers}"
        print(f"{version:10} {100 * (value - 1):+6.1f} % [{100 * (low - 1):+.1f}, {100 * (high - 1):+.1f}]{step}")
        rows.append({"version": version, "value": value, "low": low, "high": high, "bits": bits, "answers": answers})
        before = version
    (folder / f"{file.stem}.{runtime}.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:5]), sys.argv[5:])
