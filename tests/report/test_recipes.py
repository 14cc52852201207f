"""Rules of qbench/report/recipes.py: a recipe is told by what differs from the default."""

from __future__ import annotations

from dataclasses import replace

from made_records import fp32, int8

from qbench.report.recipes import describe_recipe

USUAL = {"flow": "fx", "calibrator": "histogram", "per_channel": True, "symmetric": False, "canonicalize": True}


def test_the_default_is_called_so() -> None:
    """Of a recipe as it comes only the flow and the calibrator are named; plain fp32 has none."""
    assert describe_recipe(int8(recipe=USUAL)) == "fx, histogram (default)"
    assert describe_recipe(fp32()) == describe_recipe(replace(fp32(), recipe=USUAL)) == ""
    twin = replace(fp32(), case=replace(fp32().case, recipe="twin"), recipe={"epochs": 3})
    assert describe_recipe(twin) == "epochs: 3"


def test_of_flow_auto_the_one_that_took_the_network_is_named() -> None:
    """Which is the default recipe all the same; of a case that was not built none is known."""
    auto = int8(recipe={**USUAL, "flow": "auto"})
    assert auto.artifact is not None
    built = replace(auto, artifact=replace(auto.artifact, flow="eager"))
    assert describe_recipe(built) == "eager, histogram (default)"
    assert describe_recipe(replace(auto, artifact=None)) == "auto, histogram (default)"


def test_what_differs_is_told_alone() -> None:
    """In plain words, with lists spelled out; what an older record does not hold is not told."""
    changed = {**USUAL, "symmetric": True, "skip_layers": ["stem", "fc"]}
    assert describe_recipe(int8(recipe=changed)) == "fx, histogram; skip layers: stem, fc, symmetric: yes"
    assert describe_recipe(int8(recipe={"flow": "fx", "calibrator": "minmax"})) == "fx, minmax"
    less = {**USUAL, "per_channel": False, "skip_layers": None, "max_layers": 3, "prefix": None}
    assert describe_recipe(int8(recipe=less)) == "fx, histogram; max layers: 3, per channel: no"
    assert describe_recipe(int8(recipe={**USUAL, "skip_layers": []})) == "fx, histogram (default)"


def test_of_a_plug_in_everything_is_told() -> None:
    """Nobody knows what its default is."""
    own = int8("net/static/mine/t1/b1", recipe={"flow": "own", "bits": 8})
    assert describe_recipe(own) == "own; bits: 8"
