"""What the gate says of a rule on a case: the ``Verdict``, and ``GateRule``, which builds every one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from qbench.compare import text as compare_text
from qbench.decide.limits import AccuracyFloor, LimitCheck
from qbench.gating.exit_codes import OUTCOMES, Effect, Outcome
from qbench.record.schema import Flips
from qbench.stats import examples_needed, mcnemar, multiple_testing, thresholds
from qbench.stats.noninferiority import NonInferiority

HARM = 0.05
# What a rule is about; tests of one kind on one case share their error (Holm).
Kind = Literal["run", "case", "time", "metric", "size", "cold start", "memory", "coverage", "portability"]


@dataclass(frozen=True, kw_only=True)
class LiveTimes:
    """Typical seconds of a call, as run again here and now: of the baseline's artifact, of the run's, and of its fp32
    where it ran along. ``pairs``: process pairs that they rest on; ``spent``: seconds that measuring took."""

    baseline: float | None
    contender: float | None
    fp32: float | None = None
    pairs: int
    spent: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One rule on one case. ``text`` holds the numbers, ``reason`` why it is not PASS, ``place`` the rule's
    file:line in the suite, ``rule`` its name and ``kind`` what it is about. ``default``: the key that would set the
    rule, where the suite does not write it; ``place`` is then the nearest section that it writes.

    ``value``, its limits at ``level`` and ``threshold`` are raw (ratios, or the metric's own scale, better positive).
    ``p_value`` is the FAIL side's, scaled to a 5 % test, None where the rule does not rest on samples; ``p_harm`` is
    that of any change for the worse, however small; ``spent`` the share of the tolerance or margin that the estimate
    takes up (None: there is no earlier value). ``way`` says how time was judged: ``live``, by running both artifacts
    again (``times``), or by ``stored`` figures. ``identical``: the artifact is the baseline's, byte by byte, run by
    the same versions on the same kind of host, so nothing was measured. ``decides`` says what would decide an
    INCONCLUSIVE, ``examples`` how many where examples would; ``mcnemar_p``: the mid-p value of "no answer's correctness
    changed". ``settled``: what an INCONCLUSIVE or MISSING does by the suite's ``inconclusive`` and ``missing``, else
    None.
    """

    outcome: Outcome
    case: str
    rule: str
    place: str
    text: str
    kind: Kind = "case"
    default: str | None = None
    reason: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    threshold: float | None = None
    p_value: float | None = None
    p_harm: float | None = None
    spent: float | None = None
    way: Literal["live", "stored"] | None = None
    times: LiveTimes | None = None
    identical: bool = False
    decides: str | None = None
    examples: int | None = None
    mcnemar_p: float | None = None
    settled: Effect | None = None

    @property
    def source(self) -> str:
        """Where the rule comes from, for people: its line in the suite, or the key whose default it is."""
        return self.place if self.default is None else f"default of {self.default}"

    @property
    def effect(self) -> Effect:
        """What it does to the exit code."""
        return self.settled or OUTCOMES[self.outcome][0]

    def points_to_harm(self, cases: int) -> bool:
        """Whether the samples show a change for the worse at 5 %, without a correction where their estimate is beyond
        what is allowed. A lesser one must be shown among all ``cases`` that may have changed: of twenty harmless ones
        that were built anew, one has p < 0.05."""
        if self.p_harm is None:
            return False
        beyond = self.spent is None or self.spent >= 1
        return self.p_harm < (HARM if beyond else HARM / max(1, cases))


