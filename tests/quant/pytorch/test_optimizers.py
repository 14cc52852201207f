"""Rules of qbench/quant/pytorch/optimizers.py: torch's optimizer and the course of its rate, as a recipe names them."""

from __future__ import annotations

import math

import pytest
import torch

from qbench.errors import BuildError
from qbench.quant.pytorch import optimizers
from qbench.quant.pytorch.trainer import draw_examples
from qbench.quant.recipe import Recipe


@pytest.mark.parametrize(
    ("recipe", "kind", "facts"),
    [
        (Recipe(), torch.optim.Adam, {"lr": 1e-3}),
        (Recipe(optimizer="adamw", learning_rate=0.5, optimizer_keys=(("weight_decay", 0.1),)), torch.optim.AdamW,
         {"lr": 0.5, "weight_decay": 0.1}),
        (Recipe(optimizer="sgd", optimizer_keys=(("momentum", 0.9), ("nesterov", True))), torch.optim.SGD,
         {"lr": 1e-3, "momentum": 0.9, "nesterov": True}),
    ],
)  # fmt: skip
def test_the_optimizer_is_torchs_with_the_recipes_keys(recipe: Recipe, kind: type, facts: dict[str, object]) -> None:
    """At its learning rate, or qbench's own."""
    built = optimizers.make(recipe, [torch.nn.Parameter(torch.zeros(1))])
    assert type(built) is kind
    assert {key: built.defaults[key] for key in facts} == facts


@pytest.mark.parametrize(("optimizer", "most"), [("sgd", 3.4028234663852886e38), ("adam", 3.4028234663852886e37)])
def test_a_rate_beyond_32_bits_is_refused(optimizer: str, most: float) -> None:
    """By the length of the first step, which is ten times the rate with Adam's moments."""
    parameters = [torch.nn.Parameter(torch.zeros(1))]
    optimizers.make(Recipe(optimizer=optimizer, learning_rate=0.999 * most), parameters)
    for rate in (1.001 * most, math.nan):
        with pytest.raises(BuildError, match=r"first step is longer than a 32-bit number can be; .*own is 0\.001"):
            optimizers.make(Recipe(optimizer=optimizer, learning_rate=rate), parameters)


@pytest.mark.parametrize(
    ("schedule", "keys", "shares"),
    [
        ("constant", (), [1, 1, 1, 1, 1, 1, 1, 1]),
        ("linear", (), [1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        ("linear", (("end", 0.5),), [1, 15 / 16, 14 / 16, 13 / 16, 12 / 16, 11 / 16, 10 / 16, 9 / 16]),
        ("linear", (("warmup", 1),), [1 / 2, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        ("step", (("every", 2),), [1, 1, 1, 1, 0.1, 0.1, 0.1, 0.1]),
        ("step", (("every", 1), ("gamma", 0.5)), [1, 1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125]),
        ("step", (("every", 1), ("gamma", 0.5), ("warmup", 2)), [0.25, 0.5, 0.75, 1, 1, 1, 0.5, 0.5]),
        (None, (), [0.5 * (1 + math.cos(math.pi * step / 8)) for step in range(8)]),
        ("cosine", (("end", 0.2),), [0.2 + 0.4 * (1 + math.cos(math.pi * step / 8)) for step in range(8)]),
    ],
)
def test_the_rate_follows_the_schedule(
    schedule: str | None, keys: tuple[tuple[str, float], ...], shares: list[float]
) -> None:
    """Over four epochs of two steps; after a warm-up the rest of them. Beyond the end it stays where it ended."""
    recipe = Recipe(schedule=schedule, schedule_keys=keys)
    assert [optimizers.share_of_rate(recipe, step, 4, 8) for step in range(8)] == pytest.approx(shares)
    if schedule != "step":
        assert optimizers.share_of_rate(recipe, 9, 4, 8) == optimizers.share_of_rate(recipe, 8, 4, 8)


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        (Recipe(), "Adam, cosine from 0.001"),
        (Recipe(optimizer="sgd", learning_rate=0.1, optimizer_keys=(("momentum", 0.9), ("nesterov", True))),
         "SGD (momentum 0.9, nesterov), cosine from 0.1"),
        (Recipe(optimizer_keys=(("betas", (0.9, 0.99)), ("amsgrad", False)), schedule="step",
                schedule_keys=(("every", 2),)), "Adam (betas 0.9 and 0.99), step (every 2) from 0.001"),
    ],
)  # fmt: skip
def test_a_training_is_told_by_its_optimizer_and_schedule(recipe: Recipe, told: str) -> None:
    """With the keys that are set."""
    assert optimizers.describe(recipe) == told


def test_examples_are_drawn_by_the_seed() -> None:
    """All of them, or as many as are asked for, ascending."""
    assert draw_examples(5, 0, None).tolist() == [0, 1, 2, 3, 4]
    few = draw_examples(100, 0, 10)
    assert (len(few), bool((few.diff() > 0).all())) == (10, True)
    assert not torch.equal(draw_examples(100, 1, 10), few)
