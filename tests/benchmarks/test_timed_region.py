"""What the timed region adds: the arm's own loop against a bare loop, on the fake backend, in one process.

Run with ``pytest tests/benchmarks/test_timed_region.py --benchmark-enable -n 0 -s``: prints the ratio of the medians,
in pairs, for a busy call of 1 ms. The goal is a ratio within 1 % of 1.
"""

from __future__ import annotations

import json
import os
import statistics
import time

import numpy as np

from qbench.backends import fake
from qbench.measure.worker import LocalWorker, WorkerSpec

CALLS = 50
PAIRS = 20


def bare(runner, prepared):
    """What a person would write: read the clock, call, read the clock."""
    durations = []
    for _ in range(CALLS):
        before = time.perf_counter_ns()
        runner(prepared)
        durations.append(time.perf_counter_ns() - before)
    return statistics.median(durations)


def test_the_timed_region_adds_nothing(benchmark, tmp_path, monkeypatch):
    """The reported time of a 1 ms call over a bare loop's, alternating, is about 1."""
    monkeypatch.setattr("qbench.process.child.freeze_garbage_collector", lambda: None)
    file = tmp_path / "model.json"
    file.write_text(json.dumps({"seconds": 1e-3, "mode": "fp32"}))
    inputs = (np.zeros((8, 1, 8, 8), np.float32),)
    cores = tuple(sorted(os.sched_getaffinity(0)))
    arm = LocalWorker(
        WorkerSpec(case="fake", backend="fake", file=file, threads=1, batch_size=1, cores=cores, inputs=inputs)
    )
    runner = fake.FakeRunner({"seconds": 1e-3, "mode": "fp32"}, threads=1)
    prepared = runner.prepare(inputs)

    def pair():
        return float(np.median(arm.block(CALLS).calls_ns)) / bare(runner, prepared)

    ratios = [pair() for _ in range(PAIRS if benchmark.enabled else 1)]
    benchmark.extra_info["ratio"] = statistics.median(ratios)
    print(f"\ntimed region / bare loop: {statistics.median(ratios):.4f} ({min(ratios):.4f} to {max(ratios):.4f})")
    benchmark.pedantic(arm.block, args=(CALLS,), rounds=5)
    assert ratios
