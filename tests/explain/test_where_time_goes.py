"""Where the time of a call goes: real profiles of each runtime, and how nodes get their layers' names."""

from __future__ import annotations

import pytest

from qbench.explain.where_time_goes import TimeShares, count_macs, name_layers
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile, NodeTime


def node(layer, kind="int8 product", seconds=1e-5, operator="Conv"):
    """A node of a call."""
    return NodeTime(layer=layer, operator=operator, kind=kind, seconds=seconds)


def profile(*nodes, call_seconds=1e-4):
    """A call with these nodes."""
    return CallProfile(nodes=nodes, call_seconds=call_seconds, watched_seconds=call_seconds)


LAYERS = (
    Layer(name="stem", operator="conv", macs=100, precision="int8"),
    Layer(name="head", operator="linear", macs=10, precision="int8"),
)


def test_products_get_the_names_of_the_layers_in_order():
    """Other nodes keep their names."""
    named = name_layers(profile(node("a"), node("q", "conversion"), node("b")), LAYERS)
    assert [entry.layer for entry in named.nodes] == ["stem", "q", "head"]


def test_multiply_accumulates_are_those_of_the_call():
    """Of the whole batch; a layer that is called twice does both, and what cannot be counted is not known."""
    twice = (*LAYERS, LAYERS[0], Layer(name="odd", operator="einsum", macs=None))
    assert count_macs(twice, 8) == {"stem": 1600, "head": 80, "odd": None}


@pytest.mark.parametrize("nodes", [[node("a")], [node("head"), node("stem")], [node("a"), node("stem")]])
def test_names_are_left_where_the_order_does_not_fit(nodes):
    """Another number of products, or a known layer at another place: nothing is guessed."""
    bare = profile(*nodes)
    assert name_layers(bare, LAYERS) == bare


def test_what_a_call_takes_beside_its_nodes_is_not_known_where_watching_costs_more():
    """null is not 0."""
    assert profile(node("a", seconds=4e-5)).overhead_seconds == pytest.approx(6e-5)
    assert profile(node("a", seconds=2e-4)).overhead_seconds is None


def test_kinds_stand_beside_those_of_fp32():
    """A kind that only one of them has is 0 in the other."""
    shares = TimeShares(
        case=profile(node("a"), node("q", "conversion")), fp32=profile(node("a", "float product")), layers=()
    )
    assert shares.kinds() == [("int8 product", 1e-5, 0.0), ("float product", 0.0, 1e-5), ("conversion", 1e-5, 0.0)]
    assert shares.operators()["conversion", "Conv"] == (1e-5, 1)


def test_nodes_that_take_longer_than_a_call_are_shortened_to_it():
    """By one factor, so that shares of the call add up; what a call takes beside them is not known then."""
    seen = CallProfile(
        nodes=(node("a", seconds=1.5e-4), node("q", "conversion", seconds=5e-5)), call_seconds=1e-4,
        watched_seconds=2.5e-4,
    )  # fmt: skip
    fitting = seen.fit_into_call()
    assert [entry.seconds for entry in fitting.nodes] == pytest.approx([7.5e-5, 2.5e-5])
    assert fitting.overhead_seconds is None
    assert fitting.watching_seconds == pytest.approx(1.5e-4)
    assert profile(node("a", seconds=4e-5)).fit_into_call().scale == 1.0
