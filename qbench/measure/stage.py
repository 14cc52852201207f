"""Stage 5 of a run: a group of artifacts -> samples on disk -> what a record says of latency."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from qbench.build import Artifact
from qbench.inputs import Data
from qbench.measure import estimate, samples
from qbench.measure.arm import INPUTS, ArmSpec
from qbench.measure.group import Measured, chunks, measure_group
from qbench.measure.protocol import Paired, Protocol, Sequential, Watch
from qbench.plan import Case
from qbench.process import Limits
from qbench.record import ColdStart, Latency, Memory, Speedup
from qbench.suite import MeasureSpec, Suite


@dataclass(frozen=True, kw_only=True)
class CaseLatency:
    """What a record says of one case's latency; ``reason`` is set where measuring failed."""

    reason: str | None
    observed: dict[str, Any] | None = None
    latency: Latency | None = None
    speedup: Speedup | None = None
    throughput_per_second: float | None = None
    cold_start: ColdStart | None = None
    memory: Memory | None = None
    samples: str | None = None

    def known(self) -> dict[str, Any]:
        """What a record takes over, by the record's own names."""
        return {part.name: getattr(self, part.name) for part in fields(self) if part.name != "reason"}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Measures groups of cases and keeps their raw samples in the run's folder."""

    suite: Suite
    data: Data
    cores: tuple[int, ...]
    folder: Path
    limits: Limits

    def measure(
        self, baseline: Case, contenders: Sequence[Case], artifacts: Mapping[str, Artifact], watch: Watch
    ) -> dict[str, CaseLatency]:
        """The latency of each case of a group, by case id."""
        import psutil

        base = self._spec(baseline, artifacts[baseline.id])
        specs = [self._spec(case, artifacts[case.id]) for case in contenders]
        sizes = {case.id: artifacts[case.id].size_bytes for case in (baseline, *contenders)}
        groups = chunks(specs, file_bytes=lambda spec: sizes[spec.case], free_bytes=psutil.virtual_memory().available)
        known: dict[str, CaseLatency] = {}
        for group in groups or [[]]:
            measured = measure_group(
                base, group, protocol=protocol_of(self.suite.measure), limits=self.limits, watch=watch
            )
            for case, result in measured.items():
                if case not in known:
                    known[case] = self._keep(case, baseline, measured[baseline.id], result)
        return known

    def _spec(self, case: Case, artifact: Artifact) -> ArmSpec:
        count = min(self.data.evaluation_count, INPUTS * case.batch_size)
        return ArmSpec(
            case=case.id,
            backend=case.variant.backend,
            file=artifact.file,
            threads=case.threads,
            batch_size=case.batch_size,
            # The last cores: the first one serves interrupts and, where there are two, the coordinator.
            cores=self.cores[-case.threads :],
            inputs=self.data.evaluation(0, count),
        )

    def _keep(self, case: str, baseline: Case, base: Measured, result: Measured) -> CaseLatency:
        facts = result.facts
        observed = facts.observed if facts else None
        if result.samples is None:
            return CaseLatency(reason=str(result.error), observed=observed)
        name = f"samples/{case.replace('/', '__')}.npz"
        samples.save(self.folder / name, result.samples)
        latency = estimate.latency(result.samples)
        of_baseline = case == baseline.id
        typical = latency.p50_seconds if latency.p50_seconds is not None else latency.mean_seconds
        return CaseLatency(
            reason=None,
            observed=observed,
            latency=latency,
            speedup=None if of_baseline else estimate.speedup(result.samples, baseline.id, base.samples),
            throughput_per_second=baseline.batch_size / typical if typical else None,
            cold_start=ColdStart(load_seconds=facts.load_seconds, first_call_seconds=facts.first_call_seconds)
            if facts
            else None,
            memory=Memory(loaded_rss_bytes=facts.loaded_rss_bytes, peak_rss_bytes=result.peak_rss_bytes)
            if facts
            else None,
            samples=name,
        )


def protocol_of(spec: MeasureSpec) -> Protocol:
    """The protocol that a suite asks for."""
    if spec.protocol == "sequential":
        return Sequential(warmup=spec.warmup_calls, calls=spec.calls)
    return Paired(
        precision=spec.precision,
        max_seconds=spec.max_seconds,
        half_width=estimate.half_width,
        seconds=time.monotonic,
        processes=spec.processes,
        warmup_calls=max(1, spec.warmup_calls),
        seed=spec.seed,
    )
