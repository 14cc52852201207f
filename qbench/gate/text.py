"""Verdicts in words: text, Markdown, JUnit XML, GitHub annotations, JSON; pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from qbench import formatting
from qbench.formatting import clean
from qbench.gate.gate import EXIT_CODES, Gated, Outcome, Verdict
from qbench.gate.sequential_test import NotRun, Rerun
from qbench.progress.table import align_rows

SCHEMA = 1
_ORDER = {outcome: rank for rank, outcome in enumerate(EXIT_CODES)}
_MEANING: dict[Outcome, str] = {
    "FAIL": "a rule is broken",
    "INVALID": "the run cannot be compared with the baseline",
    "MISSING": "something that was asked for is not there",
    "INCONCLUSIVE": "the samples cannot tell",
    "IMPROVED": "every rule holds, and something is better than in the baseline: refresh it with `qbench baseline RUN`",
    "PASS": "every rule holds",
}


def outcome_of(verdicts: Iterable[Verdict]) -> Outcome:
    """The worst outcome."""
    return min((verdict.outcome for verdict in verdicts), key=_ORDER.__getitem__)


def worst_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The verdicts, the worst outcome first, else in their own order."""
    return sorted(verdicts, key=lambda verdict: _ORDER[verdict.outcome])


def text(gated: Gated) -> str:
    """One line per verdict, its reason under it, and the count last; columns aligned, no trailing newline."""
    verdicts = worst_first(gated.verdicts)
    indent = " " * max(len(verdict.outcome) for verdict in verdicts)
    lines = []
    for line, verdict in zip(align_rows(list(map(_cells, verdicts))), verdicts, strict=True):
        lines.append(line)
        if verdict.reason is not None:
            lines.append(f"{indent}  {formatting.one_line(verdict.reason)}")
    return "\n".join([*lines, "", summary(gated)])


def describe(verdict: Verdict) -> str:
    """One verdict as a line, and its reason as another."""
    line = formatting.one_line("  ".join(_cells(verdict)))
    return line if verdict.reason is None else f"{line}\n  {formatting.one_line(verdict.reason)}"


def _cells(verdict: Verdict) -> tuple[str, ...]:
    return verdict.outcome, clean(verdict.case), clean(verdict.rule), clean(f"{verdict.text}  {verdict.place}")


def summary(gated: Gated) -> str:
    """The worst outcome, what it means, the counts and the exit code, in one line."""
    worst = outcome_of(gated.verdicts)
    counts = Counter(verdict.outcome for verdict in gated.verdicts)
    listed = ", ".join(f"{counts[outcome]} {outcome}" for outcome in EXIT_CODES if counts[outcome])
    return f"{worst}: {_MEANING[worst]} ({listed}); exit code {gated.exit_code}"


def markdown(gated: Gated) -> str:
    """For a pull request: what is wrong in a table, what passed folded away."""
    verdicts = worst_first(gated.verdicts)
    wrong = [verdict for verdict in verdicts if verdict.outcome != "PASS"]
    right = [verdict for verdict in verdicts if verdict.outcome == "PASS"]
    against = f"held against `{formatting.code(gated.baseline.name)}`" if gated.baseline else "without a baseline"
    parts = [
        f"## qbench gate: {outcome_of(verdicts)}",
        f"Suite `{formatting.code(gated.suite)}`, {against}. {summary(gated)}.",
    ]
    if wrong:
        parts.append(_markdown_table(wrong))
    if right:
        parts.append(f"<details><summary>{len(right)} passed</summary>\n\n{_markdown_table(right)}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def _markdown_table(verdicts: Iterable[Verdict]) -> str:
    rows = ["| outcome | case | rule | measured | why | where |", "|---|---|---|---|---|---|"]
    for verdict in verdicts:
        cells = (verdict.rule, verdict.text, verdict.reason or "", verdict.place)
        tail = " | ".join(formatting.markdown(cell) for cell in cells)
        rows.append(f"| **{verdict.outcome}** | `{formatting.code(verdict.case)}` | {tail} |")
    return "\n".join(rows)


def junit(gated: Gated) -> str:
    """JUnit XML: a FAIL is a failure; INVALID, MISSING and INCONCLUSIVE are errors, so that no reader calls them
    passed."""
    suites = ElementTree.Element("testsuites", name="qbench gate")
    bad = [verdict for verdict in gated.verdicts if verdict.outcome not in ("PASS", "FAIL")]
    suite = ElementTree.SubElement(
        suites,
        "testsuite",
        name=clean(gated.suite),
        tests=str(len(gated.verdicts)),
        failures=str(sum(verdict.outcome == "FAIL" for verdict in gated.verdicts)),
        errors=str(len(bad)),
    )
    for verdict in gated.verdicts:
        case = ElementTree.SubElement(suite, "testcase", classname=clean(verdict.case), name=clean(verdict.rule))
        message = clean(f"{verdict.text}  {verdict.place}")
        if verdict.outcome == "PASS":
            ElementTree.SubElement(case, "system-out").text = message
            continue
        kind = "failure" if verdict.outcome == "FAIL" else "error"
        problem = ElementTree.SubElement(
            case, kind, type=verdict.outcome, message=clean(formatting.one_line(verdict.reason or ""))
        )
        problem.text = message
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def github(gated: Gated) -> str:
    """Workflow commands that annotate the suite's lines: errors, and warnings for INCONCLUSIVE; empty if all pass.

    Format: docs.github.com, "Workflow commands for GitHub Actions".
    """
    lines = []
    for verdict in worst_first(gated.verdicts):
        if verdict.outcome == "PASS":
            continue
        kind = "warning" if verdict.outcome == "INCONCLUSIVE" else "error"
        file, _, line = verdict.place.rpartition(":")
        where = f"file={_property(file)},line={_property(line)}" if file and line.isdigit() else ""
        title = _property(f"qbench {verdict.outcome}: {verdict.case} {verdict.rule}")
        message = _message(f"{verdict.text}\n{verdict.reason or ''}".rstrip())
        lines.append(f"::{kind} {where}{',' if where else ''}title={title}::{message}")
    return "".join(f"{line}\n" for line in lines)


def _message(text: str) -> str:
    lines = "\n".join(map(clean, text.splitlines()))  # a carriage return, too, is the end of a line
    return lines.replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def as_json(gated: Gated) -> str:
    """Everything, for a program; numbers raw."""
    data = {
        "schema": SCHEMA,
        "suite": gated.suite,
        "run": str(gated.folder),
        "baseline": None if gated.baseline is None else str(gated.baseline),
        "outcome": outcome_of(gated.verdicts),
        "exit_code": gated.exit_code,
        "verdicts": [asdict(verdict) for verdict in gated.verdicts],
        "reruns": {case: _rerun_facts(rerun) for case, rerun in gated.reruns.items()},
    }
    return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _rerun_facts(rerun: Rerun | NotRun) -> dict[str, Any]:
    """The fields as JSON has them, where the analysis is the ``look``."""
    return {"look" if name == "analysis" else name: value for name, value in asdict(rerun).items()}
