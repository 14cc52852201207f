"""A run's decisions against an independent, plain paired loop over the same artifacts.

    qbench run suites/quickstart.yaml
    python tests/benchmarks/decision_check.py quickstart [--starts 5] [--rounds 15] [--suite FILE]

Nothing of the race is used: each start opens one fresh process per case (``spawn``, the same core), warms it with 20
calls (half a second of them on a large network), and then goes round all of them in a random order, 5 ms of calls each,
whose median counts. A start's ratio of two cases is the median over its rounds; printed are the mean over the starts
and Student's t limits at 95 %.

A decision agrees where what it ships is not shown to be more than the tie slower than what the loop finds fastest of
those that may be shipped, and is shown to be faster than the fastest fp32; where fp32 is kept, no variant that may be
shipped is shown to be faster than it by more than the tie. Screened cases take part as well.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbench.decide import decision, qualify
from qbench.decide.cases import of_setting, setting_name
from qbench.gating.baseline import artifact_file
from qbench.gating.trusted_suite import suite_to_open
from qbench.machine import fingerprint
from qbench.record.locate import find_run
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun, read_run
from qbench.report import build

BLOCK_SECONDS, WARM_CALLS, WARM_SECONDS = 0.005, 20, 0.5


def serve(pipe: Any, backend: str, file: Path, threads: int, cores: Sequence[int], inputs: tuple[Any, ...]) -> None:
    """A child: loads one artifact and times as many calls as it is asked for."""
    os.sched_setaffinity(0, cores)
    from qbench import registry

    runner = registry.load("backend", backend).load(file, threads=threads)
    prepared = runner.prepare(inputs)
    with runner.context():
        while (calls := pipe.recv()) is not None:
            times = []
            for _ in range(calls):
                before = time.perf_counter()
                runner(prepared)
                times.append(time.perf_counter() - before)
            pipe.send(float(np.median(times)))


@dataclass(kw_only=True)
class Child:
    """A process with one artifact; ``calls``: how many make a block."""

    process: Any
    pipe: Any
    calls: int = 1

    def time(self, calls: int) -> float:
        """The median of so many calls, seconds."""
        self.pipe.send(calls)
        return float(self.pipe.recv())


def open_child(record: Record, file: Path, inputs: tuple[Any, ...]) -> Child:
    """A fresh process, warm."""
    key, cores = record.case, fingerprint.allowed_cores()[-record.case.threads :]
    spawn = multiprocessing.get_context("spawn")
    ours, its = spawn.Pipe()
    batch = tuple(np.resize(array[: key.batch_size], (key.batch_size, *array.shape[1:])) for array in inputs)
    process = spawn.Process(target=serve, args=(its, key.backend, file, key.threads, cores, batch), daemon=True)
    process.start()
    child = Child(process=process, pipe=ours)
    child.time(max(3, min(WARM_CALLS, math.ceil(WARM_SECONDS / child.time(1)))))
    child.calls = max(3, min(60, math.ceil(BLOCK_SECONDS / child.time(3))))
    return child


def run_start(files: Mapping[str, tuple[Record, Path]], inputs: tuple[Any, ...], rounds: int) -> dict[str, np.ndarray]:
    """The block medians of every case, in as many rounds."""
    children = {case: open_child(record, file, inputs) for case, (record, file) in files.items()}
    medians: dict[str, list[float]] = {case: [] for case in children}
    for _ in range(rounds):
        for case in random.sample(list(children), len(children)):
            medians[case].append(children[case].time(children[case].calls))
    for child in children.values():
        child.pipe.send(None)
        child.process.join()
    return {case: np.asarray(values) for case, values in medians.items()}


def compare(starts: Sequence[Mapping[str, np.ndarray]], case: str, other: str) -> tuple[float, float, float]:
    """ln(case / other): the mean over starts, and its limits."""
    from scipy.special import stdtrit

    logs = np.asarray([float(np.median(np.log(start[case] / start[other]))) for start in starts])
    half = float(stdtrit(len(logs) - 1, 0.975)) * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    return float(logs.mean()), float(logs.mean()) - half, float(logs.mean()) + half


def read_inputs(run: StoredRun, suite_file: Path | None) -> tuple[Any, ...]:
    """The first evaluation examples of the run's data."""
    from qbench.cache import store
    from qbench.data import request_of
    from qbench.data_preparation import prepare_data
    from qbench.gating.sequential_test import NotRun
    from qbench.process.child_process import Limits, call
    from qbench.suite import parse

    stored = run.info.suite
    suite = suite_to_open(
        run, parse(stored.text, file=stored.file, overrides=stored.overrides, stored=True), suite_file
    )
    if isinstance(suite, NotRun):
        sys.exit(suite.reason)
    request = request_of(suite.data, suite.base, train=any(record.case.mode == "qat" for record in run.records))
    data = call(prepare_data, request, store.open_cache(), limits=Limits(seconds=600.0, memory_bytes=None))
    return tuple(np.asarray(array) for array in data.evaluation(0, min(8, data.evaluation_count)))


