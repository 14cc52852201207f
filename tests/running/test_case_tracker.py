"""What a record shows of a recipe."""

from __future__ import annotations

from qbench.quant.recipe import Recipe
from qbench.running.case_tracker import describe_recipe


def test_a_record_shows_the_choices_that_a_recipe_has() -> None:
    """Not its name, nor what is no choice of its mode; False and 0 are choices."""
    shown = describe_recipe(Recipe(name="mine", flow="fx", calibrator="mse", per_channel=False, skip_layers=("stem",)))
    assert {key: shown[key] for key in ("flow", "calibrator", "per_channel", "skip_layers")} == {
        "flow": "fx",
        "calibrator": "mse",
        "per_channel": False,
        "skip_layers": ("stem",),
    }
    assert "name" not in shown
    assert not {None, ()} & {value for value in shown.values() if not isinstance(value, list)}


def test_fp32_has_no_recipe_but_the_training_of_its_twin() -> None:
    """How it would be quantized is not part of it."""
    assert describe_recipe(Recipe()) == {}
    twin = describe_recipe(Recipe(epochs=2, learning_rate=0.01, seed=3))
    assert (twin["epochs"], twin["learning_rate"], twin["seed"]) == (2, 0.01, 3)
    assert set(twin) <= {"epochs", "learning_rate", "batch_size", "samples", "seed", "schedule", "distill"}
