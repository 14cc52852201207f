"""Verdicts in words for a terminal: a line each, its reason below it, the count last; as JSON for programs; pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from qbench import formatting
from qbench.formatting import clean
from qbench.gating.exit_codes import OUTCOMES, rank
from qbench.gating.gate import Gated
from qbench.gating.sequential_test import NotRun, Rerun
from qbench.gating.verdict import Verdict, advise_improved
from qbench.progress.table import align_rows

SCHEMA = 1
# What GitHub's runner takes for a command to itself: a line that begins with two colons, blanks aside, or that holds
# the older form anywhere (actions/runner, ActionCommand.cs).
_COMMAND = re.compile(r"^(\s*):(?=:)|##(?=\[)", re.MULTILINE)


def worst_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The verdicts, first those that weigh most on the exit code, then the worst outcome, else in their own order."""
    return sorted(verdicts, key=lambda verdict: rank(verdict.effect, verdict.outcome))


def text(gated: Gated) -> str:
    """One line per verdict, its reason under it, then the notes, and the count last; columns aligned, no trailing
    newline.

    No line is a command to GitHub's runner, whatever a case is called.
    """
    verdicts = worst_first(gated.verdicts)
    indent = " " * max(len(verdict.outcome) for verdict in verdicts)
    lines = []
    for line, verdict in zip(align_rows(list(map(_cells, verdicts))), verdicts, strict=True):
        lines.append(line)
        if verdict.reason is not None:
            lines.append(f"{indent}  {formatting.one_line(verdict.reason)}")
    notes = [f"note: {formatting.one_line(note)}" for note in gated.notes]
    return _COMMAND.sub(lambda match: f"{match[0]} ", "\n".join([*lines, "", *notes, summary(gated)]))


def _cells(verdict: Verdict) -> tuple[str, ...]:
    measured = f"{verdict.text}  {verdict.source}"
    return verdict.outcome, *(_unbroken(part) for part in (verdict.case, verdict.rule, measured))


def _unbroken(text: str) -> str:
    """The cleaned text on one line, its runs of blanks as they are: they part the numbers."""
    return " ".join(clean(text).splitlines())


def describe(verdict: Verdict) -> str:
    """One verdict as a line, and its reason as another."""
    line = formatting.one_line("  ".join(_cells(verdict)))
    return line if verdict.reason is None else f"{line}\n  {formatting.one_line(verdict.reason)}"


def summary(gated: Gated) -> str:
    """The outcome, what it means, the counts and the exit code, in one line."""
    return f"{gated.outcome}: {explain(gated)}; exit code {gated.exit_code}"


def explain(gated: Gated) -> str:
    """What the outcome means, and how many verdicts there are of each: ``a rule is broken (1 FAIL, 3 PASS)``."""
    outcome = gated.outcome
    unsure = outcome == "PASS" and any(verdict.effect in ("note", "skip") for verdict in gated.verdicts)
    meaning = "no rule is shown to be broken" if unsure else OUTCOMES[outcome][1]
    if outcome == "IMPROVED":
        meaning += f": {advise_improved(gated.ref)}"
    return f"{meaning} ({count_outcomes(gated.verdicts)})"


def count_outcomes(verdicts: Sequence[Verdict]) -> str:
    """``1 FAIL, 2 INCONCLUSIVE, 9 PASS``; those that the suite lets pass or skips are counted by themselves."""
    counts = Counter((verdict.outcome, _aside(verdict)) for verdict in verdicts)
    ordered = sorted(counts, key=lambda kind: (list(OUTCOMES).index(kind[0]), kind[1]))
    return ", ".join(f"{counts[kind]} {kind[0]}{kind[1]}" for kind in ordered)


def _aside(verdict: Verdict) -> str:
    """How a verdict that is no PASS leaves the exit code alone, if it does."""
    return {"note": " noted", "skip": " skipped"}.get(verdict.effect, "")


def as_json(gated: Gated) -> str:
    """Everything, for a program; numbers raw."""
    data = {
        "schema": SCHEMA,
        "suite": gated.suite,
        "run": str(gated.folder),
        "baseline": None if gated.baseline is None else str(gated.baseline),
        "notes": gated.notes,
        "outcome": gated.outcome,
        "exit_code": gated.exit_code,
        "verdicts": [{**asdict(verdict), "effect": verdict.effect} for verdict in gated.verdicts],
        "reruns": {case: _rerun_facts(rerun) for case, rerun in gated.reruns.items()},
    }
    return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _rerun_facts(rerun: Rerun | NotRun) -> dict[str, Any]:
    """The fields as JSON has them, where the analysis is the ``look``."""
    return {"look" if name == "analysis" else name: value for name, value in asdict(rerun).items()}
