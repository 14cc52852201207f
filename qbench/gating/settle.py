"""The verdicts on one case, judged together: corrected for their number, and what an INCONCLUSIVE one does; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from qbench.gating import accuracy
from qbench.gating.deciding import refuse_pairs
from qbench.gating.outcomes import Effect
from qbench.gating.verdict import Evidence, Verdict
from qbench.record.schema import Record
from qbench.stats import multiple_testing
from qbench.stats.multiple_testing import FAMILY_ERROR


def correct_for_rules(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts on one case, a FAIL by samples turned INCONCLUSIVE where it does not survive Holm over the rules of
    its kind."""
    corrected = {}
    for kind in {verdict.kind for verdict in verdicts}:
        sampled = [verdict for verdict in verdicts if verdict.kind == kind and verdict.p_value is not None]
        adjusted = multiple_testing.adjust_by_holm([verdict.p_value or 0.0 for verdict in sampled])
        for verdict, p in zip(sampled, adjusted, strict=True):
            # Rounding may leave a single rule's own 5 % a last digit above it.
            if verdict.outcome == "FAIL" and p > FAMILY_ERROR * (1 + 1e-9):
                corrected[id(verdict)] = _withdraw(verdict, p, len(sampled))
    return [corrected.get(id(verdict), verdict) for verdict in verdicts]


def _withdraw(verdict: Verdict, p: float, rules: int) -> Verdict:
    """INCONCLUSIVE: a FAIL that does not survive the correction."""
    times = multiple_testing.estimate_sample_factor(verdict.p_value or 0.0, rules)
    verdict = verdict.unless(f"fails alone, but {rules} rules of its kind were judged at once (Holm: p = {p:.2g})")
    if verdict.way == "live" and verdict.times is not None:
        return refuse_pairs(verdict, math.ceil(times * max(1, verdict.times.pairs)))
    more = f"about {times:.1f} times as many {'examples' if verdict.kind == 'metric' else 'processes'}"
    return replace(verdict, reason=f"{verdict.reason}; {more} would decide", decides=more)


def settle(verdicts: Sequence[Verdict], evidence: Evidence, record: Record) -> list[Verdict]:
    """The verdicts on one case, each INCONCLUSIVE with what it does by ``gate.inconclusive``, each IMPROVED with what
    to do about it.

    ``hold`` holds where the samples point to a change for the worse, and where there are none. What was so in the
    baseline is no change: the rule on the metric against fp32 holds only if the metric is worse than in the baseline,
    too, and no rule holds a case whose artifact is the baseline's and run by the same versions.
    """
    regressions = [verdict for verdict in verdicts if verdict.rule.endswith(accuracy.SUFFIX)]
    as_before = any(
        verdict.outcome in ("PASS", "IMPROVED", "INCONCLUSIVE") and not verdict.points_to_harm(evidence.changed_cases)
        for verdict in regressions
    )
    unchanged = evidence.is_unchanged(record)

    def settle_one(verdict: Verdict) -> Verdict:
        if verdict.outcome == "IMPROVED":
            return replace(verdict, reason=f"better than the baseline by more than the tolerance: {evidence.advice}")
        if verdict.outcome != "INCONCLUSIVE":
            return verdict
        treatment = evidence.policy.inconclusive
        if treatment != "hold":
            effect: Effect = "note" if treatment == "pass" else treatment
        elif unchanged or (verdict.kind == "metric" and as_before):
            effect = "note"
        else:
            harmful = verdict.p_harm is None or verdict.points_to_harm(evidence.changed_cases)
            effect = "hold" if harmful else "note"
        return replace(verdict, settled=effect)

    return [settle_one(verdict) for verdict in verdicts]
