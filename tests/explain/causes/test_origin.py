"""Causes of origin: whose recipe it is."""

from __future__ import annotations

from dataclasses import replace

from made_situations import LAYERS, situation

from qbench.explain.causes import origin
from qbench.explain.change import Change
from qbench.quant.recipe import FRAMEWORK_DEFAULT, Recipe


def test_a_frameworks_recipe_is_replaced_by_qbenchs():
    """qbench's own is not replaced by itself."""
    case = situation(recipe=Recipe(name=FRAMEWORK_DEFAULT, framework_default=True))
    (proposed,) = origin.FRAMEWORK_DEFAULT.propose(case)
    assert proposed.change == Change(own_recipe=True)
    assert origin.FRAMEWORK_DEFAULT.propose(situation()) == ()


def test_a_file_is_quantized_anew_with_the_layers_in_float_that_it_has():
    """Where it has none, nothing is skipped, and nothing is said of float."""
    mine = situation(recipe=Recipe(name="own", file="mine.onnx"))
    (throughout,) = origin.OWN_FILE.propose(mine)
    assert (throughout.text, throughout.change) == ("quantized by qbench", Change(own_recipe=True))
    (partly,) = origin.OWN_FILE.propose(replace(mine, layers=(*LAYERS[:2], replace(LAYERS[2], precision="fp32"))))
    assert partly.text == "quantized by qbench, head in float as in the file"
    assert partly.change == Change(own_recipe=True, recipe={"skip_layers": ("head",)})
    assert origin.OWN_FILE.propose(situation()) == ()
