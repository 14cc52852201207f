"""Raw observations of one case's latency, as they are stored; every statistic is derived from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]


def _no_ints() -> Nanoseconds:
    return np.empty(0, dtype=np.int64)


def _no_floats() -> NDArray[np.float64]:
    return np.empty(0, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class BlockTiming:
    """One block as a worker saw it: nanoseconds of each call; CPU time, involuntary context switches and page faults of
    the whole block (None where the system does not tell); whether the machine was suspended meanwhile."""

    calls_ns: Nanoseconds
    cpu_ns: int | None = None
    involuntary: int | None = None
    faults: int | None = None
    suspended: bool = False


@dataclass(frozen=True, kw_only=True)
class Samples:
    """What was seen of one case.

    ``calls_ns``: every timed call that was kept, with its ``block``; ``baseline_ns`` and ``baseline_block``: those
    of the neighbouring baseline blocks. ``process``: which process each block ran in; ``round``: in which round of
    that process; blocks of two cases with one process and round ran beside each other. ``log_ratios``: ln(case /
    baseline) of the block minima, one a block (none for the baseline); ``control_log_ratios``, with
    ``control_process``: the same for a second copy of the baseline. ``involuntary`` and ``faults``: context switches
    and page faults of each whole block. ``discarded``: calls left out at the start of each block. ``seconds``: what its
    own rounds took, the baseline's neighbouring blocks included (nan: not known). Empty arrays mean: not measured.
    ``stopped`` is ``precision``, ``max_seconds``, ``fixed``, or ``cut_short`` where the baseline died.
    """

    protocol: str
    stopped: str
    calls_ns: Nanoseconds = field(default_factory=_no_ints)
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
    discarded: int = 0
    seconds: float = math.nan


def save(path: Path, samples: Samples) -> None:
    """Writes the samples as one compressed ``.npz``."""
    arrays: dict[str, Any] = {part.name: np.asarray(getattr(samples, part.name)) for part in fields(samples)}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load(path: Path) -> Samples:
    """Reads what ``save`` wrote."""
    with np.load(path, allow_pickle=False) as archive:
        scalars: dict[str, Any] = {"protocol": str, "stopped": str, "discarded": int, "seconds": float}
        values: dict[str, Any] = {
            part.name: scalars[part.name](archive[part.name]) if part.name in scalars else archive[part.name]
            for part in fields(Samples)
            if part.name in archive
        }
    return Samples(**values)


def counts(values: Sequence[int | None]) -> NDArray[np.int64]:
    """The counts of the blocks; empty where the system told none."""
    known = [value for value in values if value is not None]
    return np.asarray(known if len(known) == len(values) else [], dtype=np.int64)


def joined(blocks: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All calls in a row, and the index of the block of each."""
    if not blocks:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty
    index = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    return np.concatenate(blocks), index.astype(np.int64)


def split(calls: Nanoseconds, block: Nanoseconds) -> list[Nanoseconds]:
    """The calls of each block, in order: what ``joined`` put in a row."""
    return [calls[block == number] for number in np.unique(block)]
