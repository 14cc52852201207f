"""What the HTML page shows, gathered from a run into plain values; the template only arranges them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qbench import formatting
from qbench.compare import host_share
from qbench.decide import cases
from qbench.decide import text as decide_text
from qbench.decide.decision import Decision
from qbench.decide.judged import Judged
from qbench.progress.table import TextTable
from qbench.record.schema import Record
from qbench.record.stored_run import RunInfo, StoredRun
from qbench.report import calibration_seeds as draws
from qbench.report import figures, flips, layers, table, text
from qbench.report import measurement_table as details
from qbench.report.figures import Figure
from qbench.report.flip_gallery import Gallery, gallery
from qbench.report.flips import CaseFlips
from qbench.report.run_warnings import warnings

CONTROL = (
    "The control is a second copy of the fp32 baseline, measured like any contender. Its true speed-up is 1. Where "
    "its interval leaves 1, or is wide, the machine was too noisy for small differences, whatever the other columns "
    "say. A dash means that the protocol has no control."
)
SERVICE_TIME = (
    "Every latency is closed-loop service time: one call after the other from one caller, without a queue, without "
    "preprocessing. It is no response time under load."
)


@dataclass(frozen=True, kw_only=True)
class Card:
    """One answer as the page shows it."""

    title: str
    verdict: str
    headline: str
    facts: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    """One table of measured cases: a setting, its columns and rows, and what the answer calls the cases that it names
    (``ship``, ``either``), by id."""

    title: str
    columns: tuple[table.Column, ...]
    rows: tuple[table.Row, ...]
    marks: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Left:
    """A case without a result, and why."""

    case: str
    status: str
    stage: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Flipped:
    """The flips of all variants: what a flip is here, their table, a word on those without any, images, and classes
    that changed."""

    meaning: str
    table: TextTable
    without: str
    gallery: Gallery
    classes: TextTable
    classes_told: str


@dataclass(frozen=True, kw_only=True)
class Page:
    """All that the template needs."""

    suite: str
    file: str
    suite_text: str
    overrides: tuple[str, ...]
    started: str
    state: str
    counts: str
    warnings: tuple[str, ...]
    cards: tuple[Card, ...]
    sections: tuple[Section, ...]
    figures: tuple[Figure, ...]
    flipped: Flipped
    draws: TextTable
    left: tuple[Left, ...]
    layers: TextTable
    worst: TextTable
    details: TextTable
    method: tuple[tuple[str, str], ...]
    machine: tuple[tuple[str, str], ...]
    versions: tuple[tuple[str, str], ...]
    plan_notes: tuple[str, ...]
    elapsed: tuple[tuple[str, str], ...]


def page(
    run: StoredRun,
    judged: Judged,
    found: Sequence[Decision],
    changes: Sequence[CaseFlips] = (),
) -> Page:
    """The page of a run; ``changes`` are its flips."""
    info = run.info
    return Page(
        suite=info.suite.name,
        file=info.suite.file,
        suite_text=info.suite.text,
        overrides=info.suite.overrides,
        started=info.started or formatting.DASH,
        state=_state(run),
        counts=_counts(run),
        warnings=warnings(run, judged, changes),
        cards=tuple(_card(one, judged, info) for one in found),
        sections=tuple(_sections(judged, found)),
        figures=figures.figures(run, judged, found),
        flipped=_flipped(run, changes),
        draws=draws.table(judged),
        left=tuple(_left(run)),
        layers=layers.layers(run.records),
        worst=layers.worst(run),
        details=details.details(run.records),
        method=tuple(_method(run.records, judged)),
        machine=tuple(_fact(name, value) for name, value in info.environment.items()),
        versions=tuple((name, _value(value)) for name, value in info.versions.items()),
        plan_notes=info.plan.notes,
        elapsed=tuple((name, formatting.duration(seconds)) for name, seconds in info.elapsed_seconds.items()),
    )


def _flipped(run: StoredRun, changes: Sequence[CaseFlips]) -> Flipped:
    return Flipped(
        meaning=flips.meaning(changes),
        table=flips.table(changes),
        without=flips.without(changes),
        gallery=gallery(run, changes),
        classes=flips.classes_table(changes),
        classes_told=flips.classes_told(changes),
    )


def _state(run: StoredRun) -> str:
    missing = [case for case in run.info.plan.cases if case not in run.by_id]
    if run.info.finished and not missing:
        return ""
    return f"This run is not complete: {len(missing)} of {len(run.info.plan.cases)} planned cases have no record yet."


def _counts(run: StoredRun) -> str:
    counts = Counter(record.status for record in run.records)
    return ", ".join(f"{counts[status]} {status}" for status in ("ok", "failed", "skipped") if counts[status]) or "none"


def _card(decision: Decision, judged: Judged, info: RunInfo) -> Card:
    points = decide_text.points(decision)
    return Card(
        title=text.answer_name(decision.setting, info),
        verdict=decision.verdict,
        headline=decision.headline,
        facts=decide_text.facts(decision, judged),
        notes=points if info.quick is None else (info.quick.text, *points),
    )


def _sections(judged: Judged, found: Sequence[Decision]) -> Iterable[Section]:
    marks = {decision.setting: _mark_named(decision) for decision in found}
    for setting in cases.settings(judged.records):
        records = cases.of_setting(setting, judged.records)
        unit = table.latency_unit(records)
        rows = table.rows(judged, records, unit)
        if rows:
            yield Section(
                title=text.setting_name(setting),
                columns=table.columns(judged, unit[1]),
                rows=tuple(rows),
                marks=marks.get(setting, {}),
            )


def _mark_named(decision: Decision) -> dict[str, str]:
    """What the answer calls the cases that it names for shipping, by id."""
    named = {"ship": (decision.pick,), "either": (decision.pick, decision.runner_up)}.get(decision.verdict, ())
    return {record.case.id: decision.verdict for record in named if record is not None}


def _left(run: StoredRun) -> Iterable[Left]:
    for status in ("failed", "skipped"):
        for record in run.records:
            if record.status == status:
                yield Left(case=record.case.id, status=status, stage=record.stage or "", reason=record.reason or "")
    skipped = (skip for skip in run.info.plan.skipped if skip.id not in run.by_id)
    yield from (Left(case=skip.id, status="skipped", stage="plan", reason=skip.reason) for skip in skipped)
    for case in run.info.plan.cases:
        if case not in run.by_id:
            yield Left(case=case, status="no record", stage="", reason="the run did not reach it; resume the run")


def _method(records: Sequence[Record], judged: Judged) -> Iterable[tuple[str, str]]:
    speedups = [record.speedup for record in records if record.speedup is not None]
    yield "latency", SERVICE_TIME
    if shares := [share for record in records if (share := host_share.share_of(record)) is not None]:
        yield (
            "host",
            "a canary of 25 us before and after each block: something else used the core "
            f"{host_share.describe_range(shares)} of the time; "
            "p50 is that of the undisturbed blocks where there are at least 3, everything else is of all",
        )
    yield "protocol", _tally(speedup.protocol for speedup in speedups)
    yield "processes per case", _tally(speedup.processes for speedup in speedups)
    yield "stopped by", _tally(speedup.stopped for speedup in speedups)
    yield "not steady", ", ".join(r.case.id for r in records if r.speedup and r.speedup.steady is False) or "none"
    yield "threads", _tally(record.case.threads for record in records)
    yield "batch size", _tally(record.case.batch_size for record in records)
    yield "calls kept per case", _range([record.latency.n for record in records if record.latency is not None])
    yield "examples scored", _range([record.accuracy.n for record in records if record.accuracy is not None])
    if judged.metric is not None and judged.margin is not None:
        yield (
            "accuracy margin",
            f"{judged.margin:g} {judged.metric.unit} of {judged.metric.name}; non-inferiority at 5 %, one-sided, each "
            "case alone (the gate shares the 5 % among all its rules)",
        )


def _tally(values: Iterable[object]) -> str:
    counts = Counter(formatting.DASH if value is None else str(value) for value in values)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{value} ({count} cases)" for value, count in counts.items()) or formatting.DASH


def _range(counts: Sequence[int]) -> str:
    if not counts:
        return formatting.DASH
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _fact(name: str, value: Any) -> tuple[str, str]:
    """An entry of the fingerprint for a reader: words for underscores, a unit for bytes."""
    if name.endswith("_bytes") and isinstance(value, int):
        return name.removesuffix("_bytes").replace("_", " "), formatting.size(value)
    return name.replace("_", " "), _value(value)


def _value(value: Any) -> str:
    if value is None:
        return formatting.DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value) or "none"
    return str(value)
