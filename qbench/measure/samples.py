"""Raw observations of one case's latency, as they are stored; every statistic is derived from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.files import atomic, npz_file

Nanoseconds = NDArray[np.int64]


def _no_ints() -> Nanoseconds:
    return np.empty(0, dtype=np.int64)


def _no_pairs() -> Nanoseconds:
    return np.empty((0, 2), dtype=np.int64)


def _no_floats() -> NDArray[np.float64]:
    return np.empty(0, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class BlockTiming:
    """One block as a worker saw it: nanoseconds of each call, and those of them that the thread had a core
    (``processor_ns``; None where the system does not tell, of several threads, or where the calls waited by
    themselves); of the whole block the share of its time in which another process had the core, involuntary context
    switches and page faults (None where the system does not tell, the share also of several threads); whether the
    machine was suspended meanwhile; the canary's nanoseconds just before and just after the calls
    (``machine.canary``; None: not read)."""

    calls_ns: Nanoseconds
    processor_ns: Nanoseconds | None = None
    off_core: float | None = None
    involuntary: int | None = None
    faults: int | None = None
    suspended: bool = False
    canary_ns: tuple[int, int] | None = None

    def without_first(self, calls: int) -> BlockTiming:
        """The block less that many calls at its start."""
        processor = None if self.processor_ns is None else self.processor_ns[calls:]
        return replace(self, calls_ns=self.calls_ns[calls:], processor_ns=processor)


@dataclass(frozen=True, kw_only=True)
class Samples:
    """What was seen of one case.

    ``calls_ns``: every timed call that was kept, with its ``block``; ``processor_ns``: what of each the thread had a
    core (-1: not known of its block; ``core_time``); ``baseline_ns`` and ``baseline_block``: those of the neighbouring
    baseline blocks. ``process``: which process each block ran in; ``round``: in which round of
    that process; blocks of two cases with one process and round ran beside each other. ``log_ratios``: ln(case /
    baseline) of the block minima, one a block (none for the baseline); ``control_log_ratios``, with
    ``control_process``: the same for a second copy of the baseline. ``involuntary`` and ``faults``: context switches
    and page faults of each whole block; ``off_core``: the share of it in which another process had the core.
    ``discarded``: calls left out at the start of each block. ``seconds``: what its own rounds took, the baseline's
    neighbouring blocks included (nan: not known). ``canary_ns``: one row a block, the canary's reading before and after
    it. Empty arrays mean: not measured.

    A scheduler keeps, of each block, ``BlockTiming.canary_ns`` in the same order as the block's calls, and hands the
    list to ``canary_rows``; to go on from kept samples it takes ``list_canary`` back.
    ``stopped`` is ``fixed`` (sequential), and of a race: ``screened`` where it left after the first generation of
    processes, ``left`` after a later one; to the end ``decided`` (the others are shown slower, or it is), ``tied`` (no
    more than the tie from the leader), ``precision``, ``processes`` (as many as a race has), ``max_seconds``; or
    ``cut_short`` where it died and is compared with. A race stores no ``log_ratios``: its rounds tell them.
    """

    protocol: str
    stopped: str
    calls_ns: Nanoseconds = field(default_factory=_no_ints)
    processor_ns: Nanoseconds = field(default_factory=_no_ints)
    block: Nanoseconds = field(default_factory=_no_ints)
    baseline_ns: Nanoseconds = field(default_factory=_no_ints)
    baseline_block: Nanoseconds = field(default_factory=_no_ints)
    log_ratios: NDArray[np.float64] = field(default_factory=_no_floats)
    process: Nanoseconds = field(default_factory=_no_ints)
    round: Nanoseconds = field(default_factory=_no_ints)
    control_log_ratios: NDArray[np.float64] = field(default_factory=_no_floats)
    control_process: Nanoseconds = field(default_factory=_no_ints)
    involuntary: Nanoseconds = field(default_factory=_no_ints)
    faults: Nanoseconds = field(default_factory=_no_ints)
    off_core: NDArray[np.float64] = field(default_factory=_no_floats)
    canary_ns: Nanoseconds = field(default_factory=_no_pairs)
    discarded: int = 0
    seconds: float = math.nan


def save(path: Path, samples: Samples) -> None:
    """Writes the samples as one compressed ``.npz``, whole or not at all: a resumed run reads what a killed one had."""
    arrays: dict[str, Any] = {part.name: np.asarray(getattr(samples, part.name)) for part in fields(samples)}
    with atomic.replace_file(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load(path: Path) -> Samples:
    """Reads what ``save`` wrote; raises ``BadNpz`` for what it did not."""
    arrays = npz_file.read(path)
    if missing := {"protocol", "stopped"} - set(arrays):
        raise npz_file.BadNpz(f"no array '{min(missing)}' in it")
    scalars: dict[str, Any] = {"protocol": str, "stopped": str, "discarded": int, "seconds": float}
    values: dict[str, Any] = {
        part.name: scalars.get(part.name, np.asarray)(arrays[part.name])
        for part in fields(Samples)
        if part.name in arrays
    }
    return Samples(**values)


def counts(values: Sequence[int | None]) -> NDArray[np.int64]:
    """The counts of the blocks; empty where the system told none."""
    known = [value for value in values if value is not None]
    return np.asarray(known if len(known) == len(values) else [], dtype=np.int64)


def shares(values: Sequence[float | None]) -> NDArray[np.float64]:
    """The shares of the blocks; empty where one of them has none."""
    known = [value for value in values if value is not None]
    return np.asarray(known if len(known) == len(values) else [], dtype=np.float64)


def canary_rows(readings: Sequence[tuple[int, int] | None]) -> NDArray[np.int64]:
    """The canary's readings, one row a block; empty where one of the blocks has none."""
    known = [pair for pair in readings if pair is not None]
    return np.asarray(known if len(known) == len(readings) else [], dtype=np.int64).reshape(-1, 2)


