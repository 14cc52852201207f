"""Scores of search: as the reference implementation ranks, and what is said of what is none."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from qbench import registry
from qbench.datasets import search as search_task
from qbench.errors import EvaluateError
from qbench.evaluate.one_output import score_predictions
from qbench.metrics import retrieval
from qbench.metrics.retrieval import BY_FP32, RankScore


def search(seed: int, documents: int = 30, queries: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Embeddings of documents and queries in any order, their labels, and how relevant each document is to a query."""
    random = np.random.default_rng(seed)
    gains = random.integers(1, 4, (queries, documents)) * (random.random((queries, documents)) < 0.12)
    gains[0] = 0  # nothing is relevant to it
    labels = np.full((documents + queries, 1 + documents, 2), -1, dtype=np.int64)
    labels[:documents, 0, 0] = np.arange(documents)
    for query, row in enumerate(gains):
        for place, document in enumerate(np.flatnonzero(row), 1):
            labels[documents + query, place] = document, row[document]
    order = random.permutation(documents + queries)
    vectors = random.normal(size=(documents + queries, 8)).astype(np.float32)
    return vectors[order], labels[order], gains


def rank(vectors: np.ndarray, labels: np.ndarray, gains: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each query with a relevant document its gains and similarities, in the order of the documents there."""
    documents = np.flatnonzero(labels[:, 0, 0] >= 0)
    numbers, pairs = labels[documents, 0, 0], []
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for query in np.flatnonzero(labels[:, 0, 0] < 0):
        relevant = {int(number): int(gain) for number, gain in labels[query, 1:] if gain > 0}
        row = np.array([relevant.get(int(number), 0) for number in numbers])
        if row.any():
            pairs.append((row, unit[documents].astype(np.float64) @ unit[query]))
    assert len(pairs) < len(gains)
    return pairs


@pytest.mark.parametrize("k", [1, 3, 10, 100])
@pytest.mark.parametrize("seed", range(6))
def test_ndcg_is_that_of_scikit_learn(seed: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each query that has a relevant document, to 1e-9, with graded judgements; a few queries at a time."""
    monkeypatch.setattr(retrieval, "_BLOCK", 5)
    vectors, labels, gains = search(seed)
    expected = [ndcg_score([row], [similar], k=k, ignore_ties=True) for row, similar in rank(vectors, labels, gains)]
    metric = registry.load("metric", f"ndcg@{k}")
    assert metric.per_example(vectors, labels).tolist() == pytest.approx(expected, abs=1e-9)
    exact = [row.astype(np.float64) for row in vectors]
    assert metric.value(np.array(exact), labels) == pytest.approx(np.mean(expected), abs=1e-9)


@pytest.mark.parametrize("k", [1, 4, 20])
def test_recall_and_reciprocal_rank_are_what_they_say(k: int) -> None:
    """By counting in the sorted list."""
    vectors, labels, gains = search(3)
    recalls, reciprocals = [], []
    for row, similar in rank(vectors, labels, gains):
        hits = row[np.argsort(-similar, kind="stable")][:k] > 0
        recalls.append(hits.sum() / (row > 0).sum())
        reciprocals.append(1 / (1 + int(hits.argmax())) if hits.any() else 0.0)
    recall, reciprocal = (registry.load("metric", f"{kind}@{k}") for kind in ("recall", "mrr"))
    assert recall.per_example(vectors, labels).tolist() == pytest.approx(recalls)
    assert reciprocal.per_example(vectors, labels).tolist() == pytest.approx(reciprocals)


def test_of_equal_documents_the_earlier_is_first() -> None:
    """Also where an embedding is zero."""
    labels = np.full((4, 2, 2), -1, dtype=np.int64)
    labels[:3, 0, 0] = [5, 6, 7]
    labels[3, 1] = 7, 1
    vectors = np.array([[1, 0], [0, 0], [1, 0], [1, 0]], dtype=np.float32)
    assert RankScore("mrr", 10).value(vectors, labels) == 0.5


def test_a_query_whose_documents_are_not_there_does_not_count() -> None:
    """A draw of the examples may leave them out; without any query nothing can be said."""
    vectors, labels, _ = search(2)
    metric = RankScore("recall", 5)
    kept = (labels[:, 0, 0] < 0) | (labels[:, 0, 0] > 25)
    assert 0 < len(metric.per_example(vectors[kept], labels[kept])) < len(metric.per_example(vectors, labels))
    queries = labels[:, 0, 0] < 0
    with pytest.raises(EvaluateError, match="no query has a relevant document among them"):
        score_predictions(metric, {"outputs": vectors[queries], "labels": labels[queries]}, None, None)


def test_a_change_is_of_queries() -> None:
    """Paired by query: as many as count, not as many as there are texts."""
    vectors, labels, _ = search(1, documents=200, queries=80)
    beside = vectors + np.random.default_rng(0).normal(size=vectors.shape).astype(np.float32) * 0.05
    metric = RankScore("ndcg", 10)
    fp32 = {"outputs": vectors, "labels": labels}
    accuracy = score_predictions(metric, {**fp32, "outputs": beside}, fp32, None)
    assert accuracy.n == 79
    assert accuracy.delta is not None
    assert accuracy.delta.low is not None
    assert accuracy.delta.low < accuracy.delta.value < 0.2


LABELS = np.full((3, 2, 2), -1, dtype=np.int64)


@pytest.mark.parametrize(
    ("outputs", "labels", "words"),
    [
        (np.zeros((3, 4)), None, "the data set has no labels"),
        (np.zeros((3, 4, 8)), LABELS, r"takes an embedding of each text, \(n, size\): pool the network's tokens"),
        (np.zeros((3, 1)), LABELS, "takes an embedding of each text"),
        (np.zeros((3, 4)), np.zeros(3, int), "takes those of the data sets retrieval and docstrings"),
        (np.zeros((3, 4)), np.zeros((3, 0, 2), int), "takes those of the data sets retrieval and docstrings"),
        (np.zeros((3, 4)), np.zeros((3, 2, 3), int), "takes those of the data sets retrieval and docstrings"),
        (np.zeros((3, 4)), np.zeros((3, 2, 2)), "takes those of the data sets retrieval and docstrings"),
        (np.zeros((3, 4)), LABELS, "^None$"),
        (np.zeros((3, 2)), LABELS[:, :1], "^None$"),  # documents alone
        (np.full((3, 4), np.nan), LABELS, "3 of 3 outputs are NaN or infinite"),
        (np.zeros((2, 4)), LABELS, "2 outputs for 3 labels"),
    ],
)
def test_what_does_not_fit_is_told(outputs: Any, labels: Any, words: str) -> None:
    """Each with what to do; what fits has no problem."""
    assert re.search(words, str(RankScore("ndcg", 10).problem(outputs, labels, None)))


@pytest.mark.parametrize("name", ["ndcg@10", "recall@1", "mrr@1000"])
def test_any_number_of_hits_has_a_name(name: str) -> None:
    """And the score is a share."""
    metric = registry.load("metric", name)
    assert (metric.name, metric.percent, metric.higher_is_better) == (name, True, True)


def staying(labels: np.ndarray) -> np.ndarray:
    """The labels of the same texts in an index that stays."""
    marked = labels.copy()
    marked[labels[:, 0, 0] >= 0, 0, 1] = BY_FP32
    return marked


def test_in_an_index_that_stays_documents_are_those_of_fp32() -> None:
    """A variant is judged by its queries alone; both it and another variant are held against the same documents."""
    vectors, labels, _ = search(1, documents=200, queries=80)
    random = np.random.default_rng(0)
    ours, theirs = (vectors + 0.4 * random.normal(size=vectors.shape).astype(np.float32) for _ in range(2))
    metric, documents = RankScore("ndcg", 10), labels[:, 0, 0] >= 0
    mixed, others = (np.where(documents[:, None], vectors, outputs) for outputs in (ours, theirs))
    fp32 = {"outputs": vectors, "labels": staying(labels)}
    accuracy = score_predictions(metric, {**fp32, "outputs": ours}, fp32, None)
    assert accuracy.value == pytest.approx(metric.value(mixed, labels), abs=1e-12)
    assert abs(accuracy.value - metric.value(ours, labels)) > 1e-5
    beside = score_predictions(metric, {**fp32, "outputs": ours}, {**fp32, "outputs": theirs}, None, fp32)
    assert beside.value == accuracy.value
    assert beside.delta is not None
    assert beside.delta.value == pytest.approx(metric.value(mixed, labels) - metric.value(others, labels))
    itself = score_predictions(metric, fp32, None, None)
    assert itself.value == pytest.approx(metric.value(vectors, labels), abs=1e-12)
    with pytest.raises(EvaluateError, match=r"outputs have the shape .*, those of its fp32"):
        score_predictions(metric, {**fp32, "outputs": ours[:, :5]}, fp32, None)


def test_what_moves_documents_alone_changes_nothing_in_an_index_that_stays() -> None:
    """Without it, it does."""
    vectors, labels, _ = search(1, documents=200, queries=80)
    moved = vectors + (labels[:, :1, 0] >= 0) * np.random.default_rng(0).normal(size=vectors.shape).astype(np.float32)
    metric = RankScore("ndcg", 10)
    for marked, unchanged in ((staying(labels), True), (labels, False)):
        fp32 = {"outputs": vectors, "labels": marked}
        delta = score_predictions(metric, {**fp32, "outputs": moved}, fp32, None).delta
        assert delta is not None
        assert (delta.value == 0) is unchanged


def test_data_sets_and_scores_agree_on_what_stays() -> None:
    """They do not import each other; of labels that are no judgements nothing stays."""
    assert BY_FP32 == search_task._BY_FP32 == -2
    for labels in (np.full(3, -2), np.full((3, 2, 2), -2.0)):
        assert RankScore("ndcg", 10).find_fixed(labels).size == 0


def test_lengths_of_embeddings_do_not_count() -> None:
    """Short ones are ranked as long ones are."""
    vectors, labels, _ = search(1)
    metric = RankScore("ndcg", 10)
    short = vectors * 2.0**-10
    assert metric.per_example(short, labels).tolist() == pytest.approx(metric.per_example(vectors, labels).tolist())


def test_a_document_that_is_judged_not_to_be_relevant_is_none() -> None:
    """As one that nobody has judged."""
    labels = np.full((3, 3, 2), -1, dtype=np.int64)
    labels[:2, 0, 0] = [5, 6]
    labels[2, 1:] = [[5, 0], [6, 1]]
    vectors = np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32)
    assert RankScore("recall", 1).value(vectors, labels) == 0.0
    assert RankScore("recall", 2).value(vectors, labels) == 1.0
