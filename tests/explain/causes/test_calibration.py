"""Causes of calibration: when two draws differ, and which ranges are tried."""

from __future__ import annotations

import pytest
from made_situations import situation

from qbench.explain.causes import calibration
from qbench.explain.change import Change
from qbench.quant.analysis.input_drift import CLIPPED
from qbench.quant.recipe import FRAMEWORK_DEFAULT, Recipe
from qbench.record.schema import InputFit, Spread

OWN_FILE = Recipe(name="own", file="mine.onnx", reduce_range=True, symmetric=True)
DEFAULT = Recipe(name=FRAMEWORK_DEFAULT, framework_default=True, reduce_range=True, symmetric=True)


def fit(mean=0.0, deviation=1.0, clipped=None):
    """An input whose calibration values have these, and evaluation values a mean of 0 and a deviation of 1."""
    spread = {"least": -4.0, "greatest": 4.0}
    return InputFit(
        evaluated=Spread(mean=0.0, deviation=1.0, **spread),
        calibrated=Spread(mean=mean, deviation=deviation, **spread),
        clipped=clipped,
    )


@pytest.mark.parametrize(
    ("inputs", "differ"),
    [
        (fit(), False),
        (fit(deviation=1.2), False),
        (fit(deviation=1.21), True),
        (fit(deviation=0.84), False),
        (fit(deviation=0.83), True),
        (fit(mean=0.25), False),
        (fit(mean=-0.26), True),
        (fit(mean=0.26, deviation=1.1), False),  # by deviations of the wider of the two
        (fit(clipped=CLIPPED), False),
        (fit(clipped=1.01 * CLIPPED), True),
        (fit(clipped=0.0), False),
    ],
)
def test_two_draws_differ_by_more_than_chance_lets_them(inputs, differ):
    """Deviations by a fifth, means by a quarter of a deviation, or one value in a thousand clipped."""
    assert calibration.differ(inputs) is differ


def test_calibration_is_tried_on_what_is_evaluated_where_one_input_differs():
    """Not for a file of the user's, nor where ranges are found at each call, nor where too few examples are left."""
    inputs, evaluation = (fit(), None, fit(mean=1.0)), ("test", 1024)
    cause = calibration.CALIBRATION_DATA
    (proposed,) = cause.propose(situation(inputs=inputs, evaluation=evaluation))
    assert proposed.change == Change(calibrate=("test", 1024))
    assert proposed.text == "calibrated on 1,024 examples of 'test', scored on the others"
    assert cause.propose(situation(inputs=inputs[:2], evaluation=evaluation)) == ()
    assert cause.propose(situation(inputs=inputs, evaluation=None)) == ()
    assert cause.propose(situation(inputs=inputs, evaluation=evaluation, mode="qat")) == ()
    assert cause.propose(situation(inputs=inputs, evaluation=evaluation, recipe=OWN_FILE)) == ()


def test_the_other_calibrators_are_tried():
    """Each but its own; only where static has one."""
    tried = calibration.CALIBRATOR.propose(situation(recipe=Recipe(calibrator="mse")))
    assert [each.change.recipe["calibrator"] for each in tried] == ["minmax", "histogram", "percentile"]
    assert calibration.CALIBRATOR.propose(situation(recipe=Recipe(calibrator=None))) == ()
    assert calibration.CALIBRATOR.propose(situation(recipe=Recipe(calibrator="mse"), mode="qat")) == ()


@pytest.mark.parametrize(
    ("recipe", "text"),
    [
        (Recipe(reduce_range=True), "activations with 8 bits"),
        (Recipe(symmetric=True), "activations with an offset"),
        (Recipe(reduce_range=True, symmetric=True), "activations with 8 bits and an offset"),
        (Recipe(), None),
        (OWN_FILE, None),
        (DEFAULT, None),
    ],
)
def test_levels_are_given_back_that_the_recipe_takes(recipe, text):
    """What is tried says what it gives back; a file of the user's and a framework's default have no such keys."""
    proposed = calibration.FEW_LEVELS.propose(situation(recipe=recipe))
    assert [each.text for each in proposed] == ([] if text is None else [text])
    assert calibration.FEW_LEVELS.propose(situation(recipe=recipe, mode="dynamic")) == ()
