"""The seconds of nodes over several calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.quant.artifacts import node_profile
from qbench.quant.artifacts.node_profile import (
    KINDS,
    WARMUP_CALLS,
    CallProfile,
    NodeTime,
    median_of_calls,
    time_calls,
)

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


def test_the_seconds_of_a_profile_are_those_of_its_kinds():
    """Kinds that there are not are left out; nothing was shortened unless that is said."""
    nodes = [
        NodeTime(layer="", operator="node", kind=kind, seconds=seconds)
        for kind, seconds in zip((KINDS[0], KINDS[1], KINDS[0]), (1.0, 2.0, 4.0), strict=True)
    ]
    told = CallProfile(nodes=tuple(nodes), call_seconds=8.0, watched_seconds=9.0)
    assert told.seconds_by_kind() == {KINDS[0]: 5.0, KINDS[1]: 2.0}
    assert told.scale == 1.0


@pytest.mark.parametrize(
    ("once", "seconds", "planned"),
    [
        (0.015625, 0.125, (8, 8, True)),
        (0.03125, 0.25, (8, 4, False)),
        (0.25, 0.25, (node_profile._FEWEST_CALLS, 0, False)),
        (1e-6, 1.0, (node_profile._MOST_CALLS, WARMUP_CALLS, True)),
        (0.0, 1.0, (node_profile._MOST_CALLS, WARMUP_CALLS, True)),
    ],
)
def test_what_is_watched_follows_from_how_long_a_call_takes(monkeypatch, once, seconds, planned):
    """By the second one: as many as fit, within limits; short ones are timed apart, since watching lengthens them."""
    now, calls = [0.0], []

    def call():
        calls.append(1)
        now[0] += 5.0 if len(calls) == 1 else once

    monkeypatch.setattr(node_profile.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(node_profile, "_WARMUP_SECONDS", 0.125)
    monkeypatch.setattr(node_profile, "_LONG_SECONDS", 0.03125)
    watching = node_profile.plan_watching(call, seconds)
    assert (watching.calls, watching.warmups, watching.apart) == planned
    assert len(calls) == 2
