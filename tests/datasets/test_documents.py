"""Documents of language models: every token that follows another counts once, behind as much as a window holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.datasets.base import Dataset
from qbench.datasets.texts import open_dataset
from qbench.datasets.windows import Windows
from qbench.errors import DataError
from qbench.files import regular_file


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(2, 9), st.integers(1, 9))
def test_each_token_counts_once(counts: list[int], length: int, stride: int) -> None:
    """All but the first of a document, whatever the windows, which are the document's own tokens in their order."""
    documents = [np.arange(1000 * number, 1000 * number + count) for number, count in enumerate(counts)]
    windows = Windows(length=length, stride=min(length, stride), pad=-7)
    names = [f"d{number}" for number in range(len(counts))]
    examples = windows.cut(names, documents)
    (ids,), labels = examples.inputs, examples.labels
    assert labels is not None
    counted = labels[:, 1:]
    assert sorted(counted[counted >= 0]) == sorted(token for document in documents for token in document[1:])
    places = counted >= 0
    assert (counted[places] == ids[places] + 1).all()  # it follows what stands there
    assert (labels[:, 0] == [int(name[1:].partition("@")[0]) for name in examples.ids]).all()
    for row, name in zip(ids, examples.ids, strict=True):
        start = int(name.partition("@")[2])
        tokens = row[row != -7]
        document = documents[int(name[1:].partition("@")[0])]
        assert tokens.tolist() == document[start : start + length].tolist()


def test_a_last_window_is_as_long_as_the_others() -> None:
    """It ends where the document ends, and counts what the one before has not."""
    examples = Windows(length=4, stride=4, pad=0).cut(["d"], [np.arange(10, 17)])
    assert examples.inputs[0].tolist() == [[10, 11, 12, 13], [12, 13, 14, 15]]
    assert examples.labels is not None
    assert examples.labels.tolist() == [[0, 11, 12, 13, 14], [0, -1, -1, 15, 16]]


def test_windows_that_overlap_count_with_more_context() -> None:
    """With a stride of half the length each later token has at least half a window before it."""
    examples = Windows(length=4, stride=2, pad=0).cut(["d"], [np.arange(20, 29)])
    assert examples.inputs[0][:, 0].tolist() == [20, 22, 24]
    assert examples.labels is not None
    assert examples.labels[1].tolist() == [0, -1, -1, 25, 26]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words between spaces, each a token."""
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[UNK]", "the", "film", "was", "good", "bad", "and", "long"]
    numbers = {word: number for number, word in enumerate(words)}
    made_of_words = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="[UNK]"))
    made_of_words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    file = tmp_path_factory.mktemp("tokens") / "tokenizer.json"
    made_of_words.save(str(file))
    return file


TEXTS = ("the film was good", "the film was bad and long and long", "good", "bad and good")


def open_texts(folder: Path, tokenizer: Path, **options: object) -> Dataset:
    return open_dataset(str(folder), base=Path(), options={"tokenizer": str(tokenizer), "length": 4, **options})


def write_lines(file: Path, texts: tuple[str, ...] = TEXTS) -> None:
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def test_a_folder_of_files_has_a_split_each(tmp_path: Path, tokenizer: Path) -> None:
    """One document a line; those of a single token are no example."""
    write_lines(tmp_path / "train.jsonl")
    write_lines(tmp_path / "test.jsonl", TEXTS[:2])
    texts = open_texts(tmp_path, tokenizer)
    assert set(texts.splits) == {"train", "test"}
    assert texts.load("train").ids == ("train:1@0", "train:2@0", "train:2@3", "train:4@0")
    assert len(texts.load("test")) == 3


def test_a_folder_of_folders_has_a_split_each(tmp_path: Path, tokenizer: Path) -> None:
    """A document is a .txt file, at whatever depth; its id is its path."""
    for split in ("train", "test"):
        (tmp_path / split / "a").mkdir(parents=True)
        for place, text in enumerate(TEXTS):
            (tmp_path / split / "a" / f"{place}.txt").write_text(text)
    texts = open_texts(tmp_path, tokenizer)
    assert texts.splits == ("test", "train")
    assert texts.load("test").ids[0] == "a/0@0"


@pytest.mark.parametrize("form", ["file", "folder"])
def test_documents_without_a_split_are_parted_whole(tmp_path: Path, tokenizer: Path, form: str) -> None:
    """No document is on both sides, nor one that is written twice."""
    documents = tuple(f"the film was {'good ' * place}" for place in range(1, 9)) * 2
    source = tmp_path / "all.jsonl"
    if form == "file":
        write_lines(source, documents)
    else:
        source = tmp_path
        for place, text in enumerate(documents):
            (tmp_path / f"{place}.txt").write_text(text)
    texts = open_texts(source, tokenizer, test_share=0.5, length=16)
    train, test = (texts.load(split).inputs[0] for split in ("train", "test"))
    assert len(train) == len(test) == 8
    assert not {row.tobytes() for row in train} & {row.tobytes() for row in test}


def test_two_different_documents_can_be_parted(tmp_path: Path, tokenizer: Path) -> None:
    """One for each side; one alone, however often, cannot."""
    source = tmp_path / "all.jsonl"
    write_lines(source, ("the film", "the film was good"))
    texts = open_texts(source, tokenizer, test_share=0.5)
    assert [len(texts.load(split)) for split in texts.splits] == [1, 1]
    write_lines(source, ("the film", "the film"))
    with pytest.raises(DataError, match="1 different documents cannot be split into train and test"):
        open_texts(source, tokenizer, test_share=0.5)


def test_a_mask_tells_what_is_no_token(tmp_path: Path, tokenizer: Path) -> None:
    """For networks that take one."""
    write_lines(tmp_path / "test.jsonl", ("the film",))
    ids, mask = open_texts(tmp_path, tokenizer, tokens=["ids", "mask"], pad=5).load("test").inputs
    assert ids.tolist() == [[1, 2, 5, 5]]
    assert mask.tolist() == [[1, 1, 0, 0]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test.jsonl", '{"text": "good"}\nno\n', r"test.jsonl:2: expected a JSON object"),
        ("test.jsonl", '{"words": "good"}\n', r"test.jsonl:1: expected ..text"),
        ("test.jsonl", "", "it is empty"),
        ("test.csv", "good", "expected .txt files, a document each, or .jsonl"),
        ("a.txt", "good", "1 different documents cannot be split"),
    ],
)
def test_what_is_no_document_is_told(tmp_path: Path, tokenizer: Path, name: str, content: str, message: str) -> None:
    """With the file and the line."""
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        open_texts(tmp_path, tokenizer)


def test_documents_of_one_token_are_no_data(tmp_path: Path, tokenizer: Path) -> None:
    """Nothing follows in them."""
    write_lines(tmp_path / "test.jsonl", ("good", "bad"))
    with pytest.raises(DataError, match="no document has two tokens"):
        open_texts(tmp_path, tokenizer).load("test")


def test_a_file_of_another_kind_is_refused(tmp_path: Path, tokenizer: Path) -> None:
    """A single text is one document, of which nothing can be said."""
    (tmp_path / "a.txt").write_text("good")
    with pytest.raises(DataError, match="expected a .jsonl file, a document a line, or a folder"):
        open_texts(tmp_path / "a.txt", tokenizer)


def test_no_token_may_be_left_out(tmp_path: Path, tokenizer: Path) -> None:
    """A stride above the length is refused before anything is read."""
    write_lines(tmp_path / "test.jsonl")
    with pytest.raises(DataError, match="stride: windows of 4 tokens would leave some out"):
        open_texts(tmp_path, tokenizer, stride=5)


def test_a_file_of_documents_has_so_many_bytes_at_most(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two gigabytes."""
    asked = []
    read = regular_file.read_bytes

    def note(file: Path, most: int) -> bytes:
        asked.append(most)
        return read(file, most)

    monkeypatch.setattr(regular_file, "read_bytes", note)
    write_lines(tmp_path / "test.jsonl")
    open_texts(tmp_path, tokenizer)
    assert asked == [2_147_483_648]


