"""The gate's rules on latency: has the case become slower, and does it hold its promised speed-up?

None means that a rule does not concern the case or was not asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from qbench import compare, wording
from qbench.gate_evidence import Evidence, Verdict, judged, trusted
from qbench.gate_looks import LOOKS, NotRun, Rerun
from qbench.record import Interval, Record, Speedup

if TYPE_CHECKING:
    from qbench.suite import GateSpec

# What loads and runs artifacts: another version of it changes what they take.
RUNTIMES = ("torch", "onnxruntime", "openvino")


def needs_baseline(policy: GateSpec) -> bool:
    """Whether a rule asks for a baseline where none is at hand: the suite writes one of the two ``max_regression``, or
    no rule at all, so that it wants the defaults. A suite of absolute rules alone needs no baseline."""
    return _wants_latency(policy) or "max_regression" in policy.accuracy.model_fields_set


def _wants_latency(policy: GateSpec) -> bool:
    written = [name for name in policy.model_fields_set if getattr(policy, name).model_fields_set]
    return not written or "max_regression" in policy.latency.model_fields_set


def sampled_rules(records: Sequence[Record], policy: GateSpec, baseline: Sequence[Record] = ()) -> int:
    """How many verdicts on these records will rest on samples and share one error: latency, promise, metric, and the
    metric against that of the baseline's records."""
    held = {record.case.id for record in baseline if record.status == "ok" and record.accuracy is not None}
    held = set() if policy.accuracy.allowed_regression is None else held
    measured = [record for record in records if record.status == "ok" and record.case.mode != "fp32"]
    promised = policy.latency.min_speedup is not None
    return sum(
        1
        + (promised and record.speedup is not None)
        + (record.accuracy is not None and record.accuracy.delta is not None)
        + (record.accuracy is not None and record.case.id in held)
        for record in measured
    )


def latency(evidence: Evidence, record: Record) -> Verdict | None:
    """Is the case slower than the baseline's by more than the tolerance?

    Judged on both artifacts run again, else on the two stored speed-ups, each in units of its own run's fp32.
    """
    if evidence.baseline is None and not _wants_latency(evidence.policy):
        return None
    tolerance = evidence.policy.latency.max_regression
    delta = evidence.deltas.get(record.case.id)
    blank = Verdict(
        outcome="MISSING",
        case=record.case.id,
        rule="latency",
        place=evidence.place("gate.latency.max_regression"),
        text="no baseline",
        reason="write one with `qbench baseline RUN` and commit it",
        threshold=1 + tolerance,
    )
    if evidence.baseline is None:
        return blank
    if delta is None or delta.base is None or delta.base.status != "ok":
        reason = "a new case is not judged; add it with `qbench baseline RUN`"
        return replace(blank, text="not in the baseline", reason=reason)
    rerun = evidence.reruns.get(record.case.id)
    if isinstance(rerun, Rerun):
        return _live(replace(blank, way="live"), rerun, tolerance, _updated(evidence))
    return _stored(replace(blank, way="stored"), record, delta, tolerance, rerun)


def _live(blank: Verdict, rerun: Rerun, tolerance: float, updated: str) -> Verdict:
    look = rerun.look
    if look is None or rerun.reason is not None:
        text = f"live  ended in process pair {len(rerun.pairs) + 1}"
        return replace(blank, outcome="INVALID", text=text, reason=rerun.reason)
    parts = [
        f"live  time {_change(look.slowdown)}",
        f"tolerance {tolerance * 100:g} %",
        f"{look.pairs} process pairs, look {look.number} of {len(LOOKS)}",
        f"control {_change(look.control)}",
        updated,
    ]
    freedom = look.pairs - 1
    verdict = judged(blank, look.slowdown, level=look.level, wanted="below", freedom=freedom)
    told = replace(verdict, text="  ".join(part for part in parts if part))
    return told if look.doubt is None else replace(told, outcome="INCONCLUSIVE", reason=look.doubt)


def _change(ratio: Interval) -> str:
    """``+1.2 % [-0.3, +2.7]``: a ratio of times as a change."""
    low, high = (None if limit is None else limit - 1 for limit in (ratio.low, ratio.high))
    change = Interval(value=ratio.value - 1, low=low, high=high)
    amount = wording.number(change, scale=100, signed=True)
    return f"{amount} % {wording.limits(change, scale=100, signed=True)}".rstrip()


def _updated(evidence: Evidence) -> str:
    """The runtimes that changed since the baseline: both artifacts ran under the new ones."""
    assert evidence.baseline is not None
    old, new = evidence.baseline.info.versions, evidence.info.versions
    changed = [name for name in RUNTIMES if old.get(name) != new.get(name)]
    return f"both under {', '.join(f'{name} {new.get(name)}' for name in changed)}" if changed else ""


def _stored(blank: Verdict, record: Record, delta: compare.Delta, tolerance: float, not_run: NotRun | None) -> Verdict:
    why = f"  not run again: {wording.one_line(not_run.reason)}" if not_run else ""
    assert delta.base is not None
    if record.speedup is None or delta.base.speedup is None:
        where = "this run" if record.speedup is None else "the baseline"
        return replace(blank, text=f"no speed-up{why}", reason=f"latency was not measured in {where}")
    if delta.slowdown is None:
        reason = f"{delta.invalid} differs between the baseline and this run"
        return replace(blank, outcome="INVALID", text=f"not comparable{why}", reason=reason)
    text = _latency_text(delta.base.speedup, record.speedup, delta.slowdown, tolerance) + why
    verdict = judged(
        replace(blank, text=text), delta.slowdown, level=delta.level, wanted="below", freedom=delta.freedom
    )
    return trusted(verdict, record.speedup, room=tolerance / 2, meaning="half the tolerance")


def _latency_text(old: Speedup, new: Speedup, slowdown: Interval, tolerance: float) -> str:
    places = wording.decimals(Interval(value=new.value, low=new.low, high=new.high))
    before, after = wording.fixed(old.value, places), wording.fixed(new.value, places)
    return f"stored  speed-up {before} -> {after}  time {_change(slowdown)}  tolerance {tolerance * 100:g} %"


def speedup(evidence: Evidence, record: Record) -> Verdict | None:
    """Does the case hold the promised speed-up over its like-for-like fp32?"""
    promise = evidence.policy.latency.min_speedup
    if promise is None:
        return None
    blank = Verdict(
        outcome="MISSING",
        case=record.case.id,
        rule="speed-up",
        place=evidence.place("gate.latency.min_speedup"),
        text="no speed-up",
        reason="latency was not measured",
        threshold=promise,
    )
    found = record.speedup
    if found is None:
        return blank
    interval = Interval(value=found.value, low=found.low, high=found.high)
    freedom = found.processes - 1 if found.processes > 1 else None
    text = f"{wording.with_limits(interval)}  promised {promise:g}"
    verdict = judged(replace(blank, text=text), interval, level=found.level, wanted="above", freedom=freedom)
    if verdict.outcome == "INCONCLUSIVE":
        return verdict
    # A bias that could not carry the estimate half the way to the promise cannot have decided it.
    room = abs(math.log(found.value / promise)) / 2
    return trusted(verdict, found, room=room, meaning="half the distance to the promise")
