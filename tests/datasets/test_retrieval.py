"""Documents and queries: BEIR's files, Python's own documentation, and what is said of files that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench import registry
from qbench.datasets import docstrings
from qbench.datasets.base import Dataset
from qbench.errors import DataError
from qbench.files import regular_file

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers (extra zoo)")
WORDS = ["[PAD]", "[UNK]", *(f"w{number}" for number in range(60))]


def tokenizer(folder: Path) -> dict[str, Any]:
    """One that knows a word a document."""
    word_level = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    word_level.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    word_level.save(str(folder / "tokenizer.json"))
    return {"tokenizer": "tokenizer.json", "length": 4}


def write(folder: Path, documents: int = 40, **files: str) -> Path:
    """Documents of a word each, four queries; ``files`` replace texts."""
    corpus = [{"_id": f"d{number}", "title": f"w{number}", "text": "w1"} for number in range(documents)]
    queries = [{"_id": f"q{number}", "text": f"w{number}"} for number in range(4)]
    lines = ["query-id\tcorpus-id\tscore", *(f"q{n}\td{n}\t{n}" for n in range(4)), "q3\td9\t1"]
    texts = {
        "corpus.jsonl": "\n".join(map(json.dumps, corpus)),
        "queries.jsonl": "\n".join(map(json.dumps, queries)),
        "qrels/test.tsv": "\n".join(lines),
    }
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, text in (texts | {name.replace("__", "/"): text for name, text in files.items()}).items():
        (folder / name).write_text(text)
    return folder


def opened(folder: Path, **options: Any) -> Dataset:
    """The data set."""
    dataset: Dataset = registry.load("dataset", "retrieval")(".", base=folder, options={**tokenizer(folder), **options})
    return dataset


def test_a_split_has_all_documents_and_its_queries(tmp_path: Path) -> None:
    """A query that nothing is relevant to is left out; a label names its documents and how relevant they are."""
    dataset = opened(write(tmp_path), held_out=3)
    examples = dataset.load("test")
    assert dataset.splits == ("test", "calibrate")
    assert [name.partition(":")[0] for name in examples.ids[-3:]] == ["query q1", "query q2", "query q3"]
    labels = np.asarray(examples.labels)
    assert labels.shape == (37 + 3, 3, 2)
    assert labels[:37, 0].tolist() == [[number, -1] for number in range(37)]
    assert (labels[:37, 1:] == -1).all()
    places = {int(labels[row, 0, 0]): examples.ids[row].partition(":")[0] for row in range(37)}
    asked = [(places[int(number)], int(gain)) for number, gain in labels[-1, 1:]]
    assert asked == [("document d3", 3), ("document d9", 1)]
    assert labels[37:, 0].tolist() == [[-1, -1]] * 3


def test_lines_without_a_text_are_left_out_and_a_title_stands_before_its_text(tmp_path: Path) -> None:
    """A gain below 0 is none; a document may have no title, or null."""
    corpus = [{"_id": "d1", "title": "w5", "text": "w6"}, {"_id": "d2", "title": None, "text": "w7"}]
    files = {"corpus.jsonl": "\n \n".join(map(json.dumps, corpus)), "qrels__test.tsv": "h\n\nq1\td1\t2\nq2\td2\t-1\n"}
    examples = opened(write(tmp_path, **files)).load("test")
    assert examples.ids == ("document d1: w5 w6", "document d2: w7", "query q1: w1")
    assert np.asarray(examples.labels).tolist() == [[[0, -1], [-1, -1]], [[1, -1], [-1, -1]], [[-1, -1], [0, 2]]]


def test_what_calibrates_is_not_in_the_index(tmp_path: Path) -> None:
    """Of documents that no query asks for; another seed holds out others, and at most a tenth."""
    dataset = opened(write(tmp_path), held_out=99)
    held, index = dataset.load("calibrate"), dataset.load("test")
    assert len(held) == 4
    assert not set(held.ids) & set(index.ids)
    assert opened(tmp_path, held_out=99, seed=5).load("calibrate").ids != held.ids
    assert opened(write(tmp_path, documents=10)).splits == ("test", "calibrate")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"corpus.jsonl": "{"}, r"corpus\.jsonl:1: expected a JSON object"),
        ({"corpus.jsonl": '{"_id": "a"}'}, r'corpus\.jsonl:1: expected \{"_id": …, "text": …\}'),
        ({"corpus.jsonl": '{"_id": "", "text": "b"}'}, r'corpus\.jsonl:1: expected \{"_id": …, "text": …\}'),
        ({"queries.jsonl": '{"_id": "a", "text": " "}'}, r"queries\.jsonl:1: the text of 'a' is empty"),
        ({"corpus.jsonl": '{"_id": "a", "text": "b"}\n' * 2}, r"corpus\.jsonl:2: the id 'a' is there twice"),
        ({"queries.jsonl": ""}, r"queries\.jsonl: it is empty"),
        ({"qrels__test.tsv": "h\nq1\td1"}, r"test\.tsv:2: expected query-id, corpus-id and a whole number"),
        ({"qrels__test.tsv": "h\nq1\td1\thigh"}, r"test\.tsv:2: expected query-id, corpus-id and a whole number"),
        ({"qrels__test.tsv": "h\nq1\tx\t1\nq8\td1\t1"}, r"test\.tsv: 2 ids are of no text: line 2: x, line 3: q8"),
        ({"qrels__test.tsv": "h\nq1\td1\t0"}, r"test\.tsv: no query has a relevant document"),
    ],
)
def test_files_that_do_not_fit_are_told_with_their_line(tmp_path: Path, files: dict[str, str], words: str) -> None:
    """Before a text is made tokens."""
    with pytest.raises(DataError, match=words):
        opened(write(tmp_path, **files))


def test_a_folder_without_judgements_is_told(tmp_path: Path) -> None:
    """They are what queries are judged by."""
    write(tmp_path)
    (tmp_path / "qrels" / "test.tsv").unlink()
    with pytest.raises(DataError, match=r"qrels: expected judgements, such as test\.tsv"):
        opened(tmp_path)


def test_each_function_is_found_by_its_first_sentence(tmp_path: Path) -> None:
    """Queries and documents in pairs; no text of a file is on both sides."""
    options = {**tokenizer(tmp_path), "documents": 50}
    dataset = registry.load("dataset", "docstrings")(None, base=tmp_path, options=options)
    test, train = dataset.load("test"), dataset.load("train")
    assert (len(test), len(train)) == (100, 50)
    labels = np.asarray(test.labels)
    assert labels[:50, 0, 0].tolist() == labels[50:, 1, 0].tolist() == list(range(50))
    names = [name.partition(": ")[0].partition(" ")[2] for name in test.ids]
    assert names[:50] == names[50:]
    modules = [{name.split()[1].partition(":")[0] for name in part.ids} for part in (test, train)]
    assert not modules[0] & modules[1]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Return the sum of two numbers. " + "More words follow here. " * 4, "Return the sum of two numbers."),
        ("Sum. " + "More words follow here. " * 4, ""),
        ("Return the sum of two numbers. Short.", ""),
        ("no sentence at all in here", ""),
    ],
)
def test_a_documentation_has_a_first_sentence_and_a_rest(text: str, first: str) -> None:
    """Enough of both, else it is no pair."""
    assert docstrings._split_first(text)[0] == first


@pytest.mark.parametrize(
    ("first", "rest", "fits"),
    [(4, 12, True), (3, 12, False), (4, 11, False), (30, 12, True), (31, 12, False)],
)
def test_a_sentence_says_enough_and_not_too_much(first: int, rest: int, fits: bool) -> None:
    """From 4 words to 30, and 12 of what follows."""
    text = f"{'word ' * (first - 1)}end. {'More ' * rest}"
    assert bool(docstrings._split_first(text)[0]) == fits


def test_the_side_of_a_file_never_changes() -> None:
    """Three of four are tested, whatever else the library has."""
    modules = ("argparse", "ast", "json.decoder", "os", "random", "re", "socket", "zipfile")
    sides = {module: docstrings._is_of_test(f"{module}:f") for module in modules}
    assert [module for module, tested in sides.items() if not tested] == ["argparse", "ast"]
    assert docstrings._is_of_test("os:a") == docstrings._is_of_test("os:b")


def test_functions_are_named_by_what_they_stand_in(tmp_path: Path) -> None:
    """With their module; one text is one pair, tests and what is private are left out, as is what cannot be read."""
    said = "It says what this does here. Behind that come more words, as many as a rest of it needs to be one."
    other = said.replace("It says", "This says")
    inner = f'class A:\n    def f(self):\n        """{said}"""\n    async def g(self):\n        """{other}"""\n'
    files = {"a/b.py": inner, "c.py": inner, "test/d.py": inner, "a/_e.py": inner, "a/test_f.py": inner, "g.py": "def"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text.replace("this does", f"{name} does").replace("a rest", f"a rest of {name}"))
    assert [name for name, _, _ in docstrings._read_library(tmp_path)] == ["a.b:A.f", "c:A.f"]


@pytest.mark.parametrize(("documents", "asked", "held"), [(9, 4, 0), (40, 38, 2), (40, 40, 0), (40, 4, 4)])
def test_at_most_a_tenth_is_held_out_of_what_no_query_asks_for(
    tmp_path: Path, documents: int, asked: int, held: int
) -> None:
    """Of few documents none."""
    lines = ["h", *(f"q1\td{number}\t1" for number in range(asked))]
    dataset = opened(write(tmp_path, documents=documents, **{"qrels/test.tsv": "\n".join(lines)}))
    assert dataset.splits == ("test", "calibrate")[: 1 + (held > 0)]
    if held:
        assert len(dataset.load("calibrate")) == held


def test_an_index_that_stays_is_marked_and_said(tmp_path: Path) -> None:
    """In the labels of documents alone, as the metric knows them, and in a note; the built-in has it, too."""
    dataset = opened(write(tmp_path), corpus="fp32", held_out=3)
    labels = np.asarray(dataset.load("test").labels)
    metric = registry.load("metric", "ndcg@10")
    assert metric.find_fixed(labels).tolist() == list(range(37))
    assert (labels[37:, 0] == -1).all()
    assert "only queries are embedded by each variant" in dataset.notes[0]
    plain = opened(tmp_path, held_out=3)
    assert metric.find_fixed(np.asarray(plain.load("test").labels)).tolist() == []
    assert "built anew" in plain.notes[0]
    with pytest.raises(DataError, match="corpus: expected one of variant, fp32, got 'int8'"):
        opened(tmp_path, corpus="int8")


def test_each_file_has_so_many_bytes_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gigabytes."""
    asked = []
    read = regular_file.read_bytes

    def note(file: Path, most: int) -> bytes:
        asked.append((file.name, most))
        return read(file, most)

    monkeypatch.setattr(regular_file, "read_bytes", note)
    opened(write(tmp_path))
    assert asked == [(name, 2_147_483_648) for name in ("corpus.jsonl", "queries.jsonl", "test.tsv")]


