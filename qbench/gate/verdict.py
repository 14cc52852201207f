"""What the gate's rules share: the evidence that they read, and ``Rule``, which builds every verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from qbench.compare import compare
from qbench.compare import text as compare_text
from qbench.gate.sequential_test import NotRun, Rerun
from qbench.record.example_scores import ExampleScores
from qbench.record.schema import Flips, Record
from qbench.record.stored_run import RunInfo
from qbench.stats import mcnemar, multiple_testing, thresholds
from qbench.stats.interval_type import Interval
from qbench.stats.noninferiority import NonInferiority

if TYPE_CHECKING:
    from qbench.gate.baseline import Baseline
    from qbench.suite import GateSpec

Outcome = Literal["PASS", "IMPROVED", "INCONCLUSIVE", "MISSING", "INVALID", "FAIL"]
# What a rule is about; tests of one kind on one case share their error (Holm).
Kind = Literal["run", "case", "time", "metric", "size", "cold start", "memory", "coverage"]
# What a verdict does to the exit code: none of the first three does; hold is 4, invalid 3, fail 1.
Effect = Literal["pass", "note", "skip", "hold", "invalid", "fail"]
_EFFECTS: dict[Outcome, Effect] = {
    "PASS": "pass",
    "IMPROVED": "pass",
    "INCONCLUSIVE": "hold",
    "MISSING": "invalid",
    "INVALID": "invalid",
    "FAIL": "fail",
}


@dataclass(frozen=True, kw_only=True)
class LiveTimes:
    """Typical seconds of a call, as run again here and now: of the baseline's artifact, of the run's, and of its fp32
    where it ran along. ``pairs``: process pairs that they rest on; ``spent``: seconds that measuring took."""

    baseline: float | None
    contender: float | None
    fp32: float | None = None
    pairs: int = 0
    spent: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One rule on one case. ``text`` holds the numbers, ``reason`` why it is not PASS, ``place`` the rule's
    file:line in the suite, ``rule`` its name and ``kind`` what it is about.

    ``value``, its limits at ``level`` and ``threshold`` are raw (ratios, or the metric's own scale, better positive).
    ``p_value`` is the FAIL side's, scaled to a 5 % test, None where the rule does not rest on samples; ``p_harm`` is
    that of any change for the worse, however small. ``way`` says how time was judged: ``live``, by running both
    artifacts again (``times``), or by ``stored`` figures. ``identical``: the artifact is the baseline's, byte by byte,
    so nothing was measured. ``decides`` says what would decide an INCONCLUSIVE, ``examples`` how many where examples
    would; ``mcnemar_p``: the mid-p value of "no answer's correctness changed". ``settled``: what an INCONCLUSIVE or
    MISSING does by the suite's ``inconclusive`` and ``missing``, else None.
    """

    outcome: Outcome
    case: str
    rule: str
    place: str
    text: str
    kind: Kind = "case"
    reason: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    threshold: float | None = None
    p_value: float | None = None
    p_harm: float | None = None
    way: Literal["live", "stored"] | None = None
    times: LiveTimes | None = None
    identical: bool = False
    decides: str | None = None
    examples: int | None = None
    mcnemar_p: float | None = None
    settled: Effect | None = None

    @property
    def effect(self) -> Effect:
        """What it does to the exit code."""
        return self.settled or _EFFECTS[self.outcome]

    def unless(self, doubt: str | None) -> Verdict:
        """The verdict, or INCONCLUSIVE for that reason where there is one."""
        return self if doubt is None else replace(self, outcome="INCONCLUSIVE", reason=doubt)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What every rule may read. ``deltas`` are against the stored baseline, by case; ``pairs`` gives the metric
    of each example for a record and its fp32, where predictions are stored; ``examples`` what the record's score rests
    on, example by example, and ``score_of_facts`` the metric of what it has no value of for each; ``reruns`` what
    running the artifacts of a case again gave, empty where that was not asked for."""

    records: Sequence[Record]
    info: RunInfo
    policy: GateSpec
    place: Callable[[str], str]
    baseline: Baseline | None
    deltas: dict[str, compare.Delta]
    pairs: compare.Pairs
    examples: Callable[[Record], ExampleScores | None] = lambda record: None
    score_of_facts: Callable[[Any], float] | None = None
    reruns: Mapping[str, Rerun | NotRun] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule on one case, not checked yet: every verdict is built here. ``place`` is the rule's file:line, ``kind``,
    ``threshold`` and ``way`` as in ``Verdict``."""

    name: str
    case: str
    place: str
    kind: Kind
    threshold: float | None = None
    way: Literal["live", "stored"] | None = None

    def verdict(self, outcome: Outcome, text: str, reason: str | None = None) -> Verdict:
        """The verdict that needs no number: what is missing, cannot be compared, or has failed."""
        return Verdict(
            outcome=outcome,
            case=self.case,
            rule=self.name,
            kind=self.kind,
            place=self.place,
            text=text,
            reason=reason,
            threshold=self.threshold,
            way=self.way,
        )

    def compare_number(self, value: float, text: str, reason: str) -> Verdict:
        """The verdict on a number without an interval: PASS up to the threshold, else FAIL for ``reason``."""
        assert self.threshold is not None
        verdict = self.verdict("PASS", text) if value <= self.threshold else self.verdict("FAIL", text, reason)
        return replace(verdict, value=value)

    def compare_interval(
        self,
        interval: Interval,
        text: str,
        *,
        level: float,
        side: Literal["above", "below"],
        degrees_of_freedom: int | None,
    ) -> Verdict:
        """The verdict on an interval: by the side of the threshold on which the whole of it lies."""
        assert self.threshold is not None
        outcome = thresholds.decide(interval, self.threshold, wanted=side)
        p_value = thresholds.p_value_beyond(
            interval,
            self.threshold,
            side="below" if side == "above" else "above",
            level=level,
            degrees_of_freedom=degrees_of_freedom,
        )
        spans = "too few samples for an interval" if interval.low is None else "the interval spans the threshold"
        reasons = {"PASS": None, "FAIL": "the whole interval is beyond the threshold", "INCONCLUSIVE": spans}
        return replace(
            self.verdict(outcome, text, reasons[outcome]),
            value=interval.value,
            low=interval.low,
            high=interval.high,
            level=level,
            p_value=multiple_testing.scale_p_value(p_value, level),
        )

    def take_test(self, test: NonInferiority, text: str, *, failed: str, n: int, flips: Flips | None) -> Verdict:
        """The verdict of a non-inferiority test on ``n`` examples; ``failed`` is the reason of a FAIL."""
        reasons = {"PASS": None, "FAIL": failed, "INCONCLUSIVE": _explain_undecided(test, n)}
        return replace(
            self.verdict(test.outcome, text, reasons[test.outcome]),
            value=test.delta.value,
            low=test.delta.low,
            high=test.delta.high,
            level=test.level,
            p_value=None if test.p_worse is None else multiple_testing.scale_p_value(test.p_worse, test.level),
            examples=None if test.examples is None else max(test.examples, n + 1),
            mcnemar_p=None if flips is None else mcnemar.midp(flips.harmful, flips.beneficial),
        )


def _explain_undecided(test: NonInferiority, n: int) -> str:
    if test.delta.low is None:
        return "the examples support no interval"
    examples = compare_text.would_decide(test, n)
    return "the interval spans the margin" + (f"; {examples} would decide, there are {n:,}" if examples else "")