def test_windows_lie_side_by_side_where_nothing_else_is_said(tmp_path: Path, tokenizer: Path) -> None:
    """With a stride they overlap; what fills them up is 0 where the suite says no id."""
    write_lines(tmp_path / "test.jsonl", ("the film was good and long and bad and long",))
    assert open_texts(tmp_path, tokenizer).load("test").ids == ("test:1@0", "test:1@4", "test:1@5")
    assert open_texts(tmp_path, tokenizer, stride=3).load("test").ids == ("test:1@0", "test:1@3", "test:1@5")
    write_lines(tmp_path / "test.jsonl", ("the film",))
    assert open_texts(tmp_path, tokenizer).load("test").inputs[0].tolist() == [[1, 2, 0, 0]]


def test_lines_without_a_document_are_counted_but_none(tmp_path: Path, tokenizer: Path) -> None:
    """Ids are the lines of the file."""
    lines = [json.dumps({"text": text}) for text in TEXTS[:2]]
    (tmp_path / "test.jsonl").write_text(f"\n{lines[0]}\n  \n{lines[1]}\n")
    assert open_texts(tmp_path, tokenizer).load("test").ids == ("test:2@0", "test:4@0", "test:4@3")
    (tmp_path / "test.jsonl").write_text("[" * 200_000)
    with pytest.raises(DataError, match=r"test\.jsonl:1: expected a JSON object"):
        open_texts(tmp_path, tokenizer)


def test_folders_without_a_document_are_no_split(tmp_path: Path, tokenizer: Path) -> None:
    """Nor are files of another kind beside them."""
    for split in ("test", "train"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.txt").write_text(TEXTS[0])
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.md").write_text("good")
    (tmp_path / "notes.txt").write_text("good")
    assert open_texts(tmp_path, tokenizer).splits == ("test", "train")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="expected .txt files, a document each, or .jsonl files"):
        open_texts(tmp_path / "empty", tokenizer)
    (tmp_path / "test" / "a.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"a\.txt: cannot be read: "):
        open_texts(tmp_path, tokenizer).load("test")
