"""Writes tests/data/records/v1: a whole run as qbench 0.1 leaves it, with made-up figures.

Run it as ``python tests/data/records/make_v1.py [FOLDER]``. The committed folder is a fixture of record schema 1
and is not to be made again for a later schema: an old file must stay as old qbench wrote it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from qbench.stats.interval import Interval

from qbench.record import jsonl
from qbench.record.schema import (
    Accuracy,
    ArtifactFacts,
    CaseKey,
    ColdStart,
    Coverage,
    Flips,
    Latency,
    Memory,
    Record,
    Roofline,
    Speedup,
)
from qbench.stats import intervals

EXAMPLES, CLASSES, SEED = 450, 10, 20260101
SUITE = """\
suite: quickstart
models: [digits-cnn, digits-lstm]
data:
  dataset: digits
matrix:
  modes: [fp32, dynamic, static, qat]
  backends: [torch, fbgemm, x86, onednn, qnnpack, onnxruntime]
measure: {protocol: paired, precision: 2%, processes: 3}
gate:
  latency: {max_regression: 5%, min_speedup: 1.5}
  accuracy:
    metric: top1
    margin: 1.0
  size: {max_ratio: 0.35}
"""
SKIP = "dynamic quantization covers Linear and LSTM layers; digits-cnn has convolutions only on this engine"
CRASH = "the worker was killed by signal 9 (out of memory?); lower measure.processes or set limits.memory_bytes"


@dataclass(frozen=True)
class Figures:
    """The figures of one made-up case; times in milliseconds."""

    model: str
    mode: str
    backend: str
    p50: float
    fp32: str = "torch"
    size: int = 0
    coverage: float = 0.0
    floats: tuple[str, ...] = ()
    harmful: int = 0
    beneficial: int = 0
    control: float | None = 0.004
    protocol: str = "paired"
    steady: bool = True
    note: str | None = None


CNN = (
    Figures("digits-cnn", "fp32", "torch", 2.41, size=1_402_880),
    Figures("digits-cnn", "fp32", "onnxruntime", 1.62, fp32="onnxruntime", size=1_391_204),
    Figures("digits-cnn", "static", "fbgemm", 0.98, size=371_200, coverage=1.0, harmful=1, beneficial=1),
    Figures("digits-cnn", "static", "x86", 0.83, size=371_264, coverage=1.0, harmful=1, protocol="sequential"),
    Figures("digits-cnn", "static", "onednn", 0.74, size=369_152, coverage=0.998, floats=("fc",), harmful=1),
    Figures("digits-cnn", "static", "qnnpack", 6.9, size=362_112, coverage=1.0, harmful=13, beneficial=2,
         note="qnnpack on x86 works, and is slow there"),
    Figures("digits-cnn", "static", "onnxruntime", 0.64, fp32="onnxruntime", size=364_512, coverage=1.0, beneficial=1),
    Figures("digits-cnn", "dynamic", "onnxruntime", 1.31, fp32="onnxruntime", size=366_900, coverage=0.41,
         floats=("stem", "block.conv1", "block.conv2"), control=0.031),
    Figures("digits-cnn", "qat", "onednn", 0.73, size=369_152, coverage=0.998, floats=("fc",), harmful=2, beneficial=3),
)  # fmt: skip
LSTM = (
    Figures("digits-lstm", "fp32", "torch", 0.402, size=548_864),
    Figures("digits-lstm", "dynamic", "fbgemm", 0.197, size=146_432, coverage=1.0, harmful=3, beneficial=1),
    Figures("digits-lstm", "dynamic", "qnnpack", 0.244, size=146_176, coverage=1.0, harmful=5, steady=False),
)


def key(model: str, mode: str, backend: str) -> CaseKey:
    """The key of a one-thread, batch-1 case."""
    name = f"{model}/{mode}/{backend}/t1/b1"
    return CaseKey(id=name, model=model, mode=mode, backend=backend, threads=1, batch_size=1)


def correct(figures: Figures, rng: np.random.Generator) -> np.ndarray:
    """Which examples the case gets right: its model's fp32 answers with the flips put in."""
    wrong = 11 if figures.model == "digits-cnn" else 27
    right = np.ones(EXAMPLES, dtype=bool)
    right[rng.permutation(EXAMPLES)[:wrong]] = False
    right[np.flatnonzero(right)[: figures.harmful]] = False
    right[np.flatnonzero(~right)[-figures.beneficial or EXAMPLES :]] = True
    return right


