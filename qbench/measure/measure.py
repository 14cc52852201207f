"""Stage 5 of a run: a group of artifacts -> samples on disk -> what a record says of latency."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qbench.build import Artifact
from qbench.errors import CaseError
from qbench.machine import canary
from qbench.measure import estimates, samples
from qbench.measure.group import Measured, cold_starts, measure_group, split_by_memory
from qbench.measure.paired import Paired
from qbench.measure.protocol import Protocol, Tell, Watch
from qbench.measure.protocol import Sequential as SequentialProtocol
from qbench.measure.unfinished_group import Checkpoint
from qbench.measure.worker import INPUTS, WorkerSpec
from qbench.network import Data
from qbench.plan.planner import Case
from qbench.process.parent import Limits
from qbench.record.schema import ColdStart, Fastest, Interference, Latency, Memory, Sequential, Speedup
from qbench.stats.interval_type import Interval
from qbench.suite import MeasureSpec, Suite


@dataclass(frozen=True, kw_only=True)
class CaseLatency:
    """What a record says of one case's latency; ``reason`` is set where measuring failed."""

    reason: str | None
    observed: dict[str, Any] | None = None
    latency: Latency | None = None
    speedup: Speedup | None = None
    speedup_fastest: Fastest | None = None
    sequential: Sequential | None = None
    interference: Interference | None = None
    throughput_per_second: float | None = None
    cold_start: ColdStart | None = None
    memory: Memory | None = None
    samples: str | None = None