def list_canary(samples: Samples) -> list[tuple[int, int] | None]:
    """What ``canary_rows`` was given, for the blocks that were kept; None for each where nothing was read."""
    rows = [(int(before), int(after)) for before, after in samples.canary_ns]
    return list(rows) or [None] * len(np.unique(samples.block))


def join_processor_times(timings: Sequence[BlockTiming]) -> Nanoseconds:
    """The processor time of every call, -1 where its block has none; empty where no block has."""
    if all(timing.processor_ns is None for timing in timings):
        return _no_ints()
    return np.concatenate(
        [
            np.full(len(timing.calls_ns), -1, dtype=np.int64) if timing.processor_ns is None else timing.processor_ns
            for timing in timings
        ]
    )


def list_blocks(samples: Samples) -> list[BlockTiming]:
    """The blocks of stored samples in their order, as their worker saw them."""
    starts = np.flatnonzero(np.diff(samples.block)) + 1
    calls = np.split(samples.calls_ns, starts) if len(samples.calls_ns) else []
    timings = [
        BlockTiming(calls_ns=nanoseconds, canary_ns=readings)
        for nanoseconds, readings in zip(calls, list_canary(samples), strict=True)
    ]
    if len(samples.processor_ns):
        processor = np.split(samples.processor_ns, starts)
        timings = [
            replace(timing, processor_ns=None if (nanoseconds < 0).any() else nanoseconds)
            for timing, nanoseconds in zip(timings, processor, strict=True)
        ]
    for name in ("involuntary", "faults", "off_core"):
        values = getattr(samples, name).tolist()
        if values:
            timings = [replace(timing, **{name: value}) for timing, value in zip(timings, values, strict=True)]
    return timings


def joined(blocks: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All calls in a row, and the index of the block of each."""
    if not blocks:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty
    index = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    return np.concatenate(blocks), index.astype(np.int64)
