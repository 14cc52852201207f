"""What stands in each cell of the table of cases: text, limits, a number to sort by, and what else is known; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from qbench import formatting
from qbench.compare import compare, host_share, int8_share
from qbench.compare import text as compare_text
from qbench.compare.speedup_doubt import is_coarse
from qbench.decide import cases
from qbench.decide.judged import Judged
from qbench.decide.objective import VALUES
from qbench.decide.tested_change import ShownChange, change_of, count_decimals, holds_against_fp32, score_of
from qbench.record.schema import Record, TwinChange
from qbench.record.stored_run import MetricInfo
from qbench.report import palette
from qbench.stats import mcnemar
from qbench.stats.interval_type import Interval

Tone = Literal["", "good", "bad", "unsure", "muted"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What stands in one cell: ``text`` with ``limits`` under or behind it; ``sort`` orders the column (None last);
    ``hint`` says more; ``tone`` is never the only bearer of a meaning."""

    text: str = formatting.DASH
    limits: str = ""
    sort: float | None = None
    hint: str = ""
    tone: Tone = ""

    def __str__(self) -> str:
        return f"{self.text} {self.limits}".rstrip()


REFERENCE = Cell(text="1", limits="(reference)", sort=1.0, hint="is the fastest fp32")


@dataclass(frozen=True, kw_only=True)
class Digits:
    """How many decimals a column has, the same in every row: times, scores, changes of a score. Ratios have two."""

    time: int = 2
    score: int = 2
    change: int = 2


RATIO_DIGITS = 2
COARSE = "~"
COARSE_MEANS = "~: coarse, from the screening alone, one process each"


def count_digits(judged: Judged, records: Sequence[Record], unit: float) -> Digits:
    """Times: three significant digits of the shortest, at most two decimals. Scores: two decimals; in the metric's own
    unit as many as the narrowest limits support."""
    times = [seconds / unit for record in records if (seconds := cases.p50(record))]
    time = min(2, formatting.decimals(Interval(value=min(times)))) if times else 2
    if judged.metric is None:
        return Digits(time=time)
    scored = [[show(judged, record) for record in records] for show in (score_of, change_of)]
    score, change = (_count_decimals(judged.metric, shown) for shown in scored)
    return Digits(time=time, score=score, change=change)


def _count_decimals(metric: MetricInfo, shown: Sequence[ShownChange | None]) -> int:
    """As many as the narrowest limits support, and as tell each of them from the margin."""
    limits = [each.interval for each in shown if each is not None and each.interval.low != each.interval.high]
    narrow = [formatting.decimals(interval, metric.scale) for interval in limits]
    return count_decimals(shown, metric.scale, 2 if metric.percent else max(narrow, default=2))


def draw_cells(judged: Judged, record: Record, best: Record | None, unit: float, digits: Digits) -> dict[str, Cell]:
    """The cells of a measured case by column key; ``best`` is the fastest fp32, ``unit`` of times in seconds."""
    fp32 = compare.like_for_like(record, judged.records)
    return {
        "minimized": _minimized_cell(judged, record),
        **_latency_cells(record, unit, digits),
        "best": _against_best(record, best),
        **_size_cells(record, fp32),
        **_accuracy_cells(judged, record, digits),
        "twin": _twin_cell(judged, record, digits),
        "seeds": _seeds_cell(judged, record),
        "coverage": _coverage_cell(record),
        "judged": _judged_cell(judged, record),
    }


def _minimized_cell(judged: Judged, record: Record) -> Cell:
    value = VALUES[judged.decide.minimize](record)
    if value is None:
        return Cell()
    shown = formatting.size(value) if judged.decide.minimize in ("size", "memory") else formatting.duration(value)
    return Cell(text=shown, sort=value)


