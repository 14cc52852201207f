"""Documents, queries and judgements in BEIR's form: ``{retrieval: folder}`` with ``corpus.jsonl``, ``queries.jsonl``
and ``qrels/<split>.tsv``.

A document is ``{"_id": …, "title": …, "text": …}`` (title and text are joined), a query ``{"_id": …, "text": …}``; a
line of judgements names a query, a document and how relevant it is (0: not at all), below a first line of names. A
split has all documents, but those held out, and the queries that its judgements name. The split ``calibrate`` has the
documents that are held out: ``held_out`` (256, at most a tenth of all) of those that no query asks for.
``corpus: fp32``: the documents are embedded by fp32 whatever embeds the queries. Other options are those of ``tokens``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbench.datasets import options as opt
from qbench.datasets import tokens
from qbench.datasets.base import Dataset, Examples, positions
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.search import SearchTask, Text, describe_corpus
from qbench.datasets.validation import check_dataset, require_split
from qbench.errors import DataError, first_names
from qbench.files import regular_file

NAME = "retrieval"
CALIBRATE = "calibrate"
MOST_BYTES = 2**31


class Retrieval(Dataset):
    """Texts are read when it is opened; raw inputs are int64 (n, length), one array for each of ``tokens``."""

    preprocessing = Preprocessing(to_float=False)

    def __init__(self, folder: Path, name: str, options: opt.RetrievalOptions, base: Path) -> None:
        self.name = name
        self.corpus, self.notes = options.corpus, describe_corpus(options.corpus)
        self.tokens = tokens.read_tokens(options, base)
        documents = _read_texts(folder / "corpus.jsonl")
        queries = _read_texts(folder / "queries.jsonl")
        files = sorted((folder / "qrels").glob("*.tsv"))
        if not files:
            raise DataError(f"{NAME}: {folder / 'qrels'}: expected judgements, such as test.tsv")
        judged = {file.stem: _read_judgements(file, documents, queries) for file in files}
        asked = {document for each in judged.values() for gains in each.values() for document in gains}
        spare = [document for document in documents if document not in asked]
        count = min(options.held_out or 0, len(spare), len(documents) // 10)
        held = {spare[place] for place in positions(len(spare), count, options.seed)} if count else set[str]()
        index = [text for key, text in documents.items() if key not in held]
        self._tasks = {
            split: SearchTask(documents=index, queries=[queries[query] for query in relevant], relevant=relevant)
            for split, relevant in judged.items()
        }
        if held:
            self._tasks[CALIBRATE] = SearchTask(documents=[documents[key] for key in documents if key in held])
        self.splits = tuple(self._tasks)

    def load(self, split: str) -> Examples:
        """Documents and queries of a split; ids are theirs."""
        require_split(self, split)
        examples = self._tasks[split].make_examples(self.tokens, corpus=self.corpus)
        check_dataset(self, split, examples)
        return examples


def _read_texts(file: Path) -> dict[str, Text]:
    """The documents or queries of a file by their ids; raises ``DataError`` with the line."""
    try:
        lines = regular_file.read_bytes(file, MOST_BYTES).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{NAME}: {file}: cannot be read: {error}") from error
    texts: dict[str, Text] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{NAME}: {file}:{number}: expected a JSON object: {error}") from error
        if not isinstance(item, dict) or not isinstance(item.get("text"), str) or not str(item.get("_id", "")):
            raise DataError(f'{NAME}: {file}:{number}: expected {{"_id": …, "text": …}}')
        key, title = str(item["_id"]), str(item.get("title") or "")
        text = f"{title} {item['text']}".strip()
        if not text:
            raise DataError(f"{NAME}: {file}:{number}: the text of {key!r} is empty; leave it out")
        if key in texts:
            raise DataError(f"{NAME}: {file}:{number}: the id {key!r} is there twice")
        texts[key] = Text(id=key, text=text)
    if not texts:
        raise DataError(f"{NAME}: {file}: it is empty")
    return texts


def _read_judgements(
    file: Path, documents: Mapping[str, Text], queries: Mapping[str, Text]
) -> dict[str, dict[str, int]]:
    """Of each query with a relevant document these and how relevant they are."""
    try:
        rows = list(csv.reader(regular_file.read_bytes(file, MOST_BYTES).decode("utf-8").splitlines(), delimiter="\t"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{NAME}: {file}: cannot be read: {error}") from error
    relevant: dict[str, dict[str, int]] = {}
    unknown = list[str]()
    for number, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) != 3 or not row[2].strip().lstrip("-").isdigit():
            raise DataError(f"{NAME}: {file}:{number}: expected query-id, corpus-id and a whole number, by tabs")
        query, document, gain = row[0], row[1], int(row[2])
        if query not in queries or document not in documents:
            unknown.append(f"line {number}: {query if query not in queries else document}")
        elif gain > 0:
            relevant.setdefault(query, {})[document] = gain
    if unknown:
        raise DataError(f"{NAME}: {file}: {len(unknown)} ids are of no text: {first_names(unknown)}")
    if not relevant:
        raise DataError(f"{NAME}: {file}: no query has a relevant document")
    return relevant


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The splits of a folder; reads its texts, and makes no tokens yet."""
    keys = opt.read(opt.RetrievalOptions, options)
    return Retrieval(opt.read_path(NAME, value, base), f"{NAME}:{value}", keys, base)
