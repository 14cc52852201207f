"""Rules of qbench/first_suite/data_facts.py: what a suite says of data, by what the model tells and what lies there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from user_layouts import save_arrays, save_boxes, save_images, save_masks

from qbench import registry
from qbench.errors import UsageError
from qbench.first_suite.data_facts import (
    DataFacts,
    _describe_documents,
    _describe_saved,
    _describe_texts,
    _find_tokenizer,
    _pick_splits,
    _read_columns,
    _token_options,
    describe_data,
)
from qbench.first_suite.model_facts import InputFacts, ModelFacts

IMAGENET = "mean and std are ImageNet's: write what training used"


def take(*sizes: int | None, name: str = "image", dtype: str | None = "float32") -> InputFacts:
    """An input of these sizes, of which the first is how many examples."""
    example = tuple(size or 128 for size in sizes[1:])
    return InputFacts(name=name, dtype=dtype, sizes=sizes, axis=0 if sizes else None, example=example)


def model(*inputs: InputFacts, outputs: int | None = None) -> ModelFacts:
    """What a file tells of a model."""
    return ModelFacts(name="my-net.v2", source="", backends=(), int8_modes=(), inputs=inputs, outputs=outputs)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a user works."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def photos(place: Path) -> str:
    """Images in four folders of classes."""
    return save_images(place / "photos", count=4)


@pytest.mark.parametrize(
    ("inputs", "size", "note"),
    [
        ((take(None, 3, 8, 8),), 8, None),
        ((take(None, 3, 12, 8),), [12, 8], None),
        ((take(None, 3, None, 8),), 224, "the file leaves its size free: 224 was assumed"),
        ((take(None, 3, 8, None),), 224, "the file leaves its size free: 224 was assumed"),
        ((take(None, 7), take(None, 3, 8, 8)), 8, None),
        ((take(None, 7),), 224, "the model does not tell its size: 224 was assumed"),
        ((), 224, "the model does not tell its size: 224 was assumed"),
    ],
)
def test_images_have_the_size_that_the_model_tells(
    photos: str, inputs: tuple[InputFacts, ...], size: object, note: str | None
) -> None:
    """Of its input that has the form of images; where it tells none, that is said, and pixels are ImageNet's."""
    facts = describe_data(photos, model(*inputs), Path())
    assert facts.options["size"] == size
    assert (facts.options["mean"], facts.options["std"]) == ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    assert facts.notes == (*([note] if note else []), IMAGENET)


@pytest.mark.parametrize(("said", "is_normalized"), [("yes", True), ("Y", True), ("no", False)])
def test_what_is_answered_of_pixels_is_no_assumption(photos: str, said: str, is_normalized: bool) -> None:
    """A note stays where something is left to write; of one channel nothing is asked."""
    facts = describe_data(photos, model(take(None, 3, 8, 8)), Path(), lambda question, default: said)
    assert ("std" in facts.options) == is_normalized
    assert facts.notes == (() if is_normalized else ("pixels are 0 to 1: write scale, mean and std as in training",))
    grey = describe_data(photos, model(take(None, 1, 8, 8)), Path(), lambda *words: pytest.fail("it was asked"))
    assert (grey.options, grey.notes) == ({"size": 8, "channels": 1}, ())


@pytest.mark.parametrize(
    ("classes", "outputs", "named"),
    [(("0", "3"), 4, 4), (("0", "4"), 4, "my_net_v2_classes.txt"), (("a", "b"), 2, None), (("a", "b"), None, None)],
)
def test_folders_are_outputs_by_number_or_by_name(
    place: Path, classes: tuple[str, ...], outputs: int | None, named: object
) -> None:
    """Numbers from 0 to the last output name it; other names are written down, and judge once they are in order."""
    save_images(place / "photos", classes=classes, count=4)
    facts = describe_data("photos", model(take(None, 3, 8, 8), outputs=outputs), Path())
    assert facts.options.get("classes") == named
    assert facts.labelled == (facts.code is None) == (facts.against_fp32 is None)
    assert facts.labelled == (not isinstance(named, str))


@pytest.mark.parametrize(
    ("splits", "train", "test", "is_assumed"),
    [
        (("Training", "EVAL"), "Training", "EVAL", False),
        (("a", "b", "c"), "a", "c", True),
        (("other", "train"), "train", "other", True),
        (("other", "more", "train"), "train", "other", True),
        (("test", "zeta"), "zeta", "test", True),
    ],
)
def test_splits_are_known_by_their_names(splits: tuple[str, ...], train: str, test: str, is_assumed: bool) -> None:
    """However they are written; of others two are taken, never one twice, and that is said."""
    taken = _pick_splits(splits, Path("d"))
    assert taken[:2] == (train, test)
    assert taken[2] == ((f"of the splits {', '.join(splits)} these two were taken",) if is_assumed else ())


