"""The seconds of nodes over several calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.quant.artifacts.node_profile import WARMUP_CALLS, CallProfile, NodeTime, median_of_calls, time_calls

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


def profile(*seconds, call=1e-3, watched=1e-3, scale=1.0):
    """A call with nodes that take so long."""
    nodes = tuple(NodeTime(layer="", operator="node", kind="other", seconds=each) for each in seconds)
    return CallProfile(nodes=nodes, call_seconds=call, watched_seconds=watched, scale=scale)


def test_watching_costs_what_watched_calls_take_beyond_others():
    """Nothing where chance made them faster."""
    assert profile(call=1e-3, watched=1.25e-3).watching_seconds == pytest.approx(2.5e-4)
    assert profile(call=1e-3, watched=0.75e-3).watching_seconds == 0.0


def test_what_a_call_takes_beside_its_nodes_is_known_where_they_fit_into_it():
    """Not of nodes that were shortened to fit, nor of some that take longer than the call."""
    assert profile(4e-4, 4e-4).overhead_seconds == pytest.approx(2e-4)
    assert profile(5e-4, 5e-4).overhead_seconds == 0.0
    assert profile(6e-4, 6e-4).overhead_seconds is None
    assert profile(4e-4, scale=0.5).overhead_seconds is None


def test_nodes_are_shortened_by_one_factor_to_fit_into_a_call():
    """Those that fit stay as they are."""
    fits = profile(5e-4, 5e-4)
    assert fits.fit_into_call() is fits
    shortened = profile(1.5e-3, 5e-4, scale=0.8).fit_into_call()
    assert [node.seconds for node in shortened.nodes] == pytest.approx([7.5e-4, 2.5e-4])
    assert shortened.scale == pytest.approx(0.4)
