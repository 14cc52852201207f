"""Spearman's correlation of pairs: as the reference implementation orders them, and what is said of what is none."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from qbench.errors import EvaluateError
from qbench.evaluate.one_output import score_predictions
from qbench.metrics.regression import SPEARMAN
from qbench.stats import jackknife


def pairs(seed: int, count: int = 60) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
    """Embeddings of texts in any order, some the same, so that cosines tie; labels of few grades; where pairs stand."""
    random = np.random.default_rng(seed)
    texts = random.normal(size=(12, 6)).astype(np.float32)
    numbers = random.permutation(2**40 + np.arange(count))
    vectors = np.concatenate([texts[random.integers(0, 12, count)], texts[random.integers(0, 12, count)]])
    grades = random.integers(0, 4, count) / 2
    labels = np.stack([np.tile(numbers, 2).astype(np.float64), np.tile(grades, 2)], axis=1)
    order = random.permutation(2 * count)
    places = np.argsort(order)
    return vectors[order], labels[order], [(int(places[p]), int(places[p + count])) for p in range(count)]


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    """As it is defined, in double precision, equal where only rounding differs."""
    ours, theirs = first.astype(np.float64), second.astype(np.float64)
    return round(float(ours @ theirs / np.sqrt((ours @ ours) * (theirs @ theirs))), 11)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_that_of_scipy_of_the_cosines(seed: int) -> None:
    """To 1e-9, with ties on both sides and examples in any order."""
    vectors, labels, places = pairs(seed)
    cosines = [cosine(vectors[a], vectors[b]) for a, b in places]
    grades = [labels[a, 1] for a, _ in places]
    assert len(set(cosines)) < len(cosines)
    assert SPEARMAN.problem(vectors, labels, None) is None
    assert SPEARMAN.value(vectors, labels) == pytest.approx(spearmanr(cosines, grades).statistic, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_of_one_number_each_it_is_that_of_scipy_as_before(seed: int) -> None:
    """Also where labels have two columns, but outputs one: they are no pairs."""
    random = np.random.default_rng(seed)
    outputs, labels = random.integers(0, 9, 50) / 3, random.integers(0, 5, 50).astype(np.float64)
    assert SPEARMAN.value(outputs, labels) == pytest.approx(spearmanr(outputs, labels).statistic, abs=1e-9)
    assert SPEARMAN.problem(outputs[:, None], labels, None) is None


@pytest.mark.parametrize(("outputs", "expected"), [((0.1, 0.2), 1.0), ((0.2, 0.1), -1.0), ((0.1, 0.1), 0.0)])
def test_two_examples_are_in_order_or_they_are_not(outputs: tuple[float, float], expected: float) -> None:
    """The fewest of which an order can be told, as those of a resample may be; equal outputs have none."""
    assert SPEARMAN.value(np.array(outputs), np.array([3.0, 7.0])) == pytest.approx(expected)


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3)])
def test_labels_that_are_no_pairs_are_of_one_example_each(shape: tuple[int, ...]) -> None:
    """Two columns are a pair's number and grade, and nothing else is."""
    assert SPEARMAN.units(np.zeros(shape)) is None


def test_a_pair_of_which_a_text_is_missing_does_not_count() -> None:
    """Nor one of three texts; without any pair nothing can be said."""
    vectors, labels, places = pairs(3)
    gone = places[0][1]
    left = np.delete(np.arange(len(vectors)), gone)
    accuracy = score_predictions(SPEARMAN, {"outputs": vectors[left], "labels": labels[left]}, None, None)
    assert accuracy.n == 59
    thrice = np.concatenate([np.arange(len(vectors)), [places[0][0]]])
    units = SPEARMAN.units(labels[thrice])
    assert units is not None
    assert len(units.members) == 59
    firsts = np.array([first for first, _ in places])
    with pytest.raises(EvaluateError, match="where both texts of a pair are among"):
        score_predictions(SPEARMAN, {"outputs": vectors[firsts], "labels": labels[firsts]}, None, None)


