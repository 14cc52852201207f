"""Which of the things to do a worker does next: what shares work with what it did last, beside what others do."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Sequence


class WorkQueue:
    """The positions of things of several kinds, each taken once. Those of one kind share work, so one worker does them
    one after the other; a worker that finds no kind that nobody has begun helps with the one that has most left."""

    def __init__(self, kinds: Sequence[Hashable]) -> None:
        self._waiting: dict[Hashable, deque[int]] = {}
        for position, kind in enumerate(kinds):
            self._waiting.setdefault(kind, deque()).append(position)
        self._fresh = deque(self._waiting)
        self._last: dict[int, Hashable] = {}  # by worker
        self._lock = threading.Lock()

    def take(self, worker: int | None = None) -> int:
        """The next position for a worker (None: this thread); raises ``IndexError`` where none is left."""
        worker = threading.get_ident() if worker is None else worker
        with self._lock:
            kind = self._last.get(worker)
            if kind not in self._waiting:
                kind = self._choose_kind()
            self._last[worker] = kind
            position = self._waiting[kind].popleft()
            if not self._waiting[kind]:
                del self._waiting[kind]
            return position

    def _choose_kind(self) -> Hashable:
        while self._fresh:
            kind = self._fresh.popleft()
            if kind in self._waiting:
                return kind
        if not self._waiting:
            raise IndexError("nothing is left to do")
        return max(self._waiting, key=lambda kind: len(self._waiting[kind]))
