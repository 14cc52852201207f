"""A sample of the zoo through qbench's stages; ``run.py`` beside this file runs all of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import run
import zoo


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))


def test_the_zoo_holds_at_least_thirty_networks_of_their_own_names():
    """So many kinds of architecture are tried before a release."""
    assert len(set(zoo.names())) == len(zoo.names()) >= 30


def test_a_network_goes_through_the_stages():
    """A U-Net with nearest upsampling, which failed on the torch engines; all others are the command's."""
    found = run.outcomes("unet", ["static/onednn"], jobs=1)["static/onednn"]
    assert found["status"] == "ok", found["reason"]
    assert found["sqnr"] > 20


def test_the_last_place_of_a_sequence_is_right_on_openvino():
    """A GPT whose head ends in ``[:, -1]``: OpenVINO gave [1, batch, classes] for its int8 form."""
    pytest.importorskip("openvino", reason="openvino is not installed; pip install 'qbench[openvino]'")
    found = run.outcomes("gpt_tied", ["static/openvino"], jobs=1)["static/openvino"]
    assert found["status"] == "ok", found["reason"]
    assert found["sqnr"] > 20


def test_a_table_tells_each_outcome_and_what_failed_ends_in_1(tmp_path, capsys, monkeypatch):
    """ok with decibels and coverage, skipped and FAILED with the reason; what is known is not run again."""
    outcomes = {
        "static/fbgemm": {"status": "ok", "reason": None, "sqnr": 31.25, "coverage": 0.9, "note": None},
        "dynamic/fbgemm": {"status": "skipped", "reason": "it has no Linear"},
        "qat/fbgemm": {"status": "failed", "reason": "broken"},
    }
    asked = []
    monkeypatch.setattr(run, "outcomes", lambda network, cells, *, jobs: asked.append(cells) or outcomes)
    arguments = ["--only", "unet", "--backends", "fbgemm", "--out", str(tmp_path / "zoo")]
    assert (run.main(arguments), run.main(arguments)) == (1, 1)
    assert asked == [["static/fbgemm", "dynamic/fbgemm", "qat/fbgemm"], ["qat/fbgemm"]]
    lines = capsys.readouterr().out.splitlines()[:4]
    assert lines[0].split(maxsplit=2) == ["unet", "static/fbgemm", "ok (31.2 dB, 90% int8)"]
    assert lines[1].endswith("skipped: it has no Linear")
    assert lines[2].endswith("FAILED: broken")
    assert lines[3] == "1 ok, 1 skipped, 1 failed, 0 not run"
    assert run.main([*arguments, "--modes", "static", "--show"]) == 0
