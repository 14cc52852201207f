"""Rules of qbench/quant/layer_selection.py: which layers a recipe keeps in float, and why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from qbench.errors import BuildError
from qbench.quant.layer_selection import FIRST, LAST, SKIPPED, below, float_by_recipe, in_order
from qbench.quant.recipe import Recipe


class Net(nn.Module):
    """Layers that run in another order than they are named in; one never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.unused = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.body(x)))


EXAMPLE = (torch.zeros(1, 4),)


def floats(**keys: Any) -> dict[str, str]:
    """What a recipe with these keys keeps in float."""
    return float_by_recipe(Net(), Recipe(flow="onnx", **keys), EXAMPLE)


def test_layers_are_in_the_order_in_which_they_first_run() -> None:
    """Those that multiply, each once."""
    assert in_order(Net(), EXAMPLE) == ("body.0", "body.2", "head")


@pytest.mark.parametrize(
    ("keys", "reasons"),
    [
        ({}, {}),
        ({"first_layer_float": True}, {"body.0": FIRST}),
        ({"last_layer_float": True}, {"head": LAST}),
        ({"first_layer_float": True, "last_layer_float": True}, {"head": LAST, "body.0": FIRST}),
        ({"skip_layers": ("body",)}, {"body": SKIPPED}),
        ({"skip_layers": ("body.?", "head")}, dict.fromkeys(("body.0", "body.1", "body.2", "head"), SKIPPED)),
        ({"skip_layers": ("head",), "last_layer_float": True}, {"head": SKIPPED}),
    ],
)
def test_a_recipe_keeps_layers_in_float(keys: dict[str, Any], reasons: dict[str, str]) -> None:
    """By name, by pattern, the first and the last that run; what is named is told as that."""
    assert floats(**keys) == reasons


def test_a_single_layer_is_the_first() -> None:
    """And a network without any has none."""
    both = Recipe(flow="onnx", first_layer_float=True, last_layer_float=True)
    assert float_by_recipe(nn.Sequential(nn.Linear(4, 4)), both, EXAMPLE) == {"0": FIRST}
    assert float_by_recipe(nn.Sequential(nn.ReLU()), both, EXAMPLE) == {}


def test_names_that_match_nothing_are_all_told() -> None:
    """With the names that there are; a name is no pattern of others."""
    with pytest.raises(
        BuildError, match=r"^skip_layers: no layer named a, x\*; there are body, body\.0, body\.1, body"
    ):
        floats(skip_layers=("a", "head", "x*"))


def test_a_name_stands_for_what_is_below_it() -> None:
    """The nearest one decides."""
    names = {"a": "one", "a.b.c": "two"}
    nearest = {name: below(name, names) for name in ("a", "a.b", "a.b.c", "a.b.c.d", "ab", "b.a", "")}
    assert nearest == {"a": "one", "a.b": "one", "a.b.c": "two", "a.b.c.d": "two", "ab": None, "b.a": None, "": None}