def test_one_split_is_too_few() -> None:
    """What calibrates must not be what judges."""
    with pytest.raises(UsageError, match="it has one split, train; calibration and evaluation need two"):
        _pick_splits(("train",), Path("d"))


@pytest.mark.parametrize(
    ("inputs", "size"),
    [
        ((take(None, 3, 16, 16),), 16),
        ((take(None, 3, 32, 16),), [32, 16]),
        ((take(None, 3, None, 16),), 640),
        ((take(None, 3, 16, None),), 640),
        ((), 640),
    ],
)
def test_images_with_boxes_have_the_size_that_the_model_tells(
    place: Path, inputs: tuple[InputFacts, ...], size: object
) -> None:
    """Else that of YOLO's exports."""
    save_boxes(place / "data")
    facts = describe_data("data", model(*inputs), Path())
    assert facts.options == {"size": size}
    assert facts.notes == ("pixels are 0 to 1, in a letterbox: write scale, mean, std and fit as in training",)


@pytest.mark.parametrize(
    ("inputs", "kind", "labels", "options", "is_labelled"),
    [
        ((take(None, 3),), np.uint8, np.int64, {"scale": "1/255"}, True),
        ((), np.uint8, np.uint8, {"scale": "1/255"}, True),
        ((take(None, 3),), np.float32, np.float64, {}, False),
        ((take(None, 3, dtype="int64"),), np.uint8, np.int64, {"to_float": False}, True),
        ((take(None, 3, dtype="int64"), take(None, 3)), np.float32, None, {}, False),
    ],
)
def test_arrays_become_what_the_model_takes(
    place: Path, inputs: tuple[InputFacts, ...], kind: Any, labels: Any, options: dict[str, object], is_labelled: bool
) -> None:
    """Bytes are scaled for a model of floats, and nothing is for one of whole numbers; classes are whole numbers."""
    values = {"train_inputs": np.arange(60, dtype=kind).reshape(20, 3), "test_inputs": np.ones((10, 3), kind)}
    if labels is not None:
        values |= {"train_labels": np.arange(20, dtype=labels) % 2, "test_labels": np.arange(10, dtype=labels) % 2}
    facts = describe_data(save_arrays(place / "d.npz", **values), model(*inputs), Path())
    assert facts.options == options
    assert facts.labelled == is_labelled
    assert len(facts.notes) == ("scale" in options)
    assert facts.samples == 20


def test_one_example_tells_what_arrays_hold(place: Path) -> None:
    """Of a split that has no more; the first array tells whether they are bytes."""
    arrays = {"train_inputs": np.ones((1, 3), np.uint8), "test_inputs": np.zeros((9, 3), np.uint8)}
    facts = describe_data(save_arrays(place / "d.npz", **arrays), model(), Path())
    assert (facts.options, facts.samples) == ({"scale": "1/255"}, 1)


def test_no_more_examples_calibrate_than_are_wanted(place: Path) -> None:
    """Of many 256."""
    arrays = {"train_inputs": np.arange(900, dtype=np.float32).reshape(300, 3), "test_inputs": np.ones((9, 3))}
    assert describe_data(save_arrays(place / "d.npz", **arrays), model(), Path()).samples == 256


def test_random_inputs_have_the_forms_that_the_model_declares() -> None:
    """Whole numbers are of their type, a scalar has no array; each split has others. What is no number is left to the
    user."""
    ids = take(None, 5, name="ids", dtype="int32")
    inputs = (take(None, 3, None), take(name="rate", dtype="int64"), ids, take(1, name="scale"))
    facts = describe_data(None, model(*inputs), Path())
    assert (facts.value, facts.options, facts.samples) == ("my_net_v2_data.py:load", {"to_float": False}, 32)
    assert facts.code is not None
    assert "        rng.standard_normal(count, dtype=np.float32),  # scale, float32\n" in facts.code[1]
    names: dict[str, Any] = {}
    exec(facts.code[1], names)  # what would be written
    assert names["load"].note == "the inputs are random: accuracy says nothing of your data"
    values, labels = names["load"]("train")
    assert labels is None
    assert [value.shape for value in values] == [(64, 3, 128), (64, 5), (64,)]
    assert [value.dtype for value in values] == [np.float32, np.int32, np.float32]
    assert set(np.unique(values[1])) == {0, 1}
    assert (names["load"]("train")[0][0] == values[0]).all()
    assert (names["load"]("test")[0][0] != values[0]).any()
    words = describe_data(None, model(take(None, name="words", dtype="object")), Path())
    assert "        rng.integers(0, 2, count),  # words, object\n" in words.code[1]
    floats = describe_data(None, model(inputs[0]), Path())
    assert floats.options == {}


