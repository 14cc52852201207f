"""The optimizer and the schedule of a training, as a recipe names them: torch's own, with their keys."""

from __future__ import annotations

import math
from typing import Any

from qbench.errors import BuildError
from qbench.quant.recipe import Recipe

LEARNING_RATE = 1e-3  # where a recipe leaves it open
OPTIMIZER, SCHEDULE = "adam", "cosine"
_NAMES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
_FIRST_MOMENT = 0.9  # Adam's own constant: the first step is 1 / (1 - 0.9) times the rate long


def rate(recipe: Recipe) -> float:
    """The learning rate that the schedule starts from."""
    return recipe.learning_rate or LEARNING_RATE


def make(recipe: Recipe, parameters: Any) -> Any:
    """torch's optimizer; raises ``BuildError`` for a rate that 32-bit numbers cannot hold."""
    import torch

    kind = _NAMES[recipe.optimizer or OPTIMIZER]
    longest = torch.finfo(torch.float32).max * (1.0 if kind == "SGD" else 1 - _FIRST_MOMENT)
    if not rate(recipe) < longest:
        raise BuildError(
            f"learning_rate is {rate(recipe):g}, with which {kind}'s first step is longer than a 32-bit number can be; "
            f"lower it (QAT's own is {LEARNING_RATE:g})"
        )
    return getattr(torch.optim, kind)(parameters, lr=rate(recipe), **dict(recipe.optimizer_keys))


def share_of_rate(recipe: Recipe, step: int, epochs: int, total: int) -> float:
    """The share of the learning rate at a step of ``total``, which are those of so many epochs."""
    name, keys = recipe.schedule or SCHEDULE, dict(recipe.schedule_keys)
    warmup = keys.get("warmup", 0) * total / epochs
    if step < warmup:
        return float((step + 1) / warmup)
    done = min(1.0, (step - warmup) / (total - warmup))
    if name == "constant":
        return 1.0
    if name == "step":
        falls: int = math.floor((step - warmup) * epochs / total / keys["every"])
        return float(keys.get("gamma", 0.1) ** falls)
    left = 1 - done if name == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    end: float = keys.get("end", 0.0)
    return end + (1 - end) * left


def describe(recipe: Recipe) -> str:
    """``SGD (momentum 0.9), cosine from 0.1``."""
    optimizer = f"{_NAMES[recipe.optimizer or OPTIMIZER]}{_keys(recipe.optimizer_keys)}"
    return f"{optimizer}, {recipe.schedule or SCHEDULE}{_keys(recipe.schedule_keys)} from {rate(recipe):g}"


def _keys(keys: tuple[tuple[str, Any], ...]) -> str:
    said = [name if value is True else f"{name} {_value(value)}" for name, value in keys if value is not False]
    return f" ({', '.join(said)})" if said else ""


def _value(value: Any) -> str:
    return " and ".join(f"{part:g}" for part in value) if isinstance(value, tuple) else f"{value:g}"
