"""The score, its change against fp32 and the test of that, what flipped, and what else was held against."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from qbench import formatting
from qbench.compare import compare, int8_share
from qbench.compare import text as compare_text
from qbench.decide import cases
from qbench.decide.limits import AccuracyFloor, AccuracyMargin
from qbench.decide.tested_change import change_of, score_of
from qbench.report import palette
from qbench.report.cells import CaseRow, Cell, Tone, accuracy_limit, count_flips, interval_cell
from qbench.report.columns.column import Family
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


def _read_test(row: CaseRow, field: str) -> Any:
    """What the test of the case's change says, its limits in the direction of the score."""
    test, metric = row.judged.test_of(row.record), row.judged.metric
    if test is None or metric is None:
        return None
    of_limits = field in ("low", "high")
    return getattr(compare.oriented(test.delta, metric.sign) if of_limits else test, field)


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
    limits = f"; limits: {scores.interval}" if scores.interval else ""
    cell = interval_cell(score.interval, row.digits.score, scale=row.scale)
    return replace(cell, hint=f"{scores.n:,} examples{limits}")


family.list("""
low|number|metric|its lower limit, 95 %
high|number|metric|its upper limit, 95 %
n|count||evaluation examples
""")


@family.drawn(
    "delta.value|number|metric|paired change against the like-for-like fp32|accuracy change{change}",
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
delta.low|number|metric|its lower limit, 95 %
delta.high|number|metric|its upper limit, 95 %
margin|number|metric|the suite's limit: how much may be lost
at_least|number|metric|the suite's limit, where that is a least score
""",
    {"margin": _read_margin, "at_least": _read_least},
)


@family.drawn(
    "verdict|text||PASS, FAIL or INCONCLUSIVE of the test against the margin|accuracy limit",
    read=partial(_read_test, field="outcome"),
    key="judged",
    note="limit",
    hint="does it lose less accuracy than the limit? One-sided 5 % test of each case alone; where it cannot tell, "
    "about how many examples would decide",
    within="delta",
)
def _verdict(row: CaseRow) -> Cell:
    record, judged = row.record, row.judged
    if not cases.is_int8(record):
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


family.list(
    """
tested.low|number|metric|lower limit of the change as it was tested
tested.high|number|metric|upper limit of the change as it was tested
tested.level|number|0 to 1|level of these limits
agreement|number|0 to 1|share of examples on which fp32 gives the same answer
""",
    {f"tested.{field}": partial(_read_test, field=field) for field in ("low", "high", "level")},
)


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


family.list("""
calibration.predictions|text||the file of predictions of each
calibration.reasons|text||why a seed has no score
shared_examples|count||evaluation examples that calibration or training saw
interval|text||how the limits come about: score, weighted mean, jackknife or paired bootstrap
only_answer|count||the one class that every example is given
other_runtime.case|text||a case of the same network whose outputs differ by more than rounding
other_runtime.between_db|number|dB|SQNR of one against the other
other_runtime.better_db|number|dB|SQNR of the better one against fp32
other_runtime.layer|text||the first layer that differs
twin.baseline|text||the fp32 twin of a qat case: the same training without fake quantization
""")


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


family.list("""
twin.delta.low|number|metric|its lower limit, 95 %
twin.delta.high|number|metric|its upper limit, 95 %
twin.flips.harmful|count||lost against it
twin.flips.beneficial|count||gained against it
twin.agreement|number|0 to 1|share of examples with the same answer
as_called.compared|count||examples on which fp32 was held against the network as its author calls it
as_called.of|count||of so many
as_called.differing|count||of them those that differ
as_called.worst|number||the largest difference as a share of the largest output
unjudged_outputs|text||outputs that nothing was held against, separated by `;`
""")