def test_a_data_set_is_written_as_yaml() -> None:
    """One that takes nothing by its name; options as YAML has them."""
    assert DataFacts(loader="digits").dataset == "digits"
    options = {"to_float": False, "size": [8, 16], "nice": True, "scale": "1/255", "tokens": ["ids", "mask"]}
    written = DataFacts(loader="npz", value="d.npz", options=options).dataset
    assert written == "{npz: d.npz, to_float: false, size: [8, 16], nice: true, scale: 1/255, tokens: [ids, mask]}"


def test_a_tokenizers_arrays_are_known_by_the_names_of_the_inputs() -> None:
    """As transformers exports them, in whichever order; the length is that of the first input that fixes it."""
    names = ("token_type_ids", "input_ids", "attention_mask")
    inputs = [take(None, None if number == 0 else 128 + number, name=name, dtype="int64")
              for number, name in enumerate(names)]  # fmt: skip
    assert _token_options(model(*inputs)) == {"length": 129, "tokens": ["types", "ids", "mask"]}
    assert _token_options(model(take(None, 7, 7, name="x"))) == {}


def test_boxes_judge_where_the_outputs_are_read_as_boxes(place: Path) -> None:
    """Of an output of another layout nobody knows where they are: it is held against fp32, and the suite says so."""
    save_boxes(place / "data")
    known, decoded, unknown = (
        describe_data("data", replace(model(take(None, 3, 16, 16)), output_sizes=sizes), Path())
        for sizes in ((None, 10, 6), (None, 6, 300), (None, 11))
    )
    for facts, postprocess in ((known, None), (decoded, "my_net_v2_boxes.py:decode")):
        assert (facts.labelled, facts.metric, facts.against_fp32) == (True, "map", None)
        assert facts.postprocess == postprocess
    assert decoded.code is not None
    assert decoded.code[0] == "my_net_v2_boxes.py"
    assert len(decoded.notes) == len(known.notes) == 2
    assert not unknown.labelled
    assert unknown.against_fp32 is not None
    assert "metric: map" in unknown.against_fp32


@pytest.mark.parametrize(
    ("inputs", "options"),
    [
        ((take(None, 3, 8, 12),), {"size": [8, 12], "classes": 5}),
        ((take(None, 8, 8, 1),), {"size": 8, "channels": 1, "layout": "nhwc", "classes": 5}),
        ((take(None, None, None, 3),), {"size": 224, "layout": "nhwc", "classes": 5}),
    ],
)
def test_images_with_masks_have_the_channels_and_the_layout_of_the_model(
    place: Path, inputs: tuple[InputFacts, ...], options: dict[str, object]
) -> None:
    """As many classes as its output has, and pixels judged by their overlap."""
    save_masks(place / "data")
    facts = describe_data("data", replace(model(*inputs), output_sizes=(None, 5, 8, 8)), Path())
    taken = {name: facts.options[name] for name in ("size", "channels", "layout", "classes") if name in facts.options}
    assert taken == options
    assert (facts.labelled, facts.metric, facts.train, facts.test) == (True, "miou", "train", "val")


def test_a_function_a_built_in_or_nothing_that_is_known(place: Path) -> None:
    """What a function returns nobody knows; digits have labels; a file that is missing is named."""
    (place / "d.py").write_text("def load(split): ...")
    (place / "notes.md").write_text("")
    function = describe_data("d.py:load", model(), Path())
    assert (function.loader, function.value, function.labelled) == ("python", "d.py:load", False)
    assert describe_data("digits", model(), Path()) == DataFacts(loader="digits", labelled=True)
    for text, why in (
        ("none.py:load", "none.py: no such file"),
        ("none.csv", "none.csv: no such file; data are"),
        ("notes.md", "notes.md: no data that is known; data are"),
    ):
        with pytest.raises(UsageError, match=f"^{why}"):
            describe_data(text, model(), Path())
    with pytest.raises(UsageError, match="without --data the inputs are random"):
        describe_data(None, model(), Path())


