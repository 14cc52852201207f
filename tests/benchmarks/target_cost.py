"""What artifacts for other CPUs cost on this one: time, SQNR and answers, against those for this CPU alone.

    qbench run suites/imagenet-lite0.yaml --set 'recipe=[default, {target: avx2}]' --hosts native,avx2
    python tests/benchmarks/target_cost.py imagenet-lite0

Of a stored run, whose artifacts are read from the cache. Time: both artifacts of a backend in one process, call by
call in random order, in time of the processor (it says little of waiting, so that other load on the machine disturbs
it least), some processes; printed are the median of the ratios and the smallest and the largest of a process. SQNR and
answers: of the stored outputs, example by example, on each host of the run.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry
from qbench.cache.root import open_cache
from qbench.quant.sqnr import measure_sqnr
from qbench.record.locate import find_run
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun, read_run

Array = NDArray[Any]


def time_pair(backend: str, files: list[str], shapes: list[list[int]], rounds: int) -> float:
    """The median over rounds of the second file's time over the first one's, in this process."""
    plugin = registry.load("backend", backend)
    runners = [plugin.load(Path(file), threads=1) for file in files]
    inputs = tuple(np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in shapes)
    ready = [(runner, runner.prepare(inputs)) for runner in runners]
    ratios, order = [], [0, 1]
    with runners[0].context():
        for number in range(rounds + 5):
            random.shuffle(order)
            times = [0.0, 0.0]
            for index in order:
                runner, prepared = ready[index]
                start = time.process_time()
                runner(prepared)
                times[index] = time.process_time() - start
            ratios += [times[1] / times[0]] if number >= 5 else []
    return float(np.median(ratios))


def artifact_file(record: Record) -> str:
    """The file of a record's artifact in the cache."""
    assert record.artifact is not None
    folder = open_cache() / "artifacts" / str(record.artifact.key)
    return str(next(file for file in sorted(folder.iterdir()) if file.name.startswith("model.") and file.is_file()))


def print_time(pair: tuple[Record, Record], shapes: list[list[int]], rounds: int, processes: int) -> None:
    """One line: how much longer the artifact for other CPUs takes."""
    job = json.dumps([pair[0].case.backend, [artifact_file(record) for record in pair], shapes, rounds])
    command = [sys.executable, __file__, "--child", job]
    ratios = [
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])
        for _ in range(processes)
    ]
    middle, low, high = (100 * (value - 1) for value in (float(np.median(ratios)), min(ratios), max(ratios)))
    print(f"{pair[1].case.id}: time {middle:+.1f} % [{low:+.1f}, {high:+.1f}] of {processes} processes")


def print_answers(run: StoredRun, pair: tuple[Record, Record], fp32: Record) -> None:
    """One line: SQNR against fp32 and how often the class is that of fp32, of both artifacts."""
    reference, *both = (run.predictions(record)["outputs"].astype(float) for record in (fp32, *pair))
    levels = [np.array([measure_sqnr(a, b) for a, b in zip(reference, outputs, strict=True)]) for outputs in both]
    change = levels[1] - levels[0]
    half = 1.96 * change.std(ddof=1) / len(change) ** 0.5
    agree = [100 * float((outputs.argmax(1) == reference.argmax(1)).mean()) for outputs in both]
    scores = [float("nan") if record.accuracy is None else record.accuracy.value for record in (fp32, *pair)]
    before, after = (level.mean() for level in levels)
    print(
        f"{pair[1].case.id}: SQNR {before:.1f} -> {after:.1f} dB ({change.mean():+.2f} +- {half:.2f}), same class as "
        f"fp32 {agree[0]:.1f} -> {agree[1]:.1f} %, score {scores[1]:.3f} -> {scores[2]:.3f} (fp32 {scores[0]:.3f}), "
        f"{len(change)} examples"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?")
    parser.add_argument("--here", default="default", help="the recipe for this CPU alone")
    parser.add_argument("--recipe", default="for-avx2", help="the recipe for other CPUs")
    parser.add_argument("--shape", type=int, nargs="+", action="append", help="of an input; default: 1 3 224 224")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(time_pair(*json.loads(options.child)))
        return
    run = read_run(find_run(options.run))
    records = {replace(record.case, id=""): record for record in run.records if record.status == "ok"}
    for case, record in records.items():
        plain = records.get(replace(case, recipe=options.here))
        if case.recipe != options.recipe or plain is None or plain.artifact == record.artifact:
            continue
        if record.case.host == "native":
            print_time((plain, record), options.shape or [[1, 3, 224, 224]], options.rounds, options.processes)
        runtime = registry.load("backend", case.backend).runtime
        print_answers(run, (plain, record), records[replace(case, mode="fp32", backend=runtime, recipe="default")])


if __name__ == "__main__":
    main()
