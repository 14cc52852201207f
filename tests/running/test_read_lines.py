"""A run of a recognizer: lines of a CSV, texts by CTC's best path, judged by their edits, shown in the report."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from short_measurements import short_measurements

from qbench import suite
from qbench.metrics.texts import CER, read_text
from qbench.progress.live import Silent
from qbench.report.build import build_report
from qbench.running import run

NETWORK = """
import torch
from torch import nn

from qbench.models.ctc import BestPath

LEVELS = torch.tensor([0.0, -0.8, -0.4, 0.4, 0.8])  # of grey: nothing, then the letters

class Reader(nn.Module):
    '''Of each step of 8 columns the letter whose grey is nearest.'''

    def __init__(self):
        super().__init__()
        self.mean, self.nearest = nn.AvgPool2d((16, 8)), nn.Conv2d(1, 5, 1)
        self.nearest.weight.data = 2 * LEVELS.reshape(5, 1, 1, 1)
        self.nearest.bias.data = -LEVELS ** 2

    def forward(self, x):
        return self.nearest(self.mean(x))[:, :, 0].transpose(1, 2)

def make():
    return Reader().eval()

read = BestPath("abcd")
"""
TEXT = """
suite: lines
models: [{name: mine, source: {python: "net.py:make"}, postprocess: {python: "net.py:read"}}]
data: {dataset: {text-lines: lines.csv, size: [16, 64], channels: 1}, calibrate: {samples: 8}}
matrix: {modes: [static], backends: [onnxruntime]}
measure: {max_seconds: 0.5, precision: 20%, processes: 1, cold_starts: 1}
gate: {accuracy: {metric: cer, margin: 5}}
"""
GREYS = dict(zip("abcd", (-0.8, -0.4, 0.4, 0.8), strict=True))


@pytest.fixture(autouse=True, scope="module")
def _short_measurements():
    with short_measurements():
        yield


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """The run of 60 lines, two of which hold a letter that the network does not know; one is empty."""
    folder, random = tmp_path_factory.mktemp("lines"), np.random.RandomState(0)
    rows = ["image,text,split"]
    for number in range(60):
        letters = [str(letter) for letter in random.permutation(list("abcd"))[: 0 if number == 33 else 1 + number % 4]]
        # Some greys lie as near to another letter as int8's steps are.
        steps = [GREYS.get(letter, 0) + random.uniform(-0.21, 0.21) for letter in letters or [""]]
        pixels = np.repeat(np.clip((np.array(steps) + 1) * 127.5, 0, 255), 8)
        Image.fromarray(np.tile(pixels.astype(np.uint8), (16, 1))).save(folder / f"{number}.png")
        text = "".join(letters) + ("é" if number in (31, 41) else "")
        rows.append(f"{number}.png,{text},{'train' if number < 20 else 'test'}")
    (folder / "lines.csv").write_text("\n".join([*rows, ""]), encoding="utf-8")
    (folder / "net.py").write_text(NETWORK)
    (folder / "lines.yaml").write_text(TEXT)
    return run.run(
        suite.read(folder / "lines.yaml"),
        only=None,
        out=folder / "reports",
        resume=None,
        jobs=2,
        progress=Silent(),
    )


def test_texts_are_judged_by_their_edits(result):
    """Of all 40 lines; the files hold them as rows of code points."""
    assert {record.status for record in result.records} == {"ok"}
    for record in result.records:
        with np.load(result.folder / record.predictions) as stored:
            value = CER.value(stored["answers"], stored["labels"])
            assert read_text(stored["labels"][13]) == ""
            assert set("".join(map(read_text, stored["answers"]))) == set("abcd")
        assert (record.accuracy.metric, record.accuracy.n) == ("cer", 40)
        assert record.accuracy.value == pytest.approx(value)
        assert value < 0.3


def test_letters_that_it_does_not_know_are_told(result):
    """By a warning of the run, which the report shows."""
    words = "mine: 2 of 40 texts hold characters that it cannot write: 'é' (first in 31.png, "
    info = json.loads((result.folder / "run.json").read_text())
    assert any(words in note for note in info["notes"])
    assert "2 of 40 texts hold characters that it cannot write" in build_report(result.folder).read_text("utf-8")


def test_the_report_tells_which_texts_changed(result):
    """And the run keeps their pictures."""
    text = build_report(result.folder).read_text("utf-8")
    section = text[text.index('<section id="lines"') :]
    assert "of 40 texts changed" in section[: section.index("</section>")]
    pictures = list((result.folder / "lines").iterdir()) if (result.folder / "lines").is_dir() else []
    assert section.count('alt="line ') == len(pictures)
