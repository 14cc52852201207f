"""Searches whose first hit int8 changes: the query, fp32's first hit and int8's, and which of them is relevant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.progress.table import TextTable
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun
from qbench.report.int8_predictions import list_int8_predictions

Array = NDArray[Any]
MOST_QUERIES = 16
_SCORE = re.compile(r"(ndcg|recall|mrr)@\d+")
COLUMNS = ("query", "it asks", "fp32's first hit", "int8's first hit", "of")
_BLOCK = 256  # queries that are compared with all documents at once


@dataclass(frozen=True, kw_only=True)
class FirstHits:
    """Of each query (by its place among the examples) the place of its first hit, and of its relevant documents."""

    hits: Mapping[int, int]
    relevant: Mapping[int, frozenset[int]]


@dataclass(frozen=True, kw_only=True)
class ChangedSearches:
    """How many first hits each variant changes, a sentence each, and the queries that change in most of them."""

    sentences: tuple[str, ...] = ()
    table: TextTable = field(
        default_factory=lambda: TextTable(columns=COLUMNS, rows=(), words=tuple(range(len(COLUMNS))))
    )


@dataclass(frozen=True, kw_only=True)
class _Change:
    """One query of one variant: the places of its hits, and whether each is relevant."""

    query: int
    fp32: int
    int8: int
    fp32_is_right: bool
    int8_is_right: bool


def read_hits(predictions: Mapping[str, Array]) -> FirstHits | None:
    """The first hits of stored embeddings, by their cosine as the scores of search take it, of equal ones the earlier;
    None where predictions are no embeddings, or their labels not those of a search."""
    outputs, labels = predictions.get("outputs"), predictions.get("labels")
    if outputs is None or labels is None or labels.ndim != 3 or labels.shape[2] != 2 or labels.dtype.kind not in "iu":
        return None
    if outputs.ndim != 2 or len(outputs) != len(labels) or not np.isfinite(outputs).all():
        return None
    numbers = labels[:, 0, 0]
    documents, queries = np.flatnonzero(numbers >= 0), np.flatnonzero(numbers < 0)
    if not len(documents) or not len(queries):
        return None
    places = {int(numbers[place]): int(place) for place in documents}
    relevant = {
        int(query): frozenset(places[int(number)] for number, gain in label[1:] if gain > 0 and int(number) in places)
        for query, label in zip(queries, labels[queries], strict=True)
    }
    lengths = np.linalg.norm(outputs, axis=1, keepdims=True).astype(np.float64)
    vectors = outputs / np.where(lengths > 0, lengths, 1.0)
    hits = dict[int, int]()
    for start in range(0, len(queries), _BLOCK):
        block = queries[start : start + _BLOCK]
        best = (vectors[block] @ vectors[documents].T).argmax(axis=1)
        hits |= {int(query): int(documents[place]) for query, place in zip(block, best, strict=True)}
    return FirstHits(hits=hits, relevant=relevant)


def list_searches(run: StoredRun) -> ChangedSearches:
    """The changed first hits of a run; none where its score is not of a search: its predictions are not read then."""
    if run.info.metric is None or _SCORE.fullmatch(run.info.metric.name) is None:
        return ChangedSearches()
    sentences = list[str]()
    names_of: dict[_Change, list[str]] = {}
    ids: tuple[str, ...] = ()
    for name, changes, count, record in _compare_hits(run):
        ids = ids or tuple(map(str, run.predictions(record).get("ids", ())))
        sentences.append(_say_count(name, changes, count))
        for change in changes:
            names_of.setdefault(change, []).append(name)
    order = sorted(
        names_of, key=lambda change: (change.int8_is_right - change.fp32_is_right, -len(names_of[change]), change.query)
    )
    rows = tuple(_make_row(change, ids, names_of[change]) for change in order[:MOST_QUERIES] if change.query < len(ids))
    return ChangedSearches(
        sentences=tuple(sentences), table=TextTable(columns=COLUMNS, rows=rows, words=tuple(range(len(COLUMNS))))
    )


def _compare_hits(run: StoredRun) -> Iterator[tuple[str, list[_Change], int, Record]]:
    by_file: dict[str, FirstHits | None] = {}

    def read(record: Record, fp32: Record) -> FirstHits | None:
        file = str(record.predictions)
        if file not in by_file:
            by_file[file] = read_hits(run.as_judged(record, fp32, record))
        return by_file[file]

    for predictions in list_int8_predictions(run):
        record, fp32 = predictions.record, predictions.fp32
        ours, theirs = read(record, fp32), read(fp32, fp32)
        if ours is not None and theirs is not None:
            yield predictions.name, _list_changes(ours, theirs), len(ours.hits), record


def _list_changes(ours: FirstHits, theirs: FirstHits) -> list[_Change]:
    return [
        _Change(
            query=query,
            fp32=theirs.hits[query],
            int8=hit,
            fp32_is_right=theirs.hits[query] in ours.relevant[query],
            int8_is_right=hit in ours.relevant[query],
        )
        for query, hit in ours.hits.items()
        if theirs.hits.get(query, hit) != hit
    ]


def _say_count(name: str, changes: list[_Change], count: int) -> str:
    """``static · openvino: 35 of 1,000 queries have another first hit; 12 lost a relevant one, 10 found one``."""
    lost = sum(change.fp32_is_right and not change.int8_is_right for change in changes)
    gained = sum(change.int8_is_right and not change.fp32_is_right for change in changes)
    told = f"; {lost} lost a relevant one, {gained} found one" if changes else ""
    return f"{name}: {len(changes)} of {count:,} queries have another first hit{told}"


def _make_row(change: _Change, ids: tuple[str, ...], names: list[str]) -> tuple[str, ...]:
    def show(place: int, is_right: bool) -> str:
        name = ids[place].removeprefix("document ") if place < len(ids) else str(place)
        return f"{name} (relevant)" if is_right else name

    query, _, asked = ids[change.query].removeprefix("query ").partition(": ")
    return (
        query,
        asked,
        show(change.fp32, change.fp32_is_right),
        show(change.int8, change.int8_is_right),
        ", ".join(names),
    )
