"""What no recipe makes int8 is told, with its size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qbench.backends.base import Built
from qbench.explain.not_covered import NotCovered, find_not_covered
from qbench.explain.text import describe_not_covered
from qbench.explain.where_time_goes import LayerTime, TimeShares
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile
from qbench.quant.flow import Conversion

CALL = CallProfile(nodes=(), call_seconds=1e-3, watched_seconds=1e-3)
LAYERS = (
    Layer(name="before", operator="MatMulInteger", macs=60, precision="int8"),
    Layer(name="scores", operator="Einsum", macs=30),
    Layer(name="head", operator="MatMul", macs=10),
)


def artifact(*layers):
    """An artifact of these layers."""
    reasons = {"head": "skipped by the recipe (skip_layers)"}
    return Built(format="onnx", file="model.onnx", layers=layers, conversion=Conversion(float_reasons=reasons))


def times(*names):
    """A profile in which each of these takes a fifth of a call."""
    rows = (
        LayerTime(
            name=name, operator="x", kind="float product", int8_seconds=2e-4, fp32_seconds=None, macs=1,
            peak_fraction=None,
        )
        for name in names
    )  # fmt: skip
    return TimeShares(case=CALL, fp32=CALL, layers=tuple(rows))


def test_products_of_activations_are_named_with_their_shares():
    """Of the work and of the call; what a recipe keeps in float is another matter."""
    uncovered = find_not_covered(artifact(*LAYERS), artifact(*LAYERS), times("before", "scores", "head"))
    assert uncovered.layers == (("scores", "Einsum"),)
    assert (uncovered.macs_share, uncovered.time_share) == (pytest.approx(0.3), pytest.approx(0.2))
    assert describe_not_covered(uncovered) == (
        "No recipe makes int8 here: scores (Einsum): 20.0 % of the call, 30.0 % of the multiply-accumulates."
    )


def test_shares_that_are_not_known_are_not_told():
    """Where the profile lacks a layer, or the work of one cannot be counted."""
    uncounted = replace(LAYERS[0], macs=None)
    uncovered = find_not_covered(artifact(uncounted, *LAYERS[1:]), artifact(*LAYERS), times("before"))
    assert (uncovered.macs_share, uncovered.time_share) == (None, None)
    assert describe_not_covered(uncovered) == "No recipe makes int8 here: scores (Einsum)."
    assert find_not_covered(artifact(LAYERS[0]), artifact(LAYERS[0]), None) is None
    assert describe_not_covered(None) is None


@pytest.mark.parametrize(("count", "more"), [(4, ""), (5, " and 1 more")])
def test_four_of_many_are_named(count, more):
    """With the shares that are known, even where they are none."""
    layers = tuple((f"l{number}", "Einsum") for number in range(count))
    names = ", ".join(f"l{number} (Einsum)" for number in range(4))
    told = describe_not_covered(NotCovered(layers=layers, macs_share=0.0, time_share=None))
    assert told == f"No recipe makes int8 here: {names}{more}: 0 % of the multiply-accumulates."


def test_the_operator_is_the_network_s_where_a_runtime_calls_it_otherwise():
    """OpenVINO runs an Einsum as MatMul."""
    runs_as = replace(LAYERS[1], operator="MatMul brgemm_avx512_f32")
    uncovered = find_not_covered(artifact(LAYERS[0], runs_as), artifact(*LAYERS), None)
    assert uncovered.layers == (("scores", "Einsum"),)


def test_layers_without_work_have_no_share_of_it():
    """Nothing is no part of nothing; a layer of the same name in int8 is covered."""
    idle = replace(LAYERS[1], macs=0)
    assert find_not_covered(artifact(idle), artifact(idle), None).macs_share is None
    twice = (*LAYERS, replace(LAYERS[1], precision="int8", macs=100))
    assert find_not_covered(artifact(*twice), artifact(*LAYERS), None).macs_share == pytest.approx(0.15)
