"""Decisions for a program, as ``decision.json`` and ``qbench run --json`` hold them; pure.

Numbers are raw, ratios are "times as good as fp32" in what is minimized, and what is not known is null. Keys may be
added, never renamed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from qbench.decide import limit_text
from qbench.decide.cases import list_unjudged
from qbench.decide.decision_type import Decision
from qbench.decide.hosts_differ import list_differences
from qbench.decide.paired_times import Comparison, as_ratio
from qbench.decide.sureness import say_chance
from qbench.record.schema import Record

SCHEMA = 1


def as_json(suite: str, decisions: Sequence[Decision], warnings: Sequence[str] = ()) -> str:
    """The file ``decision.json`` of a run; ``warnings``: what to know of it before any figure."""
    data = {
        "schema": SCHEMA,
        "suite": suite,
        "warnings": list(warnings),
        "decisions": list_data(decisions),
        "by_host": list_hosts(decisions),
    }
    return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def list_data(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """One mapping for each decision, ready for JSON."""
    return [_describe(decision) for decision in decisions]


def list_hosts(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """The settings whose answer depends on the host, ready for JSON: each answer once, with the case that is shipped
    on each of its hosts."""
    return [
        {
            "setting": {key: value for key, value in asdict(difference.setting).items() if key != "host"},
            "text": difference.text,
            "answers": [
                {
                    "verdict": answer.decisions[0].status,
                    "ship": {each.setting.host: find_shipped(each) for each in answer.decisions},
                }
                for answer in difference.answers
            ],
        }
        for difference in list_differences(decisions)
    ]


def _describe(decision: Decision) -> dict[str, Any]:
    return {
        "setting": asdict(decision.setting),
        "verdict": decision.status,
        "complete": not decision.missing,
        "ship": find_shipped(decision),
        "file": _describe_file(decision),
        "sentence": decision.sentence,
        "headline": decision.headline,
        "minimize": decision.objective,
        "pick": _id(decision.pick),
        "runner_up": _id(decision.runner_up),
        "fp32": _id(decision.fp32),
        "over_fp32": _ratio(decision.over_fp32),
        "fastest_fp32": _id(decision.fastest),
        "speedup": _ratio(decision.over_fastest),
        "probability": decision.probability,
        "sureness": None if decision.probability is None else say_chance(decision.probability),
        "capped": decision.capped,
        "tied": list(decision.tied),
        "deciding_step": decision.deciding_step,
        "limits": {case: [limit_text.as_data(check) for check in checks] for case, checks in decision.checks.items()},
        "not_it": [{"reason": reason, "cases": list(cases)} for reason, cases in decision.not_it],
        "would_change": list(decision.would_change),
        "missing": list(decision.missing),
        "unjudged_outputs": [] if decision.pick is None else list(list_unjudged(decision.pick)),
        "notes": list(decision.notes),
        "next_step": decision.next_step,
    }


def find_shipped(decision: Decision) -> str | None:
    """The id of the case to ship."""
    return _id(find_shipped_record(decision))


def find_shipped_record(decision: Decision) -> Record | None:
    """The case to ship: the pick, or the fp32 that is kept; null where that is open, or planned cases are
    missing."""
    if decision.status == "ship":
        return decision.pick
    return decision.fp32 if decision.status in ("keep fp32", "none qualifies") else None


def _describe_file(decision: Decision) -> dict[str, Any] | None:
    """The file of the case to ship; ``cache``: its folder below that of the cache in which the run left it."""
    record = find_shipped_record(decision)
    if record is None or record.artifact is None:
        return None
    facts = record.artifact
    cached = None if facts.key is None else f"artifacts/{facts.key}"
    return {"format": facts.format, "sha256": facts.sha256, "size_bytes": facts.size_bytes, "cache": cached}


def _id(record: Record | None) -> str | None:
    return None if record is None else record.case.id


def _ratio(comparison: Comparison | None) -> dict[str, Any] | None:
    """With 95 % limits, and what it rests on."""
    return None if comparison is None else {**asdict(as_ratio(comparison)), "evidence": comparison.evidence}
