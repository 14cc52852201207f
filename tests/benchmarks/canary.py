"""What the canary costs, what it does to a block, and how well it tells a core of one's own from a shared one.

    qbench run suites/quickstart.yaml --filter '*/fp32/*' --filter '*/static/onnxruntime/*'
    python tests/benchmarks/canary.py states reports/quickstart/latest        # the two states, and p50 in each
    python tests/benchmarks/canary.py overhead reports/quickstart/latest      # what a block and its calls pay for it
    python tests/benchmarks/canary.py neighbours                              # loops on the other core, and on this one

Cases are pinned to the last core.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from qbench.cache import store
from qbench.machine.canary import DISTURBED, Canary, calm_level, share_disturbed
from qbench.measure import undisturbed_blocks
from qbench.measure.group import measure_group
from qbench.measure.race import Race
from qbench.measure.race_rules import Arm, RaceRules
from qbench.measure.samples import Samples, split
from qbench.measure.worker import LocalWorker, WorkerSpec
from qbench.process.child_process import Limits
from qbench.record import jsonl

CASES = ("digits-cnn/fp32/torch/t1/b1", "digits-cnn/static/onnxruntime/t1/b1")
SECONDS, PROCESSES = 30.0, 3  # of measuring a case
EDGES = (0, 1.04, 1.08, 1.12, 1.2, 1.3, 1.4, 1.6, 1.8, 2.0, 99)
BLOCK, TURNS = 30, 400
CORES = sorted(os.sched_getaffinity(0))
LOOPS = {
    "arithmetic": "n = 1\nwhile True: n += 1",
    "products": "import numpy as n\na = n.ones((512, 512), 'f')\nwhile True: a @ a",
    "memory": "import numpy as n; a = n.ones(32 * 2**20)\nwhile True: a += 1",
}
LISTENING, REPEATS = 1.5, 4


def specify(folder: Path, case: str) -> WorkerSpec:
    """A worker of a case of a run, on random images."""
    record = next(record for record in jsonl.read(folder) if record.case.id == case)
    artifact = store.cache_folder() / "artifacts" / record.artifact.key
    return WorkerSpec(
        case=case,
        backend=record.case.backend,
        file=next(file for file in sorted(artifact.iterdir()) if file.suffix in (".pt", ".onnx")),
        threads=1,
        batch_size=1,
        cores=(CORES[-1],),
        inputs=(np.random.default_rng(0).random((8, 1, 8, 8), dtype=np.float32),),
    )


def show_states(folder: Path) -> None:
    """The readings as multiples of the calm level; the medians of each process's calls, undisturbed and not."""
    base, other = (specify(folder, case) for case in CASES)
    first, second = CASES
    protocol = Race(
        arms=(Arm(case=first, role="fp32"), Arm(case=second, role="candidate", baseline=first)),
        rules=RaceRules(everything=True, precision=1e-9, least=PROCESSES, most=PROCESSES, max_seconds=SECONDS),
        clock=time.monotonic,
        rounds=10**6,
    )
    measured = measure_group(base, [other], protocol=protocol, limits=Limits())
    levels = [calm_level(measured[case].samples.canary_ns) for case in CASES]
    readings = np.concatenate([measured[case].samples.canary_ns.ravel() for case in CASES])
    print(f"{len(readings)} readings; the calm level is {min(levels)} ns; disturbed from x {DISTURBED} on")
    counts, _ = np.histogram(readings / min(levels), EDGES)
    for low, high, count in zip(EDGES, EDGES[1:], counts, strict=False):
        print(f"  x {low:4.2f} to {high:5.2f}  {count / len(readings):7.2%}")
    titles = ("case", "process", "blocks", "calm", "calm us", "the rest us", "all us")
    print("{:38} {:>8} {:>7} {:>7} {:>8} {:>12} {:>7}".format(*titles))
    for case in CASES:
        _show_processes(case, measured[case].samples, min(levels))


