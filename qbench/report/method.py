"""How a run was measured, in words that another person can repeat: the command, the noise check, the protocol; pure."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from qbench import formatting
from qbench.compare import host_share
from qbench.compare.speedup_doubt import NOT_TOLD, UNSTEADY, find_unsteadiness
from qbench.decide.judged import Judged
from qbench.decide.limit_text import name_bound
from qbench.decide.limits import AccuracyFloor, AccuracyLimit
from qbench.decide.tested_change import describe_levels, shown_of
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo, RunInfo

NAMED = 3  # cases in one sentence
SERVICE_TIME = (
    "Every time is closed-loop service time: one call after the other from one caller, without a queue, without "
    "preprocessing. It is no response time under load."
)
_METHODS = {
    "score": "the score test of the answers that changed (Tango), of a score alone Wilson's",
    "exact": "the exact limits of a share (Clopper and Pearson)",
    "weighted mean": "a weighted mean of the examples (Gaffke), which allows for large losses that were not seen",
    "jackknife": "the jackknife",
    "paired bootstrap": "the paired bootstrap",
    "t": "Student's t",
}
_FILTER = re.compile(r"--filter '(.*)' keeps \d+ of \d+ cells", re.DOTALL)


def command(info: RunInfo) -> str:
    """The command that measures the same again, on the same suite file and versions."""
    words = ["qbench", "run", info.suite.file]
    for note in info.plan.notes:
        if filtered := _FILTER.fullmatch(note):
            words += ["--filter", filtered.group(1)]
    for override in info.suite.overrides:
        words += ["--set", override]
    words += ["--quick"] if info.quick is not None else []
    return shlex.join(formatting.one_line(word) for word in words)


def explain_noise(records: Sequence[Record]) -> str:
    """What the noise check said: fp32 against a second copy of itself, whose true answer is 1."""
    speedups = [(record, record.speedup) for record in records if record.speedup is not None]
    checks = [
        (record, speedup.control.low, speedup.control.high)
        for record, speedup in speedups
        if speedup.control is not None and speedup.control.low is not None and speedup.control.high is not None
    ]
    if not speedups:
        return "No speed-up was measured, so there is no noise check."
    if not checks:
        return "No case has a noise check (fp32 against fp32): small differences may be noise."
    low, high = min(low for _, low, _ in checks), max(high for _, _, high in checks)
    off = [record.case.id for record, low, high in checks if not low <= 1 <= high]
    widest = max(checks, key=lambda check: max(-_log(check[1]), _log(check[2])))
    beyond = math.expm1(max(-_log(widest[1]), _log(widest[2]))) * 100
    read = f"fp32 was measured against a second copy of itself beside {_count(len(checks), 'case')}"
    text = f"{read}; the true answer is 1, and the 95 % intervals reach from {low:.2f} to {high:.2f}. "
    if off:
        text += f"Noisy: 1 lies outside for {_name(off)}, so small differences there may be noise. "
    else:
        text += "Quiet enough: each of them holds 1. "
    text += f"Differences below {beyond:.0f} % are not to be trusted for {widest[0].case.id}, the noisiest."
    rest = len(speedups) - len(checks)
    if rest:
        text += f" {_count(rest, 'case')} {'was' if rest == 1 else 'were'} measured too briefly for a noise check."
    return text


def _log(ratio: float) -> float:
    return math.log(ratio) if ratio > 0 else -math.inf


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _name(cases: Sequence[str]) -> str:
    return ", ".join(cases) if len(cases) <= NAMED else f"{len(cases)} cases"


def list_facts(records: Sequence[Record], judged: Judged) -> Iterator[tuple[str, str]]:
    """The protocol as pairs of a word and what holds for it."""
    speedups = [record.speedup for record in records if record.speedup is not None]
    yield "what a time is", SERVICE_TIME
    if shares := [share for record in records if (share := host_share.share_of(record)) is not None]:
        yield (
            "other work on the core",
            "a canary of 25 us before and after each block: something else used the core "
            f"{host_share.describe_range(shares)} of the time; "
            "p50 and what follows from it are of the undisturbed blocks where there are at least 3, ratios of all",
        )
    yield "protocol", _tally(speedup.protocol for speedup in speedups)
    yield "processes per case", _tally(speedup.processes for speedup in speedups)
    yield "stopped by", _tally(speedup.stopped for speedup in speedups)
    yield "not steady", _list_cases(records, UNSTEADY) or "none"
    if short := _list_cases(records, NOT_TOLD):
        yield "too short to tell whether steady", short
    yield "threads", _tally(record.case.threads for record in records)
    yield "batch size", _tally(record.case.batch_size for record in records)
    yield "calls kept per case", _range([record.latency.n for record in records if record.latency is not None])
    yield "examples scored", _range([record.accuracy.n for record in records if record.accuracy is not None])
    if judged.metric is not None and judged.bound is not None:
        yield (
            "accuracy limit",
            f"{_describe_bound(judged.bound, judged.metric)}{_describe_overrides(records, judged)}; "
            "non-inferiority at 5 %, one-sided, each case alone (the gate shares the 5 % among all its rules)",
        )
    if methods := {change.method for record in records if (change := shown_of(judged, record)) and change.method}:
        yield (
            "limits of accuracy",
            f"{describe_levels(judged, records)}; by {' and '.join(sorted(_METHODS[method] for method in methods))}",
        )


def _list_cases(records: Sequence[Record], doubt: str) -> str:
    """The cases of whose series that is said."""
    return ", ".join(r.case.id for r in records if r.speedup is not None and find_unsteadiness(r.speedup) == doubt)


def _describe_bound(bound: AccuracyLimit, metric: MetricInfo) -> str:
    """``1 points of top1``, ``sqnr at least 10 dB``."""
    if isinstance(bound, AccuracyFloor):
        return f"{metric.name} {name_bound(bound, metric)}"
    return f"{bound.loss:g} {metric.unit} of {metric.name}"


def _describe_overrides(records: Sequence[Record], judged: Judged) -> str:
    """``, 2.5 for 2 cases (gate.overrides)``; empty where all cases have the suite's limit."""
    bounds = Counter(judged.bound_of(record) for record in records if record.case.mode != "fp32")
    limits = [
        f"{bound.value:g} for {_count(count, 'case')}"
        for bound, count in bounds.items()
        if bound is not None and bound != judged.bound
    ]
    return f", {', '.join(limits)} (gate.overrides)" if limits else ""


def _tally(values: Iterable[object]) -> str:
    counts = Counter(formatting.DASH if value is None else str(value) for value in values)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{value} ({_count(count, 'case')})" for value, count in counts.items()) or formatting.DASH


def _range(counts: Sequence[int]) -> str:
    if not counts:
        return formatting.DASH
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def list_machine(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fingerprint for a reader: words for underscores, a unit for bytes."""
    for name, value in environment.items():
        if name.endswith("_bytes") and isinstance(value, int):
            yield name.removesuffix("_bytes").replace("_", " "), formatting.size(value)
        else:
            yield name.replace("_", " "), show(value)


def show(value: Any) -> str:
    """A stored value for a reader."""
    if value is None:
        return formatting.DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value) or "none"
    return str(value)
