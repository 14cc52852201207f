"""What a recipe leaves open, chosen alike by every backend that quantizes."""

from __future__ import annotations

import platform
from dataclasses import replace

from qbench.quant.recipe import Recipe
from qbench.quant.target import EVERY_X86

_X86 = ("x86_64", "AMD64")


def find_without_ranges(recipe: Recipe) -> Recipe:
    """The recipe without what concerns ranges of activations: a mode or a framework default that has no such choice."""
    recipe = replace(recipe, calibrator=None, percentile=None, symmetric=None, clip_ranges=False)
    return replace(recipe, reduce_range=None, narrow_weights=None)


def choose_ranges(recipe: Recipe, mode: str, calibrator: str) -> Recipe:
    """The recipe with calibrator (``calibrator`` where it names none), granularity and symmetry chosen. QAT tracks
    ranges with moving averages: a histogram is too slow in a training loop."""
    name = "moving_average" if mode == "qat" else recipe.calibrator or calibrator
    return replace(
        recipe,
        calibrator=name,
        percentile=recipe.percentile if name == "percentile" else None,
        per_channel=recipe.per_channel is not False,
        symmetric=bool(recipe.symmetric),
    )


def choose_weights(recipe: Recipe) -> Recipe:
    """Of a recipe what weights of few bits have, with bits, group, symmetry and arithmetic chosen."""
    return Recipe(
        name=recipe.name,
        flow=recipe.flow,
        bits=recipe.bits or 8,
        group=recipe.group or 128,
        symmetric=bool(recipe.symmetric),
        arithmetic=recipe.arithmetic or "int8",
        skip_layers=recipe.skip_layers,
        canonicalize=False,
        clip_ranges=False,
    )


def make_room_for_sums(recipe: Recipe) -> Recipe:
    """The recipe with the choice how sums of 16 bits are kept from overflowing: by wider steps for the weights of the
    layers that need it, unless it says something else."""
    narrow = recipe.reduce_range is None if recipe.narrow_weights is None else recipe.narrow_weights
    return replace(recipe, reduce_range=bool(recipe.reduce_range), narrow_weights=narrow)


def choose_target(recipe: Recipe, mode: str) -> Recipe:
    """The recipe, which says how sums are kept from overflowing, with the CPUs that it is for: where it names none, all
    of x86 for static and qat on such a machine. This one alone where sums may overflow, and for dynamic files: what
    those of ONNX Runtime lose by weights of 7 bits is not measured."""
    if recipe.target is not None:
        return recipe
    sums_hold = bool(recipe.narrow_weights or recipe.reduce_range)
    everywhere = sums_hold and mode in ("static", "qat") and platform.machine() in _X86
    return replace(recipe, target=EVERY_X86 if everywhere else ())
