"""A run as it goes: what all its stages share, and what is known so far by variant and by case."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from qbench.build import Artifact
from qbench.data import Data, Draw
from qbench.inputs import Model
from qbench.plan import Case, Plan
from qbench.process import Limits, end_all
from qbench.record import Accuracy
from qbench.run_folder import RunFolder
from qbench.run_ledger import Ledger
from qbench.slots import Slots
from qbench.suite import Suite

_ENDING_SECONDS = 0.2  # between two looks whether a thread has started another child while an interrupt ends them


class Progress(Protocol):
    """Who hears how a run goes."""

    def stage(self, name: str, total: int | None) -> None:
        """A stage begins, with that many steps if they are known."""

    def advance(self, text: str, share: float | None = None) -> None:
        """A step is done (``share`` None), or is that far (0 to 1)."""

    def note(self, text: str) -> None:
        """Something that the user should know."""


@dataclass(frozen=True, kw_only=True)
class Redrawn:
    """A variant that was built anew with the calibration subset of another seed; or why it could not be."""

    draw: Draw
    artifact: Artifact | None = None
    reason: str | None = None
    seconds: float = 0.0


@dataclass(kw_only=True)
class RunState:
    """One run: ``jobs`` is how many things happen beside each other while nothing is timed, ``cores`` is where cases
    are measured; ``predicted`` and ``accuracy`` are known by case id, ``redrawn`` by variant id."""

    suite: Suite
    plan: Plan
    folder: RunFolder
    ledger: Ledger
    root: Path
    cores: tuple[int, ...]
    jobs: int
    progress: Progress
    started: str
    elapsed: dict[str, float] = field(default_factory=dict)
    data: Data | None = None
    models: dict[str, Model] = field(default_factory=dict)
    redrawn: dict[str, list[Redrawn]] = field(default_factory=dict)
    predicted: dict[str, Path] = field(default_factory=dict)
    accuracy: dict[str, Accuracy] = field(default_factory=dict)
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    slots: Slots = field(init=False)

    def __post_init__(self) -> None:
        """Makes the places for processes that all evaluations of the run share."""
        self.slots = Slots(self.jobs)

    @property
    def limits(self) -> Limits:
        """What one request to a child may take."""
        return Limits(seconds=self.suite.limits.stage_seconds, memory_bytes=self.suite.limits.memory_bytes)

    @property
    def examples(self) -> Data:
        """The data of the run, once it is prepared."""
        assert self.data is not None
        return self.data

    def draws(self, mode: str) -> tuple[Draw, ...]:
        """The further calibration subsets with which variants of a mode are built, too."""
        return self.data.draws if self.data is not None and mode == "static" else ()

    def telling(self, what: str) -> Callable[[str, float], None]:
        """Tells how far a child is, under the name of what it works at."""
        return lambda text, share: self.progress.advance(f"{what}: {text}", share)

    def lacks(self, what: str, reason: str) -> None:
        """Notes what breaks no case; not while the user interrupts, since it is qbench that ended the children."""
        if not self.ledger.stopping:
            self.progress.note(f"{what}: {reason}")

    def took(self, cases: Sequence[Case], stage: str, started: float) -> None:
        """Keeps how long a stage took for these cases."""
        for case in cases:
            self.seconds[case.id, stage] = time.monotonic() - started

    def elapsed_of(self, case: Case) -> dict[str, float]:
        """Seconds by stage of one case."""
        return {stage: round(s, 3) for (name, stage), s in self.seconds.items() if name == case.id}

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Keeps how long a stage took as a whole."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.elapsed[stage] = time.monotonic() - started

    def each(self, name: str, things: Sequence[Any], work: Callable[[Any], None]) -> None:
        """Several at a time, one core each, while nothing is being timed."""
        with ThreadPoolExecutor(max_workers=self.jobs, thread_name_prefix=name) as pool:
            futures = [pool.submit(work, thing) for thing in things]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self.ledger.stopping = True
                pool.shutdown(wait=False, cancel_futures=True)
                # Else leaving the pool would wait for what the children are at, and for those that a thread starts yet.
                while not all(future.done() for future in futures):
                    end_all()
                    wait(futures, timeout=_ENDING_SECONDS)
                raise
