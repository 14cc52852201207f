"""What an upgrade does to one case: its time, its answers, its file, its layers, its start and its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qbench.compare import compare
from qbench.gating.sequential_test import ANALYSES, LEVEL, ProcessPair, Rerun, analyze_start
from qbench.portability.compare_hosts import OutputChange, compare_outputs
from qbench.record.schema import Flips, Record
from qbench.record.stored_run import StoredRun
from qbench.stats import intervals
from qbench.stats.interval_type import Interval

_START_TOLERANCE = 0.1  # decides nothing here: the interval is what is told


@dataclass(frozen=True, kw_only=True)
class CaseChange:
    """From the old side to the new one, by ``way``: ``kept``, the same file, or ``anew``, one built by the new
    libraries. ``time`` and ``start`` are ratios with limits at ``level``; ``rebuilt`` is the share of ``time`` that the
    new file has over the old one, under the new libraries (None: it is the same file, or was not measured). ``outputs``
    is None where not both have any, ``flips`` where no example is right or wrong by itself. ``first_layer``: from which
    on the bits differ. ``now_float`` and ``now_int8``: layers, by name. ``bytes_before`` to ``peak_after`` in bytes.
    ``reason``: why there is no new side."""

    case: str
    model: str
    name: str
    way: str
    time: Interval | None = None
    rebuilt: Interval | None = None
    start: Interval | None = None
    level: float = LEVEL
    outputs: OutputChange | None = None
    flips: Flips | None = None
    first_layer: str | None = None
    now_float: tuple[str, ...] = ()
    now_int8: tuple[str, ...] = ()
    same_file: bool = False
    bytes_before: int | None = None
    bytes_after: int | None = None
    peak_before: int | None = None
    peak_after: int | None = None
    reason: str | None = None


def describe_change(
    way: str, name: str, old: tuple[StoredRun, Record], new: tuple[StoredRun, Record | None], rerun: Rerun | None
) -> CaseChange:
    """One case of two runs, and what running it again gave."""
    (old_run, before), (new_run, after) = old, new
    change = CaseChange(case=before.case.id, model=before.case.model, name=name, way=way)
    if after is None or after.status != "ok":
        reason = "it is not in the run" if after is None else str(after.reason)
        return replace(change, reason=reason)
    analysis = None if rerun is None else rerun.analysis
    now_float, now_int8 = compare_layers(before, after)
    return replace(
        change,
        time=None if analysis is None else analysis.slowdown,
        start=None if rerun is None else compare_start(rerun.pairs),
        outputs=compare_outputs(new_run, after, before, old_run),
        flips=count_flips(old_run, before, new_run, after),
        now_float=now_float,
        now_int8=now_int8,
        same_file=_digest(before) is not None and _digest(before) == _digest(after),
        bytes_before=None if before.artifact is None else before.artifact.size_bytes,
        bytes_after=None if after.artifact is None else after.artifact.size_bytes,
        peak_before=None if before.memory is None else before.memory.peak_rss_bytes,
        peak_after=None if after.memory is None else after.memory.peak_rss_bytes,
    )


def _digest(record: Record) -> str | None:
    return None if record.artifact is None else record.artifact.sha256


def compare_layers(before: Record, after: Record) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The layers that ran in int8 before and run in float now, and the other way round, by name."""
    sides = [record.artifact.coverage for record in (before, after) if record.artifact is not None]
    known = [side.float_layers for side in sides if side is not None]
    if len(known) < 2:
        return (), ()
    old, new = known
    return tuple(name for name in new if name not in old), tuple(name for name in old if name not in new)


def count_flips(old_run: StoredRun, before: Record, new_run: StoredRun, after: Record) -> Flips | None:
    """Examples that were right and are wrong, and the other way round; None where no example is either."""
    values = [
        run.values(record, compare.like_for_like(record, run.records))
        for run, record in ((old_run, before), (new_run, after))
    ]
    old, new = values
    if old is None or new is None or old.shape != new.shape or not np.isin([old, new], (0, 1)).all():
        return None
    return Flips(harmful=int((old > new).sum()), beneficial=int((new > old).sum()))


def compare_start(pairs: Sequence[ProcessPair]) -> Interval | None:
    """The load and first call of the new side over the old one's; None before the first look, or where it is not
    known."""
    if len(pairs) not in ANALYSES or any(pair.start is None for pair in pairs):
        return None
    return analyze_start(pairs, _START_TOLERANCE).slowdown


def compare_files(anew: Sequence[ProcessPair], kept: Sequence[ProcessPair]) -> Interval | None:
    """The time of the new file over that of the old one, both under the new libraries, by the same process pairs: a
    ratio with Student's t limits at ``LEVEL``; None of fewer than two."""
    logs = np.asarray([new.ratio - old.ratio for new, old in zip(anew, kept, strict=False)])
    if len(logs) < 2:
        return None
    change = intervals.t_interval(logs, LEVEL)
    if change.low is None or change.high is None:
        return None
    return Interval(value=float(np.exp(change.value)), low=float(np.exp(change.low)), high=float(np.exp(change.high)))