def check(
    decided: decision.Decision, run: StoredRun, inputs: tuple[Any, ...], *, tie: float, starts: int, rounds: int
) -> bool:
    """Prints what the loop says of one setting; whether the decision agrees with it."""
    records = [record for record in of_setting(decided.setting, run.records) if record.status == "ok"]
    files = {
        record.case.id: (record, file) for record in records if (file := artifact_file(record, beside=None)) is not None
    }
    fp32 = [case for case, (record, _) in files.items() if record.case.mode == "fp32"]
    may = [case for case in files if case not in fp32 and qualify.may_be_shipped(decided.checks.get(case, ()))]
    print(f"{setting_name(decided.setting)}: {decided.headline}")
    print(f"  loop over {len(files)} of {len(records)} cases, {starts} starts of {rounds} rounds", flush=True)
    if not fp32 or not may:
        print("  nothing to compare")
        return True
    timed = []
    for start in range(starts):
        timed.append(run_start(files, inputs, rounds))
        print(f"  start {start + 1} of {starts} is done", file=sys.stderr, flush=True)
    fastest = min(fp32, key=lambda case: compare(timed, case, fp32[0])[0])
    order = sorted(files, key=lambda case: compare(timed, case, fastest)[0])
    for case in order:
        ratio, low, high = (math.exp(-log) for log in compare(timed, case, fastest))
        print(f"  {files[case][0].case.variant:24} {ratio:6.3f} [{high:.3f}, {low:.3f}] {'' if case in may else '-'}")
    agrees = judge(decided, timed, next(case for case in order if case in may), fastest, math.log1p(tie))
    print(f"  the decision {'agrees' if agrees else 'DIFFERS'}", flush=True)
    return agrees


def judge(
    decided: decision.Decision, timed: Sequence[Mapping[str, np.ndarray]], best: str, fastest: str, tie: float
) -> bool:
    """Whether the decision agrees with the loop (``tie``: ln of a ratio); one that is open agrees."""
    if decided.verdict in ("ship", "either") and decided.pick is not None:
        pick = decided.pick.case.id
        return compare(timed, pick, best)[1] <= tie and compare(timed, pick, fastest)[1] < 0
    return decided.verdict != "keep fp32" or compare(timed, best, fastest)[2] > -tie


def main() -> None:
    """Checks every setting of a run; exit code 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--suite", type=Path)
    asked = parser.parse_args()
    run = read_run(find_run(asked.run))
    inputs = read_inputs(run, asked.suite)
    judged = build.judge(run)
    options = {"tie": judged.decide.tie, "starts": asked.starts, "rounds": asked.rounds}
    agreed = [check(answer, run, inputs, **options) for answer in decision.decide(judged)]
    sys.exit(0 if all(agreed) else 1)


if __name__ == "__main__":
    main()