@pytest.fixture
def texts(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of texts with a tokenizer; what is written of it is read, and no data set is opened."""

    def describe(loader: str, path: Path, folder: Path, options: Any, notes: Any) -> tuple[DataFacts, Any]:
        return DataFacts(loader=loader, options=options, notes=tuple(notes)), None

    monkeypatch.setattr("qbench.first_suite.data_facts._describe_opened", describe)
    (place / "tokenizer.json").write_text("{}")
    return place


def test_how_long_texts_are_cut_is_said_where_the_model_does_not_tell(texts: Path) -> None:
    """Documents into windows, others with padding behind what is short."""
    free, fixed = (model(take(None, length, name="input_ids", dtype="int64")) for length in (None, 16))
    notes = [_describe_texts(texts, free, texts, loader).notes for loader in ("csv", "texts")]
    assert notes == [
        ("texts are cut or padded to 128 tokens: write length as in training",),
        ("texts are cut into windows of 128 tokens: write length as in training",),
    ]
    facts = _describe_texts(texts, fixed, texts, text="body")
    assert (facts.loader, facts.notes) == ("csv", ())
    assert facts.options == {"text": "body", "tokenizer": "tokenizer.json", "length": 16, "tokens": ["ids"]}
    (texts / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match=r"texts need the model's tokenizer: put its tokenizer\.json beside it"):
        _describe_texts(texts, fixed, texts)


def test_documents_judge_logits_of_each_token(texts: Path) -> None:
    """Outputs of other axes are held against fp32; those that the file does not tell may be logits."""
    ids = model(take(None, 16, name="ids", dtype="int64"))
    for sizes in ((), (None, 16, 99)):
        facts = _describe_documents(texts, replace(ids, output_sizes=sizes), texts)
        assert (facts.labelled, facts.metric, facts.against_fp32) == (True, "token_flips", None)
        assert facts.notes == ("outputs were taken as logits (n, length, vocabulary) of the token that follows",)
    facts = _describe_documents(texts, replace(ids, output_sizes=(None, 2)), texts)
    assert (facts.labelled, facts.notes) == (False, ())
    assert facts.against_fp32 is not None
    assert "has 2 axes" in facts.against_fp32


COLUMNS = '{"features": {"a": {"dtype": "string"}, "%s": {"dtype": "string"}, "image": {"_type": "%s"}}}'


@pytest.mark.parametrize(("second", "options"), [("text", {"text": "text"}), ("b", {})])
def test_of_several_columns_of_text_the_one_that_is_called_so_is_taken(
    place: Path, monkeypatch: pytest.MonkeyPatch, second: str, options: dict[str, str]
) -> None:
    """Where none is, the data set chooses."""
    (place / "saved").mkdir()
    (place / "tokenizer.json").write_text("{}")
    (place / "saved/dataset_info.json").write_text(COLUMNS % (second, "Sequence"))
    given: list[dict[str, Any]] = []

    def describe(loader: str, path: Path, folder: Path, options: dict[str, Any], notes: Any) -> tuple[DataFacts, Any]:
        given.append(options)
        return DataFacts(loader=loader), None

    monkeypatch.setattr("qbench.first_suite.data_facts._describe_opened", describe)
    _describe_saved(place / "saved", model(), place, None)
    given[0].pop("tokenizer", None)
    assert given == [options]


@pytest.mark.parametrize("name", ["dataset_info.json", "dataset_dict.json", "state.json"])
def test_a_saved_data_set_is_known_by_its_files(
    place: Path, photos: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Any of them, whatever else lies there; a folder without is one of images."""
    monkeypatch.setattr("qbench.first_suite.data_facts._describe_saved", lambda *_: DataFacts(loader="saved"))
    assert describe_data(photos, model(), Path()).loader == "image-folder"
    (place / "photos" / name).write_text("{}")
    assert describe_data(photos, model(), Path()).loader == "saved"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"features": []}', '{"features": {"a": 1}}'])
def test_what_a_saved_data_set_does_not_tell_is_left_to_its_library(tmp_path: Path, text: str) -> None:
    """Which says what is wrong with it; a file that is not there tells nothing either."""
    assert _read_columns(tmp_path) == {}
    (tmp_path / "dataset_info.json").write_text(text)
    assert _read_columns(tmp_path) == {}


@pytest.mark.parametrize(("classes", "opened"), [("a.txt", ["cat", "dog"]), ("b.txt", "b.txt"), (None, None)])
def test_classes_that_are_not_written_yet_are_those_that_will_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, classes: str | None, opened: Any
) -> None:
    """A file of the user's own is read where it is."""
    given: list[Any] = []
    monkeypatch.setattr(registry, "load", lambda *_: lambda value, *, base, options: given.append(options))
    options = {} if classes is None else {"classes": classes}
    facts = DataFacts(loader="l", value="v", options=options, code=("a.txt", "cat\ndog\n"), train="train", test="test")
    facts.open(tmp_path)
    assert given[0].get("classes") == opened
    assert facts.options == options


def test_a_tokenizer_lies_beside_the_texts_with_the_suite_or_among_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside them first; in the folder itself where they are one, but a file holds none."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    texts, suite = tmp_path / "texts", tmp_path / "other"
    for place in (texts, suite, tmp_path):
        (place / "tokenizer.json").write_text("{}")
        assert _find_tokenizer(texts, suite) == place / "tokenizer.json"
    (tmp_path / "tokenizer.json").unlink()
    (suite / "tokenizer.json").unlink()
    (texts / "a.csv").write_text("")
    assert _find_tokenizer(texts / "a.csv", suite) == texts / "tokenizer.json"
    (texts / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match="texts need the model's tokenizer"):
        _find_tokenizer(texts / "a.csv", suite)
