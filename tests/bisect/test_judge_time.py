"""Rules of qbench/bisect/judge_time.py: the gate's test against half of the change, and the chance that it leaves."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from bisect_error import Setting, normal, simulate

from qbench.bisect import judge_time
from qbench.bisect.judge_time import (
    LOOKS,
    TimeChange,
    compare_neighbours,
    judge_candidate,
    judge_end,
    measure_change,
    next_look,
)
from qbench.bisect.search import Judged
from qbench.gating.sequential_test import InterimAnalysis, ProcessPair
from qbench.stats.interval_type import Interval


def draw(change: float, count: int, spread: float = 0.004, seed: int = 0) -> list[ProcessPair]:
    """Process pairs of a contender that is slower by that share."""
    rng, draw_pair = np.random.default_rng(seed), normal(spread)
    return [replace(pair, ratio=pair.ratio + math.log1p(change)) for pair in (draw_pair(rng) for _ in range(count))]


def test_looks_come_after_ever_more_pairs() -> None:
    """Four times as many as the gate's at most."""
    assert [next_look(count) for count in (0, 2, 3, 6, 12, 24, 48, 50)] == [3, 3, 6, 12, 24, 48, None, None]


def test_the_ends_differ_or_do_not() -> None:
    """By more than what is worth a search; without a look nothing is known."""
    assert judge_end(draw(0.05, 2)) == Judged(side="open", p_bad=None, more=True)
    bad, same = judge_end(draw(0.05, 3)), judge_end(draw(0.0, 12))
    assert (bad.side, bad.p_bad) == ("bad", 1.0)
    assert (same.side, same.p_bad, same.size) == ("good", 0.0, 12)
    faster = judge_end(draw(-0.05, 12))
    assert faster.side == "good"
    assert faster.value is not None
    assert faster.value.high is not None
    assert faster.value.high < 1


def test_a_change_that_is_not_known_well_enough_to_be_halved_is_measured_longer() -> None:
    """It is slower for sure, by nobody knows how much."""
    pairs = draw(0.2, 3, spread=0.05, seed=5)
    end = judge_end(pairs)
    assert (end.side, end.more) == ("open", True)
    assert judge_end(draw(0.2, 48, spread=0.05)).side == "bad"


def test_a_candidate_is_held_against_half_of_the_change() -> None:
    """On the side where it lies, with the probability that this is right; in between it stays open."""
    change = measure_change(draw(0.05, 12))
    assert change.half == pytest.approx(0.025, rel=0.1)
    good, bad, between = (judge_candidate(draw(size, 12, seed=1), change) for size in (0.0, 0.05, change.half))
    assert (good.side, bad.side, between.side) == ("good", "bad", "open")
    assert good.p_bad is not None
    assert bad.p_bad is not None
    assert between.p_bad is not None
    assert good.p_bad < 0.001
    assert bad.p_bad > 0.999
    assert 0.02 < between.p_bad < 0.98
    for too_few in ([], draw(0.05, 2)):
        assert judge_candidate(too_few, change) == Judged(side="open", p_bad=None, more=True)
    assert judge_candidate(draw(change.half, 3, seed=1), change).more
    assert between.more
    assert not judge_candidate(draw(change.half, 48, seed=1), change).more


def spread_alone(change: float, count: int) -> tuple[list[ProcessPair], np.ndarray]:
    """Process pairs whose control is so quiet that their own spread counts, and their changes."""
    pairs = [replace(pair, control=pair.control / 1000) for pair in draw(change, count)]
    return pairs, np.array([pair.change for pair in pairs])


@pytest.mark.parametrize(("error", "freedom"), [(0.0, 10**6), (0.01, 4)])
def test_the_chance_is_that_of_students_t(error: float, freedom: int) -> None:
    """Of the pairs against half of the whole change, with what is not known of that half, and the fewer degrees of
    freedom of both; a pair and its control tell of the spread."""
    pairs, changes = spread_alone(0.027, 12)
    judged = judge_candidate(pairs, TimeChange(log=0.05, error=error, freedom=freedom))
    both = math.hypot(scipy.stats.sem(changes), error / 2)
    assert judged.p_bad == pytest.approx(scipy.stats.t.cdf((changes.mean() - 0.025) / both, min(freedom, 22)))
    assert judged.p_bad is not None
    assert 0.5 < judged.p_bad < 0.99


