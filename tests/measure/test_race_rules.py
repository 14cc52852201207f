"""Who stays, who leads, and whether it is decided: from the times alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_race import recorded_noises, simulate

from qbench.measure.pairing import BlockMinimum, PairedBlocks
from qbench.measure.race_rules import Arm, RaceRules, find_fastest, judge, pool_differences

RULES = RaceRules()


def time_arms(seconds, *, generations=1, rounds=6, noise=0.01, spread=0.02, seed=0):
    """The block minima of arms of known time: noise by block, a spread by process."""
    rng = np.random.default_rng(seed)
    minima = {}
    for case, typical in seconds.items():
        factors = np.exp(rng.normal(0, spread, generations))
        minima[case] = {
            (process, number): BlockMinimum(
                nanoseconds=1e9 * typical * factors[process] * math.exp(rng.normal(0, noise))
            )
            for process in range(generations)
            for number in range(rounds)
        }
    return minima


def pool_blocks(series):
    """The differences of cases with these log ratios by generation."""
    return pool_differences({case: PairedBlocks(log_ratios=log_ratios) for case, log_ratios in series.items()})


def stand(arms, minima, rules=RULES, spent=0.0):
    return judge(arms, minima, rules, spent=dict.fromkeys(minima, spent))


def int8(*cases):
    return [Arm(case=case, role="candidate", baseline="fp32") for case in cases]


FP32 = Arm(case="fp32", role="fp32")


def test_an_arm_far_behind_leaves_at_once_and_a_close_one_stays():
    """After one generation 60 % slower is shown, 5 % is not."""
    standing = stand([FP32, *int8("a", "b", "c")], time_arms({"fp32": 2.0, "a": 1.0, "b": 1.05, "c": 1.6}))
    assert standing.leaving == ("c",)
    assert (standing.leader, standing.fastest, standing.ended, standing.more) == ("a", "fp32", {}, 3)


@given(
    times=st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.5, 2.0), min_size=1),
    generations=st.integers(1, 10),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=40)
def test_the_leader_stays_and_every_arm_stays_or_leaves(times, generations, seed):
    """Nobody is lost or doubled; the leader and its fp32 are never sent away; after nine generations it has ended."""
    arms = [FP32, *int8(*times)]
    standing = stand(arms, time_arms({"fp32": 3.0, **times}, generations=generations, seed=seed))
    assert sorted([*standing.leaving, *(arm.case for arm in standing.staying)]) == sorted(arm.case for arm in arms)
    assert {standing.leader, "fp32"} <= {arm.case for arm in standing.staying}
    assert not standing.ended or set(standing.ended) == {arm.case for arm in standing.staying}
    assert bool(standing.ended) or generations < 10
    assert not standing.ended or generations >= 4


@given(factor=st.floats(0.1, 10.0), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_the_unit_of_time_is_no_matter(factor, seed):
    """Everything twice as slow: the same standing."""
    seconds = {"fp32": 2.0, "a": 1.0, "b": 1.06, "c": 1.15}
    minima = time_arms(seconds, generations=3, seed=seed)
    scaled = {
        case: {key: BlockMinimum(nanoseconds=factor * block.nanoseconds) for key, block in times.items()}
        for case, times in minima.items()
    }
    arms = [FP32, *int8("a", "b", "c")]
    assert stand(arms, minima) == stand(arms, scaled)


def test_copies_of_one_artifact_are_tied_once_it_is_shown():
    """Both are within the tie of the leader: each says so."""
    minima = time_arms({"fp32": 2.0, "a": 1.0, "b": 1.0}, generations=10, spread=0.003)
    assert set(stand([FP32, *int8("a", "b")], minima).ended.values()) <= {"tied", "precision"}
    assert stand([FP32, *int8("a", "b")], minima).ended["a"] == "tied"


def test_time_that_is_up_ends_the_race_after_the_least_generations():
    """``max_seconds`` of blocks for one arm, but never fewer than the least generations."""
    arms, seconds = [FP32, *int8("a", "b")], {"fp32": 2.0, "a": 1.0, "b": 1.02}
    wide = RaceRules(tie=0.001, precision=0.001, max_seconds=10.0)
    assert stand(arms, time_arms(seconds, generations=3), wide, spent=11.0).ended == {}
    assert set(stand(arms, time_arms(seconds, generations=4), wide, spent=11.0).ended.values()) == {"max_seconds"}


def test_noisier_machines_send_fewer_away():
    """The spread between processes that is seen counts beside what is known of them."""
    arms, seconds = [FP32, *int8("a", "b")], {"fp32": 2.0, "a": 1.0, "b": 1.12}
    assert stand(arms, time_arms(seconds, generations=4, spread=0.005)).leaving == ("b",)
    assert stand(arms, time_arms(seconds, generations=4, spread=0.08, seed=4)).leaving == ()


@pytest.mark.parametrize(("slower", "leaves"), [(1.028, False), (1.04, True)])
def test_an_arm_leaves_once_it_is_shown_half_the_tie_behind_and_its_estimate_is_beyond_the_tie(slower, leaves):
    """After the screening all of the tie is to be shown, which 4 % never does; within the tie an arm stays, however
    precise its difference is."""
    arms, seconds = [FP32, *int8("a", "b")], {"fp32": 2.0, "a": 1.0, "b": slower}
    assert stand(arms, time_arms(seconds, generations=1, spread=0.001, noise=0.001)).leaving == ()
    standing = stand(arms, time_arms(seconds, generations=8, spread=0.001, noise=0.001))
    assert standing.leaving == (("b",) if leaves else ())
    low = pool_blocks({"b": {number: np.full(7, math.log(slower)) for number in range(8)}})["b"].limits(0.98)[0]
    assert low < math.log1p(RULES.tie)  # not all of the tie


def test_what_is_known_of_processes_counts_for_nothing_where_they_differ_far_more():
    """Generations that differ by 15 %: their own variance, with the degrees of freedom that they have."""
    values = (0.15, -0.15, 0.2, -0.2)
    difference = pool_blocks({"a": {number: np.full(7, value) for number, value in enumerate(values)}})["a"]
    assert difference.freedom == 3
    assert difference.error == pytest.approx(np.std(values, ddof=1) / 2)


def test_the_noise_of_blocks_counts_once():
    """Where generations differ as much as their blocks lead to expect, the error is that of their medians."""
    random = np.random.default_rng(0)
    series = {f"{arm}": {n: random.normal(0, 0.06, 7) for n in range(10)} for arm in range(20)}
    errors = [difference.error for difference in pool_blocks(series).values()]
    medians = [[np.median(ratios) for ratios in log_ratios.values()] for log_ratios in series.values()]
    assert np.mean(errors) == pytest.approx(np.std(medians) / math.sqrt(10), rel=0.2)


def test_differences_share_what_is_known_of_processes():
    """One arm that varies widens the error of all; more generations narrow it."""
    calm = {number: np.zeros(7) for number in range(4)}
    wild = {number: np.full(7, 0.1 * (-1) ** number) for number in range(4)}
    alone, beside = pool_blocks({"a": calm})["a"], pool_blocks({"a": calm, "b": wild})["a"]
    assert beside.error > 1.5 * alone.error
    assert pool_blocks({"a": {0: np.zeros(7)}})["a"].error > 1.5 * alone.error


def test_what_no_block_shows_widens_the_error():
    """It does not shrink with generations: it is the same in all of them."""
    calm = {number: np.zeros(7) for number in range(100)}
    unseen = pool_differences({"a": PairedBlocks(log_ratios=calm, unseen=0.05)})["a"]
    assert unseen.error == pytest.approx(math.hypot(0.05, pool_blocks({"a": calm})["a"].error))


def test_the_fastest_of_arms_that_never_met_is_found_by_plain_times():
    """Two heats: no round is shared."""
    slow, fast = ({(process, 0): BlockMinimum(nanoseconds=value)} for process, value in ((0, 2.0), (1, 1.0)))
    assert find_fastest(["slow", "fast"], {"slow": slow, "fast": fast}) == "fast"


@pytest.mark.parametrize("noise", recorded_noises(), ids=lambda noise: noise.name)
def test_on_recorded_noise_the_leader_is_right_and_copies_are_tied(noise):
    """40 races each: a copy of the best leads, 95 % call both copies tied, most intervals hold the truth, and it
    takes less than half of what measuring everyone does. tests/benchmarks/race_error.py tells the rates."""
    seconds = {"fp32": 0.034, "a": 0.0096, "copy": 0.0096, "b": 0.0103, "c": 0.0124, "d": 0.0281, "e": 0.0955}
    random = np.random.default_rng(0)
    raced = [simulate(seconds, noise, RULES, random) for _ in range(40)]
    every = [simulate(seconds, noise, RaceRules(everything=True), random) for _ in range(5)]
    assert {race.leader for race in raced} <= {"a", "copy"}
    assert sum({"a", "copy"} <= set(race.tied) for race in raced) >= 38
    held = [low <= math.log(seconds[case] / seconds[race.leader]) <= high
            for race in raced for case, (_, low, high) in race.limits.items()]  # fmt: skip
    assert sum(held) / len(held) > 0.85
    assert np.mean([race.seconds for race in raced]) < 0.5 * np.mean([race.seconds for race in every])


def test_the_race_goes_on_for_a_gain_that_is_not_shown_for_the_number_tried():
    """A leader that 95 % limits call faster than fp32, but not the decision's test over nine: more generations."""
    minima = time_arms({"fp32": 1.06, "a": 1.0}, generations=4, spread=0.009, noise=0.001, seed=2)
    arms = [FP32, *int8("a")]
    spent = dict.fromkeys(minima, 0.0)
    assert judge(arms, minima, RULES, spent=spent, tried=1).ended == {"fp32": "precision", "a": "decided"}
    standing = judge(arms, minima, RULES, spent=spent, tried=9)
    assert not standing.ended
    assert standing.more >= 1
