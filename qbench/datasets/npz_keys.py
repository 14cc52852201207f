"""Which arrays of an ``.npz`` file hold which split, by their names alone; without numpy, since a plan asks, too."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import DataError

INPUT = re.compile(r"(?:(?P<split>.+)_)?inputs(?:_(?P<position>\d+))?|x_(?P<keras>.+)")
LAYOUTS = ("as-is", "nchw", "nhwc", "hw")
DIMENSIONS = {"nchw": 4, "nhwc": 4, "hw": 3}


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Which keys of the file hold a split; ``labels`` is None where there are none."""

    inputs: tuple[str, ...]
    labels: str | None


def split_keys(names: tuple[str, ...], file: Path) -> dict[str, Keys]:
    """The keys of each split; a file without splits has the one split ``""``."""
    keys: dict[str, dict[int, str]] = {}
    for name in names:
        match = INPUT.fullmatch(name)
        if match:
            split = match["keras"] or match["split"] or ""
            keys.setdefault(split, {})[int(match["position"] or 0)] = name
    if not keys:
        raise DataError(
            f"{file}: no inputs in it; name the arrays train_inputs, train_labels, test_inputs, test_labels (or "
            f"x_train, y_train …); it has: {', '.join(names) or 'nothing'}"
        )
    if "" in keys and len(keys) > 1:
        splits = ", ".join(sorted(filter(None, keys)))
        raise DataError(f"{file}: both 'inputs' and the splits {splits}; rename or remove 'inputs'")
    return {split: _keys(split, inputs, names, file) for split, inputs in keys.items()}


def _keys(split: str, inputs: dict[int, str], names: tuple[str, ...], file: Path) -> Keys:
    if sorted(inputs) != list(range(len(inputs))):
        raise DataError(f"{file}: inputs are numbered from 0 without gaps, found {', '.join(inputs.values())}")
    candidates = (f"{split}_labels", f"y_{split}") if split else ("labels",)
    labels = next((name for name in candidates if name in names), None)
    return Keys(inputs=tuple(inputs[i] for i in sorted(inputs)), labels=labels)