def test_a_change_is_of_pairs_and_paired() -> None:
    """As many as there are pairs, and embeddings are no classes, so nothing agrees or flips; far narrower than two
    scores apart."""
    random = np.random.default_rng(0)
    firsts, grades = random.normal(size=(300, 8)), random.integers(0, 11, 300) / 2
    seconds = firsts + (6 - grades[:, None]) * 0.4 * random.normal(size=firsts.shape)
    labels = np.repeat(np.stack([np.arange(300.0), grades], axis=1), 2, axis=0)
    vectors = np.stack([firsts, seconds], axis=1).reshape(600, 8).astype(np.float32)
    beside = vectors + 0.1 * random.normal(size=vectors.shape).astype(np.float32)
    fp32 = {"outputs": vectors, "labels": labels}
    accuracy = score_predictions(SPEARMAN, {**fp32, "outputs": beside}, fp32, None)
    assert (accuracy.n, accuracy.flips, accuracy.agreement, accuracy.only_answer) == (300, None, None, None)
    delta = accuracy.delta
    assert delta is not None
    assert None not in (delta.low, delta.high, accuracy.low, accuracy.high)
    assert delta.low < delta.value < delta.high
    assert delta.high - delta.low < (accuracy.high - accuracy.low) / 2  # type: ignore[operator]


def test_equal_texts_tie_whatever_rounding_says_and_nothing_is_like_zeros() -> None:
    """Cosines of texts with themselves are all 1; one with an embedding of zeros is 0."""
    random = np.random.default_rng(1)
    vectors = np.repeat(random.normal(size=(50, 7)), 2, axis=0)
    vectors[-1] = 0
    labels = np.repeat(np.stack([np.arange(50.0), np.arange(50.0)], axis=1), 2, axis=0)
    facts = SPEARMAN.facts(vectors, labels)
    assert facts[:, 0].tolist() == [1.0] * 49 + [0.0]


def test_ranks_are_not_taken_for_classes() -> None:
    """Which would add pairs of the wrong "class" to the limits: those of the score then were twice as wide."""
    vectors, labels, _ = pairs(5, count=400)
    assert list(jackknife._add_unseen(SPEARMAN.facts(vectors, labels)[:, None])) == []


LABELS = np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 3.0], [2.0, 3.0]])


@pytest.mark.parametrize(
    ("outputs", "labels", "words"),
    [
        (np.ones((4, 3)), None, "the data set has no labels"),
        (np.ones((4, 3)), np.where(LABELS == 3, 2.0, LABELS), "all labels are the same"),
        (np.full((4, 3), np.nan), LABELS, "4 of 4 outputs are NaN or infinite"),
        (np.ones((4, 3)), np.where(LABELS == 3, np.nan, LABELS), "some labels are NaN or infinite"),
        (np.ones((3, 3)), LABELS, "3 outputs for 4 labels"),
        (np.ones((4, 5, 3)), LABELS, "expected the same numbers of values"),
        (np.ones((4, 3)), np.ones(4), "expected the same numbers of values"),
        (np.ones((4, 1)), LABELS, "expected the same numbers of values"),  # one number is no embedding
    ],
)
def test_what_does_not_fit_is_told(outputs: Any, labels: Any, words: str) -> None:
    """Each with what to do."""
    assert re.search(words, str(SPEARMAN.problem(outputs, labels, None)))


@pytest.mark.parametrize(("turn", "ranks"), [(6e-7, [0.0, 0.0]), (2e-6, [1.0, 0.0])])
def test_cosines_tie_to_twelve_decimals(turn: float, ranks: list[float]) -> None:
    """An embedding that is turned by so little has the cosine 1 - turn^2 / 2."""
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, turn]])
    assert SPEARMAN.facts(vectors, LABELS)[:, 0].tolist() == ranks


def test_lengths_of_embeddings_do_not_count() -> None:
    """Short ones are compared as long ones are."""
    vectors, labels, _ = pairs(2)
    random = np.random.default_rng(0)
    short = vectors * random.uniform(1e-4, 1e-2, (len(vectors), 1))
    assert SPEARMAN.value(short, labels) == pytest.approx(SPEARMAN.value(vectors, labels), abs=1e-9)