@dataclass(frozen=True, kw_only=True)
class GateRule:
    """One rule on one case, not checked yet: every verdict is built here. ``place`` is the rule's file:line, ``kind``,
    ``default``, ``threshold`` and ``way`` as in ``Verdict``."""

    name: str
    case: str
    place: str
    kind: Kind
    default: str | None = None
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
            default=self.default,
            text=text,
            reason=reason,
            threshold=self.threshold,
            way=self.way,
        )

    def say_number(self, check: LimitCheck, text: str, reason: str, *, improved: float | None = None) -> Verdict:
        """The verdict on a number without an interval; ``reason`` is that of a FAIL. IMPROVED below ``improved``."""
        assert check.measured is not None
        assert check.outcome is not None
        if check.outcome == "FAIL":
            verdict = self.verdict("FAIL", text, reason)
        else:
            better = improved is not None and check.measured.value < improved
            verdict = self.verdict("IMPROVED" if better else check.outcome, text)
        return replace(verdict, value=check.measured.value)

    def say_interval(self, check: LimitCheck, text: str, *, improves: bool = False) -> Verdict:
        """The verdict on an interval. ``improves``: it is a ratio to an earlier value; what is shown to be better, and
        by more than the tolerance, is IMPROVED."""
        interval, threshold, level = check.measured, check.threshold, check.level
        assert interval is not None
        assert threshold is not None
        assert level is not None
        assert check.outcome is not None
        beyond: Literal["above", "below"] = "below" if check.side == "above" else "above"
        p_beyond = partial(
            thresholds.p_value_beyond, interval, side=beyond, level=level, degrees_of_freedom=check.freedom
        )
        spans = "too few samples for an interval" if interval.low is None else "the interval spans the threshold"
        reasons = {"PASS": None, "FAIL": "the whole interval is beyond the threshold", "INCONCLUSIVE": spans}
        verdict = replace(
            self.verdict(check.outcome, text, check.doubt or reasons[check.outcome]),
            value=interval.value,
            low=interval.low,
            high=interval.high,
            level=level,
            p_value=multiple_testing.scale_p_value(p_beyond(threshold), level),
            p_harm=None if interval.low is None else p_beyond(1.0 if improves else threshold),
            spent=_share_spent(interval.value, 1.0, threshold) if improves else None,
        )
        better = interval.high is not None and interval.high < 1 and interval.value * threshold < 1
        return replace(verdict, outcome="IMPROVED") if improves and better and check.outcome == "PASS" else verdict

    def say_test(
        self,
        check: LimitCheck,
        text: str,
        *,
        failed: str,
        n: int,
        flips: Flips | None,
        improves: bool = False,
    ) -> Verdict:
        """The verdict of a non-inferiority test on ``n`` examples; ``failed`` is the reason of a FAIL. ``improves``:
        against the baseline; what is shown to be better, and by more than the margin, is IMPROVED."""
        test = check.test
        assert test is not None
        assert self.threshold is not None
        decides = compare_text.would_decide(test, n)
        reasons = {"PASS": None, "FAIL": failed, "INCONCLUSIVE": _explain_undecided(check, test, n, decides)}
        low = test.delta.low
        better = improves and low is not None and low > 0 and test.delta.value > -self.threshold
        harm = None if low is None else thresholds.p_value_beyond(test.delta, 0.0, side="below", level=test.level)
        return replace(
            self.verdict("IMPROVED", text)
            if better and test.outcome == "PASS"
            else self.verdict(test.outcome, text, reasons[test.outcome]),
            value=test.delta.value,
            low=low,
            high=test.delta.high,
            level=test.level,
            p_value=None if test.p_worse is None else multiple_testing.scale_p_value(test.p_worse, test.level),
            p_harm=harm,
            spent=_share_spent(test.delta.value, 0.0, self.threshold),
            decides=decides if test.outcome == "INCONCLUSIVE" else None,
            examples=None if test.examples is None or examples_needed.are_many(test.examples, n) else test.examples,
            mcnemar_p=None if flips is None else mcnemar.midp(flips.harmful, flips.beneficial),
        )


def _share_spent(value: float, unchanged: float, threshold: float) -> float | None:
    """How far an estimate has gone from no change towards the threshold; None where that allows no change."""
    return None if threshold == unchanged else (value - unchanged) / (threshold - unchanged)


def format_level(level: float, why: str = "") -> str:
    """``(98.75 %: 4 looks share 5 %)``: the level of an interval, and why it is that."""
    return f"({level * 100:g} %{': ' if why else ''}{why})"


def advise_improved(ref: str | None) -> str:
    """What to do about something better than in the baseline, which is a committed file or the commit ``ref``."""
    if ref is None:
        return "keep it with `qbench baseline RUN`"
    return f"nothing to write, {ref} has it as soon as this is merged"


def _explain_undecided(check: LimitCheck, test: NonInferiority, n: int, decides: str | None) -> str:
    if test.delta.low is None:
        return "the examples support no interval"
    spanned = "the least score" if isinstance(check.bound, AccuracyFloor) else "the margin"
    return (test.reason or f"the interval spans {spanned}") + (
        f"; {decides} would decide, there are {n:,}" if decides else ""
    )
