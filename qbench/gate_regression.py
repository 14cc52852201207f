"""The gate's rule on the metric against the baseline's int8: a change that costs fp32 and int8 alike shows nowhere
else, since the other rule holds int8 against the fp32 of its own run.

The examples that the baseline keeps are paired with the run's, and the loss is tested as against fp32: non-inferiority
at 5 %, with a margin of its own. None means that the rule does not concern the case or was not asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from qbench import compare, compare_words, decide, stats, wording
from qbench.example_scores import Paired, pair
from qbench.gate_evidence import Evidence, Verdict
from qbench.record import Flips, Interval, Record
from qbench.stored import MetricInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

RESAMPLES = 2000
# Fewer changed examples than this are few: of 30, resamples draw their number well enough (score.FEW).
FEW = 30
LEVEL = decide.NON_INFERIORITY_LEVEL


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What a test said: the score ``before`` and ``now``, how many examples it rests on, what to tell besides."""

    test: decide.NonInferiority
    before: float
    now: float
    n: int
    flips: Flips | None = None
    note: str = ""
    advice: str = ""


def regression(evidence: Evidence, record: Record) -> Verdict | None:
    """Is the metric within ``accuracy.max_regression`` of the baseline's int8?"""
    spec, metric = evidence.policy.accuracy, evidence.info.metric
    allowed = spec.allowed_regression
    if allowed is None or metric is None:
        return None
    blank = Verdict(
        outcome="MISSING",
        case=record.case.id,
        rule=f"{metric.name} regression",
        place=evidence.place("gate.accuracy.max_regression"),
        text="no baseline",
        reason="write one with `qbench baseline RUN` and commit it",
        threshold=-allowed / metric.scale,
    )
    if evidence.baseline is None:
        return blank if "max_regression" in spec.model_fields_set else None
    delta = evidence.deltas.get(record.case.id)
    if delta is None or delta.base is None or delta.base.accuracy is None:
        return None  # a case that the baseline lacks is MISSING by the rule on latency
    if record.accuracy is None:
        return replace(blank, text="no accuracy", reason="the baseline has a score, this run has none")
    was, name = delta.base.accuracy.metric, record.accuracy.metric
    if was != name:
        reason = f"the baseline measured {was}, this run {name}; write a new baseline"
        return replace(blank, outcome="INVALID", text="not comparable", reason=reason)
    return _of_scores(evidence, replace(blank, text=""), record, delta, metric, allowed)


def _of_scores(
    evidence: Evidence, blank: Verdict, record: Record, delta: compare.Delta, metric: MetricInfo, allowed: float
) -> Verdict:
    shared = _shared(evidence, record)
    assert record.accuracy is not None
    assert delta.base is not None
    if shared is None:
        return _verdict(blank, _unpaired(delta, metric, allowed), metric, allowed)
    if shared.n == 0:
        reason = "none of the examples that the baseline keeps is in this run; write a baseline on today's examples"
        return replace(blank, outcome="INVALID", text="other examples", reason=reason)
    if _identical(shared, record, delta.base):
        return _same(blank, metric, record.accuracy.value, shared.n, allowed)
    return _verdict(blank, _paired(evidence, shared, metric, allowed), metric, allowed)


def _shared(evidence: Evidence, record: Record) -> Paired | None:
    """The examples of this run beside the baseline's; None where either keeps none."""
    assert evidence.baseline is not None
    kept = evidence.baseline.examples.get(record.case.id)
    mine = None if kept is None else evidence.examples(record)
    if kept is None or mine is None or (mine.facts and evidence.score_of_facts is None):
        return None
    return pair(mine, kept)


def _identical(shared: Paired, record: Record, base: Record) -> bool:
    """Whether the baseline's very artifact gave the same on all of the same examples: then nothing is estimated."""
    same_file = record.artifact is not None and base.artifact is not None
    same_file = same_file and record.artifact.sha256 == base.artifact.sha256  # type: ignore[union-attr]
    return same_file and shared.whole and bool((shared.new == shared.old).all())


def _same(blank: Verdict, metric: MetricInfo, value: float, n: int, allowed: float) -> Verdict:
    shown = wording.fixed(
        value * metric.scale, max(metric.least, wording.decimals(Interval(value=value), metric.scale))
    )
    text = (
        f"{shown}{' %' if metric.percent else ''}, identical: the baseline's artifact, the same on all {n:,} examples"
    )
    return replace(blank, outcome="PASS", text=f"{text}  margin {_margin(allowed, metric)}", reason=None, value=0.0)


def _paired(evidence: Evidence, shared: Paired, metric: MetricInfo, allowed: float) -> _Found:
    margin, sign = allowed / metric.scale, metric.sign
    if shared.facts:
        assert evidence.score_of_facts is not None
        found = _of_facts(shared, evidence.score_of_facts, sign, margin)
    else:
        found = _of_values(shared, sign, margin)
    notes = []
    if not shared.whole:
        notes.append(f"on {shared.n:,} shared examples (baseline {shared.of_old:,}, run {shared.of_new:,})")
    if shared.by_id:
        notes.append(f"{shared.by_id:,} of them the same by id alone")
    return replace(found, note="  ".join(notes))


