"""Verdicts as Markdown for a pull request's comment or a job's summary; pure.

The first line is a comment that no reader sees, by which a bot finds its own comment and writes over it. Then one
sentence; what was run, and where; the rows that show a change; the rest folded. GitHub takes comments of 65,536
characters: rows beyond ``MOST_CHARACTERS`` are counted instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from qbench import formatting
from qbench.gating.gate import Gated
from qbench.gating.text import count_outcomes, explain, worst_first
from qbench.gating.verdict import Verdict
from qbench.machine import fingerprint
from qbench.record.stored_run import RunInfo

MOST_CHARACTERS = 60_000
_OPEN_SHARE = 0.7  # of the characters, for the rows that are not folded
_CELL = 600
_HEAD = "| outcome | case | rule | measured | why | where |\n|---|---|---|---|---|---|"
_FOLDED = "<details><summary>{}</summary>\n\n{}\n\n</details>"


def marker(suite: str) -> str:
    """The comment by which a bot finds what it wrote about this suite before."""
    name = "".join(character if character.isalnum() or character in "-_." else "_" for character in suite)
    return f"<!-- qbench-gate: {name} -->"


def markdown(gated: Gated) -> str:
    """The whole comment, shorter than ``MOST_CHARACTERS``."""
    verdicts = worst_first(gated.verdicts)
    changed = [verdict for verdict in verdicts if is_open(verdict)]
    rest = [verdict for verdict in verdicts if not is_open(verdict)]
    sections = [f"{marker(gated.suite)}\n{_sentence(gated)}"]
    if gated.run is not None:
        sections.append(_describe_runs(gated.run, gated.held))
    if gated.notes:
        sections.append("\n".join(f"- {formatting.markdown(_cut(formatting.one_line(note)))}" for note in gated.notes))
    if changed:
        sections.append(_draw_table(changed, int(MOST_CHARACTERS * _OPEN_SHARE)))
    if rest:
        left = MOST_CHARACTERS - sum(map(len, sections)) - 1000
        same = sum(verdict.identical for verdict in rest)
        title = count_outcomes(rest) + (f", {same} of them on artifacts identical to the baseline's" if same else "")
        sections.append(_FOLDED.format(title, _draw_table(rest, left)))
    return "\n\n".join(sections) + "\n"


def _sentence(gated: Gated) -> str:
    suite = f"suite `{formatting.code(gated.suite)}`"
    baseline = gated.baseline and (gated.baseline.name if gated.ref is None else gated.baseline.as_posix())
    against = f"held against `{formatting.code(baseline)}`" if baseline else "without a baseline"
    return f"**qbench gate: {gated.outcome}**, {explain(gated)}: {suite}, {against}."


def _describe_runs(run: RunInfo, held: RunInfo | None) -> str:
    """The commit and the machine of the run and of its baseline."""
    text = f"Run: {_describe_commit(run)}, on {_describe_machine(run)}."
    if held is None:
        return text
    field = fingerprint.comparable(held.environment, run.environment)
    machine = "the same kind of machine" if field is None else _describe_machine(held)
    if field not in (None, "cpu"):
        machine += f" with other {formatting.markdown(str(field).replace('_', ' '))}"
    return f"{text} Baseline: {_describe_commit(held)}, on {machine}."


def _describe_commit(info: RunInfo) -> str:
    if info.commit is None:
        return "of no known commit"
    return f"commit `{formatting.code(info.commit.sha[:9])}`" + (" with changes" if info.commit.changed else "")


def _describe_machine(info: RunInfo) -> str:
    """The CPU and its cores, as far as they are known."""
    cpu, cores = info.environment.get("cpu"), info.environment.get("cores_allowed")
    named = "a CPU that is not named" if cpu is None else formatting.markdown(_cut(str(cpu)))
    return named + ("" if cores is None else f" ({formatting.markdown(str(cores))} core{'s' * (cores != 1)})")


def is_open(verdict: Verdict) -> bool:
    """Whether a reader sees the row at once: it weighs on the exit code, is better than before, or shows a change that
    its rule allows."""
    if verdict.effect not in ("pass", "note") or verdict.outcome == "IMPROVED":
        return True
    return verdict.effect == "pass" and not verdict.identical and _shows_change(verdict)


def _shows_change(verdict: Verdict) -> bool:
    """Whether a PASS against the baseline is of something that is not as it was."""
    if verdict.rule == "latency":
        return verdict.low is not None and verdict.high is not None and not verdict.low <= 1 <= verdict.high
    if verdict.rule == "size growth":
        return verdict.value not in (None, 1.0)
    return verdict.rule.endswith(" regression") and verdict.value not in (None, 0.0)


def _draw_table(verdicts: Sequence[Verdict], characters: int) -> str:
    """A table of as many rows as fit, and how many do not."""
    rows, left = [_HEAD], characters - len(_HEAD)
    for number, verdict in enumerate(verdicts):
        row = _draw_row(verdict)
        left -= len(row) + 1
        if left < 0:
            rows.append(f"\n… and {len(verdicts) - number} more rows, which the gate's own output has")
            break
        rows.append(row)
    return "\n".join(rows)


def _draw_row(verdict: Verdict) -> str:
    cells = (verdict.rule, verdict.text, verdict.reason or "", verdict.source)
    tail = " | ".join(formatting.markdown(_cut(cell)) for cell in cells)
    return f"| **{verdict.outcome}** | `{formatting.code(_cut(verdict.case))}` | {tail} |"


def _cut(text: str) -> str:
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"
