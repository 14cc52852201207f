"""Which arms are alive at once where memory is short."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qbench.measure.heats import MEMORY_SHARE, split_heats
from qbench.measure.race_rules import Arm

FP32 = [Arm(case=name, role="fp32") for name in ("a32", "b32")]
INT8 = [Arm(case=f"{name}{number}", role="candidate", baseline=f"{name}32") for name in "ab" for number in range(5)]
ARMS = [*FP32, *INT8]
SIZES = dict.fromkeys([arm.case for arm in ARMS], 10**8)


def test_all_arms_race_at_once_where_memory_holds_them():
    """One heat, in the order given."""
    assert split_heats(ARMS, None, SIZES, free_bytes=64 * 2**30) == [ARMS]


@given(free=st.integers(2**20, 2**34), first=st.integers(0, 100), fastest=st.sampled_from([None, "a32"]))
def test_every_arm_has_a_heat_with_its_fp32(free, first, fastest):
    """However little memory there is: none is lost, each int8 arm has its like-for-like fp32 beside it, and every heat
    the fastest fp32."""
    heats = split_heats(ARMS, fastest, SIZES, free_bytes=free, first=first)
    assert sorted(arm.case for heat in heats for arm in heat if arm.role != "fp32") == sorted(arm.case for arm in INT8)
    for heat in heats:
        cases = {arm.case for arm in heat}
        assert {arm.baseline for arm in heat if arm.baseline} <= cases
        assert fastest is None or fastest in cases
        least = 2 if fastest is None else 4
        assert len(heat) <= least or len(heat) * 5e8 <= 1.3 * free * MEMORY_SHARE


def test_other_arms_meet_when_the_order_turns():
    """Arms that never ran beside each other cannot be compared: the next generation deals them anew."""
    first, turned = (split_heats(ARMS, "a32", SIZES, free_bytes=5 * 2**30, first=turn) for turn in (0, 3))
    assert len(first) > 1
    assert first != turned


def test_an_fp32_that_nothing_is_compared_with_has_a_heat():
    """A suite of fp32 alone."""
    assert split_heats(FP32, None, SIZES, free_bytes=2**40) == [FP32]


def list_heats(arms, fastest, needs, first=0, sizes=SIZES):
    """The cases of each heat where the workers may hold that many times what one of them needs: 150 MiB, and four times
    its file of 100 MB."""
    free = needs * (150 * 2**20 + 4 * 10**8) / 0.67
    heats = split_heats(arms, fastest, sizes, free_bytes=round(free), first=first)
    return [" ".join(arm.case for arm in heat) for heat in heats]


A_ARMS = [arm for arm in ARMS if arm.case.startswith("a")]


def test_a_heat_is_as_large_as_two_thirds_of_the_memory_hold():
    """An fp32 counts once, however many arms of the heat are held against it."""
    assert list_heats(A_ARMS, None, 3.001) == ["a32 a0 a1", "a32 a2 a3", "a32 a4"]
    assert list_heats(A_ARMS, None, 2.999) == ["a32 a0", "a32 a1", "a32 a2", "a32 a3", "a32 a4"]
    assert list_heats(A_ARMS, None, 0.1) == ["a32 a0", "a32 a1", "a32 a2", "a32 a3", "a32 a4"]


def test_the_fastest_fp32_counts_twice():
    """Its copy is the control; the fp32 of another runtime comes beside it, once."""
    assert list_heats(A_ARMS, "a32", 4.001) == ["a32 a0 a1", "a32 a2 a3", "a32 a4"]
    assert list_heats(A_ARMS, "a32", 3.999) == ["a32 a0", "a32 a1", "a32 a2", "a32 a3", "a32 a4"]
    assert list_heats([*FP32, *INT8[4:7]], "a32", 5.001) == ["a32 b32 a4 b0", "a32 b32 b1"]
    assert list_heats([*FP32, *INT8[4:7]], "a32", 4.999) == ["a32 a4", "a32 b32 b0", "a32 b32 b1"]


def test_larger_files_take_more():
    """Of two cases that fit together neither does with one of twice the size."""
    sizes = SIZES | {"a1": 2 * 10**8}
    assert list_heats(A_ARMS, None, 3.001, sizes=sizes) == ["a32 a0", "a32 a1", "a32 a2 a3", "a32 a4"]
    assert list_heats(A_ARMS, None, 3.75, sizes=sizes) == ["a32 a0 a1", "a32 a2 a3", "a32 a4"]


def test_the_order_turns_by_the_number_of_blocks():
    """The first arm of the next generation is another one; the heats themselves keep the order of the arms."""
    assert list_heats(A_ARMS, None, 3.001, first=2) == ["a32 a1 a2", "a32 a3 a4", "a32 a0"]
    assert list_heats(A_ARMS, None, 3.001, first=len(A_ARMS) + 2) == ["a32 a1 a2", "a32 a3 a4", "a32 a0"]
    assert split_heats([], None, {}, free_bytes=2**30, first=3) == []


def test_an_fp32_that_has_left_is_in_no_heat():
    """Neither as the fastest nor beside the arms that were held against it."""
    assert list_heats(INT8[:2], "a32", 9.0) == ["a0 a1"]


def test_fp32_that_nothing_is_compared_with_takes_its_turn():
    """Two kinds of arms in one setting: the fp32 of arms that are gone is an arm like any other."""
    assert list_heats([*FP32, INT8[0]], "b32", 2.5) == ["b32", "a32 b32 a0"]
