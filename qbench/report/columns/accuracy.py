"""The score, its change against fp32 and the test of that, what flipped, and what else was held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from qbench import formatting
from qbench.compare import int8_share
from qbench.compare import text as compare_text
from qbench.decide import cases
from qbench.decide.judged import Judged
from qbench.decide.limits import AccuracyFloor, AccuracyMargin
from qbench.decide.tested_change import ShownChange, change_of, score_of
from qbench.record.schema import Record
from qbench.report import palette
from qbench.report.cells import CaseRow, Cell, Tone, accuracy_limit, count_flips, interval_cell
from qbench.report.columns.column import Family, Read
from qbench.stats import mcnemar


def _read_margin(row: CaseRow) -> float | None:
    """The most that may be lost; None where the suite gives a least score."""
    metric, bound = row.judged.metric, row.judged.bound_of(row.record)
    if metric is None or row.record.accuracy is None or not isinstance(bound, AccuracyMargin):
        return None
    return bound.loss / metric.scale


def _read_least(row: CaseRow) -> float | None:
    metric, bound = row.judged.metric, row.judged.bound_of(row.record)
    if metric is None or row.record.accuracy is None or not isinstance(bound, AccuracyFloor):
        return None
    return bound.value / metric.scale


def _read_shown(row: CaseRow, read: Callable[[Judged, Record], ShownChange | None], field: str) -> Any:
    """A field of what is shown of the score or its change, or of its interval."""
    change = read(row.judged, row.record)
    if change is None:
        return None
    if field in ("level", "method"):
        return None if change.interval.low is None else getattr(change, field)
    return getattr(change.interval, field)


def _read_all(read: Callable[[Judged, Record], ShownChange | None], **columns: str) -> dict[str, Read]:
    """Readers of those fields, by the names of their columns."""
    return {column: partial(_read_shown, read=read, field=field) for column, field in columns.items()}


family = Family()

family.list("""
[accuracy.]
metric|text||the metric's name
""")


@family.drawn(
    "value|number|metric|the score; 0 to 1 for shares|{metric}{score}",
    key="accuracy",
    note="accuracy",
    terminal="{short_metric}",
    markdown="{metric}{percent}",
    card="{metric}",
    hint="{metric} on the evaluation examples",
)
def _score(row: CaseRow) -> Cell:
    scores, score = row.record.accuracy, score_of(row.judged, row.record)
    if scores is None or score is None:
        return Cell()
    limits = f"; limits: {score.method}" if score.method else ""
    cell = interval_cell(score.interval, row.digits.score, scale=row.scale)
    return replace(cell, hint=f"{scores.n:,} examples{limits}")


family.list(
    """
low|number|metric|its lower limit
high|number|metric|its upper limit
level|number|0 to 1|level of these limits
n|count||evaluation examples
""",
    _read_all(score_of, low="low", high="high", level="level"),
)


@family.drawn(
    "delta.value|number|metric|paired change against the like-for-like fp32|accuracy change{change}",
    read=partial(_read_shown, read=change_of, field="value"),
    key="delta",
    terminal="{short_metric}",
    markdown="{metric} change{change}",
    card="accuracy change",
    hint="change of {metric} against fp32 on the same runtime, the same examples (paired); in brackets {levels}",
)
def _change(row: CaseRow) -> Cell:
    record = row.record
    if record.accuracy is None:
        return Cell()
    if (change := change_of(row.judged, record)) is not None:
        return interval_cell(change.interval, row.digits.change, scale=row.scale, signed=True)
    is_reference = record.case.mode == "fp32" and row.fp32 in (None, record)
    return Cell(text="0", limits="(reference)", sort=0.0) if is_reference else Cell()


family.list(
    """
