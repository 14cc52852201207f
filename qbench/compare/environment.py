"""What differs between two runs beside their cases: machine, versions, commit, suite; or that they are one and the same
run; pure."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qbench.record.schema import ArtifactFacts, Record
from qbench.record.stored_run import RunInfo

CONTEXT = 2  # unchanged lines around a change of the suite's text
# These change with every run and say nothing.
_PASSING = frozenset({"load_average"})
SAME_RUN = "Both are the same run, so nothing can have changed; name an older run to compare with"


def is_same_run(old: RunInfo, new: RunInfo, before: Sequence[Record], after: Sequence[Record]) -> bool:
    """Whether both sides are one run: itself, a copy of its folder, or the baseline written from it, which keeps fewer
    digits. Runs begun in the same second differ in their figures."""
    same = (old.started, old.quick, old.environment) == (new.started, new.quick, new.environment)
    return same and _list_figures(before) == _list_figures(after)


def _list_figures(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """Of each case what was measured, in as many digits as a baseline keeps."""
    return sorted(
        (
            record.case.id,
            record.status,
            *_list_times(record),
            f"{record.accuracy.value:.6g}" if record.accuracy else "",
            *(_list_artifact(record.artifact) if record.artifact else ()),
        )
        for record in records
    )


def _list_times(record: Record) -> list[str]:
    """And memory."""
    speedup, memory = record.speedup, record.memory
    times = [
        *([] if record.latency is None else [record.latency.p50_seconds]),
        *([] if speedup is None else [speedup.value, speedup.low, speedup.high]),
        *([] if memory is None else [memory.loaded_rss_bytes, memory.peak_rss_bytes]),
    ]
    return ["" if value is None else f"{value:.4g}" for value in times]


def _list_artifact(artifact: ArtifactFacts) -> list[str]:
    coverage = artifact.coverage
    share = None if coverage is None else coverage.macs_int8 if coverage.macs_half is None else coverage.macs_half
    return [artifact.sha256, f"{artifact.size_bytes}", "" if share is None else f"{share:.6g}"]


def differences(old: RunInfo, new: RunInfo) -> tuple[tuple[str, str, str], ...]:
    """Name, before and after of each thing that differs: commit, machine, versions, inputs, kind of run."""
    return tuple(_differ(old, new))


def _differ(old: RunInfo, new: RunInfo) -> Iterator[tuple[str, str, str]]:
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
    return tuple(itertools.islice(lines, 2, None))  # behind two lines that name the files
