"""Who stays, who leads, and whether it is decided: from the times alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t
from simulated_race import recorded_noises, simulate

from qbench.machine.process_spread import FREEDOM, RATIO_SPREAD
from qbench.measure.paired_difference import PairedDifference, difference_over_generations, variance_of_median
from qbench.measure.pairing import BlockMinimum, PairedBlocks
from qbench.measure.race_rules import Arm, RaceRules, _is_precise, _Ranking, find_fastest, judge, pool_differences

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


def test_what_is_the_tie_itself_is_within_it():
    """An estimate of exactly the tie sends nobody away, limits that end there are shown to be within it, and a half
    width of exactly what is asked for is precise; a little more is not."""
    tie = math.log1p(RULES.tie)

    def rank(value, error=0.0):
        known = PairedDifference(value=value, error=error, freedom=3, generations=4, coarse=False)
        return known, _Ranking(leader="a", differences={"b": known})

    for value, leaves in ((tie, set()), (tie * (1 + 1e-12), {"b"})):
        assert rank(value)[1].find_slower(RULES) == leaves
    half = rank(0.0, 0.01)[0].limits()[1]
    known, ranking = rank(0.0, 0.01)
    asked = math.expm1(half)
    assert math.log1p(asked) == half == known.half_width_seen()
    for tie, within in ((asked, True), (asked * (1 - 1e-12), False)):
        assert ranking.is_tied("b", RaceRules(tie=tie)) == within
        assert _is_precise(known, tie) == within


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
    known = [judge(arms, minima, RULES, spent=spent, tried=tried) for tried in (None, 1)]
    assert known[0] == known[1]


def test_an_arm_that_has_not_run_yet_is_nobodys_leader():
    """Those that have are held against each other."""
    minima = time_arms({"fp32": 2.0, "a": 1.0, "b": 1.5}) | {"late": {}}
    standing = stand([FP32, *int8("late", "b", "a")], minima)
    assert {"a", "fp32"}.isdisjoint(standing.leaving)
    assert "b" in standing.leaving
    alone = stand([FP32, *int8("late")], time_arms({"fp32": 2.0}) | {"late": {}})
    assert not alone.leaving


def least_that_leaves(rivals: int, generations: int) -> float:
    """ln(time over the leader's) from which on ``rivals`` equal arms leave, where nothing at all varies."""
    arms = [FP32, *int8("leader", *(f"a{number}" for number in range(rivals)))]

    def leaves(log_ratio: float) -> bool:
        seconds = dict.fromkeys((arm.case for arm in arms), math.exp(log_ratio)) | {"fp32": 2.0, "leader": 1.0}
        left = stand(arms, time_arms(seconds, generations=generations, noise=0.0, spread=0.0)).leaving
        assert len(left) in (0, rivals)
        return bool(left)

    low, high = 0.0, 0.5
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if leaves(middle) else (middle, high)
    return high


@pytest.mark.parametrize(("rivals", "generations"), [(1, 1), (6, 1), (1, 3), (6, 3), (1, 5), (6, 20)])
def test_an_arm_leaves_from_where_it_is_shown_to_be_slower(rivals, generations):
    """All of the tie at 99.9 % after the screening, half of it at 99 % later, shared over the arms, by Student's t with
    the freedom of what is known of processes and of what was seen; within the tie never."""
    freedom = rivals * (generations - 1) / (1 + 0.25 * (rivals - 1))
    expected = RATIO_SPREAD**2 + variance_of_median(np.zeros(6))
    error = math.sqrt(FREEDOM / (FREEDOM + freedom) * expected / generations)
    chance, shown = (0.001, math.log(1.03)) if generations == 1 else (0.01, math.log(1.03) / 2)
    beyond = shown + t.ppf(1 - chance / rivals, FREEDOM + freedom) * error
    assert least_that_leaves(rivals, generations) == pytest.approx(max(math.log(1.03), beyond), abs=1e-5)


def test_the_error_of_a_difference_is_pooled_over_the_arms():
    """Two arms of three generations: their squares and degrees of freedom count for 1 / 1.25 each, since both are held
    against one leader, beside the six of what is known of processes."""
    medians = {"a": (0.0, 0.02, 0.04), "b": (0.1, 0.1, 0.16)}
    pooled = pool_blocks(
        {case: {number: np.full(7, value) for number, value in enumerate(values)} for case, values in medians.items()}
    )
    expected = RATIO_SPREAD**2 + variance_of_median(np.zeros(7))
    scale = (FREEDOM + (0.0008 + 0.0024) / 1.25 / expected) / (FREEDOM + 4 / 1.25)
    for case, values in medians.items():
        assert pooled[case].value == pytest.approx(np.mean(values))
        assert pooled[case].error == pytest.approx(math.sqrt(scale * expected / 3))
        assert (pooled[case].freedom, pooled[case].generations) == (pytest.approx(FREEDOM + 3.2), 3)
        assert not pooled[case].coarse


@pytest.mark.parametrize(("generations", "coarse"), [(1, True), (2, False)])
def test_a_difference_of_one_generation_is_coarse(generations, coarse):
    """Nothing was seen of how processes differ here."""
    assert pool_blocks({"a": {number: np.zeros(7) for number in range(generations)}})["a"].coarse is coarse


@pytest.mark.parametrize(("times", "freedom"), [(3.96, FREEDOM + 1), (4.04, 1)])
def test_what_is_known_of_processes_holds_up_to_four_times_its_variance(times, freedom):
    """Two generations: one square about their mean, held against what was to be expected."""
    expected = RATIO_SPREAD**2 + variance_of_median(np.zeros(7))
    apart = math.sqrt(times * expected / 2)
    assert pool_blocks({"a": {0: np.full(7, apart), 1: np.full(7, -apart)}})["a"].freedom == freedom


@pytest.mark.parametrize(
    ("generations", "rules", "more"),
    [
        (1, RaceRules(), 3),
        (2, RaceRules(), 2),
        (2, RaceRules(least=5), 4),
        (1, RaceRules(everything=True), 2),
        (2, RaceRules(everything=True), 1),
    ],
)
def test_the_least_generations_come_after_the_screening(generations, rules, more):
    """Where everyone is measured there is no screening: the first generation counts."""
    standing = stand([FP32, *int8("a", "b")], time_arms({"fp32": 2, "a": 1, "b": 1.01}, generations=generations), rules)
    assert (standing.more, standing.ended) == (more, {})


@pytest.mark.parametrize(("a", "slow", "ends"), [(9.99, 0.0, False), (10.0, 0.0, True), (9.99, 99.0, False)])
def test_the_time_is_up_with_that_of_an_arm_that_stays(a, slow, ends):
    """As soon as it is spent; what an arm took that leaves is no matter."""
    minima = time_arms({"fp32": 2.0, "a": 1.0, "b": 1.02, "slow": 1.9}, generations=4)
    spent = {"fp32": 0.0, "a": a, "b": 0.0, "slow": slow}
    rules = RaceRules(tie=0.001, precision=0.001, max_seconds=10.0)
    standing = judge([FP32, *int8("a", "b", "slow")], minima, rules, spent=spent)
    assert standing.leaving == ("slow",)
    assert set(standing.ended.values()) == ({"max_seconds"} if ends else set())


def as_blocks(times):
    """Minima of blocks that took so many nanoseconds."""
    return {
        case: {key: BlockMinimum(nanoseconds=taken) for key, taken in rounds.items()} for case, rounds in times.items()
    }


def vary(*medians, slower=2.0):
    """Minima of an arm and of an fp32 that takes so much longer; the ratio differs by that much in each generation."""
    return as_blocks(
        {
            "fp32": {(number, 0): slower * 1e6 for number in range(len(medians))},
            "a": {(number, 0): 1e6 * math.exp(median) for number, median in enumerate(medians)},
        }
    )


@pytest.mark.parametrize(("spread", "more"), [(0.01, None), (0.016, 2), (0.018, 3), (0.03, 5), (0.2, 5)])
def test_a_table_goes_on_for_as_many_generations_as_its_precision_will_take(spread, more):
    """Limits narrow with the root of the number; never more than there may be, and none once they are narrow."""
    minima, rules = vary(spread, -spread, spread, -spread), RaceRules(everything=True, precision=0.026, most=9)
    standing = stand([FP32, *int8("a")], minima, rules)
    half = difference_over_generations({n: np.asarray([v * spread]) for n, v in enumerate((1, -1, 1, -1))}).limits()[1]
    if more is None:
        assert half <= math.log1p(0.026)
        assert (set(standing.ended.values()), standing.more) == ({"precision"}, 0)
    else:
        assert standing.ended == {}
        assert standing.more == more == min(9, math.ceil(4 * (half / math.log1p(0.026)) ** 2)) - 4


@pytest.mark.parametrize(("everything", "last"), [(True, 9), (False, 10)])
def test_a_race_has_nine_generations_and_a_screening(everything, last):
    """What is not known after the ninth is not known."""
    for generations in (last - 1, last):
        wild = [0.3 * (-1) ** number for number in range(generations)]
        standing = stand([FP32, *int8("a")], vary(*wild, slower=1.0), RaceRules(everything=everything))
        assert set(standing.ended.values()) == ({"processes"} if generations == last and everything else
            {"processes", "decided"} if generations == last else set())  # fmt: skip
        assert standing.more == (1 if generations < last else 0)


def test_arms_of_different_heats_meet_before_the_race_ends():
    """Each is settled in its own heat, and none is shown slower: one generation more, in which they meet."""
    minima = {
        "fp32": {(number, 0): 2e6 for number in range(8)},
        "a": {(number, 0): 1e6 for number in range(4)},
        "b": {(number, 0): 1.01e6 for number in range(4, 8)},
    }
    standing = stand([FP32, *int8("a", "b")], as_blocks(minima))
    assert (standing.ended, standing.more, standing.leaving) == ({}, 1, ())


def test_an_arm_of_another_heat_leaves_by_its_own_leader():
    """What is shown slower than the fastest of its heat is slower than the fastest of all."""
    minima = {
        "fp32": {(number, 0): 3e6 for number in range(8)},
        "a": {(number, 0): 1e6 for number in range(4)},
        "b": {(number, 0): 1.01e6 for number in range(4, 8)},
        "c": {(number, 0): 1.5e6 for number in range(4, 8)},
    }
    assert stand([FP32, *int8("a", "b", "c")], as_blocks(minima)).leaving == ("c",)


def test_an_fp32_in_several_heats_has_been_in_no_more_generations():
    """Those of the candidates count: two heats of one screening are one generation."""
    minima = {
        "fp32": {(number, 0): 2e6 for number in range(4)},
        "a": {(0, 0): 1e6, (2, 0): 1e6},
        "b": {(1, 0): 1.01e6, (3, 0): 1.01e6},
    }
    assert stand([FP32, *int8("a", "b")], as_blocks(minima)).more == 2
    assert stand([FP32], as_blocks(minima)).ended == {"fp32": "precision"}


def test_the_fastest_is_found_by_shared_rounds_with_whoever_ran_most():
    """Where the host was slow in the rounds of one of them, its plain times say the contrary."""
    minima = {
        "most": {(0, number): 2.0 if number < 3 else 8.0 for number in range(6)},
        "early": {(0, number): 1.5 for number in range(3)},
        "late": {(0, number): 4.0 for number in range(3, 6)},
    }
    assert find_fastest(list(minima), as_blocks(minima)) == "late"
    assert find_fastest(["most", "early"], as_blocks(minima)) == "early"


def test_how_each_arm_stopped_is_named():
    """The leader is tied where all its rivals are, and decided where it has none; beside one that is neither tied nor
    slower, the race ended since that is known precisely, as of the fp32."""
    times = {"fp32": 2.0, "a": 1.0, "b": 1.001, "c": 1.0}
    arms, still = [FP32, *int8("a", "b", "c")], {"generations": 10, "noise": 0.0, "spread": 0.0}
    assert stand(arms, time_arms(times, **still)).ended == dict.fromkeys("abc", "tied") | {"fp32": "precision"}
    near = stand(arms, time_arms(times | {"c": 1.025}, **still))
    assert near.ended == {"fp32": "precision", "a": "precision", "b": "tied", "c": "precision"}
    assert stand([FP32, *int8("a")], time_arms(times, **still)).ended == {"fp32": "precision", "a": "decided"}