def _of_values(shared: Paired, sign: float, margin: float) -> _Found:
    """Right or wrong, or a number, of each example."""
    new, old = shared.new.astype(float), shared.old.astype(float)
    test = decide.non_inferiority(sign * new, sign * old, margin)
    flips = None
    if stats.is_binary(new) and stats.is_binary(old):
        flips = Flips(harmful=int((sign * new < sign * old).sum()), beneficial=int((sign * new > sign * old).sum()))
    elif test.delta.low is None:
        size = math.sqrt(float((old**2).mean()))
        test = decide.from_interval(_with_unseen(test.delta, shared.n, size), margin, LEVEL, shared.n)
    return _Found(test=test, before=float(old.mean()), now=float(new.mean()), n=shared.n, flips=flips)


def _of_facts(shared: Paired, score: Callable[[Array], float], sign: float, margin: float) -> _Found:
    """A metric that no example has alone: both runs scored on the same resamples."""
    before, now = score(shared.old), score(shared.new)
    delta = stats.paired_bootstrap(
        lambda index: sign * (score(shared.new[index]) - score(shared.old[index])),
        shared.n,
        level=LEVEL,
        resamples=RESAMPLES,
    )
    changed = int((shared.new != shared.old).reshape(shared.n, -1).any(axis=1).sum())
    if changed < min(FEW, shared.n) or delta.low is None:
        delta = _with_unseen(delta, shared.n, abs(before))
    test = decide.from_interval(delta, margin, LEVEL, shared.n)
    return _Found(test=test, before=before, now=now, n=shared.n)


def _with_unseen(delta: Interval, n: int, size: float) -> Interval:
    """Limits wide enough for changes that so few examples need not show: of none among n, up to z^2 / (n + z^2) may
    change, and each then loses its share of the score, ``size`` (as ``score`` has it against fp32)."""
    z2 = stats.normal_quantile(LEVEL) ** 2
    reach = z2 / (n + z2) * size
    low, high = (delta.value if limit is None else limit for limit in (delta.low, delta.high))
    return Interval(value=delta.value, low=min(low, delta.value - reach), high=max(high, delta.value + reach))


def _unpaired(delta: compare.Delta, metric: MetricInfo, allowed: float) -> _Found:
    """The two stored scores, as of different examples: wider, and never too narrow."""
    base, new = delta.base, delta.contender
    assert base is not None
    assert base.accuracy is not None
    assert new is not None
    assert new.accuracy is not None
    change = Interval(value=new.accuracy.value - base.accuracy.value) if delta.accuracy is None else delta.accuracy
    n = min(new.accuracy.n, base.accuracy.n)
    return _Found(
        test=decide.from_interval(compare.oriented(change, metric.sign), allowed / metric.scale, n=n),
        before=base.accuracy.value,
        now=new.accuracy.value,
        n=n,
        note="stored scores, not paired",
        advice="; the baseline or the run keeps nothing of each example: a new baseline does, and decides on fewer",
    )


def _verdict(blank: Verdict, found: _Found, metric: MetricInfo, allowed: float) -> Verdict:
    test = found.test
    needed = compare_words.would_decide(test, found.n)
    would = "the interval spans the margin" if test.delta.low is not None else "the examples support no interval"
    would += f"; {needed} would decide, there are {found.n:,}" if needed else ""
    reasons = {
        "PASS": None,
        "FAIL": "worse than the baseline's int8 by more than the margin",
        "INCONCLUSIVE": would + found.advice,
    }
    flips = found.flips
    return replace(
        blank,
        outcome=test.outcome,
        text=_text(found, metric, allowed),
        reason=reasons[test.outcome],
        value=test.delta.value,
        low=test.delta.low,
        high=test.delta.high,
        level=test.level,
        p_value=None if test.p_worse is None else decide.scaled(test.p_worse, test.level),
        examples=None if test.examples is None else max(test.examples, found.n + 1),
        mcnemar_p=None if flips is None else decide.mcnemar_midp(flips.harmful, flips.beneficial),
    )


def _text(found: _Found, metric: MetricInfo, allowed: float) -> str:
    change = compare.oriented(found.test.delta, metric.sign)
    places = max(metric.least, wording.decimals(change, metric.scale))
    before, now = (wording.fixed(value * metric.scale, places) for value in (found.before, found.now))
    by = wording.number(change, scale=metric.scale, signed=True, least=metric.least)
    limits = wording.limits(change, scale=metric.scale, signed=True, least=metric.least)
    parts = [
        f"{before} -> {now}{' %' if metric.percent else ''}",
        " ".join(part for part in (by, metric.unit, limits) if part),
        f"margin {_margin(allowed, metric)}",
        "" if found.flips is None else f"flips {compare_words.flips(found.flips)}",
        found.note,
    ]
    return "  ".join(part for part in parts if part)


def _margin(allowed: float, metric: MetricInfo) -> str:
    return f"{allowed:.1f}" if metric.percent else f"{allowed:g}"
