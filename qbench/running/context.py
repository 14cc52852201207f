"""What all stages of a run share: the run's folder and cases, the cache, the cores, the progress."""

from __future__ import annotations

import contextlib
import datetime
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from qbench.fleet.fleet import Fleet
from qbench.process.child_process import Limits, end_all
from qbench.process.memory_room import MemoryRoom
from qbench.process.place import Place
from qbench.process.work_queue import WorkQueue
from qbench.progress.callback import Progress
from qbench.running.case_tracker import CaseTracker
from qbench.running.directory import RunDirectory

Item = TypeVar("Item")
Result = TypeVar("Result")
_ENDING_SECONDS = 0.2  # between two checks whether a thread has started another child while an interrupt ends them


class RunProgress(Protocol):
    """Who hears how a run goes."""

    def stage(self, name: str, total: int | None) -> None:
        """A stage begins, with that many steps if they are known."""

    def advance(self, text: str, share: float | None = None) -> None:
        """A step is done (``share`` None), or is that far (0 to 1)."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    def expect(self, seconds: Mapping[str, float]) -> None:
        """What the stages of this run will take, as far as earlier runs tell."""

    def reach(self, share: float) -> None:
        """The stage as a whole is that far, 0 to 1: told where its steps do not."""


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What every stage of a run is given beside the results of the stages before it.

    ``limits`` is what one request to a child may take, ``cache`` the open cache's root, ``cores`` are where cases are
    measured, ``jobs`` is how many things happen beside each other while nothing is timed, ``here`` is this machine as a
    place for processes, ``memory`` what they share, ``fleet`` are the nodes of the cluster that the run is on (None: it
    is on this machine alone). ``kept``: by variant the files of an earlier run, which are taken as they are (None: all
    is built). ``train_qat``: QAT that the cache does not hold is trained; ``emulated_samples``: how
    many examples an emulated host answers.
    """

    directory: RunDirectory
    tracker: CaseTracker
    limits: Limits
    cache: Path
    cores: tuple[int, ...]
    jobs: int
    here: Place
    memory: MemoryRoom
    progress: RunProgress
    train_qat: bool
    emulated_samples: int
    fleet: Fleet | None = None
    kept: Mapping[str, Path] | None = None

    def find_place(self, host: str) -> Place:
        """Where the processes of a host run: on the nodes of its class, else on this machine."""
        of_host = None if self.fleet is None else self.fleet.find_class(host)
        return self.here if self.fleet is None or of_host is None else self.fleet.place(of_host.label)

    def report_under(self, name: str) -> Progress:
        """A function that reports how far a child is, under the name of what it works at."""
        return lambda text, share: self.progress.advance(f"{name}: {text}", share)

    def warn(self, text: str) -> None:
        """Notes what touches the answer: shown as it happens, and kept as a warning of the run."""
        self.progress.note(text)
        self.directory.write_note(text)

    def note_missing(self, name: str, reason: str) -> None:
        """Notes a failure that breaks no case; silent while the user interrupts, when qbench itself ends children."""
        if not self.tracker.stopping:
            self.progress.note(f"{name}: {reason}")

    @property
    def jobs_here(self) -> int:
        """How many things happen beside each other on this machine, where ``jobs`` counts those on nodes, too."""
        return self.jobs if self.fleet is None else min(self.jobs, len(self.fleet.own.cores))

    @contextlib.contextmanager
    def occupy_core(self) -> Iterator[None]:
        """Waits for a core of this machine in a thread that waits for a node otherwise."""
        with contextlib.nullcontext() if self.fleet is None else self.here.slots.occupy():
            yield

    def run_parallel(
        self,
        name: str,
        items: Sequence[Item],
        work: Callable[[Item], Result],
        *,
        jobs: int | None = None,
        kind: Callable[[Item], Hashable] | None = None,
    ) -> list[Result]:
        """The result for each item, in order; ``jobs`` items at a time, one core each, while nothing is being timed.
        Items of one ``kind`` share work, so one thread does them one after the other (None: each is its own)."""
        queue = WorkQueue([index if kind is None else kind(item) for index, item in enumerate(items)])

        def work_next() -> tuple[int, Result]:
            index = queue.take()
            return index, work(items[index])

        with ThreadPoolExecutor(max_workers=jobs or self.jobs, thread_name_prefix=name) as pool:
            futures = [pool.submit(work_next) for _ in items]
            try:
                return [result for _, result in sorted((f.result() for f in futures), key=operator.itemgetter(0))]
            except BaseException:
                self.tracker.stopping = True
                pool.shutdown(wait=False, cancel_futures=True)
                if self.fleet is not None:
                    self.fleet.cancel()
                # Otherwise leaving the pool waits for the children, and for those that its threads still start.
                while not all(future.done() for future in futures):
                    end_all()
                    wait(futures, timeout=_ENDING_SECONDS)
                raise


def now() -> str:
    """The time as records write it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
