"""What the HTML page shows, gathered from a run into plain values; the template only arranges them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from qbench import formatting
from qbench.decide.decision_type import Decision
from qbench.decide.hosts_differ import list_differences
from qbench.decide.judged import Judged
from qbench.portability import text as portability_text
from qbench.portability.compare_hosts import compare_hosts
from qbench.progress.table import TextTable
from qbench.record.stored_run import RunInfo, StoredRun
from qbench.report import calibration_seeds as draws
from qbench.report import figures, flips, layers, method
from qbench.report.cards import Card, cards
from qbench.report.case_table import CaseTable, case_table, list_details
from qbench.report.explained import ExplainedSection, list_lost, list_slow
from qbench.report.failures import Failure, group_failures
from qbench.report.figures import Figure
from qbench.report.flip_gallery import Gallery, gallery
from qbench.report.flips import CaseFlips
from qbench.report.matrix import SettingMatrix, matrix
from qbench.report.overview import describe_state, overview
from qbench.report.plots import trade_off
from qbench.report.ruling import Rulings
from qbench.report.run_warnings import find_doubts, find_remarks
from qbench.report.scene_gallery import ScenePicture, list_scenes
from qbench.report.search_changes import ChangedSearches, list_searches
from qbench.report.text_gallery import ChangedLines, list_lines
from qbench.report.token_changes import ChangedTokens, list_tokens


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

    info: RunInfo
    started: str
    cpu: str
    state: str
    counts: str
    doubts: tuple[str, ...]
    remarks: tuple[str, ...]
    overview: str
    by_host: tuple[str, ...]
    matrix: SettingMatrix | None
    cards: tuple[Card, ...]
    cases: CaseTable
    tradeoffs: tuple[Figure, ...]
    figures: tuple[Figure, ...]
    flipped: Flipped
    scenes: tuple[ScenePicture, ...]
    lines: ChangedLines
    searches: ChangedSearches
    tokens: ChangedTokens
    draws: TextTable
    hosts: TextTable
    host_sentences: tuple[str, ...]
    slow: ExplainedSection
    lost: ExplainedSection
    failures: tuple[Failure, ...]
    layers: TextTable
    worst: TextTable
    details: TextTable
    command: str
    noise: str
    method: tuple[tuple[str, str], ...]
    machine: tuple[tuple[str, str], ...]
    versions: tuple[tuple[str, str], ...]
    elapsed: tuple[tuple[str, str], ...]


def page(
    run: StoredRun,
    judged: Judged,
    decisions: Sequence[Decision],
    rulings: Rulings,
    changes: Sequence[CaseFlips],
) -> Page:
    """The page of a run; ``rulings`` are what is said of its cases, ``changes`` its flips."""
    info = run.info
    answers = cards(decisions, judged, rulings, info)
    pictures = figures.figures(run, judged, decisions)
    answers_by_host = compare_hosts(run, judged)
    return Page(
        info=info,
        started=_say_time(info.started),
        cpu=str(info.environment.get("cpu") or ""),
        state=describe_state(run),
        counts=_counts(run),
        doubts=find_doubts(run, judged, changes),
        remarks=find_remarks(run),
        overview=overview(judged, decisions, rulings),
        by_host=tuple(each.text for each in list_differences(decisions)),
        matrix=matrix(decisions, answers, rulings),
        cards=answers,
        cases=case_table(judged, decisions, rulings),
        tradeoffs=tuple(figure for figure in pictures if figure.key.startswith(trade_off.KEY)),
        figures=tuple(figure for figure in pictures if not figure.key.startswith(trade_off.KEY)),
        flipped=_flipped(run, changes),
        scenes=list_scenes(run),
        lines=list_lines(run),
        searches=list_searches(run),
        tokens=list_tokens(run),
        draws=draws.table(judged),
        hosts=portability_text.make_table(answers_by_host, info.metric),
        host_sentences=(
            *portability_text.list_sentences(answers_by_host, info.metric),
            *portability_text.list_speed_orders(answers_by_host),
        ),
        slow=list_slow(run),
        lost=list_lost(run, judged),
        failures=group_failures(run),
        layers=layers.layers(run.records),
        worst=layers.worst(run),
        details=list_details(judged),
        command=method.command(info),
        noise=method.explain_noise(run.records),
        method=tuple(method.list_facts(run.records, judged)),
        machine=tuple(method.list_machine(info.environment)),
        versions=tuple((name, method.show(value)) for name, value in info.versions.items()),
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


def _say_time(started: str | None) -> str:
    """``2026-11-22 19:07 UTC``; what is no such time stays as it is."""
    if started is None:
        return formatting.DASH
    date, _, time = started.partition("T")
    plain = started.endswith(("+00:00", "Z")) and len(time) >= 5
    return f"{date} {time[:5]} UTC" if plain else started


def _counts(run: StoredRun) -> str:
    counts = Counter(record.status for record in run.records)
    return ", ".join(f"{counts[status]} {status}" for status in ("ok", "failed", "skipped") if counts[status]) or "none"
