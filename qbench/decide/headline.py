"""A decision in one sentence: what to ship, or why there is nothing to ship; pure."""

from __future__ import annotations

from collections.abc import Sequence

from qbench import formatting
from qbench.decide import cases, notes, reasons
from qbench.decide.cases import variant
from qbench.decide.choose import Choice
from qbench.decide.decider import find_decider
from qbench.decide.judged import Judged
from qbench.decide.limit_text import score_unit
from qbench.decide.limits import AccuracyFloor
from qbench.decide.names import name_formats_of
from qbench.decide.paired_times import as_ratio
from qbench.decide.tie import Contest
from qbench.record.schema import CaseKey, Record

NAMED = 4  # so many missing cases are named


def explain(choice: Choice, records: Sequence[Record], judged: Judged, contest: Contest, rival: Record | None) -> str:
    """What to do in one setting; ``rival``: what may be the best as well."""
    pick = choice.pick
    if choice.verdict == "no answer":
        return _explain_nothing(records, contest)
    if choice.verdict == "none qualifies" or pick is None:
        return f"{_explain_none(choice, judged)}{_keep(choice, records, contest)}."
    if choice.verdict == "keep fp32":
        return _explain_fp32(choice, pick, contest)
    if choice.verdict == "undecided":
        candidate = "the fastest candidate" if contest.spec.minimize == "latency" else "the candidate that leads"
        check = next((check for check in judged.checks_of(pick) if check.outcome != "PASS"), None)
        why = "" if check is None else f", {notes.explain_open(check)}"
        return f"Undecided: {variant(pick)}, {candidate}{why}."
    if rival is not None:
        check = find_decider(choice, rival, judged, contest).check
        why = "" if check is None else f": the latter {notes.explain_open(check)}"
        return f"Either {variant(pick)} or {variant(rival)}{why}."
    return f"Ship {variant(pick)}."


def explain_missing(missing: Sequence[CaseKey], recorded: int) -> str:
    """``Incomplete: 2 of 17 planned cases are missing from the comparison (qat · x86, static · x86); so far: ``"""
    if not missing:
        return ""
    names = ", ".join(key.variant for key in missing[:NAMED])
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    are = "is" if len(missing) == 1 else "are"
    count = f"{len(missing)} of {len(missing) + recorded} planned cases {are} missing"
    return f"Incomplete: {count} from the comparison ({names}{more}); so far: "


def _explain_nothing(records: Sequence[Record], contest: Contest) -> str:
    int8 = [record for record in records if cases.is_contender(record)]
    if int8 and all(cases.is_unmeasured(record) for record in int8):
        if any(record.accuracy is not None for record in int8):
            return "No answer: the int8 cases are predicted here, not measured; their accuracy counts."
        return "No answer: the int8 cases are emulated here, for a few examples; `qbench portability` compares them."
    if int8:
        return f"No answer: {contest.spec.minimize} was measured of no {name_formats_of(int8)} case."
    counts = {status: sum(record.status == status for record in records) for status in ("failed", "skipped")}
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    nothing = f"No answer: no {name_formats_of(records)} case was measured"
    return f"{nothing} ({said})." if said else f"{nothing}."


def _explain_none(choice: Choice, judged: Judged) -> str:
    """Counts what rules the candidates out, by the first limit that each one breaks."""
    broken: dict[str, list[Record]] = {}
    for record in choice.measured:
        first = next(check for check in judged.checks_of(record) if check.outcome == "FAIL")
        broken.setdefault(reasons.name_broken(first), []).append(record)
    if set(broken) == {"int8"}:
        return "None qualifies: no candidate runs in int8"
    clauses = []
    for limit, records in broken.items():
        single, several = reasons.BROKEN[limit]
        bound = _name_bound(judged, records) if limit in ("accuracy", "floor") else ""
        who = variant(records[0]) if len(choice.measured) == 1 else f"{len(records)} of {len(choice.measured)}"
        clauses.append(f"{who} {single if len(records) == 1 else several}{bound}")
    return f"None qualifies: {', '.join(clauses)}"


def _keep(choice: Choice, records: Sequence[Record], contest: Contest) -> str:
    """Which fp32 stays where no int8 variant qualifies; empty where none was measured."""
    if choice.fp32 is not None:
        return f"; keep fp32 on {choice.fp32.case.backend} ({contest.objective.show(choice.fp32)})"
    ceilings = [name for name in ("max_latency", "max_memory") if getattr(contest.spec, name) is not None]
    if cases.fastest_fp32(records) is not None and ceilings:
        return f"; no fp32 holds {' and '.join(f'decide.{name}' for name in ceilings)} either"
    return ""


def _name_bound(judged: Judged, records: Sequence[Record]) -> str:
    """`` of 1 point``, `` of 10 dB``; empty where the cases have different margins."""
    bounds = judged.bounds_of(records)
    if judged.metric is None or len(bounds) != 1:
        return ""
    (bound,), unit = bounds, judged.metric.unit
    if isinstance(bound, AccuracyFloor):
        return f" of {bound.value:g}{score_unit(judged.metric)}"
    return f" of {bound.loss:g} {unit.removesuffix('s') if bound.loss == 1 and unit == 'points' else unit}".rstrip()


def _explain_fp32(choice: Choice, pick: Record, contest: Contest) -> str:
    objective, fp32 = contest.objective, choice.fp32
    assert fp32 is not None
    comparison = objective.compare(pick, fp32)
    holds = "that holds its accuracy" if pick in choice.good else "that may hold its accuracy"
    formats = name_formats_of(choice.measured)
    best = f"the {'fastest' if objective.name == 'latency' else 'best'} {formats}"
    unless = " unless size decides" if objective.name == "latency" else ""
    keep = f"Keep fp32 on {fp32.case.backend} ({objective.show(fp32)})"
    if comparison.low > 0:
        value = objective.show(pick).removesuffix(" a call")
        verb = "takes" if objective.name in ("latency", "cold_start") else "has"
        return f"{keep}{unless}: {best} {holds}, {variant(pick)}, {verb} {value}."
    ratio = f"{formatting.with_limits(as_ratio(comparison))} times as fast"
    gain = ratio if objective.name == "latency" else objective.show(pick)
    return f"{keep}: no {formats} variant is shown to be {objective.better}; {best} {holds} is {variant(pick)}, {gain}."
