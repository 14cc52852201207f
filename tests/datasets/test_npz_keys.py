"""Rules of datasets/npz_keys.py: which arrays hold which split, by their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qbench.datasets.npz_keys import DIMENSIONS, LAYOUTS, Keys, split_keys
from qbench.errors import DataError

FILE = Path("d.npz")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("inputs", "labels"), {"": Keys(inputs=("inputs",), labels="labels")}),
        (("inputs",), {"": Keys(inputs=("inputs",), labels=None)}),
        (
            ("train_inputs", "train_labels", "test_inputs", "labels"),
            {
                "train": Keys(inputs=("train_inputs",), labels="train_labels"),
                "test": Keys(inputs=("test_inputs",), labels=None),
            },
        ),
        (("x_train", "y_train"), {"train": Keys(inputs=("x_train",), labels="y_train")}),
        (
            ("a_inputs_1", "a_inputs_0", "y_a", "other"),
            {"a": Keys(inputs=("a_inputs_0", "a_inputs_1"), labels="y_a")},
        ),
        (
            ("inputs_1", "inputs_0", "inputs_2"),
            {"": Keys(inputs=("inputs_0", "inputs_1", "inputs_2"), labels=None)},
        ),
    ],
)
def test_arrays_are_known_by_their_names(names: tuple[str, ...], expected: dict[str, Keys]) -> None:
    """Those of this tool and of Keras; several inputs by their numbers, in whichever order they lie there."""
    assert split_keys(names, FILE) == expected


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "d.npz: no inputs in it; name the arrays train_inputs, train_labels, test_inputs, test_labels (or "
             "x_train, y_train …); it has: nothing"),
        (("a", "b"), "it has: a, b"),
        (("inputs", "b_inputs", "a_inputs"), "d.npz: both 'inputs' and the splits a, b; rename or remove 'inputs'"),
        (("a_inputs", "inputs"), "d.npz: both 'inputs' and the splits a; rename or remove 'inputs'"),
        (("inputs_0", "inputs_2"), "d.npz: inputs are numbered from 0 without gaps, found inputs_0, inputs_2"),
        (("inputs_1",), "d.npz: inputs are numbered from 0 without gaps, found inputs_1"),
    ],
)  # fmt: skip
def test_names_that_tell_no_split_are_listed(names: tuple[str, ...], message: str) -> None:
    """With how they ought to be."""
    with pytest.raises(DataError, match=re.escape(message)):
        split_keys(names, FILE)


def test_a_layout_has_an_axis_for_each_of_its_letters() -> None:
    """And one of the examples, which the shortest does not name."""
    assert {layout: len(layout.removeprefix("n")) + 1 for layout in LAYOUTS if layout != "as-is"} == DIMENSIONS
