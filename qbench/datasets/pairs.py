"""Pairs of texts with a score of how alike they are: ``{pairs: sts.csv, tokenizer: tokenizer.json}``.

A file has a first line with names, two columns with texts and one with the score, a number; a column ``split`` says
which split a row belongs to, else the pairs are split into train and test by ``seed`` and ``test_share``, those that
share a text to one side. A folder has one file a split, ``train.csv``, ``test.csv``.

An example is a text, the two of a pair one after the other, since a network embeds one text at a time. Labels are
(n, 2): the number of its pair, which its two texts decide, and the score.

Options: ``texts`` (the names of the two columns), ``score``, ``split`` (those of these columns), ``delimiter`` (default
a comma, a tab in ``.tsv``), ``encoding`` (default utf-8) and those of ``tokens``.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets import tokens
from qbench.datasets.base import Array, Dataset, Examples, positions
from qbench.datasets.csv_file import Columns, Row, choose_delimiter, read_csv, read_header
from qbench.datasets.csv_source import list_files
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.splits import SPLITS, split_by_share
from qbench.datasets.validation import check_dataset, require_split
from qbench.errors import DataError

NAME = "pairs"
_NUMBER_BYTES = 6  # of a pair: below 2**53, so that a float64 holds it


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two texts and how alike they are; ``split`` is empty where the file does not say; ``id`` for a reader."""

    texts: tuple[str, str]
    score: float
    split: str
    id: str


class Pairs(Dataset):
    """Files are read when it is opened; raw inputs are int64 (n, length), one array for each of ``tokens``."""

    preprocessing = Preprocessing(to_float=False)

    def __init__(self, files: Mapping[str, Path], name: str, options: opt.PairsOptions, base: Path) -> None:
        self.name = name
        self.tokens = tokens.read_tokens(options, base)
        pairs = {split: _read_pairs(file, options) for split, file in files.items()}
        self._pairs = pairs if "" not in pairs else _split(pairs[""], options)
        self.splits = tuple(self._pairs)

    def load(self, split: str) -> Examples:
        """Both texts of all pairs of a split; ids are ``<file>:<line> <column>``."""
        require_split(self, split)
        pairs = self._pairs[split]
        examples = Examples(
            inputs=self.tokens.encode([text for pair in pairs for text in pair.texts]),
            labels=_make_labels(pairs),
            ids=tuple(f"{pair.id} {side}" for pair in pairs for side in ("first", "second")),
        )
        check_dataset(self, split, examples)
        return examples

    def draw(self, n: int, samples: int, seed: int) -> Array:
        """Whole pairs, as many as ``samples`` texts make; of an odd number the last text is alone."""
        if not 1 <= samples <= n:
            return super().draw(n, samples, seed)
        pairs = positions(n // 2, (samples + 1) // 2, seed)
        return np.stack([2 * pairs, 2 * pairs + 1], axis=1).ravel()[:samples]


def _make_labels(pairs: Sequence[Pair]) -> Array:
    """The same two texts have the same number in any file; where they come again, another."""
    met: Counter[bytes] = Counter()
    rows = []
    for pair in pairs:
        content = "\0".join(pair.texts).encode()
        digest = hashlib.sha256(met[content].to_bytes(8, "little") + content).digest()
        met[content] += 1
        rows += [(int.from_bytes(digest[:_NUMBER_BYTES], "little"), pair.score)] * 2
    return np.array(rows, dtype=np.float64)


def _read_pairs(file: Path, options: opt.PairsOptions) -> list[Pair]:
    delimiter = choose_delimiter(file, options)
    first, second = options.texts
    names = read_header(file, delimiter=delimiter, encoding=options.encoding)
    has_split = "split" in options.model_fields_set or options.split in names
    others = (second, *((options.split,) if has_split else ()))
    columns = Columns(text=first, label=options.score, others=others, options=("texts", "score", "split"))
    rows = read_csv(file, columns, delimiter=delimiter, encoding=options.encoding)
    return [_read_pair(file, row, options) for row in rows]


def _read_pair(file: Path, row: Row, options: opt.PairsOptions) -> Pair:
    where = f"{file}:{row.line}"
    second, split = row.others[0], row.others[1].strip() if len(row.others) > 1 else ""
    if not second.strip():
        raise DataError(f"{where}: there is no text in column '{options.texts[1]}'; remove the line")
    if len(row.others) > 1 and not split:
        raise DataError(f"{where}: column '{options.split}' is empty; name the split")
    try:
        score = float(row.label or "")
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise DataError(f"{where}: the score {row.label!r} in column '{options.score}' is no number")
    return Pair(texts=(row.text, second), score=score, split=split, id=f"{file.name}:{row.line}")


def _split(pairs: Sequence[Pair], options: opt.PairsOptions) -> dict[str, list[Pair]]:
    """By the column, else by seed: what shares a text, over others too, on one side."""
    if pairs[0].split:
        return {split: [pair for pair in pairs if pair.split == split] for split in sorted({p.split for p in pairs})}
    groups = _group(pairs)
    numbers = np.unique(groups)
    if len(numbers) < 2:
        raise DataError(
            f"{NAME}: all pairs share texts with each other, so they cannot be split into train and test; write the "
            f"split of each in a column '{options.split}', and `data: {{overlap: allow}}`"
        )
    sides = split_by_share(np.zeros(len(numbers)), test_share=options.test_share, seed=options.seed)
    chosen = {split: set(numbers[index].tolist()) for split, index in sides.items()}
    return {
        split: [pair for pair, group in zip(pairs, groups, strict=True) if group in chosen[split]] for split in SPLITS
    }


def _group(pairs: Sequence[Pair]) -> Array:
    """A number for each pair, the same for those that share a text, or are joined by others that do."""
    owner: dict[str, str] = {}

    def find(text: str) -> str:
        while owner.setdefault(text, text) != text:
            owner[text] = owner[owner[text]]
            text = owner[text]
        return text

    for pair in pairs:
        owner[find(pair.texts[0])] = find(pair.texts[1])
    numbers = {root: number for number, root in enumerate(dict.fromkeys(find(pair.texts[0]) for pair in pairs))}
    return np.array([numbers[find(pair.texts[0])] for pair in pairs])


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The splits of a file or folder; reads its texts, and makes no tokens yet."""
    keys = opt.read(opt.PairsOptions, options)
    return Pairs(list_files(NAME, opt.read_path(NAME, value, base)), f"{NAME}:{value}", keys, base)
