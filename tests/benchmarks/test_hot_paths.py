"""What qbench itself spends time on besides networks: records, statistics, calibrators, the gate, a report.

    pytest tests/benchmarks --benchmark-enable -n 0 --benchmark-autosave
    pytest tests/benchmarks --benchmark-enable -n 0 --benchmark-compare --benchmark-compare-fail=median:30%

The first command keeps what a commit takes, the second holds a change against it on the same machine; without
``--benchmark-enable`` each runs once, untimed. ``test_plan_speed.py`` and ``test_start_up.py`` watch the plan and the
commands that answer at once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_records import failed, fp32, info, int8
from made_runs import run_folder
from pytest_benchmark.fixture import BenchmarkFixture

from qbench import registry, suite
from qbench.gating import gate, text
from qbench.gating.baseline import Baseline
from qbench.gating.rules import judge_records
from qbench.record import jsonl
from qbench.record.schema import Record
from qbench.report.build import build_report
from qbench.stats import intervals, noninferiority

RULES = """suite: demo
models: [digits-cnn]
data: {dataset: digits}
matrix: {}
gate: {latency: {max_regression: 5%, min_speedup: 1.5}, accuracy: {margin: 1.0}, size: {max_ratio: 0.35}}
"""


def make_records(models: int) -> list[Record]:
    """A measured fp32 and int8 case of each model, and a failed one."""
    return [
        record
        for number in range(models)
        for record in (
            fp32(f"net{number}/fp32/torch/t1/b1"),
            int8(f"net{number}/static/onednn/t1/b1"),
            failed(f"net{number}/qat/x86/t1/b1"),
        )
    ]


def test_a_thousand_records_are_written_and_read(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """As one file, each line checked."""
    records = make_records(334)

    def write_and_read() -> int:
        jsonl.write(tmp_path / "records.jsonl", records)
        return len(jsonl.read(tmp_path / "records.jsonl"))

    assert benchmark(write_and_read) == len(records)


def test_the_intervals_of_one_case(benchmark: BenchmarkFixture) -> None:
    """A median of 10,000 calls, a ratio over nine processes, a score and a paired change of 10,000 examples."""
    random = np.random.default_rng(0)
    calls, ratios = random.lognormal(0, 0.1, 10_000), random.normal(0.9, 0.01, 9)

    def estimate() -> float:
        intervals.quantile_interval(calls, 0.5)
        intervals.exp(intervals.t_interval(ratios, 0.95))
        intervals.proportion(9_700, 10_000)
        return intervals.paired_proportions(12, 31, 10_000).value

    assert benchmark(estimate) == pytest.approx(-0.0019)


def test_a_verdict_on_accuracy(benchmark: BenchmarkFixture) -> None:
    """The non-inferiority test on 10,000 examples."""
    assert benchmark(noninferiority.assess_counts, 12, 31, 10_000, 0.01).outcome == "PASS"


@pytest.mark.parametrize("name", registry.names("calibrator"))
def test_a_calibrator(benchmark: BenchmarkFixture, name: str) -> None:
    """Eight batches of 100,000 values, and the range."""
    batches = np.random.default_rng(0).standard_normal((8, 100_000)).astype(np.float32)

    def calibrate() -> tuple[float, float]:
        calibrator = registry.load("calibrator", name)()
        for batch in batches:
            calibrator.add(batch)
        limits: tuple[float, float] = calibrator.range()
        return limits

    low, high = benchmark(calibrate)
    assert low < 0 < high


def test_the_verdicts_on_a_hundred_cases(benchmark: BenchmarkFixture) -> None:
    """Stored figures of 50 models against themselves, in words."""
    records = [record for record in make_records(50) if record.status == "ok"]
    rules = suite.parse(RULES, file="demo.yaml")

    def judge() -> str:
        verdicts = judge_records(
            records, info(), rules.gate, place=rules.place, baseline=Baseline(info=info(), records=tuple(records))
        )
        return text.text(gate.Gated(suite="demo", folder=Path(), baseline=None, verdicts=verdicts))

    assert benchmark(judge).count("net49/static/onednn/t1/b1") > 3


def test_a_report_of_thirty_cases(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """From the records to the files, drawings included."""
    folder = run_folder(tmp_path / "run", make_records(10))
    assert benchmark.pedantic(build_report, args=(folder,), rounds=3, warmup_rounds=1).is_file()
