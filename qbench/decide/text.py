"""A decision in words: the facts behind it, and lines for a terminal; pure."""

from __future__ import annotations

from collections.abc import Iterator

from qbench import formatting
from qbench.compare import compare
from qbench.decide import reasons
from qbench.decide.cases import is_sequential, name_judged
from qbench.decide.decision_type import Decision
from qbench.decide.judged import Judged
from qbench.decide.names import backend_name, variant_name
from qbench.decide.objective import Objective
from qbench.decide.paired_times import PairedTimes, as_ratio
from qbench.decide.tested_change import holds_against_fp32, write_shown
from qbench.record.schema import Record, read_case_id
from qbench.stats.interval_type import Interval


def lines(decision: Decision, judged: Judged) -> tuple[str, ...]:
    """What a terminal prints: the answer, then indented its figures and what is behind it."""
    return decision.sentence, *(f"  {point}" for point in (facts(decision, judged), *points(decision)) if point)


def points(decision: Decision) -> tuple[str, ...]:
    """All that stands below an answer, the most important first: the tie and what decided it, how sure it is, doubts,
    the runner-up, what would change it, and why the others are not it."""
    return tuple(_list_points(decision))


def _list_points(decision: Decision) -> Iterator[str]:
    if decision.tie is not None:
        yield decision.tie
    if decision.deciding_step is not None:
        yield f"What decided: {decision.deciding_step}."
    if decision.capped is not None:
        yield f"{explain_cap(decision)}."
    if decision.missing:
        subject = "it" if len(decision.missing) == 1 else "one of them"
        yield f"What has no record was not compared, and {subject} may be better."
    yield from decision.notes
    if decision.runner_up is not None and decision.behind is not None and decision.verdict == "ship":
        tied = decision.runner_up.case.id in decision.tied  # how far behind it is stands above then
        yield f"Without it: {variant_name(decision.runner_up)}{'' if tied else f', {decision.behind}'}."
    if decision.would_change:
        yield f"What would change it: {'; '.join(decision.would_change)}."
    if decision.not_it:
        yield f"Not shipped: {'; '.join(reasons.count_reason(reason, cases) for reason, cases in decision.not_it)}."
    yield f"Next step: {decision.next_step}"


def explain_cap(decision: Decision) -> str:
    """``No surer, since 1 of its 2 outputs was judged``; empty where nothing but the figures bounds it."""
    return "" if decision.capped is None else f"No surer, since {decision.capped}"


def facts(decision: Decision, judged: Judged) -> str:
    """The numbers behind a decision's pick, in one sentence; empty where it has none."""
    record = decision.pick
    if record is None:
        return ""
    clauses = [*_list_figures(decision, record), *_speed_parts(decision, record)]
    clauses += _size_part(record, judged) + _accuracy_part(record, judged)
    coverage = record.artifact.coverage if record.artifact else None
    share = None if coverage is None else coverage.share_of(record.case.mode)
    if coverage is not None and share is not None:
        clauses.append(
            f"{formatting.share(share)} of its multiply-accumulates {coverage.describe_format(record.case.mode)}"
        )
    return ", ".join(clauses) + "." if clauses else ""


def _list_figures(decision: Decision, record: Record) -> list[str]:
    """What is minimized and the time of a call, but for what the headline of an fp32 that stays has said already."""
    times = PairedTimes(records={}, read=lambda record: {})
    said = decision.objective if decision.verdict == "keep fp32" else None
    names = dict.fromkeys((decision.objective, "latency"))
    objectives = [Objective(name=name, times=times) for name in names if name not in ("size", said)]
    return [objective.show(record) for objective in objectives if objective.value(record) is not None]


def _speed_parts(decision: Decision, record: Record) -> list[str]:
    """Over the fastest fp32 by the interval that was tested, else over its own."""
    over, fp32 = decision.over_fastest, decision.fastest
    if fp32 is not None and over is not None and over.evidence != "p50":
        ratio = f"{formatting.with_limits(as_ratio(over))} times as fast"
        return [] if ratio in decision.headline else [f"{ratio} as {variant_name(fp32)}"]
    if record.speedup is None:
        return []
    speedup = Interval(value=record.speedup.value, low=record.speedup.low, high=record.speedup.high)
    by = " by the mean call" if is_sequential(record) else ""  # beside a p50 it would read as a slip
    return [f"{formatting.with_limits(speedup)} times as fast as {_fp32_name(record.speedup.baseline)}{by}"]


def _fp32_name(case: str) -> str:
    key = read_case_id(case)
    return case if key is None else f"fp32 on {backend_name(key.backend)}"


def _size_part(record: Record, judged: Judged) -> list[str]:
    ratio = compare.size_ratio(compare.like_for_like(record, judged.records), record)
    return [] if ratio is None else [f"{formatting.share(ratio, 0)} of its size"]


def _accuracy_part(record: Record, judged: Judged) -> list[str]:
    """The change with the limits that were tested."""
    metric = judged.metric
    if metric is None or record.accuracy is None or record.accuracy.delta is None:
        return []
    near = holds_against_fp32(judged)  # how near it is to fp32 says more than how far it is from being fp32
    unit = ("%" if metric.percent else metric.own_unit) if near else metric.unit
    alone = f" (of {judged_output})" if (judged_output := name_judged(record)) else ""
    return [f"{metric.name} {write_shown(judged, record)} {unit}".rstrip() + alone]
