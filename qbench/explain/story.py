"""The story of an explanation: open the case, look where its time goes, try causes, take the confirmed ones away."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from qbench import registry
from qbench.cache import store
from qbench.decide import cases
from qbench.errors import CaseError, CaseSkipped, QbenchError
from qbench.explain import probes
from qbench.explain.advice import Alternative, MendedAccuracy, evaluate_mended, find_alternative
from qbench.explain.causes.base import Cause, Concern, Counterfactual, Situation, put_in_float
from qbench.explain.change import Change
from qbench.explain.error_trials import Evaluated, Evaluation, offer_calibration
from qbench.explain.explanation import (
    MOST_STEPS,
    Explanation,
    Goal,
    LayerLoss,
    Round,
    chain,
    choose,
    confirm,
    drop_idle_loss,
    explain_error,
    explain_time,
    goes_on,
    is_all_gone,
    list_layers,
    pair_layers,
)
from qbench.explain.not_covered import NotCovered, find_not_covered
from qbench.explain.open_case import OpenCase, find_record, open_case, read_suite
from qbench.explain.time_trials import Raced, try_changes
from qbench.explain.trial import Trial
from qbench.explain.where_time_goes import TimeShares, profile_case
from qbench.machine import fingerprint
from qbench.machine.peak import Peak, measure_peak
from qbench.plan.cases import Case
from qbench.progress.live import Silent
from qbench.record.schema import NATIVE
from qbench.record.stored_run import StoredRun


@dataclass(frozen=True, kw_only=True)
class TimeExplained:
    """Why it is not faster. ``times`` is None, with ``no_times`` as the reason, where the runtime does not tell;
    ``accuracy``: what the advised change costs, None where there is none or it is the same artifact; ``not_covered``:
    what no recipe makes int8; ``alternative``: what else gains, where the advised change loses too much or gives
    single requests nothing."""

    times: TimeShares | None
    no_times: str | None
    explanation: Explanation[Raced]
    accuracy: MendedAccuracy | None
    not_covered: NotCovered | None = None
    alternative: Alternative | None = None


@dataclass(frozen=True, kw_only=True)
class Explained:
    """All that was asked of a case."""

    opened: OpenCase
    time: TimeExplained | None
    losses: Explanation[Evaluated] | None

    @property
    def loses_little(self) -> bool:
        """Whether the case is shown to lose no more than the suite's margin against fp32."""
        delta = None if self.losses is None else self.losses.tried.against_fp32
        return self.opened.assess_loss(delta) == "PASS"


def describe(opened: OpenCase, times: TimeShares | None = None) -> Situation:
    """What causes are judged from."""
    backend = opened.backends[opened.case.variant.backend]
    return Situation(
        case=opened.case,
        layers=opened.artifact.built.layers,
        times=times,
        hiding_variables=fingerprint.switches(),
        faults_per_call=_count_faults(opened),
        backends=tuple(name for name, backend in opened.backends.items() if backend.missing() is None),
        layer_numbers=opened.artifact.built.conversion.layer_numbers,
        machine_code=backend.machine_code,
        call_seconds=opened.record_seconds,
        amx_tiles=(opened.record.observed or {}).get("amx_tiles"),
        timed_core=opened.cores[-1],
        pinned=fingerprint.pinned_core() is not None,
    )


