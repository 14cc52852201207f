"""The outputs of one artifact for every evaluation example, by as many processes as there are cores to spare."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.build import Artifact
from qbench.data import Data
from qbench.errors import CaseError, WorkerError
from qbench.evaluate.worker import Piece, open_session
from qbench.process.cpu_slots import Slots
from qbench.process.parent import Limits, Worker

Array = NDArray[Any]
Progress = Callable[[str, float], None]
Part = tuple[int, int]  # the positions of its first example and behind its last
PARTS = 32  # an evaluation has as many; between two of them a process gives its core back where it is waited for


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The first output of every example, and of each model input how many values the artifact clips (0 where it has no
    range)."""

    rows: Array
    outside: tuple[int, ...]


def outputs(
    artifact: Artifact, data: Data, size: int | None, *, slots: Slots, limits: Limits, progress: Progress
) -> Outputs:
    """The outputs, the same bit by bit however many processes share the work; ``size`` as ``pieces.Session`` has it.

    One process begins and finds the width; others join while ``slots`` has places to spare and memory is there. Raises
    ``EvaluateError``, ``WorkerError``.
    """
    with slots.one():
        crew = _Crew(lambda: Worker(open_session, artifact, data, size, limits=limits, name="evaluate"), slots)
        work = _Work(data.evaluation_count, limits.seconds, progress)
        try:
            with crew.hire() as worker:
                worker.ready()
                crew.width, piece = worker.ask("begin")
                work.begin(piece, crew.width)
                while work.open:
                    while (part := work.take()) is not None:
                        crew.grow(work, worker)
                        work.keep(worker.ask("piece", *part, crew.width))
                    crew.join()  # a helper that ran out of memory has put its part back
        finally:
            work.end()
            crew.join()
        return work.outputs()


class _Work:
    """The parts that are still to do and the pieces that are done; several threads take from it."""

    def __init__(self, count: int, seconds: float, progress: Progress) -> None:
        self._count, self._progress = count, progress
        self._seconds, self._deadline = seconds, time.monotonic() + seconds
        self._lock = threading.Lock()
        self._parts: list[Part] = []
        self._pieces: list[Piece] = []
        self._error: CaseError | None = None

    def begin(self, piece: Piece, width: int) -> None:
        """What follows the first piece, in parts of whole batches."""
        first = len(piece.outputs)
        length = -(-(self._count - first) // (PARTS * width)) * width
        self._parts = [(at, min(at + length, self._count)) for at in range(first, self._count, max(length, 1))]
        self._parts.reverse()
        self.keep(piece)

    @property
    def open(self) -> bool:
        """Whether there are parts left; raises what a helper found wrong with the artifact."""
        if self._error is not None:
            raise self._error
        return bool(self._parts)

    @property
    def left(self) -> int:
        """How many parts nobody has taken."""
        return len(self._parts)

    def take(self) -> Part | None:
        """The next part; None where there is none."""
        with self._lock:
            return self._parts.pop() if self._parts else None

    def put_back(self, part: Part) -> None:
        """A part that could not be done here."""
        with self._lock:
            self._parts.append(part)

    def keep(self, piece: Piece) -> None:
        """A piece that is done; raises ``WorkerError`` where all together take too long."""
        with self._lock:
            self._pieces.append(piece)
            examples = sum(len(kept_piece.outputs) for kept_piece in self._pieces)
        self._progress("evaluate", examples / self._count)
        if time.monotonic() > self._deadline and examples < self._count:
            raise WorkerError(
                f"took longer than {self._seconds:g} s and was stopped; raise limits.stage_seconds if it needs more"
            )

    def fail(self, error: CaseError) -> None:
        """Ends the work with an error, which ``open`` raises."""
        self._error = error
        self.end()

    def end(self) -> None:
        """Nobody gets another part."""
        with self._lock:
            self._parts.clear()

    def outputs(self) -> Outputs:
        """All pieces in order."""
        pieces = sorted(self._pieces, key=lambda piece: piece.start)
        return Outputs(
            rows=np.concatenate([piece.outputs for piece in pieces]),
            outside=tuple(sum(column) for column in zip(*(piece.outside for piece in pieces), strict=True)),
        )


class _Crew:
    """The processes beside the first: each has a thread that asks it for one part after the other."""

    def __init__(self, hire: Callable[[], Worker], slots: Slots) -> None:
        self.hire, self._slots = hire, slots
        self.width = 0
        self._threads: list[threading.Thread] = []
        self._short = False  # of memory

    def grow(self, work: _Work, first: Worker) -> None:
        """More processes, as far as there are parts, places and memory for them."""
        room = 0 if self._short else _room_beside(first)
        while room > 0 and work.left and not self._short and self._slots.spare():
            thread = threading.Thread(target=self._help, args=(work,), name="evaluate-helper", daemon=True)
            self._threads.append(thread)
            thread.start()
            room -= 1

    def join(self) -> None:
        """Waits for all of them."""
        for thread in self._threads:
            thread.join()

    def _help(self, work: _Work) -> None:
        part: Part | None = None
        try:
            with self.hire() as worker:
                worker.ready()
                while not self._slots.wanted and (part := work.take()) is not None:
                    piece = worker.ask("piece", *part, self.width)
                    part = None
                    work.keep(piece)
        except (WorkerError, OSError):  # most often memory: the first process goes on alone
            self._short = True
            if part is not None:
                work.put_back(part)
        except CaseError as error:
            work.fail(error)
        finally:
            self._slots.give()


def _room_beside(worker: Worker) -> int:
    """How many more such processes fit in half of the memory that is free."""
    import psutil

    try:
        return int(psutil.virtual_memory().available // (2 * psutil.Process(worker.pid).memory_info().rss))
    except (psutil.Error, ZeroDivisionError):
        return 0