def _latency_cells(record: Record, unit: float, digits: Digits) -> dict[str, Cell]:
    latency, speedup = record.latency, record.speedup
    cells = {"p50": Cell(), "p90": Cell(), "speedup": Cell(), "control": Cell()}
    if latency is not None and latency.p50_seconds is not None:
        p50 = Interval(value=latency.p50_seconds, low=latency.p50_low, high=latency.p50_high)
        cells["p50"] = replace(_interval_cell(p50, digits.time, scale=1 / unit), hint=host_share.describe(record) or "")
    if latency is not None and latency.p90_seconds is not None:
        cells["p90"] = _interval_cell(Interval(value=latency.p90_seconds), digits.time, scale=1 / unit)
    if speedup is not None:
        ratio = Interval(value=speedup.value, low=speedup.low, high=speedup.high)
        processes = f"{speedup.processes} process{'' if speedup.processes == 1 else 'es'}"
        hint = f"against {speedup.baseline}, {speedup.protocol}, {processes}"
        cells["speedup"] = _mark_coarse(replace(_interval_cell(ratio), hint=hint, tone=_side(ratio)), record)
        cells["control"] = _control_cell(speedup.control)
    return cells


def _mark_coarse(cell: Cell, record: Record) -> Cell:
    """A ratio of the screening alone carries ``COARSE``."""
    if not is_coarse(record) or not cell.text:
        return cell
    return replace(cell, text=f"{cell.text}{COARSE}", hint=f"{cell.hint}; {COARSE_MEANS}")


def _side(speedup: Interval) -> Tone:
    if speedup.low is not None and speedup.low > 1:
        return "good"
    return "bad" if speedup.high is not None and speedup.high < 1 else ""


def _control_cell(control: Interval | None) -> Cell:
    if control is None:
        return Cell()
    cell = _interval_cell(control)
    off = control.low is not None and control.high is not None and not control.low <= 1 <= control.high
    return replace(cell, tone="unsure", hint="1 is outside: biased by noise") if off else cell


def _interval_cell(interval: Interval, places: int = RATIO_DIGITS, *, scale: float = 1.0, signed: bool = False) -> Cell:
    def show(value: float) -> str:
        return formatting.fixed(value * scale, places, signed=signed)

    known = interval.low is not None and interval.high is not None
    limits = f"[{show(interval.low)}, {show(interval.high)}]" if known else ""  # type: ignore[arg-type]
    return Cell(text=show(interval.value), limits=limits, sort=interval.value)


def _against_best(record: Record, best: Record | None) -> Cell:
    """Measured in one group where the record says so; else (older records) from the two p50."""
    if (fastest := record.speedup_fastest) is not None:
        if fastest.baseline == record.case.id:
            return REFERENCE
        ratio = Interval(value=fastest.value, low=fastest.low, high=fastest.high)
        tone = _side(ratio) if cases.is_int8(record) else ""
        return _mark_coarse(replace(_interval_cell(ratio), hint=f"against {fastest.baseline}", tone=tone), record)
    typical = cases.mean if cases.is_sequential(record) else cases.p50
    own, full = typical(record), None if best is None else typical(best)
    if own is None or full is None or record is best:
        return REFERENCE if record is best else Cell()
    slower: Tone = "bad" if own > full and cases.is_int8(record) else ""
    return Cell(text=formatting.fixed(full / own, RATIO_DIGITS), sort=full / own, tone=slower)


def _size_cells(record: Record, fp32: Record | None) -> dict[str, Cell]:
    if record.artifact is None:
        return {"size": Cell(), "ratio": Cell()}
    own = record.artifact.size_bytes
    cells = {"size": Cell(text=formatting.size(own), sort=own, hint=f"{own:,} bytes"), "ratio": Cell()}
    if fp32 is not None and fp32 is not record and fp32.artifact is not None and fp32.artifact.size_bytes:
        ratio = own / fp32.artifact.size_bytes
        cells["ratio"] = Cell(text=formatting.share(ratio, 0), sort=ratio, hint=f"{ratio:.3f}")
    return cells


