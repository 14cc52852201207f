"""The cores that cases are timed on, and what is known of them: more with each setting that is measured there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import CaseError
from qbench.machine import peak as peaks
from qbench.machine.peak import Peak
from qbench.measure import undisturbed_blocks
from qbench.measure.samples import Samples
from qbench.process.child_process import Limits
from qbench.progress.callback import Progress


@dataclass(kw_only=True)
class TimedCores:
    """Cores by number, and the peak of one of them (None where ``unknown`` says why); ``calm_ns`` is the least that the
    canary is known to take there, on the core alone."""

    numbers: tuple[int, ...]
    root: Path  # this machine's open cache, which keeps the peak
    limits: Limits
    peak: Peak | None = None
    unknown: str | None = None
    calm_ns: float | None = None

    @classmethod
    def look_at(
        cls, numbers: tuple[int, ...], root: Path, limits: Limits, progress: Progress | None = None
    ) -> TimedCores:
        """The cores with their peak: from the cache, or measured now in a few seconds."""
        cores = cls(numbers=numbers, root=root, limits=limits)
        cores._measure_peak(progress)
        if cores.peak is not None and cores.peak.canary_seconds:
            cores.calm_ns = cores.peak.canary_seconds * 1e9
        return cores

    def learn(self, timed: Iterable[Samples]) -> None:
        """Takes the level of the calm canary from what was timed."""
        self.calm_ns = undisturbed_blocks.lowest_level((samples.canary_ns for samples in timed), self.calm_ns)

    def mend_peak(self) -> None:
        """Measures the peak again where the canary shows that its core was shared then and is not now."""
        calm_seconds = None if self.calm_ns is None else self.calm_ns / 1e9
        if self.peak is not None and self.peak.is_shared(calm_seconds):
            self._measure_peak(None, calm_seconds)

    def _measure_peak(self, progress: Progress | None, calm_seconds: float | None = None) -> None:
        try:
            self.peak = peaks.measure_peak(
                self.root, limits=self.limits, cores=self.numbers, calm_seconds=calm_seconds, progress=progress
            )
        except CaseError as error:  # one that is known already is kept
            self.unknown = str(error) if self.peak is None else None
