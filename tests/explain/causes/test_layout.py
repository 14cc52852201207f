"""Causes of layout: layers in float, and the conversions between them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_situations import CALL, ISLAND, LAYERS, layer_time, node, situation

from qbench.explain.causes import layout
from qbench.explain.change import Change
from qbench.explain.where_time_goes import TimeShares
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile
from qbench.quant.recipe import FRAMEWORK_DEFAULT, Recipe

OWN_FILE = Recipe(name="own", file="mine.onnx")
DEFAULT = Recipe(name=FRAMEWORK_DEFAULT, framework_default=True)


def profile(nodes, rows, call_seconds=1e-3):
    """Where the time of a call goes, which has these nodes and layers."""
    call = CallProfile(nodes=tuple(nodes), call_seconds=call_seconds, watched_seconds=call_seconds)
    return TimeShares(case=call, fp32=CALL, layers=tuple(rows))


def changes(cause, case):
    """The changes of recipes that a cause proposes."""
    return [dict(each.change.recipe) for each in cause.propose(case)]


def test_conversions_that_take_next_to_nothing_are_not_looked_at():
    """From 2 % of a call's time on they are."""
    nodes = [node("conversion", seconds=2e-5), node("int8 product", "stem")]
    rows = [layer_time("stem", 1e-4, 1e-5)]
    assert [stretch.layers for stretch in layout.list_unpaid(profile(nodes, rows, call_seconds=1e-3))] == [["stem"]]
    assert layout.list_unpaid(profile(nodes, rows, call_seconds=1.01e-3)) == []


def test_a_stretch_ends_at_a_product_in_float_and_at_an_operator_beside_a_conversion():
    """An operator between int8 layers without conversions parts nothing; a conversion on the border belongs to the
    stretch before it, one before the first layer to that layer's."""
    nodes = [
        node("conversion", seconds=1e-6), node("int8 product", "a"), node("other"), node("int8 product", "b"),
        node("float product", "f"), node("int8 product", "c"), node("conversion", seconds=2e-6), node("other"),
        node("int8 product", "d"), node("other"), node("conversion", seconds=4e-6), node("int8 product", "e"),
    ]  # fmt: skip
    stretches = layout._split(nodes)
    assert [stretch.layers for stretch in stretches] == [["a", "b"], ["c"], ["d"], ["e"]]
    assert [stretch.conversions for stretch in stretches] == pytest.approx([1e-6, 2e-6, 0.0, 4e-6])
    assert [stretch.seconds for stretch in stretches] == pytest.approx([2e-4, 1e-4, 1e-4, 1e-4])


def test_only_what_stands_right_beside_an_operator_parts_a_stretch():
    """A conversion one further belongs to the next layer; before the first node there is nothing."""
    nodes = [node("int8 product", "a"), node("other"), node("int8 product", "b"), node("conversion"), node("other")]
    assert [stretch.layers for stretch in layout._split([*nodes, node("int8 product", "c")])] == [["a", "b"], ["c"]]
    assert [stretch.layers for stretch in layout._split(nodes[:2])] == [["a"]]
    assert [stretch.layers for stretch in layout._split([node("other"), nodes[0], node("conversion")])] == [["a"]]
    assert layout._split([node("other")]) == []


def test_a_stretch_is_unpaid_by_what_its_conversions_add():
    """Neither one that takes as long as fp32, nor one of whose layers a time is missing, nor one without conversions,
    which is another cause's."""
    nodes = [node("conversion"), node("int8 product", "stem"), node("float product"), node("int8 product", "body")]
    for fp32, unpaid in ((1.99e-4, [["stem"]]), (2e-4, []), (None, [])):
        rows = [layer_time("stem", 1e-4, fp32), layer_time("body", 1e-4, 1e-6)]
        assert [stretch.layers for stretch in layout.list_unpaid(profile(nodes, rows))] == unpaid


def test_a_stretch_loses_nothing_that_is_not_known():
    """Its conversions are part of what it loses."""
    stretch = layout.Stretch(layers=["stem"], seconds=2e-4, conversions=1e-4, fp32_seconds=0.5e-4)
    assert stretch.loss == pytest.approx(2.5e-4)
    assert replace(stretch, fp32_seconds=None).loss == 0.0


@pytest.mark.parametrize("recipe", [OWN_FILE, DEFAULT])
def test_layers_of_what_others_quantized_are_not_moved(recipe):
    """The keys of a recipe do nothing to a user's own file, and a framework's default has none."""
    case = replace(situation(recipe=recipe), times=ISLAND, fixed_ranges=("gate",))
    for cause in (layout.CONVERSIONS, layout.UNFUSED, layout.SENSITIVE_LAYERS):
        assert cause.propose(case) == ()
    assert layout.FIXED_RANGE.propose(replace(situation(recipe=DEFAULT), fixed_ranges=("gate",))) == ()
    assert layout.CONVERSIONS.propose(replace(situation(), times=None)) == ()


@pytest.mark.parametrize(
    ("mode", "tried"),
    [
        ("static", [{"canonicalize": True}, {"clip_ranges": True}]),
        ("qat", [{"canonicalize": True}, {"clip_ranges": True}]),
        ("dynamic", [{"canonicalize": True}]),
    ],
)
def test_operators_are_joined_where_the_recipe_keeps_them_apart(mode, tried):
    """Rewriting, and ranges that end at activations, which only stored ranges can; what is on is not tried."""
    apart = Recipe(canonicalize=False, clip_ranges=False)
    assert changes(layout.UNFUSED, situation(recipe=apart, mode=mode)) == tried
    assert changes(layout.UNFUSED, situation(recipe=replace(apart, canonicalize=True), mode=mode)) == tried[1:]
    assert changes(layout.UNFUSED, situation(recipe=replace(apart, clip_ranges=True), mode=mode)) == tried[:1]


