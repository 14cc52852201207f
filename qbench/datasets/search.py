"""Documents and queries as examples of one split; what the data sets of retrieval share.

A label is (1 + most relevant documents of a query, 2) whole numbers, as ``metrics.retrieval`` takes them: its documents
are embedded by the variant that is judged, or with the option ``corpus: fp32`` by fp32.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qbench.datasets.base import Array, Examples
from qbench.datasets.tokens import Tokens

SHOWN = 90  # letters of a text in the name of its example
_BY_FP32 = -2  # as ``metrics.retrieval.BY_FP32``
_NOTES = {
    "fp32": "search: the index is fp32's and stays; only queries are embedded by each variant",
    "variant": "search: each variant embeds documents and queries, as an index that is built anew with it",
}


def describe_corpus(corpus: str) -> tuple[str, ...]:
    """What embeds the documents, in a sentence: two scores that mean different things are called the same."""
    return (_NOTES[corpus],)


@dataclass(frozen=True, kw_only=True)
class Text:
    """A document or query: its id for a reader, and what is embedded."""

    id: str
    text: str

    def name(self, kind: str) -> str:
        """``query 12: how a file is …``: what it is, its id, and how it begins."""
        return f"{kind} {self.id}: {textwrap.shorten(self.text, SHOWN, placeholder=' …')}"


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """Documents and queries; ``relevant``: of a query's id the ids of its relevant documents and how relevant each."""

    documents: Sequence[Text]
    queries: Sequence[Text] = ()
    relevant: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def make_examples(self, tokens: Tokens, *, corpus: str) -> Examples:
        """The documents, then the queries; ``corpus``: what embeds the documents, ``fp32`` or the ``variant``."""
        texts = [*self.documents, *self.queries]
        ids = [each.name("document") for each in self.documents] + [each.name("query") for each in self.queries]
        return Examples(
            inputs=tokens.encode([each.text for each in texts]),
            labels=self._make_labels(corpus == "fp32"),
            ids=tuple(ids),
        )

    def _make_labels(self, stays: bool) -> Array:
        numbers = {document.id: number for number, document in enumerate(self.documents)}
        most = max([1, *(len(self.relevant.get(query.id, ())) for query in self.queries)])
        labels = np.full((len(self.documents) + len(self.queries), 1 + most, 2), -1, dtype=np.int64)
        labels[: len(self.documents), 0, 0] = np.arange(len(self.documents))
        labels[: len(self.documents), 0, 1] = _BY_FP32 if stays else -1
        for place, query in enumerate(self.queries, len(self.documents)):
            for row, (document, gain) in enumerate(self.relevant.get(query.id, {}).items(), 1):
                labels[place, row] = numbers[document], gain
        return labels
