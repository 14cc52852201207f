"""Rules of decide/sureness: how often the answer would be chosen again, never oftener than noise allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import accuracy, fp32, int8, latency, list_outputs, speedup

from qbench.decide import sureness
from qbench.decide.decision import Decision, decide, make_contest
from qbench.decide.judged import SuiteRules, judge
from qbench.decide.sureness import say_chance
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval


def decided(*records: Record) -> Decision:
    """The one decision on some records."""
    (decision,) = decide(judge(records, MetricInfo(name="top1"), SuiteRules()))
    return decision


def probability_of(*records: Record) -> float:
    """How often it would be chosen again."""
    probability = decided(*records).probability
    assert probability is not None
    return probability


@pytest.mark.parametrize(("unjudged", "most"), [(None, 1.0), ((), 1.0), (("boxes",), 0.5), (("1", "2", "3"), 0.25)])
def test_of_outputs_that_nobody_judged_nothing_is_known(unjudged: tuple[str, ...] | None, most: float) -> None:
    """It is at most as probable as the share of the outputs that was judged."""
    assert (
        probability_of(
            fp32(), int8(accuracy=replace(accuracy(), outputs=None if unjudged is None else list_outputs(*unjudged)))
        )
        == most
    )


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.996, 1.006, "about 19 times in 20"),
        (0.89, 1.08, "about 9 times in 10"),
        (0.6, 1.2, "about 3 times in 4"),
        (0.3, 1.2, "about 2 times in 3"),
    ],
)
def test_a_control_that_is_off_makes_it_less_sure(low: float, high: float, words: str) -> None:
    """However far ahead the pick is: a noise of 5 % is never beside the surest words, and one that could explain half
    of what was decided, or all of it, is beside weaker ones."""
    decision = decided(fp32(), int8(speedup=speedup(control=Interval(value=1.0, low=low, high=high))))
    assert decision.verdict == "ship"
    assert decision.probability is not None
    assert say_chance(decision.probability) == words
    assert (decision.capped is None) == words.endswith("20")


def test_a_close_rival_leaves_less_room_for_noise() -> None:
    """The same control bounds a choice between near variants more than one that is far ahead."""
    noisy = Interval(value=1.0, low=0.975, high=1.02)
    near = int8("net/static/x86/t1/b1", latency=latency(0.00107), speedup=speedup(2.34, 0.001, control=noisy))
    ahead = int8(speedup=speedup(2.5, 0.001, control=noisy))
    assert probability_of(fp32(), ahead, near) < probability_of(fp32(), ahead)


def test_what_has_no_control_is_not_sure() -> None:
    """Nothing tells noise from change."""
    alone = speedup(low=None, high=None, protocol="sequential", control=None)
    assert probability_of(fp32(), int8(speedup=alone)) <= 0.75
    assert decided(fp32(), int8(speedup=alone)).capped is not None


def test_fp32_that_stays_has_a_sureness_of_its_own() -> None:
    """Sure where int8 is slower for certain; less so where it is faster, and not shown to be."""
    slow = int8(latency=latency(0.005), speedup=speedup(0.5))
    level = int8(latency=latency(0.0025), speedup=speedup(1.0, 0.02))
    nearly = int8(latency=latency(0.00242), speedup=speedup(1.03, 0.031))
    chances = [probability_of(fp32(), record) for record in (slow, level, nearly)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.99
    assert chances[2] < 0.75


@pytest.mark.parametrize(
    ("probability", "words"),
    [
        (1.0, "about 19 times in 20"),
        (0.9, "about 9 times in 10"),
        (0.8, "about 4 times in 5"),
        (0.5, "about every other time"),
        (0.0, "less than every other time"),
    ],
)
def test_a_probability_is_said_coarsely(probability: float, words: str) -> None:
    """No finer than a few generations of processes can tell, and never certain."""
    assert say_chance(probability) == words


@pytest.mark.parametrize(
    ("least", "words", "below"),
    [
        (0.925, "about 19 times in 20", "about 9 times in 10"),
        (0.85, "about 9 times in 10", "about 4 times in 5"),
        (0.775, "about 4 times in 5", "about 3 times in 4"),
        (0.7, "about 3 times in 4", "about 2 times in 3"),
        (0.58, "about 2 times in 3", "about every other time"),
        (0.42, "about every other time", "less than every other time"),
    ],
)
def test_words_hold_from_half_way_to_the_next(least: float, words: str, below: str) -> None:
    """That share itself among them."""
    assert (say_chance(least), say_chance(least - 1e-9)) == (words, below)


@pytest.mark.parametrize(
    ("noise", "room", "most"),
    [
        (0.02, 0.04, 1.0),
        (0.0201, 0.04, 0.9),
        (0.04, 0.04, 0.9),
        (0.0401, 0.04, 0.75),
        (0.08, 0.04, 0.75),
        (0.0801, 0.04, 0.66),
        (0.05, 1.0, 1.0),
        (0.0501, 1.0, 0.9),
    ],
)
def test_noise_bounds_by_its_share_of_the_room(noise: float, room: float, most: float) -> None:
    """Half of it, all and twice; beyond 5 % nobody is sure, whatever the room."""
    assert sureness._cap_noise(noise, room, "since").probability == most


def test_of_several_caps_the_least_counts() -> None:
    """With what it rests on; an answer that is less sure by itself is bounded by none."""
    noisy = int8(
        speedup=speedup(control=Interval(value=1.0, low=0.6, high=1.2), steady=False),
        accuracy=replace(accuracy(), outputs=list_outputs("boxes")),
    )
    decision = decided(fp32(), noisy)
    assert decision.probability == 0.5
    assert decision.capped == "1 of its 2 outputs was judged"
    judged = judge([fp32(), noisy], MetricInfo(name="top1"), SuiteRules())
    contest = make_contest(judged, judged.records)
    assert sureness.limit_sureness(0.3, noisy, None, contest) == sureness.Sureness(probability=0.3)
    assert sureness.limit_sureness(0.5, noisy, None, contest).because is None
    assert sureness.limit_sureness(0.6, noisy, None, contest).because is not None