def _show_processes(case: str, samples: Samples, level: float) -> None:
    calm = undisturbed_blocks.find_undisturbed(samples.canary_ns, level)
    blocks = split(samples.calls_ns, samples.block)
    for number in np.unique(samples.process):
        here = samples.process == number
        medians = [_median_us(blocks, here & part) for part in (calm, ~calm, calm | ~calm)]
        cells = (case, number, here.sum(), (here & calm).sum(), *medians)
        print("{:38} {:8} {:7} {:7} {:>8} {:>12} {:>7}".format(*cells))


def _median_us(blocks: list[np.ndarray], which: np.ndarray) -> str:
    chosen = [block for block, is_in in zip(blocks, which, strict=True) if is_in]
    return f"{np.median(np.concatenate(chosen)) / 1e3:.1f}" if chosen else "-"


def show_overhead(folder: Path) -> None:
    """Blocks with and without the canary in one process, in random order: seconds of a block, and its calls."""
    os.sched_setaffinity(0, {CORES[-1]})
    reader = Canary()
    times = []
    for _ in range(1000):
        before = time.perf_counter_ns()
        reader.read()
        times.append(time.perf_counter_ns() - before)
    print(f"one reading: median {np.median(times) / 1e3:.1f} us, least {min(times) / 1e3:.1f} us")
    for case in CASES:
        worker = LocalWorker(specify(folder, case))
        read, turns = worker._canary.read, {True: [], False: []}
        for _ in range(TURNS):
            watched = random.random() < 0.5
            worker._canary.read = read if watched else (lambda: 0)
            before = time.perf_counter_ns()
            calls = worker.block(BLOCK).calls_ns
            turns[watched].append((time.perf_counter_ns() - before, calls))
        whole = {watched: np.median([total for total, _ in blocks]) for watched, blocks in turns.items()}
        curves = {
            watched: np.quantile([calls for _, calls in blocks], 0.25, axis=0) for watched, blocks in turns.items()
        }
        ratio = curves[True] / curves[False]
        print(
            f"{case}: a block of {BLOCK} calls takes {whole[False] / 1e3:.0f} us without, {whole[True] / 1e3:.0f} with"
        )
        print("  calls 1 to 6 with over without:", " ".join(f"{value:.3f}" for value in ratio[:6]),
              f"; the rest {np.median(ratio[6:]):.4f}")  # fmt: skip


def show_neighbours() -> None:
    """The share of disturbed readings while loops run on the other core, and on the very same one."""
    os.sched_setaffinity(0, {CORES[-1]})
    readings: dict[str, list[int]] = {}
    loops = {f"{name} on core {core}": (source, core) for core in CORES for name, source in LOOPS.items()}
    reader = Canary()
    for _ in range(REPEATS):
        for name in ("nothing", *loops):
            loop = _start(*loops[name]) if name in loops else None
            time.sleep(0.5)  # a loop imports numpy first
            end = time.monotonic() + LISTENING
            while time.monotonic() < end:
                readings.setdefault(name, []).append(reader.read())
                time.sleep(0.002)
            if loop is not None:
                loop.send_signal(signal.SIGKILL)
                loop.wait()
    level = calm_level(np.asarray([reading for series in readings.values() for reading in series]))
    print(f"this process is on core {CORES[-1]}; the calm level is {level} ns")
    for name, series in readings.items():
        share = share_disturbed(np.asarray(series), level)
        print(
            f"{name:24} {len(series):5} readings, {share:6.1%} disturbed, "
            f"median x {statistics.median(series) / level:.2f}"
        )


def _start(source: str, core: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\n{source}"], env=environment
    )


if __name__ == "__main__":
    if sys.argv[1] == "neighbours":
        show_neighbours()
    else:
        {"states": show_states, "overhead": show_overhead}[sys.argv[1]](Path(sys.argv[2]))
