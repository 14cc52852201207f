"""What differs between two runs beside their cases: machine, versions, commit, suite; pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from qbench.record.stored_run import RunInfo

CONTEXT = 2  # unchanged lines around a change of the suite's text
# These change with every run and say nothing.
_PASSING = frozenset({"load_average"})


def differences(old: RunInfo, new: RunInfo) -> tuple[tuple[str, str, str], ...]:
    """Name, before and after of each thing that differs: commit, machine, versions, inputs, kind of run."""
    return tuple(_differ(old, new))


def _differ(old: RunInfo, new: RunInfo) -> Iterator[tuple[str, str, str]]:
    if old.commit != new.commit:
        before, after = (_say_commit(info) for info in (old, new))
        if before != after:
            yield "commit", before, after
    yield from _mapping(old.environment, new.environment, "")
    yield from _mapping(old.versions, new.versions, "")
    yield from _mapping(old.digests, new.digests, "")
    if (old.quick is None) != (new.quick is None):
        before, after = ("a run proper" if info.quick is None else "a quick look" for info in (old, new))
        yield "kind of run", before, after


def _say_commit(info: RunInfo) -> str:
    return "not known" if info.commit is None else f"{info.commit.short} {info.commit.subject}".strip()


def _mapping(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name in dict.fromkeys([*new, *old]):
        if old.get(name) != new.get(name) and name not in _PASSING:
            yield f"{prefix}{name}".replace("_", " "), _say(old.get(name)), _say(new.get(name))


def _say(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value) or "none"
    text = str(value)
    return f"{text[:12]}…" if len(text) >= 64 and " " not in text else text  # a digest


def suite_changes(old: RunInfo, new: RunInfo) -> tuple[str, ...]:
    """The suite's text as changed lines (``-`` before, ``+`` after) with what stands around them, and overrides."""
    before, after = (
        [*info.suite.text.splitlines(), *(f"--set {override}" for override in info.suite.overrides)]
        for info in (old, new)
    )
    lines = difflib.unified_diff(before, after, lineterm="", n=CONTEXT)
    return tuple(line for line in lines if not line.startswith(("---", "+++")))
