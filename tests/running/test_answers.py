"""A run of a detector: two outputs, boxes made of them by the user's function, judged by their average precision."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from short_measurements import short_measurements

from qbench import suite
from qbench.consent import list_sources
from qbench.errors import UsageError
from qbench.metrics.detection import MAP
from qbench.progress.live import Silent
from qbench.running import run

NETWORK = """
import torch
from torch import nn

class Cells(nn.Module):
    '''Of each of 6 x 6 cells a box about as large as the cell, and scores that follow its colours.'''

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(nn.Conv2d(3, 8, 5, 4, 2), nn.ReLU(), nn.Conv2d(8, 8, 5, 4, 2), nn.ReLU())
        self.boxes, self.scores = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 3, 1)

    def forward(self, x):
        features = self.features(x)
        return {"boxes": torch.relu(self.boxes(features)) * 100 + 4, "scores": torch.sigmoid(self.scores(features))}

def make():
    return Cells().eval()

def decode(outputs):
    import numpy as np
    suppressed = []
    for sides, scores in zip(outputs["boxes"], outputs["scores"], strict=True):
        y, x = np.mgrid[:6, :6] * 16 + 8
        boxes = np.stack([x - sides[0], y - sides[1], x + sides[2], y + sides[3], scores.max(0), scores.argmax(0)])
        suppressed.append(boxes.reshape(6, -1).T[:20])
    return suppressed
"""
TEXT = """
suite: boxes
models: [{name: mine, source: {python: "net.py:make"}, postprocess: {python: "net.py:decode"}}]
data: {dataset: shapes, calibrate: {samples: 16}, evaluate: {samples: 24}}
matrix: {modes: [static], backends: [onednn, onnxruntime]}
measure: {max_seconds: 0.5, precision: 20%, processes: 1, cold_starts: 1}
gate: {accuracy: {metric: map, margin: 5}}
"""


@pytest.fixture(autouse=True, scope="module")
def _short_measurements():
    with short_measurements():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A suite and its network, and the run of it."""
    place = tmp_path_factory.mktemp("boxes")
    (place / "net.py").write_text(NETWORK)
    (place / "boxes.yaml").write_text(TEXT)
    return place


def go(folder, name="boxes.yaml", resume=None):
    return run.run(
        suite.read(folder / name), only=None, out=folder / "reports", resume=resume, jobs=2, progress=Silent()
    )


@pytest.fixture(scope="module")
def result(folder):
    return go(folder)


def test_boxes_are_judged_and_outputs_are_kept(folder, result):
    """Each case has its mAP on all scenes; its file holds answers beside both outputs; int8 stays near fp32, whose
    outputs' distance is told by name."""
    assert {record.status for record in result.records} == {"ok"}
    for record in result.records:
        with np.load(result.folder / record.predictions) as stored:
            assert stored["answers"].shape == (24, 20, 6)
            assert (stored["outputs"].shape, stored["outputs.1"].shape) == ((24, 4, 6, 6), (24, 3, 6, 6))
            value = MAP.value(stored["answers"], stored["labels"])
        accuracy = record.accuracy
        assert (accuracy.metric, accuracy.n) == ("map", 24)
        assert accuracy.value == pytest.approx(value)
        if record.case.mode == "static":
            assert accuracy.delta is not None
            assert [(output.name, output.judged, output.metric) for output in accuracy.outputs] == [
                ("boxes", None, "sqnr"),
                ("scores", None, "sqnr"),
            ]
            assert min(output.value for output in accuracy.outputs) > 20


def test_the_function_is_code_that_the_suite_names(folder):
    """Whoever opens the run's folder is asked for consent to it, too."""
    texts = [source.text for source in list_sources(suite.read(folder / "boxes.yaml"))]
    assert any(text.startswith("postprocess of mine: python: net.py:decode") for text in texts)


def test_a_run_is_not_resumed_with_another_function(folder, result):
    """Its answers would be of two kinds."""
    file, unfinished = folder / "net.py", folder / "reports" / "boxes" / "unfinished"
    shutil.copytree(result.folder, unfinished)
    records = (unfinished / "records.jsonl").read_text().splitlines(keepends=True)
    (unfinished / "records.jsonl").write_text("".join(records[:-1]))
    text = file.read_text()
    file.write_text(text.replace("[:20]", "[:10]"))
    try:
        with pytest.raises(UsageError, match="the postprocess of mine and model mine changed since"):
            go(folder, resume=unfinished)
    finally:
        file.write_text(text)


def test_a_function_that_fails_is_told_before_anything_is_built(folder):
    """With its file and line."""
    (folder / "wrong.py").write_text("def decode(outputs):\n    return outputs['logits']\n")
    (folder / "wrong.yaml").write_text(TEXT.replace("net.py:decode", "wrong.py:decode"))
    failed = go(folder, "wrong.yaml")
    reasons = {record.reason for record in failed.records}
    assert {record.stage for record in failed.records} == {"model"}
    assert all("postprocess: " in reason and "wrong.py:2: KeyError: 'logits'" in reason for reason in reasons)


def test_without_a_function_the_metric_says_what_to_write(folder):
    """A detector's cells are no boxes."""
    text = (folder / "boxes.yaml").read_text().replace(', postprocess: {python: "net.py:decode"}', "")
    (folder / "bare.yaml").write_text(text)
    failed = go(folder, "bare.yaml")
    assert all("write `postprocess: {python: file.py:function}`" in record.reason for record in failed.records)
    assert json.loads((failed.folder / "records.jsonl").read_text().splitlines()[0])["status"] == "failed"


def test_only_a_network_of_ones_own_has_one(folder):
    """A built-in brings its own."""
    (folder / "built_in.yaml").write_text(
        TEXT.replace('source: {python: "net.py:make"}, ', "").replace("mine", "resnet20")
    )
    with pytest.raises(Exception, match="only a model of your own is called in another way"):
        suite.read(folder / "built_in.yaml")


def test_paths_of_other_folders_are_no_secret(folder):
    """The suite's folder is where the function's file is looked for."""
    (reference,) = suite.read(folder / "boxes.yaml").references()
    assert reference.postprocess.file == Path(folder / "net.py")
