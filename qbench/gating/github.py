"""Verdicts as GitHub's workflow commands, which annotate the lines of the suite; pure.

Format: docs.github.com, "Workflow commands for GitHub Actions". A step shows ten annotations of a kind: beyond that the
last one says how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from qbench import formatting
from qbench.formatting import clean
from qbench.gating.gate import Gated
from qbench.gating.text import worst_first
from qbench.gating.verdict import Verdict

MOST = 10
_KINDS = {"fail": "error", "invalid": "error", "hold": "warning", "note": "notice", "skip": "notice"}


def github(gated: Gated, folder: str = "") -> str:
    """One command a line: errors, warnings for an INCONCLUSIVE that holds, notices for what is noted or IMPROVED, and
    the notes; empty where all pass. ``folder`` is where the gate runs, below the top of the repository."""
    verdicts = worst_first(gated.verdicts)
    lines: list[str] = []
    for kind in ("error", "warning", "notice"):
        lines += _list_commands(kind, [verdict for verdict in verdicts if _kind(verdict) == kind], folder)
    lines += [f"::notice title=qbench::{_message(formatting.one_line(note))}" for note in gated.notes]
    return "".join(f"{line}\n" for line in lines)


def _kind(verdict: Verdict) -> str | None:
    return "notice" if verdict.outcome == "IMPROVED" else _KINDS.get(verdict.effect)


def _list_commands(kind: str, verdicts: Sequence[Verdict], folder: str) -> list[str]:
    listed = verdicts if len(verdicts) <= MOST else verdicts[: MOST - 1]
    lines = [_command(kind, verdict, folder) for verdict in listed]
    if more := len(verdicts) - len(listed):
        lines.append(f"::{kind} title=qbench::and {more} more verdicts of this kind: the job summary lists them")
    return lines


def _command(kind: str, verdict: Verdict, folder: str) -> str:
    file, _, line = verdict.place.rpartition(":")
    if file and folder and not PurePosixPath(file).is_absolute():
        file = str(PurePosixPath(folder) / file)
    where = f"file={_property(file)},line={_property(line)}," if file and line.isdigit() else ""
    title = _property(f"qbench {verdict.outcome}: {verdict.case} {verdict.rule}")
    message = _message(f"{verdict.text}\n{verdict.reason or ''}".rstrip())
    return f"::{kind} {where}title={title}::{message}"


def _message(text: str) -> str:
    lines = "\n".join(map(clean, text.splitlines()))  # a carriage return, too, is the end of a line
    return lines.replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
