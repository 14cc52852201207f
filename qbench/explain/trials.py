"""Counterfactuals built and measured beside the case, in one race: how much longer the case takes than each."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from qbench.build import Artifact
from qbench.errors import CaseError, CaseSkipped
from qbench.explain.causes.base import Counterfactual
from qbench.explain.change import Change
from qbench.explain.open_case import OpenCase, why_not_built
from qbench.measure.estimates import average_off_core
from qbench.measure.group import measure_group
from qbench.measure.paired_difference import PairedDifference, compare_times
from qbench.measure.race import Race
from qbench.measure.race_rules import Arm, RaceRules
from qbench.measure.samples import Samples
from qbench.plan.cases import Case
from qbench.stats.interval_type import Interval

ORIGINAL, FP32, RIVAL = "original", "fp32", "rival"
# Generations of processes: with fewer, limits rest on what is known of processes in general; a disturbed machine needs
# more until every difference to the case is known to ``PRECISION``.
GENERATIONS, MOST_GENERATIONS, PRECISION = 4, 9, 0.04
# Standard deviation of a log ratio from one race to the next, later and built anew, which no number of processes of one
# race shows. With it 72 of 83 gains that were measured again lay within the limits of the first, without it 51
# (tests/benchmarks/explain_error.py, whose last line counts them).
RACE_SPREAD = 0.02


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A counterfactual that was tried: ``difference`` is ln(its time / the case's), both for one example; None with the
    ``reason`` where it could not be built or measured. ``seconds`` for one example. ``beyond``: case and
    counterfactual had other changes already."""

    counterfactual: Counterfactual
    case: Case
    difference: PairedDifference | None = None
    seconds: float | None = None
    reason: str | None = None
    beyond: bool = False

    @property
    def lasting(self) -> PairedDifference | None:
        """The difference with the error that it has for whoever measures it in another race; its freedom after
        Satterthwaite, Biometrics Bulletin 2 (1946), 110-114."""
        if self.difference is None:
            return None
        own = self.difference.error**2
        variance = own + RACE_SPREAD**2
        freedom = self.difference.freedom * (variance / own) ** 2
        return replace(self.difference, error=math.sqrt(variance), freedom=freedom)

    @property
    def gain(self) -> Interval | None:
        """How many times as fast as the case, with 95 % limits for another race."""
        if self.lasting is None:
            return None
        low, high = self.lasting.limits()
        return Interval(value=math.exp(-self.lasting.value), low=math.exp(-high), high=math.exp(-low))


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One race: the seconds for one example of the case and of its fp32, how many times as long the case takes
    (``over_fp32``), and what each counterfactual gave. ``rival_seconds``: those of another case of the run, ``rival``,
    by the difference to the case. ``off_core``: the largest share of the time of one of them in which other processes
    had the core; None where the system does not tell."""

    original_seconds: float
    fp32_seconds: float | None
    trials: tuple[Trial, ...]
    over_fp32: Interval | None = None
    rival: str | None = None
    rival_seconds: float | None = None
    off_core: float | None = None


def try_changes(
    opened: OpenCase,
    counterfactuals: Sequence[Counterfactual],
    *,
    max_seconds: float,
    base: Change | None = None,
    rival: Case | None = None,
) -> Tried:
    """The counterfactuals measured in one race with the case and its fp32; raises ``CaseError`` where the case itself
    cannot be measured. ``max_seconds`` of measuring for each of them. ``base``: a change that the case and all
    counterfactuals have already. ``rival``: another case to be measured beside it, where it can be built."""
    base = base or Change()
    own_case = opened.apply(base)
    own_artifact = opened.build(own_case.variant) if base.rebuilds else opened.artifact
    built: dict[str, tuple[Case, Artifact, Change]] = {
        ORIGINAL: (own_case, own_artifact, base),
        FP32: (opened.fp32_case, opened.fp32, Change()),
    }
    reasons: dict[str, str] = {}
    cases = {}
    for number, counterfactual in enumerate(counterfactuals):
        name = f"{counterfactual.cause}-{number}"
        change = base.then(counterfactual.change)
        case = cases[name] = opened.apply(change)
        reason = _build(opened, name, case, change, built)
        if reason is not None:
            reasons[name] = reason
    if rival is not None:
        with contextlib.suppress(CaseError, CaseSkipped):
            built[RIVAL] = (rival, opened.build(rival.variant), Change())
    samples, errors = race_artifacts(opened, built, max_seconds)
    if ORIGINAL not in samples:
        raise CaseError(f"the case could not be measured: {errors.get(ORIGINAL, 'it has no samples')}")
    reasons |= errors
    names = [f"{counterfactual.cause}-{number}" for number, counterfactual in enumerate(counterfactuals)]
    against_fp32 = compare_times(samples[ORIGINAL], samples[FP32]) if FP32 in samples else None
    to_rival = compare_times(samples[RIVAL], samples[ORIGINAL]) if RIVAL in samples else None
    same_batch = math.log(opened.fp32_case.batch_size / own_case.batch_size)
    own_seconds = _seconds(samples[ORIGINAL], own_case)
    off_core = [share for each in samples.values() if (share := average_off_core(each)) is not None]
    trials = (
        _conclude(counterfactual, cases[name], own_case, samples.get(name), samples[ORIGINAL], reasons.get(name))
        for name, counterfactual in zip(names, counterfactuals, strict=True)
    )
    return Tried(
        original_seconds=own_seconds,
        fp32_seconds=_seconds(samples[FP32], opened.fp32_case) if FP32 in samples else None,
        trials=tuple(replace(trial, beyond=base != Change()) for trial in trials),
        rival=None if to_rival is None or rival is None else rival.id,
        rival_seconds=None if to_rival is None else own_seconds * math.exp(to_rival.value),
        over_fp32=None if against_fp32 is None else _shift(against_fp32, same_batch).ratio(),
        off_core=max(off_core, default=None),
    )


def _build(
    opened: OpenCase,
    name: str,
    case: Case,
    change: Change,
    built: dict[str, tuple[Case, Artifact, Change]],
) -> str | None:
    """Adds the artifact of a counterfactual to ``built``; the reason where there is none, or nothing that differs."""
    if case.threads > len(opened.cores):
        return f"it takes {case.threads} cores, {len(opened.cores)} may be used here"
    if (reason := why_not_built(change, case)) is not None:
        return reason
    try:
        artifact = opened.build(case.variant) if change.rebuilds else opened.artifact
    except (CaseError, CaseSkipped) as error:
        return str(error)
    if artifact.fixed_batch not in (None, case.batch_size):
        return f"the file takes batches of {artifact.fixed_batch} only"
    own_case, own_artifact, own_change = built[ORIGINAL]
    if (
        artifact.sha256 == own_artifact.sha256
        and (case.variant.backend, case.threads, case.batch_size)
        == (own_case.variant.backend, own_case.threads, own_case.batch_size)
        and (change.environment, change.flush_denormals) == (own_change.environment, own_change.flush_denormals)
    ):
        return "it gives the same artifact, byte by byte"
    built[name] = (case, artifact, change)
    return None


def race_artifacts(
    opened: OpenCase,
    built: Mapping[str, tuple[Case, Artifact, Change]],
    max_seconds: float,
) -> tuple[dict[str, Samples], dict[str, str]]:
    """The samples of each artifact, called as its case and change say, and the errors of those that have none."""
    specs = {
        name: replace(
            opened.specify_worker(name, case, artifact, **change.environment), flush_denormals=change.flush_denormals
        )
        for name, (case, artifact, change) in built.items()
    }
    arms = tuple(
        Arm(
            case=name,
            role="fp32" if name == FP32 else "candidate",
            baseline=None if name in (ORIGINAL, FP32) else ORIGINAL,
        )
        for name in specs
    )
    rules = RaceRules(
        tie=PRECISION,
        precision=PRECISION,
        least=GENERATIONS,
        most=MOST_GENERATIONS,
        max_seconds=max_seconds,
        everything=True,
    )
    measured = measure_group(
        specs[FP32],
        [spec for name, spec in specs.items() if name != FP32],
        protocol=Race(arms=arms, rules=rules, clock=time.monotonic, seed=opened.suite.measure.seed),
        limits=opened.limits,
        tell=opened.progress.advance,
    )
    samples = {name: result.samples for name, result in measured.items() if result.samples is not None}
    return samples, {name: str(result.error) for name, result in measured.items() if result.error is not None}


def _seconds(samples: Samples, case: Case) -> float:
    """The median of the calls for one example."""
    calls = sorted(samples.calls_ns.tolist())
    return float(calls[len(calls) // 2]) / 1e9 / case.batch_size


def _conclude(
    counterfactual: Counterfactual,
    case: Case,
    original: Case,
    samples: Samples | None,
    own: Samples,
    reason: str | None,
) -> Trial:
    difference = None if samples is None else compare_times(samples, own)
    if difference is None or samples is None:
        return Trial(counterfactual=counterfactual, case=case, reason=reason or "it shares no round with the case")
    return Trial(
        counterfactual=counterfactual,
        case=case,
        difference=_shift(difference, math.log(original.batch_size / case.batch_size)),
        seconds=_seconds(samples, case),
    )


def _shift(difference: PairedDifference, by: float) -> PairedDifference:
    """The difference of logarithms with a constant added: times for one example in place of a call."""
    return replace(difference, value=difference.value + by)
