"""The contract of a way to bisect: which candidates there are, and what each is run as."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from qbench.bisect.question import Way
from qbench.errors import CaseError
from qbench.measure.worker import WorkerSpec


class Absent(CaseError):
    """A candidate that cannot be had: not installed, not checked out, not built."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A candidate made ready: how it is loaded and timed, and what writes its answers to a file. ``digest``: of all
    that is run; two candidates with one digest are the same."""

    spec: WorkerSpec
    predict: Callable[[Path], None]
    digest: str


class Candidates(Protocol):
    """``names`` from the good end to the bad one; ``of`` and ``mended`` as in ``Question``."""

    way: Way
    names: tuple[str, ...]
    of: str
    mended: bool

    def open(self, place: int) -> Arm:
        """A candidate made ready. Raises ``Absent`` where it cannot be had, another ``CaseError`` where it fails."""
