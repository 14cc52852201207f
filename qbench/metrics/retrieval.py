"""Scores of search: each query's documents by the cosine of their embeddings, as BEIR and MTEB rank them.

Outputs are embeddings (n, size) of documents and queries alike, both by the variant that is judged. Labels are whole
numbers (n, 1 + most relevant documents of a query, 2): of a document the row 0 is ``(its number, -1)``, or ``(its
number, -2)`` where the index stays and fp32 has embedded it; of a query it is ``(-1, -1)``, and the rows behind are
``(number of a relevant document, how relevant)``; rows of -1 are none. The unit is the query: those of which no
relevant document is among the examples do not count.

``ndcg@k``: the gain of the first k hits, each divided by log2(1 + rank), of the best order's (trec_eval's
``ndcg_cut``); ``recall@k``: the share of a query's relevant documents among the first k; ``mrr@k``: 1 / rank of the
first relevant one, 0 behind k. Source: Järvelin and Kekäläinen, ACM TOIS 20 (2002), 422-446.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qbench.metrics.base import Array, MeanMetric, Units
from qbench.metrics.validation import numbers_problem

BY_FP32 = -2  # of a document in an index that stays
_BLOCK = 256  # queries that are compared with all documents at once


class RankScore(MeanMetric):
    """``kind`` (ndcg, recall or mrr) of the first ``k`` hits."""

    def __init__(self, kind: str, k: int) -> None:
        self.name, self._kind, self._k = f"{kind}@{k}", kind, k

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why outputs are no embeddings of documents and queries."""
        problem = numbers_problem(outputs, labels)
        if problem or labels is None:
            return problem
        if outputs.ndim != 2 or outputs.shape[1] < 2:
            return (
                f"outputs have the shape {outputs.shape}; {self.name} takes an embedding of each text, (n, size): pool "
                "the network's tokens in its forward, or in a postprocess"
            )
        if not _are_judgements(labels):
            return (
                f"labels are {labels.dtype} of shape {labels.shape}; {self.name} takes those of the data sets "
                "retrieval and docstrings, whole numbers (n, 1 + relevant documents, 2)"
            )
        return None

    def per_example(self, outputs: Array, labels: Array) -> Array:
        """One number for each query that counts, in their order."""
        documents, relevant = _read_labels(labels)
        lengths = np.linalg.norm(outputs, axis=1, keepdims=True).astype(np.float64)
        vectors = outputs / np.where(lengths > 0, lengths, 1.0)
        queries = list(relevant)
        values = list[float]()
        for start in range(0, len(queries), _BLOCK):
            block = queries[start : start + _BLOCK]
            similar = vectors[block] @ vectors[documents].T
            values += [self._score(row, relevant[query]) for query, row in zip(block, similar, strict=True)]
        return np.array(values)

    def find_fixed(self, labels: Array) -> Array:
        """The documents that fp32 embeds."""
        return np.flatnonzero(labels[:, 0, 1] == BY_FP32) if _are_judgements(labels) else super().find_fixed(labels)

    def units(self, labels: Array) -> Units:
        """Each query that counts, among the documents."""
        documents, relevant = _read_labels(labels)
        return Units(members=[np.array([query]) for query in relevant], among=documents)

    def _score(self, similar: Array, relevant: dict[int, int]) -> float:
        """Of one query: how similar each document is, and its relevant ones' places and gains."""
        places, gains = np.array(list(relevant)), np.array(list(relevant.values()), dtype=np.float64)
        ranks = np.array(list(_find_ranks(similar, places)))
        listed = ranks < self._k
        if self._kind == "recall":
            return float(listed.mean())
        if self._kind == "mrr":
            return float(1 / (1 + ranks.min())) if listed.any() else 0.0
        best = np.sort(gains)[::-1][: self._k]
        ideal = (best / np.log2(2 + np.arange(len(best)))).sum()
        return float((gains[listed] / np.log2(2 + ranks[listed])).sum() / ideal)


def _are_judgements(labels: Array) -> bool:
    return labels.ndim == 3 and labels.shape[1] > 0 and labels.shape[2] == 2 and labels.dtype.kind in "iu"


def _read_labels(labels: Array) -> tuple[Array, dict[int, dict[int, int]]]:
    """Where the documents stand, and of each query that counts, by its place, the relevant ones among them."""
    numbers = labels[:, 0, 0]
    documents = np.flatnonzero(numbers >= 0)
    places = {int(number): place for place, number in enumerate(numbers[documents])}
    relevant = {int(query): _find_relevant(labels[query], places) for query in np.flatnonzero(numbers < 0)}
    return documents, {query: gains for query, gains in relevant.items() if gains}


def _find_relevant(label: Array, places: dict[int, int]) -> dict[int, int]:
    """The places of a query's relevant documents that are there, with their gains."""
    return {places[int(number)]: int(gain) for number, gain in label[1:] if gain > 0 and int(number) in places}


def _find_ranks(similar: Array, places: Array) -> Iterator[int]:
    """The rank from 0 of the documents at these places; of equal ones the earlier is first."""
    for place in places:
        yield int((similar > similar[place]).sum() + (similar[:place] == similar[place]).sum())


def ndcg_at(k: str) -> RankScore:
    """``ndcg@<k>``."""
    return RankScore("ndcg", int(k))


def recall_at(k: str) -> RankScore:
    """``recall@<k>``."""
    return RankScore("recall", int(k))


def mrr_at(k: str) -> RankScore:
    """``mrr@<k>``."""
    return RankScore("mrr", int(k))
