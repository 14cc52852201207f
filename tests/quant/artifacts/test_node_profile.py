"""The seconds of nodes over several calls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qbench.quant.artifacts.node_profile import WARMUP_CALLS, median_of_calls, time_calls

CALLS = st.lists(st.dictionaries(st.sampled_from("abcd"), st.floats(0, 1)), min_size=1, max_size=7)


@given(CALLS)
def test_a_node_has_the_median_over_all_calls(calls):
    """A call that left it out counts as nothing, and no node is lost."""
    medians = median_of_calls(calls)
    assert set(medians) == {name for call in calls for name in call}
    for name, value in medians.items():
        values = sorted(call.get(name, 0.0) for call in calls)
        assert values[(len(values) - 1) // 2] <= value <= values[len(values) // 2]


def test_calls_are_warmed_up_before_they_are_timed():
    """The first ones pay for what the later ones find."""
    calls = []
    assert time_calls(lambda: calls.append(1), 5) >= 0
    assert len(calls) == WARMUP_CALLS + 5
