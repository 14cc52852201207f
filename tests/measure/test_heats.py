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
