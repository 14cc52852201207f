"""The time that a check has: a file that does not end must not hold a person up once for each process that reads it."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from qbench.process.child_process import Limits

_SECONDS = 100.0  # of a file of no size; 23 are used for 104 MB where nothing else runs (check_time.py)
_SECONDS_OF_BYTE = 1e-6
_LEAST = 5.0  # a process that has less is not worth starting


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When a check ends, on ``clock``, in seconds."""

    ends: float
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    @property
    def limits(self) -> Limits:
        """What the next process may take: half of the time that is left, so that one that does not end leaves some to
        those after it."""
        return Limits(seconds=round(max(_LEAST, (self.ends - self.clock()) / 2), 1))


def open_budget(file: Path, clock: Callable[[], float] = time.monotonic) -> Budget:
    """The budget of a file, from now on, by its size and that of the files beside it whose names begin with its own,
    as those of its weights do."""
    beside = file.parent.glob(f"{glob.escape(file.stem)}*")
    size = sum(path.stat().st_size for path in beside if path.is_file())
    return Budget(ends=clock() + _SECONDS + _SECONDS_OF_BYTE * size, clock=clock)
