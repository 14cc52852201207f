"""A setting -> what its records say of latency, with the raw samples on disk: here and on a node alike."""

from __future__ import annotations

import contextlib
import glob
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qbench import registry
from qbench.errors import CaseError
from qbench.files.npz_file import BadNpz
from qbench.files.stored_name import name_of
from qbench.measure import estimates, samples
from qbench.measure.group import Measured, cold_starts, max_known, measure_group
from qbench.measure.heats import split_heats
from qbench.measure.pairing import list_minima
from qbench.measure.protocol import Keep, Protocol, SequentialProtocol
from qbench.measure.race import LEFT, SCREENED, Race
from qbench.measure.race_rules import MOST_GENERATIONS, Arm, RaceRules, find_fastest
from qbench.measure.samples import Samples
from qbench.measure.setting import CaseLatency, MeasuredSetting, Setting
from qbench.measure.timed_cores import TimedCores
from qbench.measure.unfinished_group import Checkpoint
from qbench.measure.warm_up import count_left
from qbench.measure.worker import FIRST_CALLS, INPUTS, WorkerSpec
from qbench.modes import float_of
from qbench.process.free_memory import count_free_bytes
from qbench.progress.callback import Progress, tell_nobody
from qbench.record.schema import Memory, Sequential, read_case_id, setting_id


def measure_setting(
    setting: Setting, folder: Path, cores: TimedCores, *, tell: Progress = tell_nobody, hear: Keep = lambda known: None
) -> MeasuredSetting:
    """The latency of each case of a setting that is not done, raced against each other on these cores; what they teach
    of the cores is kept there. The raw samples lie in ``folder/samples`` then, and beside them what a killed run would
    go on from, until ``remove_checkpoint``. ``hear`` is told after each generation of processes what is known then."""
    started = time.monotonic()
    (folder / "samples").mkdir(exist_ok=True)
    latencies = _Measuring(setting=setting, folder=folder, cores=cores, tell=tell, hear=hear).measure_cases()
    cores.mend_peak()
    return MeasuredSetting(
        latencies=latencies, peak=cores.peak, unknown_peak=cores.unknown, seconds=time.monotonic() - started
    )


def remove_checkpoint(setting: Setting, folder: Path) -> None:
    """Removes what was kept of a setting whose cases are recorded now."""
    _open_checkpoint(setting, folder).remove()


def _open_checkpoint(setting: Setting, folder: Path) -> Checkpoint:
    return Checkpoint(folder / "samples", [arm.case for arm in setting.arms])


