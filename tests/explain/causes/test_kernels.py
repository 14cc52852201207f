"""Causes of kernels: which of them are proposed, and where they are not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_situations import CALL, layer_time, situation

from qbench.explain.causes import kernels
from qbench.explain.change import Change
from qbench.explain.where_time_goes import TimeShares
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.recipe import FRAMEWORK_DEFAULT, Recipe

OWN_FILE = Recipe(name="own", file="mine.onnx", symmetric=True, per_channel=True)
DEFAULT = Recipe(name=FRAMEWORK_DEFAULT, framework_default=True, symmetric=True, per_channel=True)


def slow_in_int8(losses, names=None, **changes):
    """A case whose layers take so many seconds longer in int8 than in fp32, of a call that takes 1 ms."""
    rows = tuple(layer_time(name, 1e-3 + loss, 1e-3) for name, loss in losses.items())
    layers = tuple(Layer(name=name, operator="conv", macs=100, precision="int8") for name in names or losses)
    return replace(situation(**changes), times=TimeShares(case=CALL, fp32=CALL, layers=rows), layers=layers)


def returned(case):
    """The layers that are returned to float."""
    return [name for each in kernels.SLOWER_IN_INT8.propose(case) for name in each.change.recipe["skip_layers"]]


@pytest.mark.parametrize(
    ("own", "mode", "tried"),
    [
        ("fbgemm", "static", ["onednn"]),
        ("fbgemm", "qat", ["onednn"]),
        ("onednn", "static", ["fbgemm"]),
        ("qnnpack", "static", ["fbgemm", "onednn"]),
        ("fbgemm", "dynamic", []),
        ("onnxruntime", "static", []),
    ],
)
def test_engines_of_torch_are_tried_that_can_be_used_here(own, mode, tried):
    """No engine is tried against itself, nor one that this machine lacks (x86 here), nor for another runtime's case."""
    case = situation(backend=own, mode=mode, backends=("fbgemm", "onednn", "qnnpack", "onnxruntime"))
    assert [each.change for each in kernels.ENGINE_KERNELS.propose(case)] == [Change(backend=name) for name in tried]


def test_a_layer_loses_more_than_a_hundredth_of_a_call_to_be_tried_in_float():
    """A layer that is slower by less is not worth a build, nor is one that is faster."""
    least = kernels.LEAST_LOSS * CALL.call_seconds
    assert least == pytest.approx(1e-5)
    assert returned(slow_in_int8({"stem": 1.01 * least, "body": 0.99 * least, "head": -1e-4})) == ["stem"]
    assert returned(slow_in_int8({"stem": 0.99 * least, "body": 0.0})) == []
    rows = (layer_time("stem", least, 0.0), layer_time("body", 0.0, 0.0))
    exact = replace(slow_in_int8({"stem": 0.0, "body": 0.0}), times=TimeShares(case=CALL, fp32=CALL, layers=rows))
    assert returned(exact) == []


def test_the_layers_that_lose_most_are_tried_in_float_first():
    """Eight at most, by what they lose; the winner stays int8."""
    losses = {f"layer{number}": 1e-4 * (number + 1) for number in range(10)} | {"fast": -1e-4}
    assert returned(slow_in_int8(losses)) == [f"layer{number}" for number in range(9, 1, -1)]


def test_a_variant_keeps_a_layer_in_int8():
    """Where every layer whose seconds are known loses, none is returned: nothing would be left to measure."""
    assert returned(slow_in_int8({"stem": 1e-4, "body": 1e-4})) == []


def test_only_int8_products_that_are_the_networks_layers_are_compared():
    """Nothing is said of a layer in float, of one whose fp32 seconds are not known, nor of a node without a layer."""
    case = slow_in_int8({"stem": 1e-4, "body": -1e-4, "float": 1e-4, "unknown": 1e-4})
    rows = {row.name: row for row in case.times.layers}
    rows["float"] = replace(rows["float"], kind="float product")
    rows["unknown"] = replace(rows["unknown"], fp32_seconds=None)
    rows["node"] = layer_time("node", 2e-3, 1e-3)
    assert returned(replace(case, times=replace(case.times, layers=tuple(rows.values())))) == ["stem"]


@pytest.mark.parametrize("recipe", [OWN_FILE, DEFAULT])
def test_of_what_others_quantized_no_key_is_changed(recipe):
    """The keys of a recipe do nothing to a user's own file, and a framework's default has none."""
    case = slow_in_int8({"stem": 1e-4, "body": -1e-4}, recipe=recipe)
    for cause in (kernels.SLOWER_IN_INT8, kernels.SYMMETRIC, kernels.PER_CHANNEL):
        assert cause.propose(case) == ()
    assert kernels.SLOWER_IN_INT8.propose(replace(situation(), times=None)) == ()


def test_each_cause_changes_its_own_key():
    """Dynamic becomes static; symmetric and per channel become False, where they are not."""
    (static,) = kernels.DYNAMIC_ACTIVATIONS.propose(situation(mode="dynamic"))
    (affine,) = kernels.SYMMETRIC.propose(situation(recipe=Recipe(symmetric=True)))
    (one_scale,) = kernels.PER_CHANNEL.propose(situation(recipe=Recipe(per_channel=True)))
    assert static.change == Change(mode="static")
    assert affine.change == Change(recipe={"symmetric": False})
    assert one_scale.change == Change(recipe={"per_channel": False})
    assert kernels.SYMMETRIC.propose(situation(recipe=Recipe(symmetric=False))) == ()
    assert kernels.PER_CHANNEL.propose(situation(recipe=Recipe(per_channel=False))) == ()
