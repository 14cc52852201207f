"""The two protocols behind one interface: pure schedulers over workers, with the clock and the random order given.

``paired`` answers "how much faster?" on a noisy machine: short blocks of the baseline and of each contender in
random order, block minima, log ratios of neighbours. ``sequential`` is the literature's way (10 warm-up calls, 100
timed calls, mean, one model after the other), so that its figures can be reproduced.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol as Interface

import numpy as np

from qbench.errors import CaseError
from qbench.measure.samples import BlockTiming, Samples, canary_rows, counts, shares
from qbench.progress.callback import Progress, tell_nobody

CONTROL = "control"


class TimedWorker(Interface):
    """A loaded case that can be called."""

    def load(self) -> None:
        """Waits until the case is loaded; raises ``CaseError`` where that fails."""

    def block(self, calls: int) -> BlockTiming:
        """That many calls; raises ``CaseError`` when the worker has died or hangs."""

    def close(self) -> None:
        """Ends the worker."""


OpenWorker = Callable[[str], TimedWorker]
Seconds = Callable[[], float]
Watch = Callable[[str], None]
Outcome = dict[str, "Samples | CaseError"]
Earlier = Mapping[str, Samples]
Keep = Callable[[Earlier], None]


class Protocol(ABC):
    """How a group of cases is timed. A group is one baseline and the contenders that are compared with it."""

    name: str

    @abstractmethod
    def measure(
        self,
        baseline: str,
        contenders: Sequence[str],
        open_worker: OpenWorker,
        watch: Watch,
        *,
        tell: Progress = tell_nobody,
        earlier: Earlier = MappingProxyType({}),
        keep: Keep = lambda known: None,
    ) -> Outcome:
        """Samples, or the error that ended it, of the baseline and of every contender.

        ``open_worker(case)`` starts a case's process; the name ``control`` opens a second copy of the baseline.
        ``watch(case)`` hears of each case that is done, ``tell`` what is being measured, and what is left. A worker
        that dies ends its own case only. ``keep`` is handed what is known so far, as often as it is worth keeping;
        ``earlier`` is what a killed run kept: it goes on there.
        """


@dataclass(frozen=True, kw_only=True)
class SequentialProtocol(Protocol):
    """Each case alone in a fresh process: ``warmup`` calls unseen, then ``calls`` timed ones."""

    warmup: int = 10
    calls: int = 100
    name: str = "sequential"

    def measure(
        self,
        baseline: str,
        contenders: Sequence[str],
        open_worker: OpenWorker,
        watch: Watch,
        *,
        tell: Progress = tell_nobody,
        earlier: Earlier = MappingProxyType({}),
        keep: Keep = lambda known: None,
    ) -> Outcome:
        """One case after the other; no ratios of neighbours, so no interval on the speed-up."""
        outcome: Outcome = {}
        cases = (baseline, *contenders)
        for number, case in enumerate(cases):
            tell(f"{case}: alone in its process, {number + 1} of {len(cases)} here", number / len(cases))
            try:
                outcome[case] = self._alone(case, open_worker)
            except CaseError as error:
                outcome[case] = error
            watch(case)
        return outcome

    def _alone(self, case: str, open_worker: OpenWorker) -> Samples:
        worker = open_worker(case)
        try:
            worker.load()
            worker.block(self.warmup)
            timing = worker.block(self.calls)
        finally:
            worker.close()
        block = np.zeros(len(timing.calls_ns), dtype=np.int64)
        return Samples(
            protocol=self.name,
            stopped="fixed",
            calls_ns=timing.calls_ns,
            block=block,
            process=np.zeros(1, dtype=np.int64),
            involuntary=counts([timing.involuntary]),
            faults=counts([timing.faults]),
            off_core=shares([timing.off_core]),
            canary_ns=canary_rows([timing.canary_ns]),
        )
