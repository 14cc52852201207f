"""The story of an explanation: open the case, look where its time goes, try causes, take the confirmed ones away."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from qbench import registry
from qbench.backends.base import Backend
from qbench.cache import store
from qbench.errors import CaseError, CaseSkipped
from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.explanation import Explanation, chain, confirm, explain, keep_gaining
from qbench.explain.mended import MendedAccuracy, evaluate_mended
from qbench.explain.open_case import OpenCase, find_record, open_case
from qbench.explain.trials import Trial, Tried, try_changes
from qbench.explain.trusted import read_suite
from qbench.explain.where_time_goes import TimeShares, profile_case
from qbench.machine import fingerprint
from qbench.machine.peak import Peak, measure_peak
from qbench.measure import samples
from qbench.plan.planner import load_backends
from qbench.plan.variants import Variants
from qbench.progress.live import Silent
from qbench.record.schema import NATIVE, Record
from qbench.record.stored_run import MetricInfo, StoredRun

STAGES = 4


@dataclass(frozen=True, kw_only=True)
class Explained:
    """All that is known of a case's time. ``times`` is None, with ``no_times`` as the reason, where the runtime does
    not tell; ``peak`` is None where it cannot be measured."""

    opened: OpenCase
    times: TimeShares | None
    no_times: str | None
    peak: Peak | None
    explanation: Explanation
    accuracy: MendedAccuracy | None
    metric: MetricInfo


def explain_case(
    run: StoredRun, case: str, *, suite_file: Path | None, progress: Silent, max_seconds: float
) -> Explained:
    """Why an int8 case of a run is not faster. ``max_seconds`` of measuring for each change that is tried.

    Raises ``UsageError`` for a case that cannot be explained or a suite that cannot be trusted, ``CaseError`` where the
    case cannot be built or measured here.
    """
    record = find_record(run, case)
    suite = read_suite(run, suite_file)
    cache = store.open_cache()
    with store.in_use(cache):
        progress.stage("explain", STAGES)
        opened = open_case(run, record, suite, cache, progress)
        progress.advance("artifacts")
        peak = _measure_peak(opened)
        times, no_times = _profile(opened, peak)
        progress.advance("where the time goes")
        variants = Variants(suite, _load_all_backends(opened), cores=len(opened.cores))
        tried = try_changes(opened, _propose(opened, run, times), variants, progress, max_seconds=max_seconds)
        progress.advance("causes")
        confirmed, steps = _take_away(opened, confirm(tried), variants, progress, max_seconds)
        progress.advance("causes together")
        explanation = explain(tried, confirmed, steps, _find_best(tried, run.records, record, peak))
        accuracy = None
        if explanation.change is not None:
            accuracy = evaluate_mended(opened, explanation.change, variants, progress)
    return Explained(
        opened=opened,
        times=times,
        no_times=no_times,
        peak=peak,
        explanation=explanation,
        accuracy=accuracy,
        metric=run.info.metric or MetricInfo(name="" if accuracy is None else accuracy.metric),
    )


def _take_away(
    opened: OpenCase, confirmed: tuple[Trial, ...], variants: Variants, progress: Silent, max_seconds: float
) -> tuple[tuple[Trial, ...], Tried | None]:
    """The confirmed causes that gain beyond those before them, and the race in which they were taken away in order."""
    while len(confirmed) > 1:
        steps = try_changes(opened, chain(confirmed), variants, progress, max_seconds=max_seconds)
        gaining = keep_gaining(confirmed, steps)
        if len(gaining) == len(confirmed):
            return confirmed, steps
        confirmed = gaining
    return confirmed, None


def _measure_peak(opened: OpenCase) -> Peak | None:
    with contextlib.suppress(CaseError):
        return measure_peak(opened.cache, limits=opened.limits, cores=opened.cores)
    return None


def _profile(opened: OpenCase, peak: Peak | None) -> tuple[TimeShares | None, str | None]:
    try:
        return profile_case(opened, peak), None
    except (CaseSkipped, CaseError) as error:
        return None, str(error)


def _load_all_backends(opened: OpenCase) -> dict[str, Backend]:
    """The backends of the suite, and those of registered ones that can be used here."""
    known = load_backends(opened.suite)
    others = {name: registry.load("backend", name) for name in registry.names("backend") if name not in known}
    return {**known, **{name: backend for name, backend in others.items() if backend.missing() is None}}


def _propose(opened: OpenCase, run: StoredRun, times: TimeShares | None) -> tuple[Counterfactual, ...]:
    """What every registered cause proposes to try."""
    situation = Situation(
        case=opened.case,
        layers=opened.artifact.layers,
        times=times,
        hiding_variables=fingerprint.switches(),
        faults_per_call=_count_faults(run, opened.record),
        backends=tuple(name for name, backend in _load_all_backends(opened).items() if backend.missing() is None),
    )
    causes: list[Cause] = [registry.load("cause", name) for name in registry.names("cause")]
    return tuple(counterfactual for cause in causes for counterfactual in cause.propose(situation))


def _count_faults(run: StoredRun, record: Record) -> float | None:
    """Page faults of a call, by the run's samples; None where they are gone, or the system did not count."""
    file = None if record.samples is None else run.folder / record.samples
    if file is None or not file.is_file():
        return None
    stored = samples.load(file)
    if not len(stored.faults) or not len(stored.calls_ns):
        return None
    return float(sum(stored.faults.tolist())) / len(stored.calls_ns)


def _find_best(tried: Tried, records: Iterable[Record], record: Record, peak: Peak | None) -> tuple[float, str]:
    """The seconds for one example that the case could take, and by what that is known: the fastest variant of the run
    where one is faster, else fp32 in as many times less as int8 arithmetic is faster on this core."""
    own = _seconds(record)
    others = {
        other.case.id: seconds
        for other in records
        if other.case.model == record.case.model
        and other.case.host == NATIVE
        and other.case.threads == record.case.threads
        and (seconds := _seconds(other)) is not None
    }
    fastest = min(others, key=lambda case: others[case], default=None)
    if own is not None and fastest is not None and others[fastest] < own:
        return tried.original_seconds * others[fastest] / own, f"{fastest}, the fastest of the run"
    if peak is not None and tried.fp32_seconds is not None:
        bound = tried.fp32_seconds / peak.ratio
        return bound, f"fp32 in {peak.ratio:.1f} times less, which is what int8 arithmetic gains on this core"
    return tried.original_seconds, "the case as it is"


def _seconds(record: Record) -> float | None:
    """The median seconds for one example; None where it has no latency."""
    latency = record.latency
    typical = None if latency is None else latency.p50_seconds or latency.mean_seconds
    return None if typical is None else typical / record.case.batch_size
