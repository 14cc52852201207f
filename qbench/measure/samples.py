"""Raw observations of one case's latency, as they are stored; every statistic is derived from them."""

from __future__ import annotations

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
class Samples:
    """What was seen of one case.

    ``calls_ns``: every timed call that was kept, with its ``block``; ``baseline_ns`` and ``baseline_block``: those
    of the neighbouring baseline blocks. ``process``: which process each block ran in. ``log_ratios``: ln(case /
    baseline) of the block minima, one a block (none for the baseline); ``control_log_ratios``, with
    ``control_process``: the same for a second copy of the baseline. Empty arrays mean: not measured. ``stopped`` is
    ``precision``, ``max_seconds`` or ``fixed``.
    """

    protocol: str
    stopped: str
    calls_ns: Nanoseconds = field(default_factory=_no_ints)
    block: Nanoseconds = field(default_factory=_no_ints)
    baseline_ns: Nanoseconds = field(default_factory=_no_ints)
    baseline_block: Nanoseconds = field(default_factory=_no_ints)
    log_ratios: NDArray[np.float64] = field(default_factory=_no_floats)
    process: Nanoseconds = field(default_factory=_no_ints)
    control_log_ratios: NDArray[np.float64] = field(default_factory=_no_floats)
    control_process: Nanoseconds = field(default_factory=_no_ints)


def save(path: Path, samples: Samples) -> None:
    """Writes the samples as one compressed ``.npz``."""
    arrays: dict[str, Any] = {part.name: np.asarray(getattr(samples, part.name)) for part in fields(samples)}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load(path: Path) -> Samples:
    """Reads what ``save`` wrote."""
    with np.load(path, allow_pickle=False) as archive:
        values: dict[str, Any] = {
            part.name: str(archive[part.name]) if part.name in ("protocol", "stopped") else archive[part.name]
            for part in fields(Samples)
            if part.name in archive
        }
    return Samples(**values)
