"""Rules of qbench/quant/recipe.py: what a recipe says, and the key that its artifacts have."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from qbench.quant.flow import Conversion, QuantizeJob
from qbench.quant.recipe import AUTO, OF_WEIGHTS, ONNX_STATIC, TRAINING, Recipe, key_parts, training_of


def test_the_flows_are_tried_in_their_order() -> None:
    """None for fp32, several where the choice is open."""
    assert [Recipe(flow=flow).flows for flow in (None, "onnx", AUTO)] == [(), ("onnx",), ("fx", "eager")]


def test_the_cpus_of_a_target_are_none_where_there_is_none() -> None:
    """Whether the choice is open or it is for this machine alone."""
    assert [Recipe(target=target).cpus for target in (None, (), ("avx2",))] == [(), (), ("avx2",)]


@pytest.mark.parametrize(
    ("framework_default", "float_joins", "joins"),
    [(False, None, True), (True, None, False), (True, True, True), (False, False, False)],
)
def test_joins_are_in_float_in_qbenchs_recipes_unless_one_says_so(
    framework_default: bool, float_joins: bool | None, joins: bool
) -> None:
    """The framework's own is left as it is."""
    assert Recipe(framework_default=framework_default, float_joins=float_joins).joins_in_float is joins


def test_a_recipe_that_has_epochs_trains() -> None:
    """Also one of none."""
    assert [Recipe(epochs=epochs).trains for epochs in (None, 0, 1)] == [False, True, True]


def test_a_key_holds_what_came_later_only_where_it_is_set() -> None:
    """So that artifacts of before are found; whatever a recipe says makes another key."""
    plain = key_parts(Recipe())
    later = {*("qconfig", "schedule_keys", "optimizer", "optimizer_keys", "loss", "train", "float_joins"), *ONNX_STATIC,
             *OF_WEIGHTS}  # fmt: skip
    assert asdict(Recipe()).keys() - plain.keys() == later
    for name in later:
        value = (("a", 1),) if name.endswith("_keys") else False
        assert key_parts(replace(Recipe(), **{name: value})) == {**plain, name: value}
    assert plain["calibrator"] is None


def test_a_training_is_known_by_what_decides_its_course() -> None:
    """In one order; how its network is quantized does not matter."""
    recipe = Recipe(epochs=2, seed=1, optimizer="sgd", calibrator="mse")
    told = training_of(recipe)
    assert list(told) == [name for name in TRAINING if name in told]
    unset = dict.fromkeys(("learning_rate", "batch_size", "samples", "schedule", "distill"))
    assert told == {"epochs": 2, "seed": 1, "optimizer": "sgd", **unset}
    assert training_of(replace(recipe, calibrator="ifmr")) == told


def test_examples_of_a_job_begin_with_the_one_that_is_traced() -> None:
    """Further ones come behind it."""
    job = QuantizeJob(None, "x86", Recipe(), (1,), more=((2,), (3,)))
    assert job.examples == ((1,), (2,), (3,))
    assert replace(job, more=()).examples == ((1,),)


def test_notes_that_are_none_are_left_out() -> None:
    """In place of those that there were."""
    assert Conversion(notes=("old",)).with_notes("a", None, "", "b").notes == ("a", "b")
