"""Records, run descriptions and golden files for the tests of compare, gate, baseline and report."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from qbench import stats
from qbench.example_scores import ExampleScores
from qbench.record import Accuracy, ArtifactFacts, CaseKey, Coverage, Flips, Interval, Latency, Record, Speedup
from qbench.stored import MetricInfo, PlanInfo, RunInfo, SuiteInfo

GOLDEN = Path(__file__).parent / "golden"
RUN_V1 = Path(__file__).parent / "data" / "records" / "v1"
CASE = "net/static/onednn/t1/b1"
FP32 = "net/fp32/torch/t1/b1"
QUIET = Interval(value=1.001, low=0.996, high=1.006)


def case_key(case: str) -> CaseKey:
    """The key of an id such as ``net/static/onednn/t1/b1``; slashes before the last four belong to the model."""
    model, mode, backend, threads, batch = case.rsplit("/", 4)
    return CaseKey(
        id=case, model=model, mode=mode, backend=backend, threads=int(threads[1:]), batch_size=int(batch[1:])
    )


def speedup(value: float = 2.5, half: float = 0.01, **changes: Any) -> Speedup:
    """A trustworthy paired speed-up over three processes, limits ``half`` (a share) to either side."""
    plain = Speedup(baseline=FP32, value=value, low=value * (1 - half), high=value * (1 + half), processes=3,
                    control=QUIET, stopped="precision", steady=True)  # fmt: skip
    return replace(plain, **changes)


def accuracy(*, harmful: int = 0, beneficial: int = 0, n: int = 1000, right: int = 970) -> Accuracy:
    """Top-1 of n examples of which fp32 gets ``right`` right, with those flips."""
    score = stats.proportion(right - harmful + beneficial, n)
    return Accuracy(metric="top1", value=score.value, low=score.low, high=score.high, n=n,
                    delta=stats.paired_proportions(beneficial, harmful, n), agreement=1 - (harmful + beneficial) / n,
                    flips=Flips(harmful=harmful, beneficial=beneficial))  # fmt: skip


def answers(record: Record, first: int = 0) -> ExampleScores | None:
    """Which of ``accuracy``'s examples a record has right: fp32 the first ones, the record all but those that flip to
    its harm, and those that flip to its good at the end. Their names are whole numbers; the first ``first`` are left
    out, and as many others come in their place."""
    found = record.accuracy
    if found is None or found.metric != "top1":
        return None
    flips = found.flips or Flips(harmful=0, beneficial=0)
    right = np.arange(found.n) < round(found.value * found.n) + flips.harmful - flips.beneficial
    right[: flips.harmful] = False
    right[found.n - flips.beneficial :] = True
    names = np.arange(first, first + found.n)
    return ExampleScores(values=right[names % found.n].astype(float), contents=names.astype(np.uint64))


def fp32(case: str = FP32, size_bytes: int = 1_000_000) -> Record:
    """A measured fp32 case."""
    score = stats.proportion(970, 1000)
    plain = Accuracy(metric="top1", value=score.value, low=score.low, high=score.high, n=1000)
    return Record(case=case_key(case), status="ok", latency=latency(0.0025), accuracy=plain,
                  artifact=ArtifactFacts(format="torchscript", sha256="0" * 64, size_bytes=size_bytes))  # fmt: skip


def latency(seconds: float) -> Latency:
    """400 calls around a median."""
    return Latency(p50_seconds=seconds, p50_low=seconds * 0.99, p50_high=seconds * 1.01, p90_seconds=seconds * 1.1,
                   p99_seconds=None, mean_seconds=seconds, n=400)  # fmt: skip


def int8(case: str = CASE, *, size_bytes: int = 260_000, coverage: float = 0.98, **changes: Any) -> Record:
    """A measured int8 case that passes every rule."""
    layers = Coverage(macs_int8=coverage, layers_int8=12, layers_total=13, float_layers=("fc",))
    artifact = ArtifactFacts(format="torchscript", sha256="0" * 64, size_bytes=size_bytes, coverage=layers)
    plain = Record(case=case_key(case), status="ok", latency=latency(0.001), artifact=artifact, speedup=speedup(),
                   accuracy=accuracy(harmful=1, beneficial=1))  # fmt: skip
    return replace(plain, **changes)


def failed(case: str = CASE, reason: str = "the worker was killed by signal 9") -> Record:
    """A case that failed while measuring."""
    return Record(case=case_key(case), status="failed", stage="measure", reason=reason)


def skipped(case: str = CASE, reason: str = "no C++ compiler found") -> Record:
    """A case that the plan skipped."""
    return Record(case=case_key(case), status="skipped", stage="plan", reason=reason)


def info(cases: tuple[str, ...] = (), **changes: Any) -> RunInfo:
    """A finished run of the suite ``demo`` on one machine."""
    plain = RunInfo(
        suite=SuiteInfo(name="demo", file="suites/demo.yaml"),
        started="2026-01-01T00:00:00Z",
        finished="2026-01-01T00:01:00Z",
        environment={"cpu": "CPU A", "arch": "x86_64", "isa": ["avx2"], "cores_total": 2},
        plan=PlanInfo(cases=cases),
        metric=MetricInfo(name="top1"),
    )
    return replace(plain, **changes)


def same_as_golden(name: str, text: str) -> bool:
    """Whether a text equals its golden file; ``QBENCH_WRITE_GOLDEN=1`` writes it instead."""
    file = GOLDEN / name
    if os.environ.get("QBENCH_WRITE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{file} differs"
    return True
