"""Where the time of a call goes: real profiles of each runtime, and how nodes get their layers' names."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from qbench import registry
from qbench.explain.where_time_goes import TimeShares, compare_profiles, count_macs, name_layers, profile_case
from qbench.machine.peak import Peak
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
    call_profile = CallProfile(
        nodes=(node("a", seconds=1.5e-4), node("q", "conversion", seconds=5e-5)), call_seconds=1e-4,
        watched_seconds=2.5e-4,
    )  # fmt: skip
    fitting = call_profile.fit_into_call()
    assert [entry.seconds for entry in fitting.nodes] == pytest.approx([7.5e-5, 2.5e-5])
    assert fitting.overhead_seconds is None
    assert fitting.watching_seconds == pytest.approx(1.5e-4)
    assert profile(node("a", seconds=4e-5)).fit_into_call().scale == 1.0


def test_operators_are_summed_and_the_longest_come_first():
    """By kind and operator: an int8 convolution is another one than a float one."""
    nodes = [node("a"), node("b", seconds=2e-5), node("c", "float product", 5e-5), node("q", "conversion", 4e-5, "Q")]
    shares = TimeShares(case=profile(*nodes), fp32=profile(), layers=())
    assert list(shares.operators().items()) == [
        (("float product", "Conv"), (5e-5, 1)),
        (("conversion", "Q"), (4e-5, 1)),
        (("int8 product", "Conv"), (pytest.approx(3e-5), 2)),
    ]


PEAK = Peak(
    fp32_flops_per_second=1e8, fp32_kernel="a", fp32_size=1, int8_ops_per_second=4e8, int8_kernel="b", int8_size=1,
    core=0, seconds=0.0, versions={},
)  # fmt: skip


def test_layers_are_those_that_multiply_the_longest_first_each_against_the_peak_of_its_kind():
    """Several nodes of a layer are one, and int8 where all of them are; two cores do twice as much."""
    case = profile(
        node("mixed", seconds=1e-5, operator="Gemm"),
        node("mixed", "float product", 1e-5, "Add"),
        node("mixed", "conversion", 7e-5),
        node("int8", seconds=5e-5),
    )
    fp32 = profile(node("int8", "float product", 9e-5), node("mixed", "conversion", 1e-5))
    layers = (
        Layer(name="int8", operator="conv", macs=1000, precision="int8"),
        Layer(name="mixed", operator="linear", macs=100, precision="int8"),
    )
    rows = compare_profiles(case, fp32, layers, 2, PEAK, 2).layers
    assert [(row.name, row.operator, row.kind, row.fp32_seconds, row.macs) for row in rows] == [
        ("int8", "Conv", "int8 product", 9e-5, 2000),
        ("mixed", "Gemm", "float product", None, 200),
    ]
    assert [row.int8_seconds for row in rows] == pytest.approx([5e-5, 2e-5])
    assert [row.peak_fraction for row in rows] == pytest.approx([4000 / (5e-5 * 8e8), 400 / (2e-5 * 2e8)])


@pytest.mark.parametrize(
    ("peak", "macs", "seconds"), [(None, 10, 1e-5), (PEAK, None, 1e-5), (PEAK, 0, 1e-5), (PEAK, 10, 0.0)]
)
def test_a_share_of_the_peak_that_cannot_be_counted_is_not_known(peak, macs, seconds):
    """No peak, no count, or a node that the clock did not see."""
    layer = Layer(name="a", operator="conv", macs=macs)
    (row,) = compare_profiles(profile(node("a", seconds=seconds)), profile(), [layer], 1, peak, 1).layers
    assert row.peak_fraction is None


@pytest.mark.parametrize(
    ("call_seconds", "calls"), [(None, 50), (0.0999, 50), (0.1001, 49), (0.25, 20), (0.5, 10), (3.0, 10)]
)
@pytest.mark.parametrize("watched", [False, True])
def test_each_of_both_is_watched_for_five_seconds_and_at_least_ten_calls(call_seconds, calls, watched, monkeypatch):
    """On the cores where it was measured and as many examples as there are; built to be watched where that differs."""
    requests = []

    def call_child(function, backend, file, inputs, threads, count, *, cores):
        requests.append((file, inputs, threads, count, cores))
        return CallProfile(nodes=(node(file),), call_seconds=1e-4, watched_seconds=1e-4)

    def artifact(file):
        return SimpleNamespace(file=file, built=SimpleNamespace(layers=(LAYERS[0],)))

    def case(file):
        return SimpleNamespace(variant=SimpleNamespace(backend="fake", file=file), batch_size=8, threads=2)

    opened = SimpleNamespace(
        case=case("int8"), fp32_case=case("fp32"), artifact=artifact("int8"), fp32=artifact("fp32"),
        record_seconds=call_seconds, call_child=call_child,
        data=SimpleNamespace(evaluation=lambda first, count: (first, count), evaluation_count=5),
        build=lambda variant, watched: artifact(f"{variant.file}, watched {watched}"),
    )  # fmt: skip
    monkeypatch.setattr(registry, "load", lambda *_: SimpleNamespace(watched_builds=watched))
    shares = profile_case(opened, PEAK)
    files = ["int8, watched True", "fp32, watched True"] if watched else ["int8", "fp32"]
    assert requests == [(file, (0, 5), 2, calls, 2) for file in files]
    (row,) = shares.layers
    assert (row.name, row.macs, row.fp32_seconds) == ("stem", 800, 1e-5)
    assert row.peak_fraction == pytest.approx(1600 / (1e-5 * 8e8))
