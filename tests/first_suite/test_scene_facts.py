"""`qbench init` for detectors and masks: what a folder holds, and what makes boxes of a model's outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from user_layouts import save_boxes, save_pixel_model

from qbench import suite
from qbench.first_suite.model_facts import ModelFacts
from qbench.first_suite.scene_facts import choose_mask_options, find_decoding, has_boxes, has_masks
from qbench.first_suite.write_suite import write_first_suite
from qbench.plan import planner


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder in which a user works."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_detector_and_its_boxes_make_a_suite(place):
    """With a file that decodes the layout of YOLO's exports; what was assumed is said, and the suite plans."""
    save_boxes(place / "data")
    written = write_first_suite(save_pixel_model(place, 6, ("batch", 6, 256)), "data", None)
    read = suite.read(written.file)
    (model,) = read.models
    assert model.postprocess.python == "net_boxes.py:decode"
    assert (read.data.loader, read.data.options) == ("coco", {"size": 16})
    assert (read.data.calibrate.split, read.data.evaluate.split, read.gate.accuracy.metric) == ("train", "val", "map")
    assert any("its outputs were taken as (n, 4 + 2, cells)" in note for note in written.notes)
    assert planner.make_plan(read, planner.load_backends(read), cores=1).cases


@pytest.mark.parametrize(
    ("sizes", "cells"),
    [
        (("n", 4 + 2, 3), np.array([[20, 30, 10, 8, 0.2, 0.9]] + [[0] * 6] * 2, np.float32).T),
        (("n", 3, 5 + 2), np.array([[20, 30, 10, 8, 1.0, 0.2, 0.9]] + [[0] * 7] * 2, np.float32)),
        (("n", None, 5 + 2), np.array([[20, 30, 10, 8, 0.5, 0.4, 1.8]], np.float32)),
    ],
)
def test_what_is_written_decodes_the_layout(sizes, cells):
    """Corners, score and class of the one object."""
    sizes = tuple(size if isinstance(size, int) else None for size in sizes)
    decoding = find_decoding(ModelFacts(name="a.b-c", source="", backends=(), int8_modes=(), output_sizes=sizes), 2)
    assert decoding.code is not None
    name, text = decoding.code
    names = {}
    exec(compile(text, name, "exec"), names)
    (boxes,) = names["decode"](cells[None])
    assert name == "a_b_c_boxes.py"
    assert np.allclose(boxes[0], [15, 26, 25, 34, 0.9, 1])
    assert max(map(len, text.splitlines())) <= 120


def describe(*sizes):
    """A detector whose first output has these sizes."""
    return ModelFacts(name="net", source="", backends=(), int8_modes=(), output_sizes=sizes)


@pytest.mark.parametrize(
    ("sizes", "is_known", "has_code"),
    [
        ((None, 7, 6), True, False),
        ((None, 6, 300), True, True),
        ((None, 300, 7), True, True),
        ((None, 7, 300), False, False),
        ((None, 5, 300), False, False),
        ((None, 300, 8), False, False),
        ((None, 6), False, False),
        ((None, 6, 300, 1), False, False),
        ((), False, False),
    ],
)
def test_a_layout_is_known_by_its_number_of_values(sizes, is_known, has_code):
    """Of two classes: six of a row of boxes, 4 + 2 or 5 + 2 of a cell, in three axes."""
    decoding = find_decoding(describe(*sizes), 2)
    assert (decoding.known, decoding.code is not None, bool(decoding.notes)) == (is_known, has_code, is_known)


@pytest.mark.parametrize(
    ("sizes", "classes"),
    [((1, 5, 8, 8), 5), ((1, 2, 8, 8), 2), ((1, 1, 8, 8), 2), ((1, None, 8, 8), None), ((1, 5), None)],
)
def test_masks_have_as_many_classes_as_the_output_has_channels(sizes, classes):
    """Two at least: one channel tells inside from outside. Where the output does not tell, the data set counts."""
    assert choose_mask_options(describe(*sizes)).get("classes") == classes


@pytest.mark.parametrize(
    ("files", "boxes", "masks"),
    [
        (("annotations/instances_train.json",), True, False),
        (("train/_annotations.coco.json",), True, False),
        (("_annotations.coco.json",), False, False),
        (("images/a.png", "masks/a.png"), False, True),
        (("train/images/a.png", "train/masks/a.png"), False, True),
        (("images/a.png", "train/masks/a.png"), False, False),
    ],
)
def test_folders_are_known_by_what_lies_in_them(files, boxes, masks, tmp_path):
    """COCO's lists of instances, or images beside their masks, in splits or not."""
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert (has_boxes(tmp_path), has_masks(tmp_path)) == (boxes, masks)
    (tmp_path / "a.JSON").write_text("")
    assert has_boxes(tmp_path / "a.JSON")


def test_outputs_that_are_boxes_need_nothing(place):
    """Rows of six, as networks that end in a suppression give them."""
    save_boxes(place / "data", "{}/_annotations.coco.json")
    written = write_first_suite(save_pixel_model(place, 6, ("batch", 256, 6)), "data", None)
    assert written.code is None
    assert "postprocess" not in written.file.read_text()
    assert any("were taken as boxes" in note for note in written.notes)


def test_an_unknown_layout_is_held_against_fp32(place):
    """And the suite says what to write so that boxes are judged."""
    save_boxes(place / "data")
    written = write_first_suite(save_pixel_model(place, 9, ("batch", 9, 256)), "data", None)
    text = written.file.read_text()
    assert "accuracy: {metric: sqnr, at_least: 20}" in text
    assert "write `postprocess` beside the model" in text
    assert suite.read(written.file).gate.accuracy.metric == "sqnr"


def test_images_with_masks_make_a_suite(place):
    """As many classes as the network has channels."""
    for split in ("train", "test"):
        for name, value in (("images", 90), ("masks", 1)):
            folder = place / "scenes" / split / name
            folder.mkdir(parents=True)
            for number in range(3):
                Image.fromarray(np.full((16, 16), value + number % 2, np.uint8)).save(folder / f"{number}.png")
    written = write_first_suite(save_pixel_model(place, 5, ("batch", 5, 16, 16)), "scenes", None)
    read = suite.read(written.file)
    assert (read.data.loader, read.data.options["classes"], read.gate.accuracy.metric) == ("masks", 5, "miou")


def test_other_folders_are_neither(tmp_path):
    """Images in folders of classes, a folder of masks alone, other files."""
    (tmp_path / "cat").mkdir()
    (tmp_path / "masks").mkdir()
    (tmp_path / "data.csv").write_text("a")
    assert not has_masks(tmp_path)
    assert not has_boxes(tmp_path)
    assert not has_boxes(Path(tmp_path / "data.csv"))
