"""The story of an explanation: open the case, look where its time goes, try causes, take the confirmed ones away."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qbench import registry
from qbench.backends.base import Backend
from qbench.cache import store
from qbench.compare.compare import oriented
from qbench.errors import CaseError, CaseSkipped
from qbench.explain import probes
from qbench.explain.accuracy_explanation import (
    MOST_STEPS,
    AccuracyExplanation,
    confirm_losses,
    drop_idle_loss,
    explain_losses,
)
from qbench.explain.accuracy_trials import AccuracyTrial, Evaluation, offer_calibration
from qbench.explain.causes.base import Cause, Concern, Counterfactual, Situation
from qbench.explain.explanation import Explanation, chain, confirm, drop_idle, explain, may_hide
from qbench.explain.fixed_ranges import find_fixed_ranges
from qbench.explain.mended import MendedAccuracy, evaluate_mended
from qbench.explain.not_covered import NotCovered, find_not_covered
from qbench.explain.open_case import OpenCase, find_record, load_all_backends, open_case
from qbench.explain.trials import Trial, Tried, try_changes
from qbench.explain.trusted import read_suite
from qbench.explain.where_time_goes import TimeShares, profile_case
from qbench.machine import fingerprint
from qbench.machine.peak import Peak, measure_peak
from qbench.measure import samples
from qbench.plan.variants import Variants
from qbench.progress.live import Silent
from qbench.record.schema import NATIVE, Record
from qbench.record.stored_run import MetricInfo, StoredRun
from qbench.stats import noninferiority


@dataclass(frozen=True, kw_only=True)
class TimeExplained:
    """Why it is not faster. ``times`` is None, with ``no_times`` as the reason, where the runtime does not tell;
    ``accuracy``: what the advised change costs, None where there is none or it is the same artifact; ``not_covered``:
    what no recipe makes int8."""

    times: TimeShares | None
    no_times: str | None
    explanation: Explanation
    accuracy: MendedAccuracy | None
    not_covered: NotCovered | None = None


@dataclass(frozen=True, kw_only=True)
class Explained:
    """All that was asked of a case; ``metric`` is the run's."""

    opened: OpenCase
    time: TimeExplained | None
    losses: AccuracyExplanation | None
    metric: MetricInfo

    @property
    def loses_little(self) -> bool:
        """Whether the case is shown to lose no more than the suite's margin against fp32."""
        delta = None if self.losses is None else self.losses.tried.against_fp32
        margin = self.opened.suite.gate.accuracy.margin
        if delta is None or margin is None:
            return False
        change = oriented(delta, self.metric.sign)
        return noninferiority.assess_interval(change, margin / self.metric.scale).outcome == "PASS"


@dataclass(frozen=True, kw_only=True)
class _Bench:
    """What both halves of an explanation are given."""

    run: StoredRun
    opened: OpenCase
    backends: Mapping[str, Backend]
    variants: Variants
    progress: Silent

    def describe(self, times: TimeShares | None = None) -> Situation:
        """What causes are judged from."""
        case = self.opened.case
        return Situation(
            case=case,
            layers=self.opened.artifact.layers,
            times=times,
            hiding_variables=fingerprint.switches(),
            faults_per_call=_count_faults(self.run, self.opened.record),
            backends=tuple(name for name, backend in self.backends.items() if backend.missing() is None),
            layer_numbers=self.opened.artifact.layer_numbers,
            machine_code=self.backends[case.variant.backend].machine_code,
            call_seconds=self.opened.record_seconds,
        )

    def propose(self, concern: Concern, situation: Situation) -> tuple[Counterfactual, ...]:
        """What every registered cause that concerns this proposes to try."""
        causes: list[Cause] = [registry.load("cause", name) for name in registry.names("cause")]
        return tuple(
            counterfactual
            for cause in causes
            if concern in cause.concerns
            for counterfactual in cause.propose(situation)
        )


def explain_case(
    run: StoredRun,
    case: str,
    *,
    concerns: Collection[Concern],
    suite_file: Path | None,
    progress: Silent,
    max_seconds: float,
) -> Explained:
    """Why an int8 case of a run is not faster, not more accurate, or both. ``max_seconds`` of measuring for each change
    that is tried.

    Raises ``UsageError`` for a case that cannot be explained or a suite that cannot be trusted, ``CaseError`` where the
    case cannot be built, measured or evaluated here.
    """
    record = find_record(run, case)
    suite = read_suite(run, suite_file)
    cache = store.open_cache()
    with store.in_use(cache):
        progress.stage("explain", None)
        opened = open_case(run, record, suite, cache, progress)
        backends = load_all_backends(suite)
        bench = _Bench(
            run=run,
            opened=opened,
            backends=backends,
            variants=Variants(suite, backends, cores=len(opened.cores)),
            progress=progress,
        )
        time_explained = _explain_time(bench, max_seconds) if "time" in concerns else None
        losses = _explain_losses(bench) if "accuracy" in concerns else None
    name = suite.gate.accuracy.choose_metric(base=suite.base, labelled=opened.data.evaluation_labels() is not None).name
    return Explained(opened=opened, time=time_explained, losses=losses, metric=run.info.metric or MetricInfo(name=name))