@dataclass(frozen=True, kw_only=True)
class _Measuring:
    """One setting while it is measured."""

    setting: Setting
    folder: Path
    cores: TimedCores
    tell: Progress
    hear: Keep

    def measure_cases(self) -> dict[str, CaseLatency]:
        """The latency of each case that is not done, by id."""
        arms, suite = self.setting.arms, self.setting.suite
        specs = {arm.case: self._specify_worker(arm.case) for arm in arms}
        measured = self._measure_together(specs)
        alone = self._measure_alone(list(specs.values()))
        timed = {case: result.samples for case, result in measured.items() if result.samples is not None}
        self.cores.learn(timed.values())
        fastest = find_fastest_fp32(arms, timed, self.cores.calm_ns)
        in_final = list_finalists(arms, timed)
        spreads = estimates.pool_spreads(timed.values(), self.cores.calm_ns)
        latencies = {}
        for arm in arms:
            if arm.case not in self.setting.done:
                # A resumed race has lost what its processes said of themselves: one more tells it again.
                least = suite.measure.cold_starts if arm.case in in_final else 1
                result = self._with_cold_starts(specs[arm.case], measured[arm.case], least)
                latencies[arm.case] = self._store_latency(specs[arm.case], arm, result, timed, fastest, alone, spreads)
        return latencies

    def _measure_together(self, specs: Mapping[str, WorkerSpec]) -> dict[str, Measured]:
        base, *others = specs.values()
        checkpoint = _open_checkpoint(self.setting, self.folder)

        def keep(known: Mapping[str, Samples]) -> None:
            checkpoint.write(known)
            self.hear(known)

        return measure_group(
            base,
            others,
            protocol=self._choose_protocol(),
            limits=self.setting.limits,
            tell=self.tell,
            earlier=checkpoint.read(),
            keep=keep,
        )

    def _choose_protocol(self) -> Protocol:
        """What the suite asks for."""
        spec, decide, arms = self.setting.suite.measure, self.setting.suite.decide, self.setting.arms
        sizes = {case: artifact.size_bytes for case, artifact in self.setting.artifacts.items()}
        if spec.protocol == "sequential":
            return SequentialProtocol(warmup=spec.warmup_calls, calls=spec.calls)
        screening = spec.spend == "screening"
        return Race(
            arms=arms,
            rules=RaceRules(
                tie=decide.tie,
                precision=spec.precision,
                least=0 if screening else spec.processes,
                most=0 if screening else max(MOST_GENERATIONS, spec.processes),
                max_seconds=spec.max_seconds,
                # What wins by size or start need not be among the fastest, and its limits are on latency all the same.
                everything=spec.spend == "all" or (not screening and decide.minimize != "latency"),
            ),
            clock=time.monotonic,
            warmup_calls=count_left(spec.warmup_calls, FIRST_CALLS),
            seed=spec.seed,
            heats=lambda staying, fastest, blocks: split_heats(
                staying, fastest, sizes, free_bytes=count_free_bytes(), first=blocks
            ),
            first_process=count_processes(self.folder / "samples", arms[0].case),
            calm_ns=self.cores.calm_ns,
        )

    def _measure_alone(self, specs: Sequence[WorkerSpec]) -> dict[str, Measured]:
        """The sequential protocol beside the paired one, where the suite asks for both."""
        spec = self.setting.suite.measure
        if spec.protocol != "both":
            return {}
        protocol = SequentialProtocol(warmup=spec.warmup_calls, calls=spec.calls)
        return measure_group(specs[0], specs[1:], protocol=protocol, limits=self.setting.limits, tell=self.tell)

    def _with_cold_starts(self, spec: WorkerSpec, result: Measured, least: int) -> Measured:
        missing = least - len(result.facts)
        if result.samples is None or missing <= 0:
            return result
        try:
            facts, peak = cold_starts(spec, missing, limits=self.setting.limits)
        except CaseError:  # it was measured; fewer cold starts are no reason to lose that
            return result
        peak = max_known((result.peak_rss_bytes, peak))
        return replace(result, facts=(*result.facts, *facts), peak_rss_bytes=peak)

    def _specify_worker(self, case_id: str) -> WorkerSpec:
        case, data = self.setting.cases[case_id], self.setting.data
        count = min(data.evaluation_count, INPUTS * case.batch_size)
        return WorkerSpec(
            case=case_id,
            backend=case.variant.backend,
            file=self.setting.artifacts[case_id].file,
            threads=case.threads,
            batch_size=case.batch_size,
            # The last cores: the first one serves interrupts and, where there are two, the coordinator.
            cores=self.cores.numbers[-case.threads :],
            inputs=data.evaluation(0, count),
            environment=registry.load("host", case.host).environment(),
            precision=float_of(case.variant.mode),
            postprocess=self.setting.timed.get(case_id),
        )

    def _store_latency(
        self,
        spec: WorkerSpec,
        arm: Arm,
        result: Measured,
        timed: Mapping[str, Samples],
        fastest: str | None,
        alone: Mapping[str, Measured],
        spreads: estimates.Spreads,
    ) -> CaseLatency:
        observed = result.facts[0].observed if result.facts else None
        if result.samples is None:
            return CaseLatency(reason=str(result.error), observed=observed)
        name = f"samples/{name_of(spec.case)}.npz"
        try:
            samples.save(self.folder / name, result.samples)
            sequential = self._sequential(spec.case, arm.baseline, alone)
        except OSError as error:
            return CaseLatency(reason=f"its samples cannot be written: {error.strerror or error}", observed=observed)
        latency = estimates.latency(result.samples, self.cores.calm_ns, spreads)
        speedup = (
            None
            if arm.baseline is None
            else estimates.speedup(result.samples, arm.baseline, timed.get(arm.baseline), self.cores.calm_ns)
        )
        typical = latency.p50_seconds if latency.p50_seconds is not None else latency.mean_seconds
        return CaseLatency(
            reason=None,
            observed=observed,
            latency=latency,
            speedup=speedup,
            speedup_fastest=None
            if fastest is None
            else estimates.over_fastest(result.samples, fastest, timed[fastest], self.cores.calm_ns),
            sequential=sequential,
            interference=estimates.interference(result.samples, self.cores.calm_ns),
            throughput_per_second=spec.batch_size / typical if typical else None,
            cold_start=estimates.cold_start(result.facts),
            memory=Memory(loaded_rss_bytes=result.facts[0].loaded_rss_bytes, peak_rss_bytes=result.peak_rss_bytes)
            if result.facts
            else None,
            samples=name,
        )

    def _sequential(self, case: str, baseline: str | None, alone: Mapping[str, Measured]) -> Sequential | None:
        result, base = alone.get(case), alone.get(baseline or "")
        if result is None or result.samples is None:
            return None
        samples.save(self.folder / f"samples/{name_of(case)}__sequential.npz", result.samples)
        return estimates.sequential(result.samples, None if base is None else base.samples)


def find_fastest_fp32(arms: Sequence[Arm], timed: Mapping[str, Samples], calm_ns: float | None = None) -> str | None:
    """The fastest of the fp32 that have samples, from rounds that they share; None where none has."""
    fp32 = [arm.case for arm in arms if arm.role == "fp32" and arm.case in timed]
    minima = {case: blocks for case in fp32 if (blocks := list_minima(timed[case], calm_ns))}
    return find_fastest(list(minima), minima) if minima else None


def list_finalists(arms: Sequence[Arm], timed: Mapping[str, Samples]) -> set[str]:
    """The cases that were in to the end, with the fp32 that they are compared with."""
    ended = [arm for arm in arms if arm.case in timed and timed[arm.case].stopped not in (SCREENED, LEFT)]
    return {arm.case for arm in ended} | {arm.baseline for arm in ended if arm.baseline is not None}


def count_processes(folder: Path, case: str) -> int:
    """How many generations of processes an earlier part of the run has numbered in what it stored of the cases with the
    same model, threads, batch and host; what is damaged tells none."""
    key = read_case_id(case)
    if key is None:
        return 0
    setting = name_of(setting_id("", key.threads, key.batch_size, key.host))
    numbers = [-1]
    for path in folder.glob(f"{glob.escape(key.model)}__*{setting}.npz"):
        with contextlib.suppress(BadNpz):
            numbers += samples.load(path).process.tolist()
    return 1 + max(numbers)
