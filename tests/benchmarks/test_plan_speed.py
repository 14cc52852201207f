"""How long a plan takes: 100,000 cells within 3 s, `qbench plan` of the quickstart within 0.6 s as a process.

Run with ``pytest tests/benchmarks --benchmark-enable -n 0``; without that option each runs once, untimed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

from qbench.plan.planner import Plan, make_plan
from qbench.suite import parse

ROOT = Path(__file__).parents[2]


def test_plan_of_100_000_cells(benchmark: BenchmarkFixture) -> None:
    """From YAML text to plan: 2 models x 4 modes x 5 backends x 50 threads x 50 batch sizes."""
    numbers = list(range(1, 51))
    text = (
        "suite: large\nmodels: [digits-cnn, digits-lstm]\ndata: {dataset: digits}\n"
        f"matrix: {{backends: [torch, fbgemm, x86, onednn, onnxruntime], threads: {numbers}, batch_sizes: {numbers}}}"
    )

    def plan() -> Plan:
        suite = parse(text)
        return make_plan(suite, cores=64, only="*")

    planned = benchmark.pedantic(plan, rounds=3)
    # 5,000 cells of each mode and backend; without meaning: fp32 on three engines and three int8 modes on torch.
    assert len(planned.cases) + len(planned.skipped) == 100_000 - 6 * 5_000


def test_plan_of_the_quickstart_as_a_process(benchmark: BenchmarkFixture) -> None:
    """Reading and planning the quickstart in a fresh interpreter."""
    code = (
        "from qbench.suite import read; from qbench.plan.planner import make_plan; "
        "suite = read('suites/quickstart.yaml'); print(len(make_plan(suite, cores=1).cases))"
    )

    def process() -> str:
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout

    assert int(benchmark.pedantic(process, rounds=3, warmup_rounds=1)) > 0
