"""The gate's rules on latency: has the case become slower, and does it hold its promised speed-up?

None means that a rule does not concern the case or was not asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from qbench import formatting
from qbench.compare import compare
from qbench.compare.speedup_doubt import find_doubt, room_to_promise
from qbench.gate.sequential_test import ANALYSES, NotRun, Rerun
from qbench.gate.verdict import Evidence, Rule, Verdict
from qbench.record.schema import Record, Speedup
from qbench.stats.interval_type import Interval

if TYPE_CHECKING:
    from qbench.suite import GateSpec

# What loads and runs artifacts: another version of it changes what they take.
RUNTIMES = ("torch", "onnxruntime", "openvino")


def needs_baseline(policy: GateSpec) -> bool:
    """Whether a rule asks for a baseline where none is at hand: the suite writes one of the two ``max_regression``, or
    no rule at all, so that it wants the defaults. A suite of absolute rules alone needs no baseline."""
    return _wants_latency(policy) or "max_regression" in policy.accuracy.model_fields_set


def _wants_latency(policy: GateSpec) -> bool:
    sections = [name for name in policy.model_fields_set if getattr(policy, name).model_fields_set]
    return not sections or "max_regression" in policy.latency.model_fields_set


def count_sampled_rules(records: Sequence[Record], policy: GateSpec, baseline: Sequence[Record] = ()) -> int:
    """How many verdicts on these records will rest on samples and share one error: latency, promise, metric, and the
    metric against that of the baseline's records."""
    cases = {record.case.id for record in baseline if record.status == "ok" and record.accuracy is not None}
    cases = set() if policy.accuracy.allowed_regression is None else cases
    measured = [record for record in records if record.status == "ok" and record.case.mode != "fp32"]
    promised = policy.latency.min_speedup is not None
    return sum(
        1
        + (promised and record.speedup is not None)
        + (record.accuracy is not None and record.accuracy.delta is not None)
        + (record.accuracy is not None and record.case.id in cases)
        for record in measured
    )


def check_latency(evidence: Evidence, record: Record) -> Verdict | None:
    """Is the case slower than the baseline's by more than the tolerance?

    Decided on both artifacts run again, else on the two stored speed-ups, each in units of its own run's fp32.
    """
    if evidence.baseline is None and not _wants_latency(evidence.policy):
        return None
    tolerance = evidence.policy.latency.max_regression
    if tolerance is None:
        return None
    delta = evidence.deltas.get(record.case.id)
    place = evidence.place("gate.latency.max_regression")
    rule = Rule(name="latency", kind="time", case=record.case.id, place=place, threshold=1 + tolerance)
    if evidence.baseline is None:
        return rule.verdict("MISSING", "no baseline", "write one with `qbench baseline RUN` and commit it")
    if delta is None or delta.base is None or delta.base.status != "ok":
        reason = "a new case is not judged; add it with `qbench baseline RUN`"
        return rule.verdict("MISSING", "not in the baseline", reason)
    rerun = evidence.reruns.get(record.case.id)
    if isinstance(rerun, Rerun):
        return _check_rerun(replace(rule, way="live"), rerun, tolerance, _name_updates(evidence))
    return _check_stored(replace(rule, way="stored"), record, delta, tolerance, rerun)


def _check_rerun(rule: Rule, rerun: Rerun, tolerance: float, updates: str) -> Verdict:
    analysis = rerun.analysis
    if analysis is None or rerun.reason is not None:
        return rule.verdict("INVALID", f"live  ended in process pair {len(rerun.pairs) + 1}", rerun.reason)
    parts = [
        f"live  time {_format_change(analysis.slowdown)}",
        f"tolerance {tolerance * 100:g} %",
        f"{analysis.pairs} process pairs, interim analysis {analysis.number} of {len(ANALYSES)}",
        f"control {_format_change(analysis.control)}",
        updates,
    ]
    return rule.compare_interval(
        analysis.slowdown,
        "  ".join(filter(None, parts)),
        level=analysis.level,
        side="below",
        degrees_of_freedom=analysis.pairs - 1,
    ).unless(analysis.doubt)


def _format_change(ratio: Interval) -> str:
    """``+1.2 % [-0.3, +2.7]``: a ratio of times as a change."""
    low, high = (None if limit is None else limit - 1 for limit in (ratio.low, ratio.high))
    change = Interval(value=ratio.value - 1, low=low, high=high)
    amount = formatting.number(change, scale=100, signed=True)
    return f"{amount} % {formatting.limits(change, scale=100, signed=True)}".rstrip()


def _name_updates(evidence: Evidence) -> str:
    """The runtimes that changed since the baseline: both artifacts ran under the new ones."""
    assert evidence.baseline is not None
    old, new = evidence.baseline.info.versions, evidence.info.versions
    changed = [name for name in RUNTIMES if old.get(name) != new.get(name)]
    return f"both under {', '.join(f'{name} {new.get(name)}' for name in changed)}" if changed else ""


def _check_stored(
    rule: Rule, record: Record, delta: compare.Delta, tolerance: float, not_run: NotRun | None
) -> Verdict:
    why = f"  not run again: {formatting.one_line(not_run.reason)}" if not_run else ""
    assert delta.base is not None
    if record.speedup is None or delta.base.speedup is None:
        where = "this run" if record.speedup is None else "the baseline"
        return rule.verdict("MISSING", f"no speed-up{why}", f"latency was not measured in {where}")
    if delta.slowdown is None:
        reason = f"{delta.invalid} differs between the baseline and this run"
        return rule.verdict("INVALID", f"not comparable{why}", reason)
    text = _describe_stored(delta.base.speedup, record.speedup, delta.slowdown, tolerance) + why
    verdict = rule.compare_interval(
        delta.slowdown, text, level=delta.level, side="below", degrees_of_freedom=delta.freedom
    )
    return verdict.unless(find_doubt(record.speedup, tolerance / 2, "half the tolerance"))


def _describe_stored(old: Speedup, new: Speedup, slowdown: Interval, tolerance: float) -> str:
    places = formatting.decimals(Interval(value=new.value, low=new.low, high=new.high))
    before, after = formatting.fixed(old.value, places), formatting.fixed(new.value, places)
    return f"stored  speed-up {before} -> {after}  time {_format_change(slowdown)}  tolerance {tolerance * 100:g} %"


def check_speedup(evidence: Evidence, record: Record) -> Verdict | None:
    """Does the case hold the promised speed-up over its like-for-like fp32?"""
    promise, speedup = evidence.policy.latency.min_speedup, record.speedup
    if promise is None:
        return None
    place = evidence.place("gate.latency.min_speedup")
    rule = Rule(name="speed-up", kind="time", case=record.case.id, place=place, threshold=promise)
    if speedup is None:
        return rule.verdict("MISSING", "no speed-up", "latency was not measured")
    interval = Interval(value=speedup.value, low=speedup.low, high=speedup.high)
    verdict = rule.compare_interval(
        interval,
        f"{formatting.with_limits(interval)}  promised {promise:g}",
        level=speedup.level,
        side="above",
        degrees_of_freedom=speedup.processes - 1 if speedup.processes > 1 else None,
    )
    if verdict.outcome == "INCONCLUSIVE":
        return verdict
    room = room_to_promise(speedup.value, promise)
    return verdict.unless(find_doubt(speedup, room, "half the distance to the promise"))
