"""Documents of a language model whose next tokens int8 changes most, and how many each variant changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry
from qbench.metrics.base import Metric
from qbench.progress.table import TextTable
from qbench.record.stored_run import StoredRun
from qbench.report.int8_predictions import Int8Predictions, list_int8_predictions

Array = NDArray[Any]
FLIPS = "token_flips"
MOST_DOCUMENTS = 12
COLUMNS = ("document", "tokens", "flips", "of")


@dataclass(frozen=True, kw_only=True)
class ChangedTokens:
    """How many tokens each variant changes, a sentence each, and the documents with the largest share in any."""

    sentences: tuple[str, ...] = ()
    table: TextTable = field(default_factory=lambda: TextTable(columns=COLUMNS, rows=(), words=(0, 3)))


@dataclass(frozen=True, kw_only=True)
class _Flips:
    """Of one variant: the names of the documents, and of each its flipped tokens and how many there are."""

    name: str
    documents: tuple[str, ...]
    counts: Array

    def tell(self) -> str:
        """``static · openvino: 1,110 of 41,603 tokens flip (2.67 %), in 98 of 100 documents``."""
        flips, tokens = (int(total) for total in self.counts.sum(axis=0))
        hit = int((self.counts[:, 0] > 0).sum())
        share = f"{flips:,} of {tokens:,} tokens flip ({100 * flips / tokens:.2f} %)"
        return f"{self.name}: {share}, in {hit} of {len(self.counts)} documents"


def list_tokens(run: StoredRun) -> ChangedTokens:
    """The flipped tokens of a run; none where its metric is of no language model."""
    if run.info.metric is None or run.info.metric.name not in registry.names("metric"):
        return ChangedTokens()
    metric: Metric = registry.load("metric", FLIPS)
    if registry.load("metric", run.info.metric.name).summary != metric.summary:
        return ChangedTokens()
    variants = list(_count_flips(run, metric))
    worst: dict[str, tuple[float, int, int, str]] = {}
    for flips in variants:
        for document, (count, tokens) in zip(flips.documents, flips.counts, strict=True):
            row = (float(count / tokens), int(count), int(tokens), flips.name)
            worst[document] = max(worst.get(document, row), row, key=lambda each: each[0])
    order = sorted((item for item in worst.items() if item[1][1]), key=lambda item: (-item[1][0], item[0]))
    rows = tuple(
        (document, f"{tokens:,}", f"{count} ({100 * share:.1f} %)", name)
        for document, (share, count, tokens, name) in order[:MOST_DOCUMENTS]
    )
    return ChangedTokens(
        sentences=tuple(flips.tell() for flips in variants),
        table=TextTable(columns=COLUMNS, rows=rows, words=(0, 3)),
    )


def _count_flips(run: StoredRun, metric: Metric) -> Iterator[_Flips]:
    """Of each file of predictions of an int8 case."""
    for predictions in list_int8_predictions(run):
        flips = _compare(run, predictions, metric)
        if flips is not None:
            yield flips


def _compare(run: StoredRun, predictions: Int8Predictions, metric: Metric) -> _Flips | None:
    ours, theirs = (run.judged_predictions(each) for each in (predictions.record, predictions.fp32))
    outputs, reference = ours.get("outputs"), theirs.get("outputs")
    if outputs is None or reference is None or outputs.shape != reference.shape:
        return None
    if any(metric.problem(rows, None, None) for rows in (outputs, reference)):
        return None
    units, facts = metric.units(outputs), metric.facts(outputs, reference)
    ids = [str(each) for each in ours.get("ids", ())]
    if units is None or facts is None or len(ids) != len(outputs):
        return None
    documents = tuple(ids[places[0]].rpartition("@")[0] or ids[places[0]] for places in units.members)
    return _Flips(name=predictions.name, documents=documents, counts=np.asarray(facts))
