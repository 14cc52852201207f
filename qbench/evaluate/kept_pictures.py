"""Pictures of examples whose answers int8 changes, kept in a run's folder: one child makes all kinds of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.evaluate import scenes, text_changes, thumbnails
from qbench.process.child_process import Limits, call
from qbench.progress.callback import Progress

if TYPE_CHECKING:
    from qbench.data import Data


def keep(pairs: Sequence[tuple[Path, Path]], data: Data, folder: Path, *, limits: Limits, progress: Progress) -> int:
    """Writes ``flips/``, ``scenes/`` and ``lines/`` of a run's folder, in a child; returns how many pictures there are.

    ``pairs``: files of predictions, of an int8 variant and of its fp32. 0 where the examples are no images.
    """
    count: int = call(keep_here, tuple(pairs), data, folder, limits=limits, progress=progress)
    return count


def keep_here(pairs: Sequence[tuple[Path, Path]], data: Data, folder: Path, *, progress: Progress) -> int:
    """``keep`` in this process."""
    kinds = (thumbnails, scenes, text_changes)
    return sum(kind.keep_here(pairs, data, folder, progress=progress) for kind in kinds)
