"""A run's timed calls as the JSON that pytest-benchmark saves, for its own ``compare``, histograms and storages.

Every case that was timed is one benchmark: ``name`` is its id, ``group`` its model, threads and batch size, so that
what is compared stands in one table. A round is one timed call, in seconds; the statistics are pytest-benchmark's own
(quartiles by the method of its ``Stats``). Format: pytest-benchmark 5, ``Metadata.as_dict`` and
``pytest_benchmark_generate_json``.
"""

from __future__ import annotations

import json
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from qbench.record.schema import CaseKey, Record
from qbench.record.stored_run import RunInfo, StoredRun

# The version of pytest-benchmark whose format this is; its readers take older and newer ones.
FORMAT_VERSION = "5.1.0"
_MACHINE = {"arch": "machine", "os": "system", "kernel": "release", "python": "python_version"}


def to_json(run: StoredRun) -> str:
    """The run as one pytest-benchmark file, numbers raw; a case without samples is left out."""
    content = {
        "machine_info": describe_machine(run.info),
        "commit_info": {"id": None, "time": None, "dirty": None, "project": run.info.suite.name, "branch": None},
        "benchmarks": [
            describe_benchmark(run, record, seconds) for record in run.records if (seconds := call_seconds(run, record))
        ],
        "datetime": run.info.finished or run.info.started,
        "version": FORMAT_VERSION,
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def call_seconds(run: StoredRun, record: Record) -> list[float]:
    """The seconds of each timed call of a case; empty where it was not timed or its samples are gone."""
    if record.status != "ok":
        return []
    calls = run.samples(record).get("calls_ns")
    return [] if calls is None else [int(call) / 1e9 for call in calls if call > 0]


def group_of(case: CaseKey) -> str:
    """What stands in one table: the cases of one model with as many threads and examples a call."""
    return f"{case.model} t{case.threads} b{case.batch_size}"


def extra_info(record: Record) -> dict[str, Any]:
    """What a comparison of times should know beside them; null where it was not measured."""
    artifact, accuracy = record.artifact, record.accuracy
    coverage = None if artifact is None else artifact.coverage
    return {
        "mode": record.case.mode,
        "backend": record.case.backend,
        "speedup": None if record.speedup is None else record.speedup.value,
        "size_bytes": None if artifact is None else artifact.size_bytes,
        "macs_int8": None if coverage is None else coverage.macs_int8,
        "metric": None if accuracy is None else accuracy.metric,
        "accuracy": None if accuracy is None else accuracy.value,
    }


def describe_benchmark(run: StoredRun, record: Record, seconds: Sequence[float]) -> dict[str, Any]:
    """One element of ``benchmarks``."""
    return {
        "group": group_of(record.case),
        "name": record.case.id,
        "fullname": f"{run.info.suite.file}::{record.case.id}",
        "params": None,
        "param": None,
        "extra_info": extra_info(record),
        "options": {"timer": "qbench", "warmup": True, "disable_gc": True},
        "stats": {**statistics_of(seconds), "data": list(seconds), "iterations": 1},
    }


def describe_machine(info: RunInfo) -> dict[str, Any]:
    """``machine_info``: what the run says of its machine, under pytest-benchmark's names, and the CPU."""
    machine = {theirs: info.environment.get(ours) for ours, theirs in _MACHINE.items()}
    return {**machine, "node": None, "cpu": {"brand_raw": info.environment.get("cpu"), "arch": machine["machine"]}}


def statistics_of(seconds: Sequence[float]) -> dict[str, Any]:
    """The sixteen statistics of pytest-benchmark's ``Stats``, of at least one call."""
    ordered = sorted(seconds)
    mean = statistics.mean(ordered)
    deviation = statistics.stdev(ordered) if len(ordered) > 1 else 0
    q1, q3 = _quartile(ordered, 0.25), _quartile(ordered, 0.75)
    low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    far = sum(abs(value - mean) > deviation for value in ordered)
    outside = bisect_left(ordered, low) + len(ordered) - bisect_right(ordered, high)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": deviation,
        "rounds": len(ordered),
        "median": statistics.median(ordered),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": outside,
        "stddev_outliers": far,
        "outliers": f"{far};{outside}",
        "ld15iqr": ordered[bisect_left(ordered, low)],
        "hd15iqr": ordered[bisect_right(ordered, high) - 1],
        "ops": len(ordered) / sum(ordered),
        "total": sum(ordered),
    }


def _quartile(ordered: Sequence[float], share: float) -> float:
    """The first (0.25) or third (0.75) quartile: of an odd number by the third of the usual methods, else the second
    (en.wikipedia.org/wiki/Quartile#Computing_methods), as pytest-benchmark has it."""
    count = len(ordered)
    if count == 1:
        return ordered[0]
    if count % 2 == 0:
        half = count // 2
        return statistics.median(ordered[:half] if share < 0.5 else ordered[half:])
    n, rest = divmod(count, 4)
    if share < 0.5:
        return 0.25 * ordered[n - 1] + 0.75 * ordered[n] if rest == 1 else 0.75 * ordered[n] + 0.25 * ordered[n + 1]
    if rest == 1:
        return 0.75 * ordered[3 * n] + 0.25 * ordered[3 * n + 1]
    return 0.25 * ordered[3 * n + 1] + 0.75 * ordered[3 * n + 2]
