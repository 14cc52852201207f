"""``docstrings``: the first sentence of a function's documentation is to find the rest of it, in Python's own library.

Nothing is fetched: the texts stand in the source files of the Python that runs qbench, which are read and not imported;
another Python has a few others. Documents and queries of ``test`` are those of three of four files, ``train`` has the
documents of the others. Options are those of ``tokens`` (``length`` is 64) and ``documents``, how many there are
(1,000), and ``corpus`` as ``retrieval`` has it.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qbench.datasets import options as opt
from qbench.datasets import tokens
from qbench.datasets.base import Dataset, Examples
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.search import SearchTask, Text, describe_corpus
from qbench.datasets.splits import SPLITS
from qbench.datasets.validation import check_dataset, require_split
from qbench.errors import DataError

NAME = "docstrings"
LENGTH = 64
_LEFT_OUT = ("test", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__", "ensurepip")
_FEWEST_WORDS, _MOST_WORDS = (4, 12), 30  # of a first sentence, and of the rest; of a first sentence at most
_SENTENCE = re.compile(r"(.+?[.!?])\s+(?=[A-Z(`'\"\[])", re.DOTALL)


class Docstrings(Dataset):
    """Raw inputs are int64 (n, length), one array for each of ``tokens``."""

    name = NAME
    splits = SPLITS
    preprocessing = Preprocessing(to_float=False)

    def __init__(self, options: opt.DocstringsOptions, base: Path) -> None:
        self.corpus, self.notes = options.corpus, describe_corpus(options.corpus)
        self.tokens = tokens.read_tokens(options, base, length=LENGTH)
        self._most = options.documents

    def load(self, split: str) -> Examples:
        """Documents and queries of ``test``, documents of ``train``; ids are names of functions with their modules."""
        require_split(self, split)
        chosen = [each for each in _read_library(_folder()) if _is_of_test(each[0]) == (split == "test")]
        chosen = sorted(chosen, key=lambda each: _digest(each[0]))[: self._most]
        if not chosen:
            raise DataError(f"{NAME}: this Python has no source files of its library at {_folder()}")
        documents = [Text(id=name, text=rest) for name, _, rest in chosen]
        task = SearchTask(documents=documents)
        if split == "test":
            queries = [Text(id=name, text=first) for name, first, _ in chosen]
            relevant = {name: {name: 1} for name, _, _ in chosen}
            task = SearchTask(documents=documents, queries=queries, relevant=relevant)
        examples = task.make_examples(self.tokens, corpus=self.corpus)
        check_dataset(self, split, examples)
        return examples


def _folder() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _is_of_test(name: str) -> bool:
    """By the module, so that texts of one file are on one side."""
    return int(_digest(name.partition(":")[0])[:8], 16) % 4 > 0


@functools.cache  # 1.5 s, and each split wants its part
def _read_library(folder: Path) -> tuple[tuple[str, str, str], ...]:
    """``module:function``, the first sentence and the rest of each documentation that has enough of both, once."""
    read, seen = list[tuple[str, str, str]](), set[str]()
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).parts
        if set(parts) & set(_LEFT_OUT) or any(part.startswith(("test_", "_")) for part in parts):
            continue
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        module = ".".join(parts).removesuffix(".py")
        for name, text in _list_documented(tree, ""):
            first, rest = _split_first(text)
            if first and rest not in seen and first not in seen:
                seen |= {first, rest}
                read.append((f"{module}:{name}", first, rest))
    return tuple(read)


def _list_documented(node: ast.AST, above: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{above}{child.name}"
            if (text := ast.get_docstring(child)) is not None:
                yield name, text
            yield from _list_documented(child, f"{name}.")


def _split_first(text: str) -> tuple[str, str]:
    """The first sentence and the rest; both empty where they say too little."""
    plain = " ".join(text.split())
    match = _SENTENCE.match(plain)
    first, rest = (match[1], plain[match.end() :]) if match else ("", "")
    words = len(first.split()), len(rest.split())
    fits = _FEWEST_WORDS[0] <= words[0] <= _MOST_WORDS and words[1] >= _FEWEST_WORDS[1]
    return (first, rest) if fits else ("", "")


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The texts of this Python's library; reads none yet."""
    return Docstrings(opt.read(opt.DocstringsOptions, options), base)
