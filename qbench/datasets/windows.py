"""Windows of documents as examples of a language model; what its data sets share.

A label is the document's number, then at each position the token that follows, -1 where none counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qbench.datasets.base import Array, Examples

NONE = -1  # in place of a token that does not count


@dataclass(frozen=True, kw_only=True)
class Windows:
    """How documents are cut: into ``length`` tokens every ``stride``, filled up with ``pad``; ``kinds`` as in
    ``Tokens``."""

    length: int
    stride: int
    pad: int
    kinds: tuple[str, ...] = ("ids",)

    def cut(self, names: Sequence[str], documents: Sequence[Array]) -> Examples:
        """The windows of all documents of two tokens or more, in their order; ids are ``<name>@<first token>``."""
        rows = [
            (number, start, counted)
            for number, document in enumerate(documents)
            for start, counted in self._find_windows(len(document))
        ]
        ids = np.full((len(rows), self.length), self.pad, dtype=np.int64)
        mask = np.zeros_like(ids)
        labels = np.full((len(rows), 1 + self.length), NONE, dtype=np.int64)
        for row, (number, start, counted) in enumerate(rows):
            document = documents[number]
            window, following = document[start : start + self.length], document[start + 1 : start + self.length + 1]
            ids[row, : len(window)], mask[row, : len(window)] = window, 1
            labels[row, 0] = number
            labels[row, 1 + counted : 1 + len(following)] = following[counted:]
        arrays = {"ids": ids, "mask": mask, "types": np.zeros_like(ids)}
        return Examples(
            inputs=tuple(arrays[kind] for kind in self.kinds),
            labels=labels,
            ids=tuple(f"{names[number]}@{start}" for number, start, _ in rows),
        )

    def _find_windows(self, count: int) -> Iterator[tuple[int, int]]:
        """Where the windows of a document of ``count`` tokens begin, and how many of its positions the windows before
        have counted; the last one ends where the document ends, if that is longer than a window."""
        last, start, end = count - 1, 0, 0  # no token follows the last
        while end < last:
            yield start, end - start
            end = min(start + self.length, last)
            start = min(start + self.stride, last - self.length)