def test_the_whole_change_is_that_of_the_pairs_of_the_last_look() -> None:
    """With its standard error and degrees of freedom."""
    pairs, changes = spread_alone(0.05, 14)
    change = measure_change(pairs)
    assert change.log == pytest.approx(changes[:12].mean())
    assert change.error == pytest.approx(scipy.stats.sem(changes[:12]))
    assert change.freedom == 22
    assert change.half == pytest.approx(math.exp(change.log / 2) - 1)


def test_what_lies_between_both_ends_is_not_measured_for_ever() -> None:
    """Half-way is on neither side: shown to be neither end, it is left; what the last look may tell is not."""
    change = measure_change(draw(0.05, 24))
    between = judge_candidate(draw(change.half, 24, seed=1), change)
    assert (between.side, between.more, between.reason) == ("open", False, judge_time.BETWEEN)
    a_third = judge_candidate(draw(0.0175, 6, spread=0.006, seed=3), change)
    assert (a_third.side, a_third.more) == ("open", True)


def analyzed(value: float, half: float, pairs: int = 24) -> InterimAnalysis:
    """A look after so many pairs that reads ``value`` in logs, and to either side ``half``."""
    limits = Interval(value=math.exp(value), low=math.exp(value - half), high=math.exp(value + half))
    return InterimAnalysis(
        outcome="INCONCLUSIVE",
        number=LOOKS.analyses.index(pairs) + 1,
        slowdown=limits,
        control=Interval(value=1.0, low=0.99, high=1.01),
        p_value=0.5,
        doubt=None,
        decided=False,
        schedule=LOOKS,
    )


SURE, UNSURE = TimeChange(log=0.1, error=0.0, freedom=10), TimeChange(log=0.1, error=0.01, freedom=10)


@pytest.mark.parametrize(
    ("analysis", "change", "between"),
    [
        (analyzed(0.05, 0.017), SURE, True),
        (analyzed(0.05, 0.017, pairs=48), SURE, True),
        (analyzed(0.05, 0.017, pairs=12), SURE, False),  # fewer pairs say too little of how near it is
        (analyzed(0.05, 0.017), UNSURE, True),  # the whole change is off by 0.0317 at most
        (analyzed(0.05, 0.0185), UNSURE, False),
        (analyzed(0.03, 0.028), SURE, False),  # about 48 pairs would tell
        (analyzed(0.03, 0.0284), SURE, True),  # 49 would
    ],
)
def test_what_lies_between_is_shown_to_and_so_near_to_half_way_that_no_look_tells(
    analysis: InterimAnalysis, change: TimeChange, between: bool
) -> None:
    """After 24 pairs: slower than the good end, faster than the bad one however large the whole change is."""
    assert judge_time._is_between(analysis, change) is between


@pytest.mark.parametrize(
    ("limits", "between"),
    [
        ({"low": 1.0, "high": 1.06}, False),
        ({"low": 1.001, "high": 1.1}, False),
        ({"low": 1.001, "high": 1.06}, True),
        ({"low": 1.001, "high": None}, False),
        ({"low": None, "high": 1.06}, False),
    ],
)
def test_what_may_be_an_end_is_not_between(limits: dict[str, float | None], between: bool) -> None:
    """A limit that is the end's own is not shown to be another."""
    change = TimeChange(log=math.log(1.1), error=0.0, freedom=10)
    half = Interval(value=math.sqrt(1.1), **limits)
    assert judge_time._is_between(replace(analyzed(0.05, 0.01), slowdown=half), change) is between


@pytest.mark.parametrize(
    ("value", "half", "known"), [(0.1, 0.033, True), (0.1, 0.034, False), (-0.1, 0.033, True), (-0.1, 0.034, False)]
)
def test_a_change_is_known_where_its_limits_are_a_third_of_it_off(value: float, half: float, known: bool) -> None:
    """In logarithms, and in either direction; without limits nothing is known."""
    assert judge_time._is_known(analyzed(value, half)) is known
    for limits in (Interval(value=1.1), Interval(value=1.1, low=1.1), Interval(value=1.1, high=1.1)):
        assert not judge_time._is_known(replace(analyzed(value, half), slowdown=limits))


