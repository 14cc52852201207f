"""Rules of decide/decider: what would tell two apart, each at its boundary."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_records import int8, latency, speedup

from qbench.decide.choose import Choice
from qbench.decide.decider import Decider, Kind, count_more_processes, count_processes, find_decider
from qbench.decide.judged import SuiteRules, judge
from qbench.measure.paired_difference import PairedDifference
from qbench.record.stored_run import MetricInfo
from qbench.stats import examples_needed
from qbench.stats.interval_type import Interval
from qbench.stats.thresholds import DECIDING_Z

TIE = math.log1p(0.03)


def decider_of(
    value: float = 0.001,
    reach: float = 0.01,
    *,
    sha256: str = "other",
    evidence: str = "rounds",
    differs: Any = None,
) -> Decider:
    """What would tell two apart whose times differ by ``value`` and lie within ``reach`` of it."""
    pick, rival = (int8(f"net/static/{name}/t1/b1", latency=latency(1e-3), speedup=speedup(2.5)) for name in ("a", "b"))
    assert pick.artifact is not None
    assert rival.artifact is not None
    sha256 = pick.artifact.sha256 if sha256 == "same" else sha256
    rival = replace(rival, artifact=replace(rival.artifact, sha256=sha256))
    difference = SimpleNamespace(value=value, error=reach / 2, generations=7)
    comparison = SimpleNamespace(
        value=value, low=value - reach, high=value + reach, evidence=evidence, difference=difference
    )
    contest: Any = SimpleNamespace(
        tie=TIE,
        accuracy_tie=0.01,
        spec=SimpleNamespace(prefer=("accuracy",)),
        differences=SimpleNamespace(compare=lambda *_: differs),
        objective=SimpleNamespace(compare=lambda *_: comparison),
    )
    return find_decider(
        Choice(verdict="ship", pick=pick), rival, judge([], MetricInfo(name="top1"), SuiteRules()), contest
    )


def reaching(needed: int, room: float) -> float:
    """How far the limits of seven generations reach where so many, and no fewer, would tell a difference ``room``."""
    return 2 * math.sqrt(needed - 0.5) * room / DECIDING_Z / math.sqrt(7)


@pytest.mark.parametrize(
    ("value", "reach", "others", "kind"),
    [
        (0.001, 0.01, {}, "tied"),
        (0.0, TIE, {}, "tied"),
        (0.0, TIE + 1e-9, {}, "processes"),
        (0.02, 0.01, {}, "processes"),
        (-0.02, 0.01, {}, "processes"),
        (0.001, 0.01, {"sha256": "same"}, "same file"),
        (0.001, 0.05, {"sha256": "same"}, "processes"),  # not shown to tie yet
        (0.001, 1.0, {"sha256": "same"}, "noise"),
        (0.03, 0.2, {}, "tie's edge"),
        (TIE / 2 + 1e-6, 1.0, {}, "tie's edge"),
        (TIE / 2 - 1e-6, 1.0, {}, "noise"),
        (-1.5 * TIE + 1e-6, 1.0, {}, "tie's edge"),
        (1.5 * TIE + 1e-6, 1.0, {}, "noise"),
        (3 * TIE, reaching(99, 2 * TIE), {}, "processes"),
        (3 * TIE, reaching(100, 2 * TIE), {}, "noise"),
        (0.001, 0.05, {"evidence": "apart"}, "apart"),
        (0.001, 0.05, {"evidence": "p50"}, "apart"),
        (0.001, 0.05, {"evidence": "baseline"}, "processes"),
    ],
)
def test_what_would_tell_two_apart(value: float, reach: float, others: dict[str, str], kind: Kind) -> None:
    """Nothing, of copies of one file and of what is shown to tie; else processes, quiet, or a race of both."""
    assert decider_of(value, reach, **others).kind == kind


def test_examples_are_asked_for_where_accuracy_may_decide_and_times_are_near() -> None:
    """Where what two differ by may be more or less than half the margin; of times that are apart it decides nothing."""
    open_ = SimpleNamespace(value=0.009, error=0.004)
    decider = decider_of(differs=open_)
    assert (decider.kind, decider.there) == ("examples", 1000)
    assert decider.needed is not None
    assert decider.needed > 1000
    assert decider.examples.startswith("about ")
    by_hand = Interval(value=0.009, low=0.009 - 1.6449 * 0.004, high=0.009 + 1.6449 * 0.004)
    assert decider.needed == pytest.approx(examples_needed.for_mean(by_hand, 0.016, 1000, -0.01, 0.95), rel=0.05)
    assert decider_of(0.05, 0.06, differs=open_).kind == "processes"
    assert decider_of(TIE, 0.06, differs=open_).kind == decider_of(-TIE, 0.06, differs=open_).kind == "examples"
    assert decider_of(differs=SimpleNamespace(value=0.0, error=0.004)).kind == "tied"
    near = {-0.0179: "examples", 0.0181: "tied", 0.0021: "examples", 0.0019: "tied"}
    assert {value: decider_of(differs=SimpleNamespace(value=value, error=0.004)).kind for value in near} == near


@pytest.mark.parametrize(("needed", "worth"), [(None, False), (4500, True), (4501, False)])
def test_ten_times_the_examples_are_worth_it_and_more_are_not(needed: int | None, worth: bool) -> None:
    """Nobody labels a hundred times as many pictures to tell two apart that are within a tie."""
    assert Decider(kind="examples", needed=needed, there=450).is_worth_it == worth


def test_processes_grow_with_the_spread_and_the_nearness() -> None:
    """With the square of both; at no distance no number is enough."""
    difference: Any = SimpleNamespace(error=0.01, generations=4)
    assert count_processes(difference, 0.02) == math.ceil(DECIDING_Z**2)
    assert count_processes(difference, 0.01) == math.ceil(4 * DECIDING_Z**2)
    assert count_processes(difference, 0.0) == 100


@pytest.mark.parametrize(("generations", "processes", "there"), [(1, 3, 3), (4, 3, 4), (2, None, 2)])
def test_more_processes_are_at_least_one_more(generations: int, processes: int | None, there: int) -> None:
    """Than those of the comparison, or of the pick's own speed-up."""
    difference = PairedDifference(value=0.1, error=0.01, freedom=3, generations=generations, coarse=False)
    pick = int8(speedup=None if processes is None else speedup(processes=processes))
    assert count_more_processes(difference, pick, 1.0) == (there, there + 1)
    room = 0.002
    assert count_more_processes(difference, pick, room) == (there, math.ceil(there * (0.01 * DECIDING_Z / room) ** 2))
