"""The first screen: one card a setting with what to ship, its figures, how sure that is, and who is not it; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qbench import formatting
from qbench.compare import compare
from qbench.decide import cases, reasons
from qbench.decide import text as decide_text
from qbench.decide.decision_type import Decision
from qbench.decide.json_text import find_shipped_record
from qbench.decide.judged import Judged
from qbench.decide.names import backend_name, variant_name
from qbench.decide.sureness import say_chance
from qbench.modes import name_formats
from qbench.record.schema import Record
from qbench.record.stored_run import QUICK, RunInfo
from qbench.report import palette
from qbench.report.cells import (
    RATIO_DIGITS,
    CaseRow,
    Cell,
    Tone,
    accuracy_limit,
    count_digits,
    count_flips,
    interval_cell,
    latency_unit,
)
from qbench.report.columns import accuracy_key, draw_cells, list_shown
from qbench.report.palette import Sign
from qbench.report.ruling import Rulings


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One figure: what it is, its value with unit and limits, and lines below it; the first may carry a tone."""

    label: str
    value: str
    unit: str = ""
    limits: str = ""
    lines: tuple[str, ...] = ()
    tone: Tone = ""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A variant that a card names: its name in words, a backend's colour, how much of it is int8, and its tiles."""

    name: str
    color: str
    work: str
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why some are not it: a count with the reason, and the variants with how fast they are."""

    counted: str
    variants: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Card:
    """The answer for one setting as the page shows it; ``doubted``: noise, or what nobody judged, could change it.
    ``rows``: a question and its answer, the first matters most."""

    anchor: str
    title: str
    verdict: str
    doubted: bool
    sign: Sign
    headline: str
    aside: str
    candidates: tuple[Candidate, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    not_it: str
    reasons: tuple[Reason, ...]
    warnings: tuple[str, ...]


def cards(decisions: Sequence[Decision], judged: Judged, rulings: Rulings, info: RunInfo) -> tuple[Card, ...]:
    """A card for each setting, in the order of the records."""
    return tuple(_card(number, decision, judged, rulings, info) for number, decision in enumerate(decisions, start=1))


def _card(number: int, decision: Decision, judged: Judged, rulings: Rulings, info: RunInfo) -> Card:
    title = cases.setting_name(decision.setting, between=" · ")
    return Card(
        anchor=f"answer-{number}",
        title=title if info.quick is None else f"{QUICK} at {title}",
        verdict=decision.status,
        doubted=decision.capped is not None,
        sign=palette.VERDICTS.get(decision.status, Sign(symbol="?", word=decision.status)),
        headline=decision.sentence,
        aside=_aside(decision),
        candidates=tuple(_candidates(decision, judged, rulings)),
        rows=(*_rows(decision), *_file_row(decision, info), ("Next step", (decision.next_step,))),
        not_it=_count_others(decision),
        reasons=tuple(_reason(reason, named, judged, rulings) for reason, named in decision.not_it),
        warnings=(*([] if info.quick is None else [info.quick.text]), *decision.notes),
    )


def _aside(decision: Decision) -> str:
    """Whose figures the tiles hold, where that is not what is shipped."""
    if decision.pick is None or decision.verdict in ("ship", "either"):
        return ""
    return (
        f"The fastest {name_formats([decision.pick.case.mode])} beside it:"
        if decision.verdict == "keep fp32"
        else "Its figures:"
    )


def _candidates(decision: Decision, judged: Judged, rulings: Rulings) -> Iterator[Candidate]:
    named = [decision.pick, decision.runner_up if decision.verdict == "either" else None]
    for record in named:
        if record is None:
            continue
        coverage = record.artifact.coverage if record.artifact else None
        share = None if coverage is None else coverage.share_of(record.case.mode)
        work = ""
        if coverage is not None and share is not None:
            work = f"{formatting.share(share)} of its work done {coverage.describe_format(record.case.mode)}"
        yield Candidate(
            name=variant_name(record),
            color=palette.variable_of(record.case.backend),
            work=work,
            tiles=tuple(_tiles(record, decision, judged, rulings)),
        )


def _tiles(record: Record, decision: Decision, judged: Judged, rulings: Rulings) -> Iterator[Tile]:
    unit = latency_unit([record])
    digits = count_digits(judged, [record], unit[0])
    cells = draw_cells(CaseRow(judged=judged, record=record, unit=unit[0], digits=digits))
    labels = {key: column.card for key, column in list_shown(judged, unit[1]).items()}
    if decision.objective in ("cold_start", "memory"):
        yield Tile(label=labels["minimized"], value=cells["minimized"].text)
    yield _tile(labels["p50"], cells["p50"], unit[1])
    over = interval_cell(rulings[record.case.id].over_fp32)
    yield _tile(labels["best"], over, "×", tuple(_name_fastest(decision)))  # noqa: RUF001 (times)
    yield _accuracy_tile(record, judged, labels, cells)
    yield _size_tile(record, judged, labels["size"])


def _tile(label: str, cell: Cell, unit: str, lines: tuple[str, ...] = (), tone: Tone = "") -> Tile:
    """A figure with its unit, where there is one."""
    unit = "" if cell.sort is None else unit
    return Tile(label=label, value=cell.text, unit=unit, limits=cell.limits, lines=lines, tone=tone)


def _name_fastest(decision: Decision) -> Iterator[str]:
    fp32 = decision.fastest
    if fp32 is not None and fp32.latency is not None:
        yield f"best fp32: {formatting.duration(cases.p50(fp32))}"
        yield f"on {backend_name(fp32.case.backend)}"


def _accuracy_tile(record: Record, judged: Judged, labels: dict[str, str], cells: dict[str, Cell]) -> Tile:
    metric, outcome, key = judged.metric, judged.outcome(record), accuracy_key(judged)
    score_unit = "" if metric is None else "%" if metric.percent else metric.own_unit
    unit = score_unit if key == "accuracy" else "" if metric is None else metric.unit
    lines = []
    tone: Tone = ""
    if outcome is not None:
        sign = palette.VERDICTS[outcome]
        tone = {"PASS": "good", "FAIL": "bad", "INCONCLUSIVE": "unsure"}[outcome]  # type: ignore[assignment]
        lines.append(f"{sign.symbol} {sign.word}{accuracy_limit(judged, [record])}")
    flips = record.accuracy.flips if record.accuracy else None
    if flips is not None and record.accuracy is not None:
        changed = count_flips(flips.harmful, flips.beneficial)
        lines.append(f"{'no change' if changed == 'none' else changed} in {record.accuracy.n:,}")
    if judged_output := cases.name_judged(record):
        lines.append(f"of {judged_output}")
    return _tile(labels[key], cells[key], unit, tuple(lines), tone)


def _size_tile(record: Record, judged: Judged, label: str) -> Tile:
    fp32 = compare.like_for_like(record, judged.records)
    if record.artifact is None:
        return Tile(label=label, value=formatting.DASH)
    size, ratio = formatting.size(record.artifact.size_bytes), compare.size_ratio(fp32, record)
    if ratio is None or fp32 is None or fp32.artifact is None:
        return Tile(label="size", value=size)
    whole = f"fp32: {formatting.size(fp32.artifact.size_bytes)}"
    return Tile(label=label, value=formatting.share(ratio, 0), lines=(size, whole))


def _rows(decision: Decision) -> Iterator[tuple[str, tuple[str, ...]]]:
    if decision.probability is not None:
        sure = f"Repeated, this would be chosen {say_chance(decision.probability)}."
        yield "How sure", (sure, *((f"{decide_text.explain_cap(decision)}.",) if decision.capped else ()))
    decided = (f"What decided: {decision.deciding_step}.",) if decision.deciding_step else ()
    if decision.runner_up is not None and decision.behind is not None and decision.verdict == "ship":
        tied = "tied with it" if decision.runner_up.case.id in decision.tied else ""
        said = ", ".join(part for part in (variant_name(decision.runner_up), tied, decision.behind) if part)
        yield "Without it", (f"{said}.", *decided)
    elif decision.tie is not None or decided:
        yield "Tie", (*(() if decision.tie is None else (decision.tie,)), *decided)
    if decision.would_change:
        yield "What would change it", tuple(f"{change[0].upper()}{change[1:]}" for change in decision.would_change)


def _file_row(decision: Decision, info: RunInfo) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What writes the file that is to be shipped, and by what it can be told."""
    record = find_shipped_record(decision)
    if record is not None and record.artifact is not None:
        size = formatting.size(record.artifact.size_bytes)
        name = f"{record.artifact.format}, {size}, sha256 {record.artifact.sha256[:12]}…"
        yield "Its file", (f"{name}: qbench ship {info.suite.name} writes it as a folder to deploy.",)


def _count_others(decision: Decision) -> str:
    """``11 slower than fp32, 2 no gain shown``."""
    return ", ".join(_count(reason, len(named)) for reason, named in decision.not_it)


def _count(reason: str, count: int) -> str:
    single = {several: singular for singular, several in reasons.BROKEN.values()}
    return f"{count} {single.get(reason, reason) if count == 1 else reason}"


def _reason(reason: str, named: Sequence[str], judged: Judged, rulings: Rulings) -> Reason:
    by_id = {record.case.id: record for record in judged.records}
    variants = []
    for case in named:
        over = rulings[case].over_fp32 if case in rulings else None
        speed = "" if over is None else f" ({formatting.fixed(over.value, RATIO_DIGITS)} × fp32)"  # noqa: RUF001
        variants.append(f"{variant_name(by_id[case]) if case in by_id else case}{speed}")
    return Reason(counted=_count(reason, len(named)), variants=tuple(variants))
