"""Rules of train/training_set.py: what a built-in learns from, and labels that it can learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench import registry
from qbench.data import DataRequest
from qbench.datasets.base import Dataset, Examples
from qbench.errors import DataError, ModelError
from qbench.models.base import BuiltIn, Training
from qbench.train.training_set import TrainingSet, _require_labels, choose_training_set

BOX = [1.0, 2.0, 5.0, 6.0, 1.0, 0.0]


class Held(Dataset):
    """Splits of four examples with these labels."""

    def __init__(self, name: str, labels: dict[str, Any], classes: int | None = None) -> None:
        self.name, self.splits, self._labels, self.classes = name, tuple(labels), labels, classes

    def load(self, split: str) -> Examples:
        """Zeros with the split's labels."""
        return Examples(inputs=(np.zeros((4, 1)),), labels=self._labels[split])


def learner(labels: Any = "classes", dataset: str | None = "own") -> BuiltIn:
    """A built-in that learns such labels, of its own data set where nobody has others."""
    training = Training(epochs=1, batch_size=1, learning_rate=0.1)
    return BuiltIn(
        name="net", summary="", build=None, dataset=dataset, data_value="v", training=training, labels=labels
    )


def choose(
    monkeypatch: pytest.MonkeyPatch,
    named: Dataset,
    builtin: BuiltIn,
    *,
    calibrate: str = "train",
    evaluate: str = "test",
) -> TrainingSet:
    """What is learned from where a suite names that data set."""
    own = Held("own:v", {"train": np.arange(4), "test": np.arange(4)})
    given: list[tuple[Any, ...]] = []

    def load(kind: str, name: str) -> Any:
        def open_(value: Any, *, base: Path, options: Any) -> Dataset:
            given.append((kind, name, value, base, options))
            return named if name == "named" else own

        return open_

    monkeypatch.setattr(registry, "load", load)
    request = DataRequest(
        loader="named", value="x", options={"a": 1}, base=Path("/b"), calibrate_split=calibrate, calibrate_samples=1,
        calibrate_seed=0, evaluate_split=evaluate, evaluate_samples=None, evaluate_seed=0, train=False,
    )  # fmt: skip
    chosen = choose_training_set(builtin, request)
    assert given[0] == ("dataset", "named", "x", Path("/b"), {"a": 1})
    assert given[1:] in ([], [("dataset", "own", "v", Path(), {})])
    return chosen


@pytest.mark.parametrize(
    ("labels", "calibrate", "evaluate", "split"),
    [
        ({"train": [0, 1, 2, 1], "more": [0, 0, 0, 9], "test": None}, "more", "test", "train"),
        ({"fit": [0, 1, 2, 1], "test": None}, "fit", "test", "fit"),
        ({"train": [0, 0, 0, 9], "fit": [0, 1, 2, 1]}, "fit", "train", "fit"),
        ({"train": None, "fit": [0, 1, 2, 1], "test": None}, "fit", "test", "fit"),
    ],
)
def test_it_learns_from_the_training_split_or_that_of_the_calibration(
    monkeypatch: pytest.MonkeyPatch, labels: dict[str, Any], calibrate: str, evaluate: str, split: str
) -> None:
    """Never from what is evaluated, nor without labels; as many classes as the data set knows, or has."""
    arrays = {name: None if values is None else np.array(values) for name, values in labels.items()}
    chosen = choose(monkeypatch, Held("d", arrays), learner(), calibrate=calibrate, evaluate=evaluate)
    assert (chosen.dataset.name, chosen.split, chosen.note, chosen.classes) == ("d", split, None, 3)
    known = choose(monkeypatch, Held("d", arrays, classes=12), learner(), calibrate=calibrate, evaluate=evaluate)
    assert known.classes == 12


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({"train": None, "test": np.arange(4)}, "the examples of its split 'train' have no labels"),
        ({"test": np.arange(4)}, "it has no split but 'test', which is evaluated"),
    ],
)
def test_where_nothing_can_be_learned_its_own_data_set_teaches_it(
    monkeypatch: pytest.MonkeyPatch, labels: dict[str, Any], why: str
) -> None:
    """With a note; a built-in without one cannot be trained."""
    chosen = choose(monkeypatch, Held("d", labels), learner())
    assert (chosen.dataset.name, chosen.split, chosen.classes) == ("own:v", "train", 4)
    assert chosen.note == f"net cannot be trained on d ({why}): it is trained on its own data set, own:v"
    with pytest.raises(ModelError, match=f"^net cannot be trained on d: {why}$"):
        choose(monkeypatch, Held("d", labels), learner(dataset=None))


@pytest.mark.parametrize(
    ("kind", "labels", "is_fit"),
    [
        ("classes", [0, 1, 2, 999], True),
        ("classes", [0, 1, 2, 1000], False),
        ("classes", [*range(1002)], True),
        ("classes", [*range(1, 1002), 1002], False),
        ("classes", [0, 1, -1], False),
        ("classes", [True, False], True),
        ("classes", [0.0, 1.0], False),
        ("classes", [[0, 1]], False),
        ("boxes", [[BOX]], True),
        ("boxes", [0, 1], False),
        ("masks", [[[0, 1]]], True),
        ("masks", [[0, 1]], False),
        ("masks", [[[0.0, 1.0]]], False),
        ("tokens", [[0, 1]], True),
        ("tokens", [0, 1], False),
        ("tokens", [[0.0, 1.0]], False),
    ],
)
def test_a_built_in_learns_labels_of_its_kind(kind: Any, labels: Any, is_fit: bool) -> None:
    """Class numbers from 0 on, below a thousand or the number of examples; else its own data set is named."""
    examples = Examples(inputs=(np.zeros((len(labels), 1)),), labels=np.array(labels))
    if is_fit:
        _require_labels(learner(kind), examples, "d")
        return
    said = "learns classes, so labels must be" if kind == "classes" else rf"learns {kind}, .*`dataset: {{own: v}}`"
    with pytest.raises(DataError, match=f"^d: net {said}"):
        _require_labels(learner(kind), examples, "d")


def test_a_data_set_without_a_value_is_named_alone() -> None:
    """As a suite writes it."""
    builtin = replace(learner("boxes"), data_value=None)
    with pytest.raises(DataError, match=r"\(`dataset: own`\)"):
        _require_labels(builtin, Examples(inputs=(np.zeros((2, 1)),), labels=np.arange(2)), "d")


def test_examples_are_checked_before_any_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that are none of the classes say so, with the split."""
    named = Held("d", {"train": np.array([0, 1, 2, 3]), "test": None}, classes=3)
    with pytest.raises(DataError, match="^d: split 'train': 1 labels are outside the 3 classes"):
        choose(monkeypatch, named, learner())
    years = Held("d", {"train": np.array([1990, 1991, 1992, 1993]), "test": None})
    with pytest.raises(DataError, match="^d: split 'train': net learns classes"):
        choose(monkeypatch, years, learner())
