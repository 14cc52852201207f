"""The outputs of one artifact for every evaluation example, by as many processes as there are cores to spare."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from qbench.errors import CaseError, NodeLost, WorkerError
from qbench.evaluate.older_cpu import Sums
from qbench.evaluate.worker import Evaluation, PartOutputs, join_rows, open_predictor
from qbench.models.postprocess import join_answers
from qbench.process.child_process import Limits, Worker
from qbench.process.cpu_slots import Slots
from qbench.progress.callback import Progress

Array = NDArray[Any]
Part = tuple[int, int]  # the positions of its first example and behind its last
PARTS = 32  # an evaluation has as many; between two of them a process gives its core back where it is waited for


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The first output of every example, and of each model input how many values the artifact clips (0 where it has no
    range); ``others`` by position, and ``answers`` (``PartOutputs``); of predicted ones the sums of each layer."""

    rows: Array
    outside: tuple[int, ...]
    answers: Array | None
    others: Mapping[int, Array]
    sums: Sums


def compute_outputs(
    evaluation: Evaluation,
    *,
    environment: Mapping[str, str] = MappingProxyType({}),
    slots: Slots,
    start_worker: Callable[..., Any],
    limits: Limits,
    progress: Progress,
) -> Outputs:
    """The outputs, the same bit by bit however many processes share the work; ``environment`` are variables of the
    processes. ``start_worker`` starts one as ``child_process.Worker`` does, here or on another machine.

    One process begins and finds the width; others join while ``slots`` has places to spare and memory is there. Raises
    ``EvaluateError``, ``WorkerError``.
    """
    with slots.occupy():
        helpers = _Helpers(
            lambda: start_worker(open_predictor, evaluation, limits=limits, environment=environment, name="evaluate"),
            slots,
        )
        parts = _OpenParts(evaluation.data.evaluation_count, limits.seconds, progress)
        try:
            with helpers.start_worker() as worker:
                worker.ready()
                helpers.width, first = worker.ask("predict_first")
                parts.split(first, helpers.width)
                while parts.open:
                    while (part := parts.take()) is not None:
                        helpers.start(parts, worker)
                        parts.add(worker.ask("predict", *part, helpers.width))
                    helpers.wait()  # a helper that ran out of memory has put its part back
        finally:
            parts.clear()
            helpers.wait()
        return parts.join_outputs()


class _OpenParts:
    """The parts that are still to do and the outputs of those that are done; several threads take from it."""

    def __init__(self, count: int, seconds: float, progress: Progress) -> None:
        self._count, self._progress = count, progress
        self._seconds, self._deadline = seconds, time.monotonic() + seconds
        self._lock = threading.Lock()
        self._parts: list[Part] = []
        self._outputs: list[PartOutputs] = []
        self._error: CaseError | None = None

    def split(self, first: PartOutputs, width: int) -> None:
        """Cuts what follows the first outputs into parts of whole batches."""
        start = first.stop
        length = -(-(self._count - start) // (PARTS * width)) * width
        self._parts = [(at, min(at + length, self._count)) for at in range(start, self._count, max(length, 1))]
        self._parts.reverse()
        self.add(first)

    @property
    def open(self) -> bool:
        """Whether there are parts left; raises what a helper found wrong with the artifact."""
        if self._error is not None:
            raise self._error
        return bool(self._parts)

    @property
    def remaining(self) -> int:
        """How many parts nobody has taken."""
        return len(self._parts)

    def take(self) -> Part | None:
        """The next part; None where there is none."""
        with self._lock:
            return self._parts.pop() if self._parts else None

    def put_back(self, part: Part) -> None:
        """Returns a part that could not be done here."""
        with self._lock:
            self._parts.append(part)

    def add(self, outputs: PartOutputs) -> None:
        """Takes the outputs of a part; raises ``WorkerError`` where all together take too long."""
        with self._lock:
            self._outputs.append(outputs)
            examples = sum(part.stop - part.start for part in self._outputs)
        self._progress("evaluate", examples / self._count)
        if time.monotonic() > self._deadline and examples < self._count:
            raise WorkerError(
                f"took longer than {self._seconds:g} s and was stopped; raise limits.stage_seconds if it needs more"
            )

    def fail(self, error: CaseError) -> None:
        """Ends the work with an error, which ``open`` raises."""
        self._error = error
        self.clear()

    def clear(self) -> None:
        """Drops the parts that nobody has taken."""
        with self._lock:
            self._parts.clear()

    def join_outputs(self) -> Outputs:
        """Those of all parts, in order."""
        parts = sorted(self._outputs, key=lambda part: part.start)
        others = join_rows([{0: part.outputs, **part.others} for part in parts])
        answers = [part.answers for part in parts if part.answers is not None]
        return Outputs(
            rows=others.pop(0),
            answers=join_answers(answers) if answers else None,
            others=others,
            outside=tuple(sum(column) for column in zip(*(part.outside for part in parts), strict=True)),
            sums={name: _add_sums(part.sums[name] for part in parts) for name in parts[0].sums},
        )


def _add_sums(counts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    totals, saturated = zip(*counts, strict=True)
    return sum(totals), sum(saturated)


class _Helpers:
    """The processes beside the first: each has a thread that asks it for one part after the other."""

    def __init__(self, start_worker: Callable[[], Worker], slots: Slots) -> None:
        self.start_worker, self._slots = start_worker, slots
        self.width = 0
        self._threads: list[threading.Thread] = []
        self._short = False  # of memory

    def start(self, parts: _OpenParts, first: Worker) -> None:
        """More processes, as far as there are parts, places and memory for them."""
        room = first.count_room()
        while room > 0 and parts.remaining and not self._short and self._slots.take_spare():
            thread = threading.Thread(target=self._help, args=(parts,), name="evaluate-helper", daemon=True)
            self._threads.append(thread)
            thread.start()
            room -= 1

    def wait(self) -> None:
        """Waits for all of them."""
        for thread in self._threads:
            thread.join()

    def _help(self, parts: _OpenParts) -> None:
        part: Part | None = None
        try:
            with self.start_worker() as worker:
                worker.ready()
                while not self._slots.is_waited_for and (part := parts.take()) is not None:
                    outputs = worker.ask("predict", *part, self.width)
                    part = None
                    parts.add(outputs)
        except (WorkerError, OSError) as error:  # most often memory: the first process goes on alone
            self._short = self._short or not isinstance(error, NodeLost)
            if part is not None:
                parts.put_back(part)
        except CaseError as error:
            parts.fail(error)
        finally:
            self._slots.give_back()
