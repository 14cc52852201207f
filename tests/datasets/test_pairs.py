"""Pairs of texts: what is read of them, on which side they come, and what is said of files that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench import registry
from qbench.datasets.base import Dataset
from qbench.errors import DataError
from qbench.metrics.regression import SPEARMAN

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers (extra zoo)")
WORDS = ["[PAD]", "[UNK]", *(f"w{number}" for number in range(200))]


def opened(folder: Path, text: str, name: str = "sts.csv", **options: Any) -> Dataset:
    """The data set of a file with this text."""
    model = tokenizers.models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    words = tokenizers.Tokenizer(model)
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(folder / "tokenizer.json"))
    (folder / name).write_text(text)
    keys = {"tokenizer": "tokenizer.json", "length": 4, **options}
    dataset: Dataset = registry.load("dataset", "pairs")(name, base=folder, options=keys)
    return dataset


def rows(count: int) -> str:
    """Pairs of words of their own."""
    return "sentence1,sentence2,score\n" + "".join(f"w{2 * n},w{2 * n + 1},{n % 11 / 2}\n" for n in range(count))


def test_both_texts_of_a_pair_are_examples_beside_each_other(tmp_path: Path) -> None:
    """With the pair's score and number; ids name the line."""
    dataset = opened(tmp_path, "a,b,how,split\nw3,w4,2.5,test\nw5,w3,0,test\n", texts=["a", "b"], score="how")
    assert dataset.splits == ("test",)
    examples = dataset.load("test")
    assert examples.ids == ("sts.csv:2 first", "sts.csv:2 second", "sts.csv:3 first", "sts.csv:3 second")
    assert examples.inputs[0][:, 0].tolist() == [5, 6, 7, 5]
    labels = np.asarray(examples.labels)
    assert labels[:, 1].tolist() == [2.5, 2.5, 0, 0]
    assert labels[0, 0] == labels[1, 0] != labels[2, 0] == labels[3, 0]
    units = SPEARMAN.units(labels)
    assert units is not None
    assert [places.tolist() for places in units.members] == [[0, 1], [2, 3]]


def test_a_pair_has_its_number_wherever_it_stands_and_another_where_it_comes_again(tmp_path: Path) -> None:
    """So that a baseline finds it again in a file that grew."""
    text = "sentence1,sentence2,score,split\nw1,w2,1,test\n{}w3,w4,2,test\nw3,w4,3,test\n"
    short, long = (
        np.asarray(opened(tmp_path, text.format(more)).load("test").labels)[:, 0] for more in ("", "w9,w8,0,test\n")
    )
    assert set(short) < set(long)
    assert len(set(short)) == 3


def test_the_number_of_a_pair_never_changes(tmp_path: Path) -> None:
    """Records hold it; each time that a pair comes again it has another, which a float64 holds exactly."""
    text = "sentence1,sentence2,score,split\n" + "w1,w2,1,test\n" * 3 + "w2,w1,1,test\n"
    numbers = np.asarray(opened(tmp_path, text).load("test").labels)[::2, 0].astype(np.int64).tolist()
    assert numbers == [183204388703952, 97359263800592, 146091453986317, 65316511306090]


def test_a_draw_has_whole_pairs_and_more_of_them_the_fewer(tmp_path: Path) -> None:
    """As many texts as were asked for; an odd one more is of a pair that does not count."""
    dataset = opened(tmp_path, rows(60))
    few, more, odd = (dataset.sample("train", count, 3) for count in (8, 20, 9))
    for examples, pairs in ((few, 4), (more, 10), (odd, 4)):
        units = SPEARMAN.units(np.asarray(examples.labels))
        assert units is not None
        assert len(units.members) == pairs
    assert set(few.ids) <= set(more.ids)
    assert (len(few), len(more), len(odd)) == (8, 20, 9)
    assert dataset.draw(90, 90, 3).tolist() == list(range(90))
    assert len(dataset.sample("train", 90, 3)) == 90
    with pytest.raises(DataError, match="1000 were asked for, there are 90"):
        dataset.sample("train", 1000, 3)


def test_pairs_that_share_a_text_are_on_one_side(tmp_path: Path) -> None:
    """Also over others; a quarter of what is apart is for the test."""
    chains = "".join(f"w{3 * n},w{3 * n + 1},1\nw{3 * n + 1},w{3 * n + 2},2\n" for n in range(40))
    dataset = opened(tmp_path, "sentence1,sentence2,score\n" + chains)
    train, test = (set(dataset.load(split).inputs[0][:, 0].tolist()) for split in ("train", "test"))
    assert not train & test
    assert len(test) == 30
    two = opened(tmp_path, "sentence1,sentence2,score\nw1,w2,1\nw2,w3,2\nw4,w5,2\n")
    assert sorted(len(two.load(split)) for split in two.splits) == [2, 4]
    with pytest.raises(DataError, match="all pairs share texts with each other"):
        opened(tmp_path, "sentence1,sentence2,score\nw1,w2,1\nw2,w3,2\n")


def test_a_folder_has_a_file_a_split_and_tabs_in_tsv(tmp_path: Path) -> None:
    """As csv has it."""
    folder = tmp_path / "sts"
    folder.mkdir()
    (folder / "dev.tsv").write_text("sentence1\tsentence2\tscore\nw1, w2\tw3\t4\n")
    opened(tmp_path, rows(4))
    keys = {"tokenizer": "tokenizer.json", "length": 4}
    dataset = registry.load("dataset", "pairs")("sts", base=tmp_path, options=keys)
    assert dataset.splits == ("dev",)
    assert len(dataset.load("dev")) == 2


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("sentence1,sentence2,score\nw1,w2,good\n", {}, "sts.csv:2: the score 'good' in column 'score' is no number"),
        ("sentence1,sentence2,score\nw1,w2,nan\n", {}, "sts.csv:2: the score 'nan'"),
        ("sentence1,sentence2,score\nw1, ,1\n", {}, "sts.csv:2: there is no text in column 'sentence2'"),
        ("sentence1,sentence2,score\n ,w1,1\n", {}, "sts.csv:2: there is no text in column 'sentence1'"),
        ("sentence1,sentence2,score,split\nw1,w2,1,\n", {}, "sts.csv:2: column 'split' is empty"),
        ("a,b,score\nw1,w2,1\n", {}, "no column 'sentence1'.*write texts:, score: or split: with the name"),
        ("sentence1,sentence2,score\nw1,w2,1\n", {"texts": ["a"]}, "texts: expected the names of two columns"),
        ("sentence1,sentence2,score\nw1,w2,1\n", {"texts": ["a", "a"]}, "texts: expected the names of two columns"),
    ],
)
def test_what_does_not_fit_is_told(tmp_path: Path, text: str, options: dict[str, Any], words: str) -> None:
    """With the line and what to do."""
    with pytest.raises(DataError, match=words):
        opened(tmp_path, text, **options)
