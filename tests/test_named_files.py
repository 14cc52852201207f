"""What documents, docstrings and comments name is there: a reader who follows a name does not find nothing."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# A file or a page, with folders before it or without; no pattern, no placeholder, no part of a longer name.
NAMED = re.compile(r"(?<![\w/.<{}*:~$-])((?:[\w.-]+/)*[\w-]+\.(?:md|py|ya?ml))(?![\w/*{(-])")
ENDINGS = (".md", ".py", ".yaml", ".yml")
# What a run writes, and what a reader's or somebody else's file is called in an example.
OF_RUNS = {"summary.md", "gate.md", "gate/gate.md", "comment.md", "predict.py"}
OF_READERS = {
    *("file.py", "net.py", "utils.py", "my_metric.py", "metrics/my.py", "suite.yaml", "suites/mine.yaml"),
    *("recipes.yaml", "qbench-cluster.yaml", "losses.py", "loop.py"),
}
OF_OTHERS = {"multiprocessing.py", "references/classification/train_quantization.py", "yolov8n.yaml"}
# The head of a listing that a page has its reader write.
WRITTEN = re.compile(r"^# file: (\S+)$", re.MULTILINE)


def list_files() -> list[str]:
    """The repository's files by their paths in it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


FILES = list_files()
# Whatever a path ends with: ``block_size.py``, ``measure/block_size.py``, ``qbench/measure/block_size.py``.
ENDS = {"/".join(Path(name).parts[-count:]) for name in FILES for count in range(1, len(Path(name).parts) + 1)}
# The changelog is about files of its time; data and expected outputs stand for what users have.
READ = [
    name
    for name in FILES
    if Path(name).suffix in (".py", ".md", ".yml", ".yaml", ".toml", ".in")
    and name != "CHANGELOG.md"
    and not name.startswith(("tests/data/", "tests/golden/"))
]


def prose_of(name: str) -> Iterator[str]:
    """Comments and docstrings of a Python file, the whole of any other."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if not name.endswith(".py"):
        yield text
        return
    if not any(ending in text for ending in ENDINGS):  # two files in three; tokens take a while
        return
    yield from (
        token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT
    )
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def find_missing(name: str, text: str) -> list[str]:
    """What a text in this file names that neither the repository has nor a run or a reader makes."""
    named = {match[1] for match in NAMED.finditer(text)} - OF_RUNS - OF_READERS - OF_OTHERS
    named -= set(WRITTEN.findall(text))
    beside = (ROOT / name).parent
    return sorted(path for path in named if path not in ENDS and not (beside / path).is_file())


@pytest.mark.parametrize("name", [name for name in READ if Path(name).name != "test_named_files.py"])
def test_every_file_that_is_named_exists(name: str) -> None:
    """By the end of its path, or from the folder of the file that names it."""
    assert [path for text in prose_of(name) for path in find_missing(name, text)] == []


def test_a_page_that_is_gone_is_found() -> None:
    """Also within a sentence; an address, a pattern and a placeholder are none."""
    text = "See gone/design.md, README.md and `qbench/build.py`; https://a.org/x.md, suites/*.yaml, {name}.py are none."
    assert find_missing("README.md", text) == ["gone/design.md"]


def test_a_file_that_the_page_itself_writes_is_there() -> None:
    """Its listing is in the page; a file that no listing writes is still missing."""
    text = "# file: mine.py\nx = 1\n\n`mine.py` is yours, other.py is nobody's."
    assert find_missing("README.md", text) == ["other.py"]


def test_every_exception_is_needed() -> None:
    """A name that no text has any more leaves the list."""
    texts = "\n".join(text for name in READ if "test_named_files" not in name for text in prose_of(name))
    named = {match[1] for match in NAMED.finditer(texts)}
    assert (OF_RUNS | OF_READERS | OF_OTHERS) - named == set()
