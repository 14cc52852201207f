"""A group is measured: one process per case, the protocol's rounds, and what each process said of itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from qbench import registry
from qbench.errors import CaseError
from qbench.measure.protocol import CONTROL, Earlier, Keep, Protocol, Watch
from qbench.measure.samples import BlockTiming, Samples
from qbench.measure.worker import LocalWorker, WorkerFacts, WorkerSpec
from qbench.process import imports
from qbench.process.child_process import Limits, Worker
from qbench.progress.callback import Progress, tell_nobody


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What measuring gave for one case: samples, or the error that ended it; the facts of each of its processes."""

    samples: Samples | None
    error: CaseError | None
    facts: tuple[WorkerFacts, ...]
    peak_rss_bytes: int | None


class RemoteWorker:
    """A worker in a process of its own; what it says of itself is kept when it closes."""

    def __init__(self, spec: WorkerSpec, *, limits: Limits, fresh: bool) -> None:
        self.facts: WorkerFacts | None = None
        self.peak_rss_bytes: int | None = None
        modules = ("qbench.measure.worker", *registry.load("backend", spec.backend).modules)
        self._worker = Worker(
            LocalWorker,
            spec,
            limits=limits,
            cores=spec.cores,
            fresh=fresh or imports.CORES in spec.environment,  # the server of the others has imported what they use
            imports=modules,
            environment=spec.environment,
            name=spec.case,
        )

    def load(self) -> None:
        """Loads the artifact and keeps what that showed; raises ``CaseError`` where it cannot be, or is not as set."""
        self._worker.ready()
        self.facts = self._worker.ask("facts")

    def block(self, calls: int) -> BlockTiming:
        """That many calls."""
        timing: BlockTiming = self._worker.ask("block", calls)
        return timing

    def close(self) -> None:
        """Asks for the peak of its memory and ends the process."""
        with contextlib.suppress(CaseError):
            self.peak_rss_bytes = self._worker.ask("peak_rss_bytes")
        self._worker.close()


def measure_group(
    baseline: WorkerSpec,
    contenders: Sequence[WorkerSpec],
    *,
    protocol: Protocol,
    limits: Limits,
    fresh: bool = False,
    watch: Watch = lambda case: None,
    tell: Progress = tell_nobody,
    earlier: Earlier = MappingProxyType({}),
    keep: Keep = lambda known: None,
    open_remote: Callable[..., Any] = RemoteWorker,
) -> dict[str, Measured]:
    """What was measured of the baseline and of every contender, by case.

    The baseline comes from this group's own blocks, so a contender's ratio and both latencies belong together.
    """
    specs = {spec.case: spec for spec in (baseline, *contenders)}
    opened: dict[str, list[Any]] = {}

    def open_worker(case: str) -> Any:
        spec = baseline if case == CONTROL else specs[case]
        worker = open_remote(spec, limits=limits, fresh=fresh)
        opened.setdefault(spec.case, []).append(worker)  # the control is one more process of the baseline
        return worker

    names = [spec.case for spec in contenders]
    outcome = protocol.measure(baseline.case, names, open_worker, watch, tell=tell, earlier=earlier, keep=keep)
    return {case: _gather_result(result, opened.get(case, [])) for case, result in outcome.items()}


def _gather_result(result: Samples | CaseError, workers: list[Any]) -> Measured:
    return Measured(
        samples=None if isinstance(result, CaseError) else result,
        error=result if isinstance(result, CaseError) else None,
        facts=tuple(worker.facts for worker in workers if worker.facts is not None),
        peak_rss_bytes=max_known(worker.peak_rss_bytes for worker in workers),
    )


def max_known(peaks: Iterable[int | None]) -> int | None:
    """The largest of those that are told; None where none is."""
    return max((peak for peak in peaks if peak is not None), default=None)


def cold_starts(spec: WorkerSpec, count: int, *, limits: Limits) -> tuple[list[WorkerFacts], int | None]:
    """The facts of that many more processes, each loaded, called five times and ended, and the largest peak of their
    memory. Raises ``CaseError``."""
    facts, peaks = [], []
    for _ in range(count):
        worker = RemoteWorker(spec, limits=limits, fresh=False)
        try:
            worker.load()
        finally:
            worker.close()
        if worker.facts is not None:
            facts.append(worker.facts)
        peaks.append(worker.peak_rss_bytes)
    return facts, max_known(peaks)
