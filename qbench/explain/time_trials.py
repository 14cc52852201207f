"""Counterfactuals built and measured beside the case, in one race: how much longer the case takes than each."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from qbench.build import Artifact
from qbench.errors import CaseError, CaseSkipped
from qbench.explain.causes.base import Counterfactual
from qbench.explain.change import Change
from qbench.explain.open_case import OpenCase, why_not_built
from qbench.explain.trial import SAME_ARTIFACT, Trial, Tried, save_time
from qbench.measure.core_time import needed_ns
from qbench.measure.estimates import average_off_core
from qbench.measure.group import measure_group
from qbench.measure.paired_difference import PairedDifference, compare_times
from qbench.measure.race import Race
from qbench.measure.race_rules import Arm, RaceRules
from qbench.measure.samples import Samples
from qbench.measure.undisturbed_blocks import lowest_level
from qbench.plan.cases import Case
from qbench.stats.interval_type import Interval

ORIGINAL, FP32, RIVAL = "original", "fp32", "rival"
# Generations of processes: with fewer, limits rest on what is known of processes in general; a disturbed machine needs
# more until every difference to the case is known to ``PRECISION``.
GENERATIONS, MOST_GENERATIONS, PRECISION = 4, 9, 0.04
TimedArm: TypeAlias = "tuple[Case, Artifact, Change]"  # a case, its file, and what differs in its process


@dataclass(frozen=True, kw_only=True)
class Raced(Tried):
    """One race: the seconds for one example of the case and of its fp32, and how many times as long the case takes
    (``over_fp32``). ``rival_seconds``: those of another case of the run, ``rival``, by the difference to the case.
    ``off_core``: the largest share of the time of one of them in which other processes had the core; None where the
    system does not tell."""

    original_seconds: float
    fp32_seconds: float | None
    over_fp32: Interval | None = None
    rival: str | None = None
    rival_seconds: float | None = None
    off_core: float | None = None


def try_changes(
    opened: OpenCase,
    counterfactuals: Sequence[Counterfactual],
    *,
    max_seconds: float,
    base: Change | None,
    rival: Case | None = None,
) -> Raced:
    """The counterfactuals measured in one race with the case and its fp32; raises ``CaseError`` where the case itself
    cannot be measured. ``max_seconds`` of measuring for each of them. ``base``: a change that the case and all
    counterfactuals have already. ``rival``: another case to be measured beside it, where it can be built."""
    base = base or Change()
    case = opened.apply(base)
    artifact = opened.build(case.variant) if base.rebuilds else opened.artifact
    arms: dict[str, TimedArm] = {
        ORIGINAL: (case, artifact, base),
        FP32: (opened.fp32_case, opened.fp32, Change()),
    }
    named = {f"{each.cause}-{number}": each for number, each in enumerate(counterfactuals)}
    reasons: dict[str, str] = {}
    for name, counterfactual in named.items():
        change = base.then(counterfactual.change)
        try:
            arms[name] = _build_arm(opened, change, arms[ORIGINAL])
        except (CaseError, CaseSkipped) as error:
            reasons[name] = str(error)
    if rival is not None:
        with contextlib.suppress(CaseError, CaseSkipped):
            arms[RIVAL] = (rival, opened.build(rival.variant), Change())
    samples, errors = race_artifacts(opened, arms, max_seconds)
    if ORIGINAL not in samples:
        raise CaseError(f"the case could not be measured: {errors.get(ORIGINAL, 'it has no samples')}")
    reasons |= errors
    gains = {
        name: _compare_examples(timed, arms[name][0], samples[ORIGINAL], case)
        for name, timed in samples.items()
        if name not in (ORIGINAL, FP32)
    }
    trials = (
        Trial(
            counterfactual=counterfactual,
            saving=None if (difference := gains.get(name)) is None else save_time(difference),
            reason=reasons.get(name, "it shares no round with the case") if gains.get(name) is None else None,
            beyond=base != Change(),
        )
        for name, counterfactual in named.items()
    )
    return _conclude(opened, case, samples, tuple(trials), rival, gains.get(RIVAL))


def _conclude(
    opened: OpenCase,
    case: Case,
    samples: Mapping[str, Samples],
    trials: tuple[Trial, ...],
    rival: Case | None,
    to_rival: PairedDifference | None,
) -> Raced:
    """The trials beside what the case itself takes."""
    fp32, fp32_case = samples.get(FP32), opened.fp32_case
    over_fp32 = None if fp32 is None else _compare_examples(samples[ORIGINAL], case, fp32, fp32_case)
    seconds = _seconds(samples[ORIGINAL], case)
    off_core = [share for timed in samples.values() if (share := average_off_core(timed)) is not None]
    return Raced(
        original_seconds=seconds,
        fp32_seconds=None if fp32 is None else _seconds(fp32, fp32_case),
        trials=trials,
        rival=None if to_rival is None or rival is None else rival.id,
        rival_seconds=None if to_rival is None else seconds * math.exp(to_rival.value),
        over_fp32=None if over_fp32 is None else over_fp32.ratio(),
        off_core=max(off_core, default=None),
    )


def _build_arm(opened: OpenCase, change: Change, original: TimedArm) -> TimedArm:
    """What a changed case is raced as; raises ``CaseError`` or ``CaseSkipped`` where it cannot be, or nothing in it
    differs from the ``original``."""
    case = opened.apply(change)
    if case.threads > len(opened.cores):
        raise CaseSkipped(f"it takes {case.threads} cores, {len(opened.cores)} may be used here")
    if (reason := why_not_built(change, case)) is not None:
        raise CaseSkipped(reason)
    artifact = opened.build(case.variant) if change.rebuilds else opened.artifact
    if artifact.built.fixed_batch not in (None, case.batch_size):
        raise CaseSkipped(f"the file takes batches of {artifact.built.fixed_batch} only")
    arm = (case, artifact, change)
    if _list_differing(arm) == _list_differing(original):
        raise CaseSkipped(SAME_ARTIFACT)
    return arm


def _list_differing(arm: TimedArm) -> tuple[object, ...]:
    """What makes one arm of a race another one."""
    case, artifact, change = arm
    called = (case.variant.backend, case.threads, case.batch_size)
    return artifact.sha256, called, dict(change.environment), change.flush_denormals


def race_artifacts(
    opened: OpenCase,
    built: Mapping[str, TimedArm],
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
    return float(np.median(needed_ns(samples.calls_ns, samples.processor_ns))) / 1e9 / case.batch_size


def _compare_examples(timed: Samples, case: Case, other: Samples, other_case: Case) -> PairedDifference | None:
    """How much longer one case takes than another for one example, in place of a call."""
    level = lowest_level((timed.canary_ns, other.canary_ns))
    alike = (case.variant.mode == "fp32") == (other_case.variant.mode == "fp32")
    difference = compare_times(timed, other, level, alike=alike)
    if difference is None:
        return None
    return replace(difference, value=difference.value + math.log(other_case.batch_size / case.batch_size))