def _accuracy_cells(judged: Judged, record: Record, digits: Digits) -> dict[str, Cell]:
    cells = {"accuracy": Cell(), "delta": Cell(), "flips": Cell()}
    scores = record.accuracy
    if scores is None:
        return cells
    scale = judged.metric.scale if judged.metric else 1.0
    score, change = score_of(judged, record), change_of(judged, record)
    assert score is not None
    cells["accuracy"] = replace(
        _interval_cell(score.interval, digits.score, scale=scale),
        hint=f"{scores.n:,} examples" + (f"; limits: {scores.interval}" if scores.interval else ""),
    )
    if change is not None:
        cells["delta"] = _interval_cell(change.interval, digits.change, scale=scale, signed=True)
    elif record.case.mode == "fp32" and compare.like_for_like(record, judged.records) in (None, record):
        cells["delta"] = Cell(text="0", limits="(reference)", sort=0.0)
    if scores.flips is not None:
        lost, gained = scores.flips.harmful, scores.flips.beneficial
        p = compare_text.p_value(mcnemar.midp(lost, gained))
        hint = f"{lost} right to wrong, {gained} wrong to right; McNemar's test of no change: mid-{p}"
        cells["flips"] = Cell(text=count_flips(lost, gained), limits=p, sort=lost, hint=hint)
    return cells


def count_flips(lost: int, gained: int) -> str:
    """``4 lost, 1 gained``."""
    return f"{lost:,} lost, {gained:,} gained" if lost or gained else "none"


def twin_change(record: Record) -> TwinChange | None:
    """How a qat case differs from its fp32 twin; None where it has none."""
    return None if record.accuracy is None else record.accuracy.twin


def _twin_cell(judged: Judged, record: Record, digits: Digits) -> Cell:
    twin = twin_change(record)
    if twin is None or twin.delta is None:
        return Cell()
    scale = judged.metric.scale if judged.metric else 1.0
    hint = f"against {twin.baseline}"
    if twin.flips is not None:
        hint += f"; {twin.flips.harmful} right to wrong, {twin.flips.beneficial} wrong to right"
    return replace(_interval_cell(twin.delta, digits.change, scale=scale, signed=True), hint=hint)


def _seeds_cell(judged: Judged, record: Record) -> Cell:
    spread = judged.seed_spreads.get(record.case.id)
    if spread is None or judged.metric is None:
        return Cell()
    scale, places = judged.metric.scale, 2 if judged.metric.percent else 4
    low, high = (formatting.fixed(value * scale, places) for value in (min(spread.values), max(spread.values)))
    worst = spread.test.outcome if spread.test else "not judged"
    tone: Tone = "unsure" if judged.outcome(record) == "PASS" and worst not in ("PASS", "not judged") else ""
    hint = f"the worst of {len(spread.values)} seeds, {spread.worst}: {worst}"
    return Cell(text=f"{low} to {high}", sort=spread.spread, hint=hint, tone=tone)


def _coverage_cell(record: Record) -> Cell:
    coverage = record.artifact.coverage if record.artifact else None
    if coverage is None:
        return Cell()
    layers = f"{coverage.layers_int8} of {coverage.layers_total} layers"
    if coverage.macs_int8 is None:
        return Cell(text="not known", hint=coverage.unknown or layers, tone="unsure")
    tone: Tone = "bad" if coverage.macs_int8 == 0 else ""
    label = ""
    if (why := int8_share.explain_fp32_in_effect(record)) is not None:
        layers, tone, label = f"{layers}; {why}", "bad", int8_share.FP32_IN_EFFECT
    text = formatting.share(coverage.macs_int8)
    return Cell(text=text, limits=label, sort=coverage.macs_int8, hint=layers, tone=tone)


def _judged_cell(judged: Judged, record: Record) -> Cell:
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


def accuracy_limit(judged: Judged, records: Sequence[Record]) -> str:
    """`` (limit -2.0)``: the greatest loss that the suite allows these cases, in the metric's unit, several where
    overrides give some another; empty where it is not known."""
    if judged.margin is None or judged.metric is None or holds_against_fp32(judged):
        return ""
    margins = sorted(judged.margins_of(records) or {judged.margin})
    limits = [_write_limit(-margin * judged.metric.sign) for margin in margins]
    return f" (limit{'s' if len(limits) > 1 else ''} {', '.join(limits)})"


def _write_limit(limit: float) -> str:
    places = max(1, len(f"{abs(limit):g}".partition(".")[2]))
    return formatting.fixed(limit, places, signed=True)
