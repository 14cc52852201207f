"""`qbench init` for recognizers: a CSV of lines, and what makes texts of a model's outputs."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_networks
import pytest
from PIL import Image

from qbench import suite
from qbench.first_suite.line_facts import choose_line_options, has_lines, write_reading
from qbench.first_suite.model_facts import InputFacts, ModelFacts
from qbench.first_suite.write_suite import write_first_suite
from qbench.plan import planner


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder in which a user works, with six lines."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for number in range(6):
        Image.fromarray(np.full((12, 40, 3), 40 * number, np.uint8)).save(tmp_path / "data" / f"{number}.png")
    rows = [f"{number}.png,ab,{'train' if number < 3 else 'test'}" for number in range(6)]
    (tmp_path / "data" / "lines.csv").write_text("\n".join(["image,text,split", *rows, ""]))
    return tmp_path


def save_model(place, letters=None, width="width", places=4):
    """A recognizer with scores of so many places a step, whose file lists its letters."""
    draft = onnx_networks.Draft()
    x = draft.conv("image", "conv", 3, places)
    x = draft.add("ReduceMean", [x], "mean", axes=[2], keepdims=0)
    x = draft.add("Transpose", [x], "scores", perm=[0, 2, 1])
    model = draft.model({"image": ["batch", 3, 16, width]}, {x: ["batch", "steps", places]})
    if letters is not None:
        onnx.helper.set_model_props(model, {"character": "\n".join(letters)})
    return str(onnx_networks.save(model, place, "net"))


def test_a_recognizer_and_its_lines_make_a_suite(place):
    """With a file that reads the letters from the model's; what was assumed is said, and the suite plans."""
    written = write_first_suite(save_model(place, "ab"), "data/lines.csv", None)
    read = suite.read(written.file)
    (model,) = read.models
    assert model.postprocess.python == "net_texts.py:read"
    assert (read.data.loader, read.data.options) == ("text-lines", {"size": [16, 320], "order": "bgr"})
    assert (read.data.calibrate.split, read.data.evaluate.split, read.gate.accuracy.metric) == ("train", "test", "cer")
    assert any("its outputs were taken as (n, steps, 3 letters and a blank)" in note for note in written.notes)
    assert any("leaves its size free: [16, 320] was assumed" in note for note in written.notes)
    assert planner.make_plan(read, planner.load_backends(read), cores=1).cases
    names = {"__file__": str(place / "net_texts.py")}
    exec(compile((place / "net_texts.py").read_text(), "net_texts.py", "exec"), names)
    assert names["read"](np.eye(4)[[[1, 0, 2, 3]]]) == ["ab "]


@pytest.mark.parametrize("letters", [None, "abcdef"])
def test_outputs_whose_letters_nobody_lists_are_held_against_fp32(place, letters):
    """And the suite says what to write so that texts are judged."""
    written = write_first_suite(save_model(place, letters, 64), "data/lines.csv", None)
    text = written.file.read_text()
    assert written.code is None
    assert "accuracy: {metric: sqnr, at_least: 20}" in text
    assert "write `postprocess` beside the model" in text
    assert suite.read(written.file).data.options["size"] == [16, 64]


def test_other_files_are_no_lines(tmp_path):
    """Texts with labels, images without a text, nothing."""
    for name, text in (("a.csv", "text,label\n"), ("b.csv", "image,label\n"), ("c.csv", "")):
        (tmp_path / name).write_text(text)
        assert not has_lines(tmp_path / name)


def describe(*sizes, letters=None, outputs=(), file="net.onnx"):
    """A recognizer whose input has these sizes."""
    inputs = (InputFacts(name="x", dtype="float32", sizes=sizes),) if sizes else ()
    return ModelFacts(
        name="my-net", source="", backends=(), int8_modes=(), inputs=inputs, letters=letters, output_sizes=outputs,
        file=file,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "options", "is_free"),
    [
        (describe(None, 3, 32, 100), {"size": [32, 100]}, False),
        (describe(None, 3, 32, None), {"size": [32, 320]}, True),
        (describe(None, 3, None, 100), {"size": [48, 100]}, True),
        (describe(), {"size": [48, 320]}, True),
        (describe(None, 1, 32, 100, letters=5), {"size": [32, 100], "channels": 1}, False),
        (describe(None, 32, 100, 3, letters=5), {"size": [32, 100], "layout": "nhwc", "order": "bgr"}, False),
    ],
)
def test_lines_become_what_the_model_takes(model, options, is_free):
    """A free size is PaddleOCR's, as is the order of colours where the file lists letters; each of that is said."""
    chosen, notes = choose_line_options(model)
    assert chosen == options
    assert any("size free" in note for note in notes) == is_free
    assert any("blue first" in note for note in notes) == ("order" in options)


@pytest.mark.parametrize(
    ("model", "is_written"),
    [
        (describe(letters=5, outputs=(None, 40, 6)), True),
        (describe(letters=5, outputs=(None, 40, None)), True),
        (describe(letters=5, outputs=(None, 40, 5)), False),
        (describe(letters=5, outputs=(None, 40, 7)), False),
        (describe(letters=5, outputs=(None, 6)), False),
        (describe(letters=None, outputs=(None, 40, 6)), False),
        (describe(letters=5, outputs=(None, 40, 6), file=None), False),
    ],
)
def test_outputs_are_read_where_each_step_scores_every_letter_and_a_blank(model, is_written):
    """By the file's own list of letters."""
    written = write_reading(model)
    assert (written is not None) == is_written
    if written is not None:
        assert written[0] == "my_net_texts.py"
        assert '"net.onnx"' in written[1]