@dataclass(kw_only=True)
class GroupMeasurer:
    """Measures groups of cases, one after the other, and keeps their raw samples in the run's folder."""

    suite: Suite
    data: Data
    cores: tuple[int, ...]
    folder: Path
    limits: Limits
    calm_ns: float | None = None  # what the canary is known to take on this core alone; less as soon as it is seen
    _checkpoints: list[Checkpoint] = field(default_factory=list)
    _fp32: dict[tuple[str, str], Interval] = field(default_factory=dict)  # (baseline, rival): the rival's speed-up

    def measure(
        self,
        baseline: Case,
        contenders: Sequence[Case],
        rivals: Sequence[Case],
        artifacts: Mapping[str, Artifact],
        watch: Watch,
        *,
        tell: Tell = lambda text, share: None,
        done: Container[str] = (),
    ) -> dict[str, CaseLatency]:
        """The latency of each case of a group that is not ``done``, by case id.

        ``rivals`` are the fp32 cases of other backends (same model, threads, batch): measured as contenders, so that
        every case of the group can be held against the fastest fp32, and reported by their own groups.
        """
        base = self._specify_worker(baseline, artifacts[baseline.id])
        # Two fp32 are held against each other once: the second group takes the inverse of what the first one saw.
        unknown = [case for case in rivals if (case.id, baseline.id) not in self._fp32]
        others = [self._specify_worker(case, artifacts[case.id]) for case in unknown]
        sizes = {case.id: artifacts[case.id].size_bytes for case in (*contenders, *rivals)}
        specs = [self._specify_worker(case, artifacts[case.id]) for case in contenders]
        known: dict[str, CaseLatency] = {}
        for group in self._split_groups(specs, others, sizes):
            measured = self._measure_paired(base, group, watch, tell)
            alone = self._measure_alone(base, group, tell)
            self._fp32.update(_list_speedups(measured, baseline.id, [spec.case for spec in others]))
            against = self._list_rival_speedups(baseline.id, [case.id for case in rivals])
            for spec in (base, *group):
                if spec.case not in known and spec.case not in done and spec not in others:
                    result = self._with_cold_starts(spec, measured[spec.case])
                    known[spec.case] = self._store_latency(
                        spec, baseline, measured[baseline.id], result, against, alone
                    )
        return known

    def _list_rival_speedups(self, baseline: str, rivals: Sequence[str]) -> dict[str, Interval]:
        """The speed-up of each rival over the baseline, as far as one of their groups has told."""
        speedups = {}
        for rival in rivals:
            if (speedup := self._fp32.get((baseline, rival))) is not None:
                speedups[rival] = speedup
            elif (speedup := self._fp32.get((rival, baseline))) is not None:
                low, high = (None if limit is None else 1 / limit for limit in (speedup.high, speedup.low))
                speedups[rival] = Interval(value=1 / speedup.value, low=low, high=high)
        return speedups

    def _split_groups(
        self, specs: list[WorkerSpec], others: list[WorkerSpec], sizes: Mapping[str, int]
    ) -> list[list[WorkerSpec]]:
        import psutil

        free = psutil.virtual_memory().available
        groups = split_by_memory(specs, file_bytes=lambda spec: sizes[spec.case], free_bytes=free) or [[]]
        return [[*group, *others] for group in groups]

    def _measure_paired(
        self, base: WorkerSpec, group: list[WorkerSpec], watch: Watch, tell: Tell
    ) -> dict[str, Measured]:
        checkpoint = Checkpoint(self.folder / "samples", base.case, [spec.case for spec in group])
        measured = measure_group(
            base,
            group,
            protocol=protocol_of(self.suite.measure),
            limits=self.limits,
            watch=watch,
            tell=tell,
            earlier=checkpoint.read(),
            keep=checkpoint.write,
        )
        self._checkpoints.append(checkpoint)
        return measured

    def remove_checkpoints(self) -> None:
        """Removes what was kept of groups whose cases are recorded now."""
        while self._checkpoints:
            self._checkpoints.pop().remove()

    def _measure_alone(self, base: WorkerSpec, group: list[WorkerSpec], tell: Tell) -> dict[str, Measured]:
        """The sequential protocol beside the paired one, where the suite asks for both."""
        spec = self.suite.measure
        if spec.protocol != "both":
            return {}
        protocol = SequentialProtocol(warmup=spec.warmup_calls, calls=spec.calls)
        return measure_group(base, group, protocol=protocol, limits=self.limits, tell=tell)

    def _with_cold_starts(self, spec: WorkerSpec, result: Measured) -> Measured:
        missing = self.suite.measure.cold_starts - len(result.facts)
        if result.samples is None or missing <= 0:
            return result
        try:
            return replace(result, facts=(*result.facts, *cold_starts(spec, missing, limits=self.limits)))
        except CaseError:  # it was measured; fewer cold starts are no reason to lose that
            return result

    def _specify_worker(self, case: Case, artifact: Artifact) -> WorkerSpec:
        count = min(self.data.evaluation_count, INPUTS * case.batch_size)
        return WorkerSpec(
            case=case.id,
            backend=case.variant.backend,
            file=artifact.file,
            threads=case.threads,
            batch_size=case.batch_size,
            # The last cores: the first one serves interrupts and, where there are two, the coordinator.
            cores=self.cores[-case.threads :],
            inputs=self.data.evaluation(0, count),
        )

    def _store_latency(
        self,
        spec: WorkerSpec,
        baseline: Case,
        base: Measured,
        result: Measured,
        against: Mapping[str, Interval],
        alone: Mapping[str, Measured],
    ) -> CaseLatency:
        observed = result.facts[0].observed if result.facts else None
        if result.samples is None:
            return CaseLatency(reason=str(result.error), observed=observed)
        name = f"samples/{spec.case.replace('/', '__')}.npz"
        try:
            samples.save(self.folder / name, result.samples)
        except OSError as error:
            return CaseLatency(reason=f"its samples cannot be written: {error.strerror or error}", observed=observed)
        self.calm_ns = canary.calm_level(result.samples.canary_ns, self.calm_ns)
        latency = estimates.latency(result.samples, self.calm_ns)
        of_baseline = spec.case == baseline.id
        speedup = None if of_baseline else estimates.speedup(result.samples, baseline.id, base.samples)
        typical = latency.p50_seconds if latency.p50_seconds is not None else latency.mean_seconds
        return CaseLatency(
            reason=None,
            observed=observed,
            latency=latency,
            speedup=speedup,
            speedup_fastest=estimates.over_fastest(speedup, baseline.id, against) if speedup or of_baseline else None,
            sequential=self._sequential(spec.case, baseline.id, alone),
            interference=estimates.interference(result.samples, self.calm_ns),
            throughput_per_second=spec.batch_size / typical if typical else None,
            cold_start=estimates.cold_start(result.facts),
            memory=Memory(loaded_rss_bytes=result.facts[0].loaded_rss_bytes, peak_rss_bytes=result.peak_rss_bytes)
            if result.facts
            else None,
            samples=name,
        )

    def _sequential(self, case: str, baseline: str, alone: Mapping[str, Measured]) -> Sequential | None:
        own, base = alone.get(case), alone.get(baseline)
        if own is None or own.samples is None:
            return None
        samples.save(self.folder / f"samples/{case.replace('/', '__')}__sequential.npz", own.samples)
        return estimates.sequential(own.samples, None if base is None or case == baseline else base.samples)


def _list_speedups(
    measured: Mapping[str, Measured], baseline: str, cases: Sequence[str]
) -> dict[tuple[str, str], Interval]:
    """(baseline, case): the case's speed-up over the baseline, for each of the cases that has one."""
    speedups = {}
    for case in cases:
        own = measured[case].samples
        speedup = estimates.speedup(own, baseline, measured[baseline].samples) if own is not None else None
        if speedup is not None:
            speedups[baseline, case] = Interval(value=speedup.value, low=speedup.low, high=speedup.high)
    return speedups


def protocol_of(spec: MeasureSpec) -> Protocol:
    """The protocol that a suite asks for."""
    if spec.protocol == "sequential":
        return SequentialProtocol(warmup=spec.warmup_calls, calls=spec.calls)
    return Paired(
        precision=spec.precision,
        max_seconds=spec.max_seconds,
        half_width=estimates.half_width,
        seconds=time.monotonic,
        processes=spec.processes,
        warmup_calls=max(1, spec.warmup_calls),
        seed=spec.seed,
    )