def test_what_a_recipe_keeps_in_float_is_tried_in_int8_each_kind_alone():
    """Skipped layers, the last and the first; dynamic has no such layers."""
    recipe = Recipe(skip_layers=("body",), last_layer_float=True, first_layer_float=True)
    tried = [{"skip_layers": ()}, {"last_layer_float": False}, {"first_layer_float": False}]
    assert changes(layout.KEPT_FLOAT, situation(recipe=recipe)) == tried
    for number, key in enumerate(({"skip_layers": ()}, {"last_layer_float": False}, {"first_layer_float": False})):
        assert changes(layout.KEPT_FLOAT, situation(recipe=replace(recipe, **key))) == [
            each for each in tried if each is not tried[number]
        ]
    assert changes(layout.KEPT_FLOAT, situation(recipe=recipe, mode="dynamic")) == []
    assert changes(layout.KEPT_FLOAT, situation(recipe=DEFAULT)) == []


def test_a_file_that_is_int8_throughout_keeps_nothing_in_float():
    """A layer in float that has no int8 form is none that is kept."""
    assert changes(layout.KEPT_FLOAT, situation(recipe=OWN_FILE)) == []
    floats = replace(situation(recipe=OWN_FILE), layers=(*LAYERS[:2], replace(LAYERS[2], precision="fp32")))
    (proposed,) = layout.KEPT_FLOAT.propose(floats)
    assert proposed.text == "quantized by qbench, with head in int8"


def named(count):
    """A case of so many int8 layers."""
    layers = tuple(Layer(name=f"l{number}", operator="conv", macs=1, precision="int8") for number in range(count))
    return replace(situation(), layers=layers)


def test_each_layer_is_tried_alone_where_they_are_few():
    """Twelve are; of thirteen the outer six on each side. Layers in float already are not tried again."""
    few = layout.SENSITIVE_LAYERS.propose(named(12))
    assert [(each.part, each.text, each.change.recipe) for each in few] == [
        (f"l{number}", f"l{number} in float", {"skip_layers": (f"l{number}",)}) for number in range(12)
    ]
    outer = [f"l{number}" for number in (*range(6), *range(7, 13))]
    assert [each.part for each in layout.SENSITIVE_LAYERS.propose(named(13))] == outer
    partly = replace(situation(), layers=(replace(LAYERS[0], precision="fp32"), *LAYERS[1:]))
    assert [each.part for each in layout.SENSITIVE_LAYERS.propose(partly)] == ["body", "head"]


def test_layers_are_chosen_by_the_signal_where_it_is_known_of_enough():
    """A fall is between two neighbours that are known: thirteen of them give twelve, which is enough; twelve are not.
    The ten worst are tried, with the first and the last, in their order."""
    falls = [0.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 0.5, 0.5]
    numbers = [{"name": f"l{number}", "sqnr_db": 90.0 - sum(falls[: number + 1])} for number in range(15)]
    case = replace(named(15), layer_numbers=tuple(numbers[:13]))
    chosen = [f"l{number}" for number in (0, *range(3, 13), 14)]
    assert [each.part for each in layout.SENSITIVE_LAYERS.propose(case)] == chosen
    unknown = replace(case, layer_numbers=({**numbers[0], "sqnr_db": None}, *numbers[1:13]))
    outer = [f"l{number}" for number in (*range(6), *range(9, 15))]
    assert [each.part for each in layout.SENSITIVE_LAYERS.propose(unknown)] == outer


def test_operators_of_a_fixed_range_are_tried_in_float_with_what_is_skipped():
    """Those that the recipe skips are in float already; only static has such ranges."""
    recipe = Recipe(skip_layers=("head", "gate"))
    case = replace(situation(recipe=recipe), fixed_ranges=("gate", "tanh"))
    (proposed,) = layout.FIXED_RANGE.propose(case)
    assert (proposed.text, proposed.change) == (
        "in float: tanh",
        Change(recipe={"skip_layers": ("head", "gate", "tanh")}),
    )
    assert layout.FIXED_RANGE.propose(replace(case, fixed_ranges=("gate",))) == ()
    assert layout.FIXED_RANGE.propose(replace(situation(mode="qat"), fixed_ranges=("tanh",))) == ()


def test_joins_are_tried_in_float_where_they_share_a_scale():
    """Of a framework's own recipe, where the network has such joins; qbench's recipes have them in float."""
    theirs = Recipe(name="framework-default", flow="fx", framework_default=True)
    case = situation(recipe=theirs, joins=("cat", "add", "mul", "cat_1"))
    (proposed,) = layout.JOINED_RANGES.propose(case)
    assert proposed.text == "joined in float, not under one scale: cat, add, mul and 1 more"
    assert proposed.change == Change(recipe={"float_joins": True})
    assert layout.JOINED_RANGES.propose(replace(case, joins=())) == ()
    assert layout.JOINED_RANGES.propose(situation(mode="dynamic", recipe=theirs, joins=("cat",))) == ()
    for recipe in (Recipe(flow="fx"), replace(theirs, float_joins=True), Recipe(name="file", file="mine.pt")):
        assert layout.JOINED_RANGES.propose(situation(recipe=recipe, joins=("cat",))) == ()
