"""Rules of metrics/validation.py: what outputs and labels must be, and how each fault is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qbench.metrics.validation import classes_problem, find_no_score, numbers_problem, outputs_problem, scores_problem


def test_the_first_five_bad_examples_are_named() -> None:
    """Of as many as there are."""
    outputs = np.ones((9, 2))
    outputs[2:8, 1] = np.nan
    assert outputs_problem(outputs) == "6 of 9 outputs are NaN or infinite, first at examples 2, 3, 4, 5, 6"


@pytest.mark.parametrize(
    ("count", "words"), [(1, "one number for all examples; its first axis"), (3, "1 outputs for 3 labels")]
)
def test_one_number_for_all_is_no_output_of_each(count: int, words: str) -> None:
    """However many labels there are."""
    assert words in str(numbers_problem(np.array(3.0), np.zeros(count)))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((3, 0), "outputs have the shape (3, 0); expected (n, classes)"),
        ((3, 2, 4), "outputs have the shape (3, 2, 4); expected (n, classes)"),
    ],
)
def test_outputs_that_are_no_scores_of_classes_are_told_by_their_shape(shape: tuple[int, ...], words: str) -> None:
    """Those of four axes alone may be meant as a class of each pixel."""
    assert scores_problem(np.ones(shape), None) == words


@pytest.mark.parametrize(
    ("labels", "is_one_hot"),
    [
        (np.eye(3, dtype=int), True),
        (np.eye(3, dtype=bool), True),
        (np.eye(3)[:, :, None], False),
        (np.array([[2, -1, 0], [1, 0, 0], [0, 1, 0]]), False),
        (np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0]]), False),
        (np.ones((3, 1), dtype=int), False),
        (np.eye(3).astype(str), False),
    ],
)
def test_a_one_in_the_column_of_each_class_is_one_hot(labels: Any, is_one_hot: bool) -> None:
    """Of two classes or more; other tables are labels of another kind."""
    problem = str(classes_problem(np.eye(3), labels, None))
    assert problem.startswith("labels are one-hot") is is_one_hot
    assert ("expected one whole number per example" in problem) is not is_one_hot


def test_the_first_label_outside_of_the_classes_is_named() -> None:
    """Below them, or beyond."""
    assert classes_problem(np.eye(3), np.array([0, -1, 2]), None) == (
        "1 labels are outside the model's 3 classes 0 to 2, first: -1"
    )


END = "; a score must be a finite number, at most 1e+100 either way"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (1e100, None),
        ([-1e100, 0.0], None),
        (1.1e100, "1.1e+100"),
        ([0.0, np.nan], "nan for example 1"),
        ([np.inf, 0.0, -np.inf], "inf for example 0, and no score for 1 more"),
        (np.full(1002, np.nan), "nan for example 0, and no score for 1,001 more"),
    ],
)
def test_what_can_be_no_score_is_told_with_its_first_example(values: Any, told: str | None) -> None:
    """Of one number for all no example is named."""
    assert find_no_score(values) == (None if told is None else told + END)