def write_arrays(
    folder: Path, figures: Figures, right: np.ndarray, milliseconds: np.ndarray, ratios: np.ndarray
) -> str:
    """Stores predictions and samples; returns the stem of both files."""
    stem = key(figures.model, figures.mode, figures.backend).id.replace("/", "__")
    labels = np.arange(EXAMPLES, dtype=np.int64) % CLASSES
    outputs = np.zeros((EXAMPLES, CLASSES), dtype=np.float32)
    outputs[np.arange(EXAMPLES), np.where(right, labels, (labels + 1) % CLASSES)] = 1
    np.savez_compressed(folder / "predictions" / f"{stem}.npz", outputs=outputs, labels=labels)
    calls = (milliseconds * 1e6).astype(np.int64)
    np.savez_compressed(
        folder / "samples" / f"{stem}.npz",
        calls_ns=calls,
        block=np.repeat(np.arange(calls.size // 10), 10),
        log_ratios=ratios,
        protocol=np.array(figures.protocol),
    )
    return stem


def ok(folder: Path, figures: Figures, fp32: dict[str, Figures], rng: np.random.Generator) -> Record:
    """A measured case with its arrays written."""
    case = key(figures.model, figures.mode, figures.backend)
    base = fp32[f"{figures.model}/{figures.fp32}"]
    milliseconds = figures.p50 * (1 + rng.gamma(1.5, 0.012, 400))
    milliseconds[rng.random(400) < 0.02] *= 1.4
    ratios = np.log(figures.p50 / base.p50) + rng.normal(0, 0.012, 40)
    seeded = np.random.default_rng(SEED)
    right = correct(figures, seeded)
    stem = write_arrays(folder, figures, right, milliseconds, ratios)
    seconds = milliseconds / 1e3
    p50 = intervals.quantile_interval(seconds, 0.5)
    assert p50 is not None
    return Record(
        case=case,
        status="ok",
        recipe=None if figures.mode == "fp32" else {"flow": "onnx" if "onnx" in figures.backend else "fx",
                                                 "calibrator": "histogram", "per_channel": True, "skip_layers": []},
        artifact=facts(figures),
        observed={"threads": 1, "interop_threads": 1, "engine": figures.backend, "affinity": [1]},
        latency=Latency(
            p50_seconds=p50.value, p50_low=p50.low, p50_high=p50.high,
            p90_seconds=float(np.quantile(seconds, 0.9)), p99_seconds=float(np.quantile(seconds, 0.99)),
            mean_seconds=float(seconds.mean()), n=400,
        ),
        speedup=None if figures.mode == "fp32" else speedup(figures, base),
        throughput_per_second=1 / p50.value,
        cold_start=ColdStart(load_seconds=0.011, first_call_seconds=figures.p50 * 8.6e-3),
        memory=Memory(loaded_rss_bytes=61_000_000, peak_rss_bytes=64_000_000),
        accuracy=accuracy(figures, int(right.sum())),
        roofline=Roofline(macs=1_820_000 if figures.model == "digits-cnn" else 310_000),
        samples=f"samples/{stem}.npz",
        predictions=f"predictions/{stem}.npz",
        started="2026-01-01T00:00:00Z",
        elapsed_seconds={"build": 1.3, "evaluate": 0.4, "measure": 6.2},
    )  # fmt: skip


def facts(figures: Figures) -> ArtifactFacts:
    """The artifact of a made-up case."""
    coverage = Coverage(
        macs_int8=figures.coverage,
        layers_int8=13 - len(figures.floats),
        layers_total=13,
        float_layers=figures.floats,
    )
    return ArtifactFacts(
        format="onnx" if "onnx" in figures.backend else "torchscript",
        sha256="0" * 64,
        size_bytes=figures.size,
        coverage=None if figures.mode == "fp32" else coverage,
        note=figures.note,
    )


def speedup(figures: Figures, base: Figures) -> Speedup:
    """The speed-up with limits 1 % to either side, and the control where the protocol has one."""
    value = base.p50 / figures.p50
    paired = figures.protocol == "paired"
    control = (
        Interval(value=1.001, low=1.001 - figures.control, high=1.001 + figures.control) if figures.control else None
    )
    return Speedup(
        baseline=key(figures.model, "fp32", figures.fp32).id, value=value, low=value * 0.99, high=value * 1.01,
        processes=3 if paired else 1, control=control if paired else None, protocol=figures.protocol,
        stopped="precision" if paired else "fixed", steady=figures.steady if paired else None,
    )  # fmt: skip


def accuracy(figures: Figures, right: int) -> Accuracy:
    """Top-1 with its interval and, for int8, the paired change."""
    score = intervals.proportion(right, EXAMPLES)
    plain = Accuracy(metric="top1", value=score.value, low=score.low, high=score.high, n=EXAMPLES)
    if figures.mode == "fp32":
        return plain
    changed = figures.harmful + figures.beneficial
    return Accuracy(
        metric="top1", value=score.value, low=score.low, high=score.high, n=EXAMPLES,
        delta=intervals.paired_proportions(figures.beneficial, figures.harmful, EXAMPLES),
        agreement=1 - changed / EXAMPLES, flips=Flips(harmful=figures.harmful, beneficial=figures.beneficial),
    )  # fmt: skip


def run_json(cases: list[str]) -> dict[str, object]:
    """What stands beside the records."""
    return {
        "schema": 1,
        "suite": {"name": "quickstart", "file": "suites/quickstart.yaml", "text": SUITE, "overrides": []},
        "started": "2026-01-01T00:00:00Z",
        "finished": "2026-01-01T00:02:07Z",
        "environment": {
            "cpu": "AMD EPYC 9R14", "arch": "x86_64", "isa": ["avx2", "avx512_vnni", "avx512f", "fma"],
            "cores_allowed": 2, "cores_total": 2, "hypervisor": "KVM", "os": "Linux", "kernel": "6.1.0",
            "python": "3.11.2", "memory_bytes": 8_200_000_000, "cpu_quota": None,
        },
        "versions": {"qbench": "0.1.0", "torch": "2.13.0", "onnxruntime": "1.31.1", "openvino": None},
        "plan": {
            "cases": cases,
            "skipped": [{"id": "digits-cnn/dynamic/fbgemm/t1/b1", "reason": SKIP}],
            "notes": ["fp32 is not a mode of fbgemm, x86, onednn, qnnpack: torch runs it for them"],
        },
        "elapsed_seconds": {"build": 41.2, "evaluate": 6.1, "measure": 78.4, "report": 1.3},
        "metric": {"name": "top1", "percent": True, "higher_is_better": True},
    }  # fmt: skip


def main(folder: Path) -> None:
    """Writes the whole run."""
    for name in ("samples", "predictions"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    fp32 = {f"{figures.model}/{figures.backend}": figures for figures in (*CNN, *LSTM) if figures.mode == "fp32"}
    records = [ok(folder, figures, fp32, rng) for figures in (*CNN, *LSTM)]
    skipped = key("digits-cnn", "dynamic", "fbgemm")
    failed = key("digits-lstm", "dynamic", "onnxruntime")
    records.append(Record(case=skipped, status="skipped", stage="plan", reason=SKIP))
    records.append(Record(case=failed, status="failed", stage="measure", reason=CRASH, started="2026-01-01T00:01:55Z"))
    jsonl.write(folder / "records.jsonl", records)
    cases = [record.case.id for record in records if record.status != "skipped"]
    (folder / "run.json").write_text(json.dumps(run_json(cases), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("v1"))
