"""What a built-in model learns from: the training split of the data set that a suite names, or its own data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbench import registry
from qbench.data import DataRequest
from qbench.datasets import validation
from qbench.datasets.base import Array, Dataset, Examples
from qbench.datasets.boxes import are_boxes
from qbench.errors import DataError, ModelError
from qbench.models.base import BuiltIn, LabelKind

LARGEST = 1000  # class numbers below this are believed however few examples there are


@dataclass(frozen=True, kw_only=True)
class TrainingSet:
    """What a built-in learns from; ``note`` tells where it is not what the suite names."""

    dataset: Dataset
    split: str
    examples: Examples
    note: str | None

    @property
    def labels(self) -> Any:
        """The class numbers of the examples."""
        return self.examples.labels

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.dataset.classes or int(self.labels.max()) + 1


# Whether labels are of a kind, and not classes.
_FIT: Mapping[LabelKind, Callable[[Array], bool]] = {
    "boxes": are_boxes,
    "masks": lambda labels: labels.ndim == 3 and labels.dtype.kind in "iu",
    "tokens": lambda labels: labels.ndim == 2 and labels.dtype.kind in "iu",
}


def choose_training_set(builtin: BuiltIn, request: DataRequest) -> TrainingSet:
    """The training split of the data set that was asked for, else of the built-in's own."""
    dataset = open_dataset(request)
    why = f"it has no split but '{request.evaluate_split}', which is evaluated"
    for split in dict.fromkeys(("train", request.calibrate_split)):
        if split not in dataset.splits or split == request.evaluate_split:
            continue
        examples = dataset.load(split)
        if examples.labels is not None:
            validation.check_dataset(dataset, split, examples)
            _require_labels(builtin, examples, f"{dataset.name}: split '{split}'")
            return TrainingSet(dataset=dataset, split=split, examples=examples, note=None)
        why = f"the examples of its split '{split}' have no labels"
    if builtin.dataset is None:
        raise ModelError(f"{builtin.name} cannot be trained on {dataset.name}: {why}")
    own_dataset: Dataset = registry.load("dataset", builtin.dataset)(builtin.data_value, base=Path(), options={})
    no = f"{builtin.name} cannot be trained on {dataset.name} ({why})"
    note = f"{no}: it is trained on its own data set, {own_dataset.name}"
    return TrainingSet(dataset=own_dataset, split="train", examples=own_dataset.load("train"), note=note)


def open_dataset(request: DataRequest) -> Dataset:
    """The data set that was asked for; nothing of it is read yet."""
    dataset: Dataset = registry.load("dataset", request.loader)(
        request.value, base=request.base, options=request.options
    )
    return dataset


def _require_labels(builtin: BuiltIn, examples: Examples, where: str) -> None:
    labels, name = np.asarray(examples.labels), builtin.name
    if builtin.labels != "classes":
        if not _FIT[builtin.labels](labels):
            value = builtin.data_value
            own = builtin.dataset if value is None else f"{{{builtin.dataset}: {value}}}"
            raise DataError(
                f"{where}: {name} learns {builtin.labels}, and these labels are {labels.dtype} of shape "
                f"{labels.shape}; take its own data set (`dataset: {own}`), or bring your own model"
            )
        return
    fits = labels.ndim == 1 and labels.dtype.kind in "iub"
    # Whole numbers may be anything: years and identifiers would ask for an output each.
    if not fits or labels.min() < 0 or labels.max() >= max(LARGEST, len(labels)):
        raise DataError(
            f"{where}: {name} learns classes, so labels must be whole numbers from 0 on, one an example; these are "
            f"{labels.dtype} of shape {labels.shape}, from {labels.min():g} to {labels.max():g}; bring your own model, "
            "or `weights` for this one"
        )