def _explain_time(bench: _Bench, max_seconds: float) -> TimeExplained:
    opened, variants, progress = bench.opened, bench.variants, bench.progress
    peak = _measure_peak(opened)
    times, no_times = _profile(opened, peak)
    situation = replace(
        bench.describe(times),
        reading_seconds=probes.find_reading_seconds(opened),
        flushing_gain=probes.find_flushing_gain(opened),
    )
    tried = try_changes(opened, bench.propose("time", situation), variants, progress, max_seconds=max_seconds)
    confirmed, steps = _take_away(opened, confirm(tried), variants, progress, max_seconds)
    again = None
    if may_hide(tried, confirmed, steps):
        again = _try_beyond(bench, situation, confirmed, max_seconds)
        if more := confirm(again):
            confirmed, steps = _take_away(opened, (*confirmed, *more), variants, progress, max_seconds)
    explanation = explain(tried, confirmed, steps, _find_bests(tried, bench.run.records, opened.record, peak), again)
    change = explanation.change
    return TimeExplained(
        times=times,
        no_times=no_times,
        explanation=explanation,
        accuracy=None if change is None else evaluate_mended(opened, change, variants, progress),
        not_covered=find_not_covered(opened.artifact, times),
    )


def _try_beyond(bench: _Bench, situation: Situation, confirmed: Sequence[Trial], max_seconds: float) -> Tried:
    """What else may be at work, tried without the confirmed causes: they may have hidden it."""
    *_, last = chain(_list_changes(confirmed))
    case = last.change.apply(bench.opened.case, bench.variants)
    left = tuple(text for text in situation.hiding_variables if text.partition("=")[0] not in last.change.environment)
    changed = replace(situation, case=case, times=None, hiding_variables=left, call_seconds=None)
    known = {trial.counterfactual.key for trial in confirmed}
    proposals = [each for each in bench.propose("time", changed) if each.key not in known]
    return try_changes(
        bench.opened, proposals, bench.variants, bench.progress, max_seconds=max_seconds, base=last.change
    )


def _explain_losses(bench: _Bench) -> AccuracyExplanation:
    """What each change does to the outputs, and those that help, one after the other."""
    accuracy = bench.opened.record.accuracy
    situation = replace(
        bench.describe(),
        inputs=() if accuracy is None else accuracy.inputs or (),
        evaluation=offer_calibration(bench.opened),
        fixed_ranges=find_fixed_ranges(bench.opened, bench.progress),
    )
    proposals = bench.propose("accuracy", situation)
    with tempfile.TemporaryDirectory() as folder:
        evaluation = Evaluation(bench.opened, bench.variants, bench.progress, Path(folder))
        tried = evaluation.conclude([evaluation.try_change(counterfactual) for counterfactual in proposals])
        confirmed, steps = confirm_losses(tried)[:MOST_STEPS], list[AccuracyTrial]()
        while confirmed:
            steps = [evaluation.try_change(step) for step in chain(_list_changes(confirmed))]
            rest = drop_idle_loss(confirmed, steps)
            if len(rest) == len(confirmed):
                break
            confirmed = rest
    return explain_losses(tried, confirmed, steps)


def _take_away(
    opened: OpenCase, confirmed: tuple[Trial, ...], variants: Variants, progress: Silent, max_seconds: float
) -> tuple[tuple[Trial, ...], Tried | None]:
    """The confirmed causes that gain beyond those before them, and the race in which they were taken away in order."""
    while len(confirmed) > 1:
        steps = try_changes(opened, chain(_list_changes(confirmed)), variants, progress, max_seconds=max_seconds)
        rest = drop_idle(confirmed, steps)
        if len(rest) == len(confirmed):
            return confirmed, steps
        confirmed = rest
    return confirmed, None


def _list_changes(trials: Iterable[Trial | AccuracyTrial]) -> list[Counterfactual]:
    return [trial.counterfactual for trial in trials]


def _measure_peak(opened: OpenCase) -> Peak | None:
    with contextlib.suppress(CaseError):
        return measure_peak(opened.cache, limits=opened.limits, cores=opened.cores)
    return None


def _profile(opened: OpenCase, peak: Peak | None) -> tuple[TimeShares | None, str | None]:
    try:
        return profile_case(opened, peak), None
    except (CaseSkipped, CaseError) as error:
        return None, str(error)


def _count_faults(run: StoredRun, record: Record) -> float | None:
    """Page faults of a call, by the run's samples; None where they are gone, or the system did not count."""
    file = None if record.samples is None else run.folder / record.samples
    if file is None or not file.is_file():
        return None
    stored = samples.load(file)
    if not len(stored.faults) or not len(stored.calls_ns):
        return None
    return float(sum(stored.faults.tolist())) / len(stored.calls_ns)


def _find_bests(tried: Tried, records: Iterable[Record], record: Record, peak: Peak | None) -> list[tuple[float, str]]:
    """The seconds for one example that the case could take, and by what that is known: the fastest of the run at the
    same threads and batch size, as many times the case as it was then; and fp32 in as many times less as int8
    arithmetic is faster on this core."""
    own, bests = _seconds(record), []
    others = {
        other.case.id: seconds
        for other in records
        if other.case.model == record.case.model
        and other.case.host == NATIVE
        and (other.case.threads, other.case.batch_size) == (record.case.threads, record.case.batch_size)
        and (seconds := _seconds(other)) is not None
    }
    fastest = min(others, key=lambda case: others[case], default=None)
    if own is not None and fastest is not None and others[fastest] < own:
        name = f"{fastest}, which took {others[fastest] / own:.2g} of its time in the run"
        bests.append((tried.original_seconds * others[fastest] / own, name))
    if peak is not None and tried.fp32_seconds is not None:
        name = f"fp32 in {peak.ratio:.1f} times less, which is what int8 arithmetic gains on this core"
        bests.append((tried.fp32_seconds / peak.ratio, name))
    return bests


def _seconds(record: Record) -> float | None:
    """The median seconds for one example; None where it has no latency."""
    latency = record.latency
    typical = None if latency is None else latency.p50_seconds or latency.mean_seconds
    return None if typical is None else typical / record.case.batch_size
