"""The columns of the table of cases: of each its title, what it means, and the cell that a case has in it; pure.

The page, the terminal, the cards and the summary take titles and cells from here. ``columns`` has what is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from qbench import formatting
from qbench.compare import compare, host_share, int8_share
from qbench.compare import text as compare_text
from qbench.decide import cases
from qbench.decide.judged import Judged
from qbench.decide.objective import VALUES
from qbench.decide.tested_change import change_of, describe_levels, score_of
from qbench.report import palette
from qbench.report.cells import (
    RATIO_DIGITS,
    REFERENCE,
    CaseRow,
    Cell,
    Tone,
    accuracy_limit,
    count_flips,
    interval_cell,
    ratio_cell,
    typical_times,
)
from qbench.stats import mcnemar
from qbench.stats.interval_type import Interval

MINIMIZED = {"size": "bytes", "cold_start": "cold start", "memory": "memory"}
_MINIMIZED_MEANS = {
    "cold_start": "from nothing loaded to the first answer: loading and the first call",
    "memory": "the largest resident set of the measuring process",
}


Draw = Callable[[CaseRow], Cell]


@dataclass(frozen=True)
class CaseColumn:
    """One column: its key, title and meaning, the cell of a case, and for which runs it is there. Title and hint name
    ``{time}``, ``{score}`` and ``{change}``, the units of these, and ``{metric}``, ``{levels}``, ``{minimized}``."""

    key: str
    title: str
    hint: str
    draw: Draw
    applies: Callable[[Judged], bool]


CASE_COLUMNS: list[CaseColumn] = []


def _column(
    key: str, title: str, hint: str, applies: Callable[[Judged], bool] = lambda judged: True
) -> Callable[[Draw], Draw]:
    """Adds a column, of which the function gives the cell."""

    def add(draw: Draw) -> Draw:
        CASE_COLUMNS.append(CaseColumn(key, title, hint, draw, applies))
        return draw

    return add


def list_columns(judged: Judged, unit: str) -> tuple[CaseColumn, ...]:
    """The columns of a run, titles and hints filled in; ``unit`` is that of the latencies."""
    metric, objective = judged.metric, judged.decide.minimize
    score = "%" if metric is None or metric.percent else metric.own_unit
    words = {
        "time": unit,
        "metric": metric.name if metric else "accuracy",
        "score": f", {score}" if score else "",
        "change": f", {metric.unit}" if metric and metric.unit else "",
        "levels": describe_levels(judged, judged.records),
        "minimized": MINIMIZED.get(objective, ""),
        "minimized_means": _MINIMIZED_MEANS.get(objective, ""),
    }
    return tuple(
        replace(column, title=column.title.format(**words), hint=column.hint.format(**words))
        for column in CASE_COLUMNS
        if column.applies(judged)
    )


def draw_cells(row: CaseRow) -> dict[str, Cell]:
    """The cell of each column by its key."""
    return {column.key: column.draw(row) for column in CASE_COLUMNS}


@_column(
    "minimized",
    "{minimized}",
    "what is minimized: {minimized_means}",
    applies=lambda judged: judged.decide.minimize in _MINIMIZED_MEANS,
)
def _minimized(row: CaseRow) -> Cell:
    objective = row.judged.decide.minimize
    value = VALUES[objective](row.record)
    if value is None:
        return Cell()
    write = formatting.size if objective in ("size", "memory") else formatting.duration
    return Cell(text=write(value), sort=value)


@_column("p50", "time, {time}", "half of all calls take at most this long (p50)")
def _p50(row: CaseRow) -> Cell:
    latency = row.record.latency
    if latency is None or latency.p50_seconds is None:
        return Cell()
    p50 = Interval(value=latency.p50_seconds, low=latency.p50_low, high=latency.p50_high)
    cell = interval_cell(p50, row.digits.time, scale=1 / row.unit)
    return replace(cell, hint=host_share.describe(row.record) or "")


@_column("p90", "9 in 10, {time}", "nine calls in ten take at most this long (p90)")
def _p90(row: CaseRow) -> Cell:
    latency = row.record.latency
    if latency is None or latency.p90_seconds is None:
        return Cell()
    return interval_cell(Interval(value=latency.p90_seconds), row.digits.time, scale=1 / row.unit)


@_column(
    "best",
    "times the best fp32",
    "how many times as fast as the fastest fp32 of any backend; below 1 it is slower than plain fp32",
)
def _over_best(row: CaseRow) -> Cell:
    """Measured in one group where the record says so; else (older records) from the two p50."""
    record, best = row.record, row.best
    if (fastest := record.speedup_fastest) is not None:
        if fastest.baseline == record.case.id:
            return REFERENCE
        return ratio_cell(record, fastest, hint=f"against {fastest.baseline}", toned=cases.is_int8(record))
    if record is best:
        return REFERENCE
    if (times := typical_times(record, best)) is None:
        return Cell()
    seconds, least = times
    tone: Tone = "bad" if seconds > least and cases.is_int8(record) else ""
    return Cell(text=formatting.fixed(least / seconds, RATIO_DIGITS), sort=least / seconds, tone=tone)


@_column("speedup", "times its own fp32", "how many times as fast as fp32 on the same runtime (like for like)")
def _speedup(row: CaseRow) -> Cell:
    speedup = row.record.speedup
    if speedup is None:
        return Cell()
    processes = f"{speedup.processes} process{'' if speedup.processes == 1 else 'es'}"
    return ratio_cell(row.record, speedup, hint=f"against {speedup.baseline}, {speedup.protocol}, {processes}")


@_column(
    "control",
    "noise check",
    "fp32 against fp32 (A/A): a second copy of the baseline, measured alike; the true answer is 1",
)
def _control(row: CaseRow) -> Cell:
    control = row.record.speedup.control if row.record.speedup else None
    if control is None or control.low is None or control.high is None or control.low <= 1 <= control.high:
        return interval_cell(control)
    return replace(interval_cell(control), tone="unsure", hint="1 is outside: biased by noise")


@_column("size", "size", "exact bytes of what is shipped")
def _size(row: CaseRow) -> Cell:
    if row.record.artifact is None:
        return Cell()
    size = row.record.artifact.size_bytes
    return Cell(text=formatting.size(size), sort=size, hint=f"{size:,} bytes")


@_column("ratio", "of fp32", "bytes over those of fp32 on the same runtime")
def _size_ratio(row: CaseRow) -> Cell:
    ratio = compare.size_ratio(row.fp32, row.record)
    if ratio is None or row.fp32 is row.record:
        return Cell()
    return Cell(text=formatting.share(ratio, 0), sort=ratio, hint=f"{ratio:.3f}")


@_column("accuracy", "{metric}{score}", "{metric} on the evaluation examples")
def _score(row: CaseRow) -> Cell:
    scores, score = row.record.accuracy, score_of(row.judged, row.record)
    if scores is None or score is None:
        return Cell()
    limits = f"; limits: {scores.interval}" if scores.interval else ""
    cell = interval_cell(score.interval, row.digits.score, scale=row.scale)
    return replace(cell, hint=f"{scores.n:,} examples{limits}")


@_column(
    "seeds",
    "by seed",
    "{metric} by the seed that drew the calibration examples",
    applies=lambda judged: bool(judged.seed_spreads),
)
def _seeds(row: CaseRow) -> Cell:
    metric, spread = row.judged.metric, row.judged.seed_spreads.get(row.record.case.id)
    if spread is None or metric is None:
        return Cell()
    places = 2 if metric.percent else 4
    low, high = (formatting.fixed(end(spread.values) * metric.scale, places) for end in (min, max))
    worst = spread.test.outcome if spread.test else "not judged"
    doubtful = row.judged.outcome(row.record) == "PASS" and worst not in ("PASS", "not judged")
    hint = f"the worst of {len(spread.values)} seeds, {spread.worst}: {worst}"
    return Cell(text=f"{low} to {high}", sort=spread.spread, hint=hint, tone="unsure" if doubtful else "")


@_column(
    "delta",
    "accuracy change{change}",
    "change of {metric} against fp32 on the same runtime, the same examples (paired); in brackets {levels}",
)
def _change(row: CaseRow) -> Cell:
    record = row.record
    if record.accuracy is None:
        return Cell()
    if (change := change_of(row.judged, record)) is not None:
        return interval_cell(change.interval, row.digits.change, scale=row.scale, signed=True)
    is_reference = record.case.mode == "fp32" and row.fp32 in (None, record)
    return Cell(text="0", limits="(reference)", sort=0.0) if is_reference else Cell()


@_column(
    "twin",
    "against fp32 twin{change}",
    "paired change of a qat case against its fp32 twin, the same network with the same training but without "
    "fake quantization: what int8 itself costs",
    applies=lambda judged: any(record.accuracy and record.accuracy.twin for record in judged.records),
)
def _twin(row: CaseRow) -> Cell:
    twin = row.record.accuracy.twin if row.record.accuracy else None
    if twin is None or twin.delta is None:
        return Cell()
    hint = f"against {twin.baseline}"
    if twin.flips is not None:
        hint += f"; {twin.flips.harmful} right to wrong, {twin.flips.beneficial} wrong to right"
    return replace(interval_cell(twin.delta, row.digits.change, scale=row.scale, signed=True), hint=hint)


@_column(
    "flips", "examples", "lost: fp32 right, int8 wrong; gained: the other way round; p is McNemar's mid-p of no change"
)
def _flips(row: CaseRow) -> Cell:
    flips = row.record.accuracy.flips if row.record.accuracy else None
    if flips is None:
        return Cell()
    lost, gained = flips.harmful, flips.beneficial
    p = compare_text.p_value(mcnemar.midp(lost, gained))
    hint = f"{lost} right to wrong, {gained} wrong to right; McNemar's test of no change: mid-{p}"
    return Cell(text=count_flips(lost, gained), limits=p, sort=lost, hint=hint)


@_column(
    "coverage",
    "work done in int8",
    "the share of multiply-accumulates that really run in int8 (coverage), read from the artifact",
)
def _coverage(row: CaseRow) -> Cell:
    coverage = row.record.artifact.coverage if row.record.artifact else None
    if coverage is None:
        return Cell()
    layers = f"{coverage.layers_int8} of {coverage.layers_total} layers"
    if coverage.macs_int8 is None:
        return Cell(text="not known", hint=coverage.unknown or layers, tone="unsure")
    cell = Cell(text=formatting.share(coverage.macs_int8), sort=coverage.macs_int8, hint=layers)
    if (why := int8_share.explain_fp32_in_effect(row.record)) is not None:
        return replace(cell, limits=int8_share.FP32_IN_EFFECT, hint=f"{layers}; {why}", tone="bad")
    return replace(cell, tone="bad") if coverage.macs_int8 == 0 else cell


@_column(
    "judged",
    "accuracy limit",
    "does it lose less accuracy than the limit? One-sided 5 % test of each case alone; where it cannot tell, "
    "about how many examples would decide",
)
def _verdict(row: CaseRow) -> Cell:
    record, judged = row.record, row.judged
    if not cases.is_int8(record):
        return Cell()
    if (why := int8_share.explain_fp32_in_effect(record)) is not None:
        return Cell(text="no candidate", tone="muted", sort=0, hint=f"{int8_share.FP32_IN_EFFECT}: {why}")
    test = judged.tests.get(record.case.id)
    if test is None:
        return Cell(text="not judged", tone="muted", sort=0)
    tones: dict[str, tuple[Tone, float]] = {"PASS": ("good", 3), "INCONCLUSIVE": ("unsure", 2), "FAIL": ("bad", 1)}
    tone, order = tones[test.outcome]
    needed = compare_text.would_decide(test, record.accuracy.n) if record.accuracy else None
    hint = f"{needed} would decide, if the change stays as it is" if needed else test.reason or ""
    text = f"{palette.VERDICTS[test.outcome].word}{accuracy_limit(judged, [record])}"
    return Cell(text=text, limits=needed or "", tone=tone, sort=order, hint=hint)
