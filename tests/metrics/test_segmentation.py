"""Scores of masks: as the reference implementations count them, and what is said where they cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, jaccard_score

from qbench.evaluate.one_output import score_predictions
from qbench.metrics.segmentation import MIOU, PIXEL_ACCURACY, UNKNOWN


def scenes(seed: int = 0, n: int = 6, classes: int = 5, wrong: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Scores and masks of small scenes, some pixels wrong, some unknown, one class in no mask."""
    random = np.random.default_rng(seed)
    masks = random.integers(0, classes - 1, (n, 8, 7))
    chosen = np.where(random.random(masks.shape) < wrong, random.integers(0, classes, masks.shape), masks)
    scores = np.eye(classes)[chosen].transpose(0, 3, 1, 2) + 0.1 * random.random((n, classes, 8, 7))
    masks[random.random(masks.shape) < 0.1] = UNKNOWN
    return scores.astype(np.float32), masks


@pytest.mark.parametrize("seed", range(8))
def test_scores_are_those_of_scikit_learn(seed: int) -> None:
    """Over all pixels that have a class, the mean over the classes of the labels, to 1e-12."""
    scores, masks = scenes(seed)
    known = masks != UNKNOWN
    chosen, labels = scores.argmax(axis=1)[known], masks[known]
    present = np.unique(labels)
    expected = jaccard_score(labels, chosen, labels=present, average="macro")
    assert MIOU.value(scores, masks) == pytest.approx(expected, abs=1e-12)
    assert PIXEL_ACCURACY.value(scores, masks) == pytest.approx(accuracy_score(labels, chosen), abs=1e-12)
    table = confusion_matrix(labels, chosen, labels=range(5))
    right, predicted, labelled = MIOU.facts(scores, masks).sum(axis=0)
    assert right.tolist() == np.diag(table).tolist()
    assert (predicted.tolist(), labelled.tolist()) == (table.sum(axis=0).tolist(), table.sum(axis=1).tolist())


def test_one_channel_is_a_logit() -> None:
    """Of class 1 of two, above 0."""
    masks = np.array([[[0, 1], [1, 1]]])
    logits = np.array([[[[-1.0, 2.0], [3.0, -4.0]]]], dtype=np.float32)
    assert MIOU.value(logits, masks) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert PIXEL_ACCURACY.value(logits, masks) == 0.75
    near = np.array([[[[0.0, 0.5], [0.25, 0.125]]]], dtype=np.float32)
    assert PIXEL_ACCURACY.value(near, masks) == MIOU.value(near, masks) == 1.0
    assert MIOU.problem(near, masks, 2) is None
    assert "a mask holds the class 2; the model has 2, 0 to 1" in str(MIOU.problem(near, 2 * masks, None))


def test_a_single_pixel_is_right_or_wrong() -> None:
    """The fewest that can have a class."""
    scores, masks = np.array([[[[0.0]], [[1.0]]]]), np.array([[[1]]])
    assert PIXEL_ACCURACY.value(scores, masks) == MIOU.value(scores, masks) == 1.0
    assert PIXEL_ACCURACY.value(-scores, masks) == MIOU.value(-scores, masks) == 0.0


def test_a_resample_without_a_class_scores_0() -> None:
    """All of whose pixels are unknown."""
    facts = np.zeros((3, 3, 4))
    assert MIOU.of_facts(facts) == PIXEL_ACCURACY.of_facts(facts) == 0.0


@pytest.mark.parametrize(
    ("outputs", "labels", "classes", "words"),
    [
        (np.zeros((2, 3)), np.zeros((2, 4, 4), int), None, r"takes scores \(n, classes, height, width\)"),
        (np.zeros((2, 3, 4, 4)), np.zeros(2, int), None, "a class for each pixel"),
        (np.zeros((2, 3, 4, 4)), np.zeros((2, 4, 4)), None, "labels are float64"),
        (np.zeros((2, 3, 2, 2)), np.zeros((2, 4, 4), int), None, "scale the network's outputs to the size"),
        (np.zeros((2, 3, 4, 4)), np.zeros((2, 4, 4), int), 4, "the model has 3 classes for each pixel, the data set 4"),
        (np.zeros((2, 3, 4, 4)), np.full((2, 4, 4), 3), None, "a mask holds the class 3; the model has 3, 0 to 2"),
        (np.zeros((2, 3, 4, 4)), np.arange(32).reshape(2, 4, 4) % 4 - 2, None, "a mask holds the class -2"),
        (np.zeros((2, 3, 4, 4)), np.full((2, 4, 4), -1), None, "no pixel of the masks has a class"),
        (np.full((2, 3, 4, 4), np.nan), np.zeros((2, 4, 4), int), None, "2 of 2 outputs are NaN or infinite"),
    ],
)
def test_what_cannot_be_scored_is_told(
    outputs: np.ndarray, labels: np.ndarray, classes: int | None, words: str
) -> None:
    """With what to do."""
    import re

    problem = MIOU.problem(outputs, labels, classes)
    assert problem is not None
    assert re.search(words, problem)
    assert "no labels" in str(MIOU.problem(outputs, None, classes))


def test_a_change_has_limits_that_hold_what_happened() -> None:
    """Paired over the images: what int8 loses on the same scenes, beside a score with limits of its own."""
    scores, masks = scenes(n=60, wrong=0.1)
    worse, _ = scenes(n=60, wrong=0.3)
    fp32, int8 = ({"outputs": each, "labels": masks} for each in (scores, worse))
    accuracy = score_predictions(MIOU, int8, fp32, 5)
    assert accuracy.interval == "jackknife"
    assert accuracy.low is not None
    assert accuracy.high is not None
    assert accuracy.low < accuracy.value < accuracy.high
    change = accuracy.delta
    assert change is not None
    assert change.value == pytest.approx(MIOU.value(worse, masks) - MIOU.value(scores, masks))
    assert change.low is not None
    assert change.high is not None
    assert change.low < change.value < change.high < 0
