"""Causes of weights: their scales and their steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_situations import situation

from qbench.explain.causes import weights
from qbench.explain.change import Change
from qbench.quant.recipe import FRAMEWORK_DEFAULT, Recipe

OWN_FILE = Recipe(name="own", file="mine.onnx", per_channel=False, narrow_weights=False)
DEFAULT = Recipe(name=FRAMEWORK_DEFAULT, framework_default=True, per_channel=False, narrow_weights=False)


@pytest.mark.parametrize(("per_channel", "tried"), [(False, 1), (True, 0), (None, 0)])
def test_scales_for_each_channel_are_tried_where_the_recipe_has_one(per_channel, tried):
    """Where the backend decides, nobody knows that there is one."""
    proposed = weights.PER_TENSOR.propose(situation(recipe=Recipe(per_channel=per_channel)))
    assert [each.change for each in proposed] == tried * [Change(recipe={"per_channel": True})]


@pytest.mark.parametrize("recipe", [OWN_FILE, DEFAULT])
def test_weights_that_others_quantized_stay(recipe):
    """The keys of a recipe do nothing to them."""
    assert weights.PER_TENSOR.propose(situation(recipe=recipe)) == ()
    assert weights.OVERFLOWING_SUMS.propose(situation(recipe=recipe)) == ()


def test_sums_may_overflow_where_neither_steps_are_wider_nor_bits_fewer():
    """Here wider steps alone mend it, on a host with its name; where that is done, nothing overflows."""
    cause, open_ = weights.OVERFLOWING_SUMS, Recipe(narrow_weights=False, reduce_range=False)
    (here,) = cause.propose(situation(recipe=open_))
    assert here.change.recipe == {"narrow_weights": True, "reduce_range": False}
    assert here.text == "wider steps for weights whose sums could overflow"
    for mended in (replace(open_, narrow_weights=True), replace(open_, reduce_range=True), Recipe(narrow_weights=None)):
        assert cause.propose(situation(recipe=mended)) == ()
    for host, named in (("avx2", " on avx2"), ("vnni", "")):
        case = situation(recipe=open_)
        (there,) = cause.propose(replace(case, case=replace(case.case, host=host)))
        assert there.text == f"wider steps for weights whose sums could overflow{named}"
        assert there.change.recipe.get("target") == ((host,) if named else None)


def test_wider_steps_are_taken_back_where_other_cpus_asked_for_them():
    """A target whose sums are exact has none, nor has a recipe without them."""
    (proposed,) = weights.WIDER_STEPS.propose(situation(recipe=Recipe(narrow_weights=True, target=("avx2", "vnni"))))
    assert proposed.change == Change(recipe={"target": ("native",)})
    assert proposed.text == "for this machine alone, not for avx2 and vnni"
    assert weights.WIDER_STEPS.propose(situation(recipe=Recipe(narrow_weights=True, target=("vnni",)))) == ()
    assert weights.WIDER_STEPS.propose(situation(recipe=Recipe(narrow_weights=False, target=("avx2",)))) == ()


@pytest.mark.parametrize(
    ("cause", "key", "value"),
    [(weights.MEAN_ERROR, "bias_correction", True), (weights.UNEVEN_CHANNELS, "balance", 0.5)],
)
def test_what_the_onnx_flow_has_keys_for_is_tried_there(cause, key, value):
    """Once, in static mode, where qbench chose the scales; torch's flows know neither key."""
    plain = Recipe(flow="onnx")
    (proposed,) = cause.propose(situation(recipe=plain))
    assert proposed.change == Change(recipe={key: value})
    for other in (replace(plain, **{key: value}), Recipe(flow="fx"), replace(DEFAULT, flow="onnx"), OWN_FILE):
        assert cause.propose(situation(recipe=other)) == ()
    assert cause.propose(situation(recipe=plain, mode="dynamic")) == ()
