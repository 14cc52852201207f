"""An upgrade for a terminal, for a pull request or an issue, and for programs; pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from qbench import formatting
from qbench.gating import markdown as gate_markdown
from qbench.gating import text as gate_text
from qbench.gating.verdict import format_level
from qbench.progress.table import align_rows
from qbench.stats.interval_type import Interval
from qbench.upgrade.case_change import CaseChange
from qbench.upgrade.sentence import write_sentence
from qbench.upgrade.upgrade import ANEW, KEPT, Upgraded

SCHEMA = 1
HEAD = ("case", "file", "time", "of it the file", "answers", "size", "layers", "cold start", "memory")
_WAYS = {KEPT: "same", ANEW: "anew"}
_NONE = "—"


def text(upgraded: Upgraded) -> str:
    """The sentence, what was compared, a row per case and way, the verdicts of the gate that are no PASS, and what all
    of them come to; no trailing newline."""
    joined = upgraded.joined
    rows = align_rows([HEAD, *(list_cells(change) for change in upgraded.changes)])
    lines = [write_sentence(upgraded), describe_versions(upgraded), "", *rows, *list_reasons(upgraded.changes)]
    lines += [explain(upgraded.changes), ""]
    lines += [gate_text.describe(each) for each in gate_text.worst_first(joined.verdicts) if each.outcome != "PASS"]
    lines += [f"note: {formatting.one_line(note)}" for note in joined.notes]
    return "\n".join([*lines, gate_text.summary(joined)])


def describe_versions(upgraded: Upgraded) -> str:
    """``onnxruntime 1.30.0 -> 1.32.0; with it coloredlogs 15.0.1 (was not there)``."""
    named = ", ".join(f"{name} {old} -> {upgraded.after[name]}" for name, old in upgraded.before.items())
    along = [f"{name} {new} ({_was(old)})" for name, (old, new) in upgraded.along.items()]
    return named + (f"; with it {', '.join(along)}" if along else "")


def _was(version: str | None) -> str:
    return "was not there" if version is None else f"was {version}"


def explain(changes: Sequence[CaseChange]) -> str:
    """What the columns mean, in one line."""
    level = format_level(changes[0].level) if changes else ""
    return (
        "file: the same one under the new libraries, or one built anew by them. time and cold start: new over old, "
        f"with limits {level}; of it the file: the new file over the old one, both under the new libraries; examples "
        "whose bits or correctness changed; layers that run in float now (+: in int8 now)."
    )


def list_reasons(changes: Sequence[CaseChange]) -> list[str]:
    """Why cases do not run on the new side, a line each; the same reason of both ways once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        if change.reason is not None:
            reasons.setdefault((change.case, formatting.one_line(change.reason)), []).append(_WAYS[change.way])
    return [f"{case} ({', '.join(ways)}) does not run: {reason}" for (case, reason), ways in reasons.items()]


def list_cells(change: CaseChange) -> tuple[str, ...]:
    """The row of one case and way, below ``HEAD``."""
    way = _WAYS[change.way]
    if change.reason is not None:
        return change.case, way, "does not run", *[""] * (len(HEAD) - 3)
    same = change.way == ANEW and change.same_file
    return (
        change.case,
        f"{way} (the same bytes)" if same else way,
        _ratio(change.time),
        _ratio(change.rebuilt),
        _describe_answers(change),
        _from_to(change.bytes_before, change.bytes_after),
        ", ".join([*change.now_float, *(f"+{name}" for name in change.now_int8)]) or "as before",
        _ratio(change.start),
        _from_to(change.peak_before, change.peak_after),
    )


def _ratio(ratio: Interval | None) -> str:
    return _NONE if ratio is None else formatting.with_limits(ratio)


def _from_to(before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return _NONE
    return formatting.size(after) if before == after else f"{formatting.size(before)} -> {formatting.size(after)}"


def _describe_answers(change: CaseChange) -> str:
    if change.outputs is None:
        return _NONE
    if change.outputs.same_bits:
        return f"same bits ({change.outputs.n:,})"
    flips = "" if change.flips is None else f", {change.flips.harmful:,} worse, {change.flips.beneficial:,} better"
    layer = "" if change.first_layer is None else f", from {change.first_layer} on"
    return f"{change.outputs.differing:,} of {change.outputs.n:,} in other bits{layer}{flips}"


def markdown(upgraded: Upgraded) -> str:
    """For an issue or a comment: a mark by which a bot finds its own, the sentence, the rows, the gate's verdicts."""
    gated = upgraded.joined
    mark = gate_markdown.marker(gated.suite).replace("qbench-gate", "qbench-upgrade")
    rows = [HEAD, tuple("---" for _ in HEAD)]
    rows += map(list_cells, upgraded.changes)
    table = "\n".join(f"| {' | '.join(_cell(cell, row < 2) for cell in cells)} |" for row, cells in enumerate(rows))
    sections = [
        f"{mark}\n**{formatting.markdown(write_sentence(upgraded))}**",
        formatting.markdown(describe_versions(upgraded)),
        table,
        *(f"- {formatting.markdown(reason)}" for reason in list_reasons(upgraded.changes)),
        gate_markdown.markdown(gated).partition("\n")[2],
    ]
    return "\n\n".join(sections)


def _cell(text: str, head: bool) -> str:
    return text if head else formatting.markdown(text)


def as_json(upgraded: Upgraded) -> str:
    """Everything, for a program; numbers raw."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "suite": upgraded.suite,
        "sentence": write_sentence(upgraded),
        "before": dict(upgraded.before),
        "after": dict(upgraded.after),
        "along": {name: {"before": old, "after": new} for name, (old, new) in upgraded.along.items()},
        "way": upgraded.way,
        "outcome": upgraded.outcome,
        "exit_code": upgraded.exit_code,
        "changes": [asdict(change) for change in upgraded.changes],
        "gates": {way: json.loads(gate_text.as_json(gated)) for way, gated in upgraded.gates.items()},
    }
    return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