def test_a_text_is_named_by_its_first_ninety_letters(tmp_path: Path) -> None:
    """Cut behind a word."""
    text = "a" * 44 + " " + "b" * 45  # ninety
    for words, name in ((text, text), (text + "b", "a" * 44 + " …"), (text + " c", "a" * 44 + " …")):
        corpus = json.dumps({"_id": "d1", "text": words})
        files = {"corpus.jsonl": corpus, "qrels__test.tsv": "h\nq1\td1\t1"}
        assert opened(write(tmp_path, **files)).load("test").ids[0] == f"document d1: {name}"


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Texts and judgements."""
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        write(tmp_path)
        (tmp_path / name).write_bytes(b"\xff\xfe")
        with pytest.raises(DataError, match=rf"retrieval: {tmp_path}/{name}: cannot be read: "):
            opened(tmp_path)
    write(tmp_path, **{"queries.jsonl": "[" * 200_000})
    with pytest.raises(DataError, match=r"queries\.jsonl:1: expected a JSON object"):
        opened(tmp_path)
    write(tmp_path, **{"queries.jsonl": "[3]"})
    with pytest.raises(DataError, match=r'queries\.jsonl:1: expected \{"_id"'):
        opened(tmp_path)


def test_names_of_functions_are_those_of_all_they_stand_in(tmp_path: Path) -> None:
    """Files that cannot be read and folders of tests and of installed packages are passed over, each on its own."""
    said = "It says what {} does here. Behind that come more words, as many as a rest of {} needs to be one."
    text = 'class A:\n    class B:\n        def f(self):\n            """' + said + '"""\n'
    left_out = ("test", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__", "ensurepip")
    files = [f"{folder}/x.py" for folder in left_out] + [
        "_a.py",
        "b/test_c.py",
        "_d/e.py",
        "f.py",
        "z/y.py",
        "tests.py",
    ]
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text.format(name, name))
    (tmp_path / "0.py").write_text("def")
    (tmp_path / "1.py").write_bytes(b"x = '\0'")
    (tmp_path / "2.py").mkdir()
    names = [name for name, _, _ in docstrings._read_library(tmp_path)]
    assert names == ["f:A.B.f", "tests:A.B.f", "z.y:A.B.f"]


def test_documentation_is_cut_to_sixty_four_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand documents, chosen by the digest of their names, where nothing else is said."""
    options = tokenizer(tmp_path)
    del options["length"]
    pairs = tuple((f"m{number}:f", f"w{number} a.", f"w{number} b") for number in range(5000))
    monkeypatch.setattr(docstrings, "_read_library", lambda folder: pairs)
    dataset = registry.load("dataset", "docstrings")(None, base=tmp_path, options=options)
    test, train = dataset.load("test"), dataset.load("train")
    assert (test.inputs[0].shape, train.inputs[0].shape[1]) == ((2000, 64), 64)
    assert len(train) == 1000
    names = [name.removeprefix("document ").partition(": ")[0] for name in train.ids]
    assert names == sorted(names, key=docstrings._digest)
    monkeypatch.setattr(docstrings, "_read_library", lambda folder: ())
    with pytest.raises(DataError, match="docstrings: this Python has no source files of its library at /"):
        dataset.load("test")
