"""Rules of qbench/quant/pytorch/eager/qconfigs.py: the quantization of a layer, and what a trial changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from qbench.quant.pytorch import clamp_fusion
from qbench.quant.pytorch.eager import qconfigs
from qbench.quant.recipe import Recipe


@pytest.mark.parametrize(
    ("recipe", "clip"),
    [
        (Recipe(clip_ranges=True), "replace"),
        (Recipe(clip_ranges=True, reduce_range=True), "range"),
        (Recipe(clip_ranges=True, symmetric=True), "range"),
        (Recipe(clip_ranges=False), None),
        (Recipe(clip_ranges=True, framework_default=True), None),
    ],
)
def test_what_a_clamp_does_to_the_range_before_it(recipe: Recipe, clip: str | None) -> None:
    """It goes where all levels are the range's; the framework's own recipe knows none of it."""
    assert qconfigs.clip(recipe) == clip


def test_a_trial_observes_the_ends_alone() -> None:
    """All else is the recipe's; the framework's own stays."""
    recipe = Recipe(calibrator="percentile", percentile=99.0, symmetric=True)
    assert qconfigs.cheap(recipe) == Recipe(calibrator="minmax", symmetric=True)
    own = Recipe(framework_default=True, calibrator="mse")
    assert qconfigs.cheap(own) is own


def test_the_range_of_a_layer_ends_where_it_is_cut() -> None:
    """Of one that has none, and of one that stays float, nothing is cut; a slope has its own observer."""
    of = qconfigs.of_layers("fbgemm", Recipe(calibrator="minmax", per_channel=True), training=False)
    plain, cut = of(nn.Conv2d(1, 1, 1), None), of(nn.Conv2d(1, 1, 1), (0.0, 6.0))
    assert not isinstance(plain.activation(), clamp_fusion.ClippedObserver)
    observer = cut.activation()
    assert isinstance(observer, clamp_fusion.ClippedObserver)
    assert (observer.low, observer.high) == (0.0, 6.0)
    assert of(nn.LSTM(1, 1), (0.0, 6.0)) is None
    assert of(nn.PReLU(), None).weight is qconfigs.slope_observer()


def test_a_slope_is_seen_with_a_one() -> None:
    """Which its kernel multiplies positive values by; the slope goes on as it is."""
    observer = qconfigs.slope_observer()()
    slope = torch.tensor([0.25, -0.5])
    assert observer(slope) is slope
    assert (float(observer.min_val), float(observer.max_val)) == (-0.5, 1.0)


def test_what_an_author_said_stands_on_each_layer() -> None:
    """By name and type; what is put in between has that of the network."""

    class Own:
        between = "between"

        def of(self, name: str, kind: Any) -> Any:
            return f"{name}: {kind.__name__}"

    module = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    assert qconfigs.mark_own(module, Own()) is module
    of = qconfigs.of_layers("fbgemm", Recipe(), training=False, own=Own())
    assert [of(part, (0.0, 6.0)) for part in module] == ["0: Linear", "1: ReLU"]
    assert of(SimpleNamespace(), None) == "between"
    bare = qconfigs.mark_own(nn.Sequential(nn.ReLU()), None)
    assert of(bare[0], None) == "between"
