"""Documents for language models: ``{texts: folder, tokenizer: tokenizer.json}``.

A folder has a folder of ``.txt`` files for each split, one document a file; or a ``.jsonl`` file for each split, one
document a line, ``{"text": …}``; or one lot of ``.txt`` files, or one ``.jsonl`` file given itself, which are split by
document (``seed``, ``test_share``). Each document is cut into windows of ``length`` tokens (128), one every ``stride``
(default: ``length``); where windows overlap a token counts once, in the first that has it.
A label is the document's number, then at each position the token that follows, -1 where none counts. Options are those
of ``tokens`` (by default [ids]). A last window ends where the document ends; one that is shorter than a window is
filled up behind its end, which a causal network does not see.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets import tokens
from qbench.datasets.base import Dataset, Examples
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.search import Text
from qbench.datasets.splits import SPLITS, split_by_share
from qbench.datasets.validation import check_dataset, require_split
from qbench.datasets.windows import Windows
from qbench.errors import DataError
from qbench.files import regular_file

NAME = "texts"
DOCUMENT, LINES = ".txt", ".jsonl"
MOST_BYTES = 2**31


class Texts(Dataset):
    """Raw inputs are int64 (n, length), one array for each of ``tokens``."""

    preprocessing = Preprocessing(to_float=False)

    def __init__(
        self, documents: Mapping[str, Sequence[Text]], name: str, options: opt.TextsOptions, base: Path
    ) -> None:
        self.name, self.splits = name, tuple(documents)
        self._documents = documents
        self._tokens = tokens.read_tokens(options, base)
        self._stride = options.stride

    def load(self, split: str) -> Examples:
        """The windows of all documents of a split."""
        require_split(self, split)
        documents = self._documents[split]
        encoded = self._tokens.encode_whole([document.text for document in documents])
        length = self._tokens.length
        windows = Windows(
            length=length, stride=self._stride or length, pad=self._tokens.pad or 0, kinds=self._tokens.kinds
        )
        examples = windows.cut([document.id for document in documents], encoded)
        if not len(examples):
            raise DataError(f"{self.name}: split '{split}': no document has two tokens, of which one follows the other")
        check_dataset(self, split, examples)
        return examples


def _read_documents(source: Path, options: opt.TextsOptions) -> dict[str, list[Text]]:
    """The documents of each split."""
    if source.is_file():
        return _split(_read_lines(source), options)
    parts = {file.stem: file for file in sorted(source.glob(f"*{LINES}"))}
    if parts:
        return {split: _read_lines(file) for split, file in parts.items()}
    folders = [folder for folder in sorted(source.iterdir()) if folder.is_dir() and any(folder.rglob(f"*{DOCUMENT}"))]
    if folders:
        return {folder.name: _read_files(folder) for folder in folders}
    documents = _read_files(source)
    if not documents:
        raise DataError(
            f"{NAME}: {source}: expected {DOCUMENT} files, a document each, or {LINES} files, a split each, with "
            'a document a line: {"text": …}'
        )
    return _split(documents, options)


def _split(documents: Sequence[Text], options: opt.TextsOptions) -> dict[str, list[Text]]:
    """By document, equal ones on one side."""
    first: dict[str, int] = {}
    owner = np.array([first.setdefault(document.text, place) for place, document in enumerate(documents)])
    originals = np.unique(owner)
    if len(originals) < 2:
        raise DataError(f"{NAME}: {len(originals)} different documents cannot be split into train and test")
    index = split_by_share(np.zeros(len(originals)), test_share=options.test_share, seed=options.seed)
    chosen = {split: np.flatnonzero(np.isin(owner, originals[index[split]])) for split in SPLITS}
    return {split: [documents[int(place)] for place in places] for split, places in chosen.items()}


def _read_files(folder: Path) -> list[Text]:
    files = sorted(folder.rglob(f"*{DOCUMENT}"))
    return [Text(id=file.relative_to(folder).with_suffix("").as_posix(), text=_read(file)) for file in files]


def _read_lines(file: Path) -> list[Text]:
    documents = []
    for number, line in enumerate(_read(file).splitlines(), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{NAME}: {file}:{number}: expected a JSON object: {error}") from error
        if not isinstance(item, dict) or not isinstance(item.get("text"), str):
            raise DataError(f'{NAME}: {file}:{number}: expected {{"text": …}}')
        documents.append(Text(id=f"{file.stem}:{number}", text=item["text"]))
    if not documents:
        raise DataError(f"{NAME}: {file}: it is empty")
    return documents


def _read(file: Path) -> str:
    try:
        return regular_file.read_bytes(file, MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{NAME}: {file}: cannot be read: {error}") from error


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The splits of a folder or file; reads its texts, and makes no tokens yet."""
    keys = opt.read(opt.TextsOptions, options)
    source = opt.read_path(NAME, value, base)
    if source.is_file() and source.suffix.lower() != LINES:
        raise DataError(
            f"{NAME}: {source}: expected a {LINES} file, a document a line, or a folder of {DOCUMENT} files"
        )
    return Texts(_read_documents(source, keys), f"{NAME}:{value}", keys, base)
