"""What the gate's rules share: the evidence that they look at, the verdict, and how an interval decides it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from qbench import compare, decide, wording
from qbench.example_scores import ExampleScores
from qbench.gate_looks import NotRun, Rerun
from qbench.record import Interval, Record, Speedup
from qbench.stored import RunInfo

if TYPE_CHECKING:
    from qbench.baseline import Baseline
    from qbench.suite import GateSpec

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID", "MISSING"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One rule on one case. ``text`` holds the numbers, ``reason`` why it is not PASS, ``place`` the rule's
    file:line. ``value``, its limits and ``threshold`` are raw (ratios, or the metric's own scale, better positive);
    ``p_value`` is the FAIL side's, scaled to a 5 % test, None where the rule does not rest on samples. ``way`` says
    how latency was judged: ``live``, by running both artifacts again, or by ``stored`` speed-ups. ``examples``: about
    how many would decide an INCONCLUSIVE accuracy; ``mcnemar_p``: the mid-p value of "no answer's correctness changed".
    """

    outcome: Outcome
    case: str
    rule: str
    place: str
    text: str
    reason: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    threshold: float | None = None
    p_value: float | None = None
    way: Literal["live", "stored"] | None = None
    examples: int | None = None
    mcnemar_p: float | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What every rule may look at. ``deltas`` are against the stored baseline, by case; ``pairs`` gives the metric
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


def judged(
    verdict: Verdict,
    interval: Interval,
    *,
    level: float,
    wanted: Literal["above", "below"],
    freedom: int | None,
) -> Verdict:
    """The verdict with the interval's numbers, decided by the side of the threshold that it lies on."""
    assert verdict.threshold is not None
    outcome = decide.judge(interval, verdict.threshold, wanted=wanted)
    wrong: Literal["above", "below"] = "below" if wanted == "above" else "above"
    p = decide.p_beyond(interval, verdict.threshold, side=wrong, level=level, freedom=freedom)
    spans = "too few samples for an interval" if interval.low is None else "the interval spans the threshold"
    reasons = {"PASS": None, "FAIL": "the whole interval is beyond the threshold", "INCONCLUSIVE": spans}
    return replace(
        verdict,
        outcome=outcome,
        reason=reasons[outcome],
        value=interval.value,
        low=interval.low,
        high=interval.high,
        level=level,
        p_value=decide.scaled(p, level),
    )


def trusted(verdict: Verdict, speedup: Speedup, *, room: float, meaning: str) -> Verdict:
    """The verdict, or INCONCLUSIVE where the measurement does not vouch for itself."""
    doubt = _doubt(speedup, room, meaning)
    return verdict if doubt is None else replace(verdict, outcome="INCONCLUSIVE", reason=doubt)


def _doubt(speedup: Speedup, room: float, meaning: str) -> str | None:
    control = speedup.control
    if speedup.protocol != "paired":
        return f"protocol {speedup.protocol} has no control to tell noise from change; gate with protocol paired"
    if control is None or control.low is None or control.high is None:
        return "the control (A/A) was not measured, so noise cannot be told from change"
    worst = max(abs(math.log(control.low)), abs(math.log(control.high)))
    if worst > math.log1p(room):
        return (
            f"the machine is too noisy: the control (A/A), whose true value is 1, is "
            f"{wording.with_limits(control)} and must lie within {meaning}, {math.log1p(room) * 100:.1f} %"
        )
    if speedup.steady is not True:
        return "the series was not steady: latency moved between its first and last third"
    return None