def test_without_limits_either_side_is_as_likely() -> None:
    """As where the clock is too coarse to show a spread."""
    for limits in (Interval(value=1.2), Interval(value=1.2, low=1.2), Interval(value=1.2, high=1.2)):
        bare = replace(analyzed(0.1, 0.01), slowdown=limits)
        assert judge_time._find_error(bare) == math.inf
        assert judge_time._find_p_bad(bare, SURE) == 0.5


def test_noise_is_told_before_what_it_hides() -> None:
    """A candidate half-way, and a bad end, whose noise check is off by most of the change."""
    change = measure_change(draw(0.05, 24))
    noisy = [replace(pair, ratio=pair.ratio + 0.02, control=pair.control + 0.04) for pair in draw(0.025, 24, seed=1)]
    judged = judge_candidate(noisy, change)
    assert (judged.side, judged.more) == ("open", True)
    assert "noise check" in (judged.reason or "")
    end = judge_end([replace(pair, ratio=pair.ratio + 0.02, control=pair.control + 0.04) for pair in draw(0.05, 12)])
    assert (end.side, end.more) == ("open", True)
    assert "noise check" in (end.reason or "")


def test_pairs_behind_the_last_look_wait_for_the_next() -> None:
    """A search that was stopped between two looks goes on as if it had not been."""
    change = measure_change(draw(0.05, 12))
    pairs = draw(0.01, 5)
    assert judge_candidate(pairs, change) == judge_candidate(pairs[:3], change)
    assert judge_candidate([], change).side == "open"


def test_the_noise_check_may_be_off_by_half_of_the_change() -> None:
    """More would be more than what is to be told apart: then nothing is decided, with the reason."""
    change = measure_change(draw(0.05, 12))
    off = [replace(pair, control=pair.control + 0.04) for pair in draw(0.0, 12)]
    judged = judge_candidate(off, change)
    assert judged.side == "open"
    assert "noise check" in (judged.reason or "")


def test_two_candidates_are_compared_over_the_good_end() -> None:
    """Their ratio, with the width of both; none where one was not measured."""
    ratio = compare_neighbours(Interval(value=1.02, low=1.01, high=1.03), Interval(value=1.071, low=1.061, high=1.081))
    assert ratio is not None
    assert ratio.value == pytest.approx(1.05)
    assert ratio.high is not None
    assert ratio.high - ratio.value == pytest.approx(0.0144, abs=0.001)
    assert ratio.low is not None
    assert ratio.value / ratio.low == pytest.approx(ratio.high / ratio.value)
    assert compare_neighbours(None, Interval(value=1.0, low=0.9, high=1.1)) is None
    assert compare_neighbours(Interval(value=1.0), Interval(value=1.0, low=0.9, high=1.1)) is None


@pytest.mark.parametrize(("effect", "spread"), [(0.02, 0.004), (0.05, 0.015), (0.2, 0.025)])
def test_at_most_one_in_twenty_is_named_wrongly(effect: float, spread: float) -> None:
    """And the chance that is stated is no more than the share that is right (``tests/benchmarks/bisect_error.py``)."""
    tally = simulate(Setting(noise="", draw=normal(spread), releases=12, effect=effect), 40)
    assert tally.ends["wrong"] + tally.ends["missed"] <= 2
    assert tally.ends["right"] >= 30
    assert math.fsum(tally.chances) / len(tally.chances) <= tally.right / len(tally.chances) + 0.05


def test_where_nothing_changed_none_is_named() -> None:
    """Whatever the noise: the ends do not differ, or cannot be told apart."""
    for spread in (0.004, 0.015):
        tally = simulate(Setting(noise="", draw=normal(spread), releases=12, effect=0.0), 40)
        assert tally.ends["same"] + tally.ends["open"] >= 39


def test_the_error_of_all_looks_is_that_of_one_test() -> None:
    """They share 5 %."""
    assert pytest.approx(0.05) == (1 - LOOKS.level) * len(LOOKS.analyses)
    assert judge_time.LEAST == 0.01
