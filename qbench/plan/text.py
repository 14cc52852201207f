"""A plan in words: text and JSON; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from qbench.plan import decision_rule
from qbench.plan.decision_rule import DecisionRule
from qbench.plan.planner import Plan, PlannedCase, Skip
from qbench.quant.target import name_cpus

SCHEMA = 1
_LATER = "; more may be skipped by what tracing and building find"


def text(plan: Plan) -> str:
    """What decides, one line per case in the order of the run, the skipped by reason, then the notes; no trailing
    newline."""
    width = max((len(planned.case.id) for planned in plan.cases), default=0)
    lines = [
        f"{plan.suite}: {_count(len(plan.cases), 'case')}, {len(plan.skipped)} skipped{_LATER if plan.cases else ''}"
    ]
    lines += [] if plan.decision is None else decision_rule.describe(plan.decision)
    lines += [f"  {planned.case.id:<{width}}  {_describe_role(planned)}" for planned in plan.cases]
    if plan.skipped:
        lines += ["skipped:", *_list_skipped(plan.skipped)]
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join(lines)


def _list_skipped(skips: Iterable[Skip]) -> Iterator[str]:
    """Each reason once, its cases under it."""
    by_reason: dict[str, list[str]] = {}
    for skip in skips:
        by_reason.setdefault(skip.reason, []).append(skip.key.id)
    for reason, cases in by_reason.items():
        yield f"  {reason}"
        yield from (f"    {case}" for case in cases)


def _describe_role(planned: PlannedCase) -> str:
    if planned.reference is not None:
        twin = "" if planned.twin is None else f"; its fp32 twin is {planned.twin.id}"
        return f"against {planned.reference.id}{twin}{_describe_target(planned)}"
    return "baseline, added by the plan" if planned.added else "baseline"


def _describe_target(planned: PlannedCase) -> str:
    target = planned.case.variant.recipe.cpus
    return f"; for {name_cpus(target)}" if target else ""


def _count(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def as_json(plan: Plan) -> str:
    """Everything, for a program."""
    data = {
        "schema": SCHEMA,
        "suite": plan.suite,
        "decide": None if plan.decision is None else _decision_data(plan.decision),
        "cases": [
            {
                **asdict(planned.case.key),
                "baseline": None if planned.reference is None else planned.reference.id,
                "reference": planned.added,
                "twin": None if planned.twin is None else planned.twin.id,
                "recipe": asdict(planned.case.variant.recipe),
            }
            for planned in plan.cases
        ],
        "skipped": [{**asdict(skip.key), "reason": skip.reason} for skip in plan.skipped],
        "notes": list(plan.notes),
    }
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


def _decision_data(rule: DecisionRule) -> dict[str, Any]:
    """The rule for a program: numbers raw, a limit that is not set null."""
    return {
        "minimize": rule.minimize,
        "tie": rule.tie,
        "prefer": list(rule.prefer),
        "metric": rule.metric,
        "limits": dict(rule.limits),
    }