delta.low|number|metric|its lower limit, of the test where one was made
delta.high|number|metric|its upper limit
delta.level|number|0 to 1|level of these limits
delta.method|text||how they come about: score, exact, weighted mean; else as `accuracy.interval` has it
margin|number|metric|the suite's limit: how much may be lost
at_least|number|metric|the suite's limit, where that is a least score
""",
    {"margin": _read_margin, "at_least": _read_least}
    | _read_all(
        change_of, **{"delta.low": "low", "delta.high": "high", "delta.level": "level", "delta.method": "method"}
    ),
)


@family.drawn(
    "verdict|text||PASS, FAIL or INCONCLUSIVE of the test against the margin|accuracy limit",
    read=lambda row: row.judged.outcome(row.record),
    key="judged",
    note="limit",
    hint="does it lose less accuracy than the limit? One-sided 5 % test of each case alone; where it cannot tell, "
    "about how many examples would decide",
    within="delta",
)
def _verdict(row: CaseRow) -> Cell:
    record, judged = row.record, row.judged
    if not cases.is_contender(record):
        return Cell()
    if (why := int8_share.explain_fp32_in_effect(record)) is not None:
        return Cell(text="no candidate", tone="muted", sort=0, hint=f"{int8_share.FP32_IN_EFFECT}: {why}")
    test = judged.test_of(record)
    if test is None:
        return Cell(text="not judged", tone="muted", sort=0)
    tones: dict[str, tuple[Tone, float]] = {"PASS": ("good", 3), "INCONCLUSIVE": ("unsure", 2), "FAIL": ("bad", 1)}
    tone, order = tones[test.outcome]
    needed = compare_text.would_decide(test, record.accuracy.n) if record.accuracy else None
    hint = f"{needed} would decide, if the change stays as it is" if needed else test.reason or ""
    text = f"{palette.VERDICTS[test.outcome].word}{accuracy_limit(judged, [record])}"
    return Cell(text=text, limits=needed or "", tone=tone, sort=order, hint=hint)


family.list("""
agreement|number|0 to 1|share of examples on which fp32 gives the same answer
""")


@family.drawn(
    "flips.harmful|count||lost: fp32 right, int8 wrong|examples",
    key="flips",
    note="changed answers",
    hint="lost: fp32 right, int8 wrong; gained: the other way round; p is McNemar's mid-p of no change",
)
def _flips(row: CaseRow) -> Cell:
    flips = row.record.accuracy.flips if row.record.accuracy else None
    if flips is None:
        return Cell()
    lost, gained = flips.harmful, flips.beneficial
    p = compare_text.p_value(mcnemar.midp(lost, gained))
    hint = f"{lost} right to wrong, {gained} wrong to right; McNemar's test of no change: mid-{p}"
    return Cell(text=count_flips(lost, gained), limits=p, sort=lost, hint=hint)


family.list("""
flips.beneficial|count||gained: fp32 wrong, int8 right
inputs|text||how each input fits what the artifact can represent, as JSON
calibration.seeds|text||seeds that drew the calibration examples, separated by `;`
""")


@family.drawn(
    "calibration.values|text||the score with each|by seed",
    key="seeds",
    hint="{metric} by the seed that drew the calibration examples",
    within="accuracy",
    applies=lambda judged: bool(judged.seed_spreads),
)
def _seeds(row: CaseRow) -> Cell:
    metric, spread = row.judged.metric, row.judged.seed_spreads.get(row.record.case.id)
    if spread is None or metric is None:
        return Cell()
    digits = 2 if metric.percent else 4
    low, high = (formatting.fixed(end(spread.values) * metric.scale, digits) for end in (min, max))
    worst = spread.test.outcome if spread.test else "not judged"
    doubtful = row.judged.outcome(row.record) == "PASS" and worst not in ("PASS", "not judged")
    hint = f"the worst of {len(spread.values)} seeds, {spread.worst}: {worst}"
    return Cell(text=f"{low} to {high}", sort=spread.spread, hint=hint, tone="unsure" if doubtful else "")


family.list(
    """
calibration.predictions|text||the file of predictions of each
calibration.reasons|text||why a seed has no score
shared_examples|count||evaluation examples that calibration or training saw
interval|text||how the limits of the score come about: score, exact, weighted mean, jackknife or paired bootstrap
only_answer|count||the one class that every example is given
other_runtime.case|text||a case of the same network whose outputs differ by more than rounding
other_runtime.between_db|number|dB|SQNR of one against the other
other_runtime.better_db|number|dB|SQNR of the better one against fp32
other_runtime.layer|text||the first layer that differs
twin.baseline|text||the fp32 twin of a qat case: the same training without fake quantization
""",
    _read_all(score_of, interval="method"),
)


@family.drawn(
    "twin.delta.value|number|metric|paired change against it|against fp32 twin{change}",
    key="twin",
    hint="paired change of a qat case against its fp32 twin, the same network with the same training but without "
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


def _list_outputs(row: CaseRow) -> str | None:
    outputs = (row.record.accuracy.outputs if row.record.accuracy else None) or ()
    told = (f" {output.metric} {output.value:g}" if output.value is not None else "" for output in outputs)
    return "; ".join(f"{output.name}{words}" for output, words in zip(outputs, told, strict=True)) or None


def _find_judged(row: CaseRow) -> int | None:
    accuracy = row.record.accuracy
    return accuracy.judged if accuracy is not None and accuracy.outputs is not None else None


family.list(
    """
twin.delta.low|number|metric|its lower limit, 95 %
twin.delta.high|number|metric|its upper limit, 95 %
twin.flips.harmful|count||lost against it
twin.flips.beneficial|count||gained against it
twin.agreement|number|0 to 1|share of examples with the same answer
as_called.compared|count||examples on which fp32 was held against the network as its author calls it
as_called.of|count||of so many
as_called.differing|count||of them those that differ
as_called.worst|number||the largest difference as a share of the largest output
outputs|text||of several outputs each with its metric and score, separated by `;`
judged|count||the place of the one that `accuracy.value` is of: the worst
""",
    {"outputs": _list_outputs, "judged": _find_judged},
)