def propose(concern: Concern, situation: Situation) -> tuple[Counterfactual, ...]:
    """What every registered cause that concerns this proposes to try."""
    causes: list[Cause] = [registry.load("cause", name) for name in registry.names("cause")]
    return tuple(
        counterfactual for cause in causes if concern in cause.concerns for counterfactual in cause.propose(situation)
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
    record = find_record(run, case, concerns)
    suite = read_suite(run, suite_file)
    cache = store.open_cache()
    with store.in_use(cache):
        progress.stage("explain", None)
        opened = open_case(run, record, suite, cache, progress)
        time_explained = _explain_time(opened, max_seconds) if "time" in concerns else None
        losses = _explain_losses(opened) if "accuracy" in concerns else None
    return Explained(opened=opened, time=time_explained, losses=losses)


def _explain_time(opened: OpenCase, max_seconds: float) -> TimeExplained:
    peak = _measure_peak(opened)
    times, no_times = _profile(opened, peak)
    situation = replace(
        describe(opened, times),
        reading_seconds=probes.find_reading_seconds(opened),
        flushing_gain=probes.find_flushing_gain(opened),
    )
    rounds = _try_in_rounds(opened, situation, max_seconds)
    explanation = explain_time(rounds, _find_goals(rounds[0].tried, peak))
    change = explanation.change
    accuracy = None if change is None else evaluate_mended(opened, change)
    return TimeExplained(
        times=times,
        no_times=no_times,
        explanation=explanation,
        accuracy=accuracy,
        not_covered=find_not_covered(opened.artifact.built, opened.fp32.built, times),
        alternative=find_alternative(opened, explanation, accuracy),
    )


def _try_in_rounds(opened: OpenCase, situation: Situation, max_seconds: float) -> list[Round]:
    """Races of all that may be at work, each without the cause that the one before it has shown to cost most."""
    rounds, base = list[Round](), Change()
    proposals: tuple[Counterfactual, ...] = ()
    rival = _find_fastest(opened)
    while True:
        here = opened.apply(base)
        if rounds:
            hiding = tuple(
                text for text in situation.hiding_variables if text.partition("=")[0] not in base.environment
            )
            situation = replace(situation, case=here, times=None, hiding_variables=hiding, call_seconds=None)
        gone = {each.chosen.counterfactual.key for each in rounds if each.chosen is not None}
        # What a profile proposed stays: there is none of the changed case.
        proposed = {(each.cause, each.text): each for each in (*propose("time", situation), *proposals)}
        proposals = tuple(
            each for each in proposed.values() if each.key not in gone and _changes(base, each, opened, here)
        )
        if rounds and not proposals:
            return rounds
        tried = try_changes(opened, proposals, max_seconds=max_seconds, base=base, rival=rival)
        chosen = choose(tried, rounds)
        rounds.append(Round(tried=tried, chosen=chosen))
        if chosen is None or not goes_on(rounds):
            return rounds
        base, rival = base.then(chosen.counterfactual.change), None


def _changes(base: Change, counterfactual: Counterfactual, opened: OpenCase, here: Case) -> bool:
    """Whether a change differs from the case as it is: a backend may resolve a choice as it was, whatever is asked."""
    if base.batch_size and counterfactual.change.batch_size:
        return False  # one more step would tell of another size only
    if counterfactual.change.takes_back(base, opened.case.variant.recipe):
        return False  # layers that were just put in float are not kept there by the suite
    change = base.then(counterfactual.change)
    if change.environment != base.environment or change.flush_denormals != base.flush_denormals or change.calibrate:
        return True
    return opened.apply(change) != here


def _find_fastest(opened: OpenCase) -> Case | None:
    """The fastest case of the run at the same threads and batch size, where it is another one that can be built."""
    key = opened.record.case
    others = {
        record.case: seconds
        for record in opened.run.records
        if (record.case.model, record.case.host) == (key.model, NATIVE)
        and (record.case.threads, record.case.batch_size) == (key.threads, key.batch_size)
        and (seconds := cases.p50(record)) is not None
    }
    fastest = min(others, key=lambda case: others[case], default=None)
    if fastest is None or fastest == key:
        return None
    with contextlib.suppress(QbenchError):  # a recipe that the suite has no more
        return opened.case_of(fastest)
    return None


def _explain_losses(opened: OpenCase) -> Explanation[Evaluated]:
    """What each change does to the outputs, and those that help, one after the other."""
    accuracy = opened.record.accuracy
    situation = replace(
        describe(opened),
        inputs=() if accuracy is None else accuracy.inputs or (),
        evaluation=offer_calibration(opened),
        fixed_ranges=probes.find_fixed_ranges(opened),
        joins=probes.find_joins(opened),
    )
    proposals = propose("accuracy", situation)
    with tempfile.TemporaryDirectory() as folder:
        evaluation = Evaluation(opened, Path(folder))
        tried = evaluation.conclude([evaluation.try_change(counterfactual) for counterfactual in proposals])
        confirmed, steps = confirm(tried)[:MOST_STEPS], list[Trial]()
        while confirmed:
            steps = [evaluation.try_change(step) for step in chain(confirmed)]
            rest = drop_idle_loss(confirmed, steps)
            if len(rest) == len(confirmed):
                break
            confirmed = rest
        layers = _return_layers(evaluation, tried, situation)
    return explain_error(tried, confirmed, steps, layers)


def _return_layers(evaluation: Evaluation, tried: Evaluated, situation: Situation) -> tuple[LayerLoss, ...]:
    """The layers that were returned to float alone and, where one is shown to cost accuracy, what the first ones take
    away together: two may have to be in float for either to help."""
    layers, steps = list_layers(tried), list[Trial]()
    names = [trial.counterfactual.part for trial in layers[:MOST_STEPS]]
    costly = {trial.counterfactual.part for trial in confirm(tried)}
    while costly & set(names) and len(steps) < len(names) and not is_all_gone(steps):
        steps.append(evaluation.try_change(put_in_float("", situation, names[: len(steps) + 1])))
    return pair_layers(layers, steps)


def _measure_peak(opened: OpenCase) -> Peak | None:
    interference = opened.record.interference
    calm = None if interference is None else interference.calm_seconds
    with contextlib.suppress(CaseError):
        return measure_peak(opened.cache, limits=opened.limits, cores=opened.cores, calm_seconds=calm)
    return None


def _profile(opened: OpenCase, peak: Peak | None) -> tuple[TimeShares | None, str | None]:
    try:
        return profile_case(opened, peak), None
    except (CaseSkipped, CaseError) as error:
        return None, str(error)


def _count_faults(opened: OpenCase) -> float | None:
    """Page faults of a call, by the run's samples; None where they are gone, or the system did not count."""
    stored = opened.run.samples(opened.record)
    faults, calls = stored.get("faults", ()), stored.get("calls_ns", ())
    return float(sum(faults)) / len(calls) if len(faults) and len(calls) else None


def _find_goals(raced: Raced, peak: Peak | None) -> list[Goal]:
    """What the case could be: the fastest of the run, measured beside it; and fp32 in as many times less as int8
    arithmetic is faster on this core."""
    goals = []
    if raced.rival_seconds is not None and raced.rival_seconds < raced.original_seconds:
        left = raced.rival_seconds / raced.original_seconds
        goals.append(Goal(left=left, name=f"as {raced.rival} does, the fastest of the run"))
    if peak is not None and raced.fp32_seconds is not None:
        left = raced.fp32_seconds / peak.ratio / raced.original_seconds
        name = f"fp32 in {peak.ratio:.1f} times less, which is what int8 arithmetic gains on this core"
        goals.append(Goal(left=left, name=name))
    return goals
