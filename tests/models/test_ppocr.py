"""PaddleOCR's networks: boxes of a map of shares, texts of shares of letters, and the files that carry both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qbench.datasets.rendered_text import RenderedText
from qbench.errors import ModelError
from qbench.metrics.detection import AP50
from qbench.metrics.texts import CER, read_text
from qbench.models import ppocr
from qbench.models.postprocess import Postprocess, join_answers


def test_a_part_of_the_map_becomes_a_widened_box() -> None:
    """By 1.6 times its area over its circumference, inside the image, scored by its mean, the best first."""
    shares = np.zeros((2, 1, 64, 96), dtype=np.float32)
    shares[0, 0, 20:24, 30:70] = 0.75
    shares[0, 0, 40:45, 0:10] = 1.0
    shares[0, 0, 60:62, 0:40] = 1.0  # less than 3 pixels high
    shares[0, 0, 50:55, 50:60] = 0.4  # not sure enough
    boxes, none = ppocr.find_boxes(shares)
    margins = 1.6 * 4 * 40 / (2 * 44), 1.6 * 5 * 10 / (2 * 15)
    assert boxes.tolist() == [
        pytest.approx([0, 40 - margins[1], 10 + margins[1], 45 + margins[1], 1.0, 0], abs=1e-5),
        pytest.approx([30 - margins[0], 20 - margins[0], 70 + margins[0], 24 + margins[0], 0.75, 0], abs=1e-5),
    ]
    assert none.shape == (0, 6)


def test_what_is_just_high_and_sure_enough_is_a_box() -> None:
    """Three pixels, and a mean of a half; a share of 0.3 is none of it."""
    shares = np.zeros((1, 1, 32, 96), dtype=np.float32)
    shares[0, 0, 10:13, 20:60] = 0.5
    shares[0, 0, 9, 20:60] = 0.3
    margin = 1.6 * 3 * 40 / (2 * 43)
    (boxes,) = ppocr.find_boxes(shares)
    expected = [20 - margin, 10 - margin, 60 + margin, 13 + margin, 0.5, 0]
    assert boxes.tolist() == [pytest.approx(expected, abs=1e-5)]


def test_a_box_ends_with_the_page() -> None:
    """To the right and below, as to the left and above."""
    shares = np.zeros((1, 1, 32, 96), dtype=np.float32)
    shares[0, 0, 26:32, 88:96] = 1.0
    margin = 1.6 * 6 * 8 / (2 * 14)
    (boxes,) = ppocr.find_boxes(shares)
    assert boxes.tolist() == [pytest.approx([88 - margin, 26 - margin, 96, 32, 1.0, 0], abs=1e-5)]


def test_another_version_of_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that downloads its networks, or carries others."""
    monkeypatch.setattr(ppocr.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"rapidocr: the package has no models/PP.*; pip install 'rapidocr==3.10.0'"):
        ppocr.RECOGNIZER.weights()


def session(file: Path) -> object:
    """ONNX Runtime's, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def answers(name: str, kind: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """What the network and its postprocess make of rendered examples, and their labels."""
    model = {"ppocr-recognizer": ppocr.RECOGNIZER, "ppocr-detector": ppocr.DETECTOR}[name]
    if (reason := model.missing()) is not None:
        pytest.skip(reason)
    dataset = RenderedText(kind)
    examples = dataset.sample("test", count, 0)
    (inputs,) = dataset.preprocessing(examples.inputs)
    assert model.weights is not None
    run = session(model.weights())
    outputs = [run.run(None, {"x": inputs[place : place + 1]})[0] for place in range(count)]  # type: ignore[attr-defined]
    postprocess = Postprocess(attribute=name).load()
    return join_answers([postprocess((output,), None) for output in outputs]), np.asarray(examples.labels)


def test_the_recognizer_reads_rendered_lines() -> None:
    """Most of them to the letter: the alphabet is in the order of its outputs."""
    written, labels = answers("ppocr-recognizer", "lines", 40)
    assert CER.value(written, labels) < 0.15
    right = [read_text(row) == read_text(label) for row, label in zip(written, labels, strict=True)]
    assert np.mean(right) > 0.75
    alphabet = Postprocess(attribute="ppocr-recognizer").read_alphabet()
    assert alphabet is not None
    assert (len(alphabet), alphabet[-1]) == (18709, " ")


def test_the_detector_finds_the_lines_of_rendered_pages() -> None:
    """With boxes that overlap those of the labels by half and more."""
    written, labels = answers("ppocr-detector", "pages", 10)
    assert AP50.value(written, labels) > 0.8
    assert Postprocess(attribute="ppocr-detector").read_alphabet() is None
