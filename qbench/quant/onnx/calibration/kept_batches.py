"""Batches that another process takes: kept in files, one at a time in memory."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qbench.quant.onnx.calibration.batches import Batch, Batches, plain


@dataclass(frozen=True)
class Kept:
    """Batches in files; each call reads them again, in their order."""

    files: tuple[Path, ...]

    def __call__(self) -> Iterator[Batch]:
        """One pass over them."""
        for file in self.files:
            with file.open("rb") as stream:
                yield pickle.load(stream)


def keep(batches: Batches, folder: Path, examples: int) -> Kept:
    """The first batches, as many as surely hold that many examples, as files in ``folder``; only this process and those
    that it tells of them may write there."""
    files: list[Path] = []
    total = 0
    for batch in batches() if callable(batches) else batches:
        arrays = plain(batch)
        files.append(folder / f"batch{len(files)}.pickle")
        with files[-1].open("wb") as stream:
            pickle.dump(arrays, stream, protocol=pickle.HIGHEST_PROTOCOL)
        total += _shortest(arrays)
        if total >= examples:
            break
    return Kept(tuple(files))


def _shortest(batch: Batch) -> int:
    """How many examples a batch holds at least, whichever of its arrays counts them."""
    arrays = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list) else [batch]
    return max(1, min((len(array) for array in arrays if getattr(array, "ndim", 0)), default=1))
