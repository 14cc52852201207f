"""A sample of the zoo through qbench's stages; ``run.py`` beside this file runs all of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from optional_packages import needs_openvino

sys.path.insert(0, str(Path(__file__).parent))

import run
import zoo


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))


def test_the_zoo_holds_at_least_thirty_networks_of_their_own_names():
    """So many kinds of architecture are tried before a release."""
    assert len(set(zoo.names())) == len(zoo.names()) >= 30


def test_a_layer_of_zeros_is_given_weights(monkeypatch):
    """timm's gMLP, MLP-Mixer and ResMLP begin with a classifier of zeros, of which int8 is as good as fp32."""
    head = torch.nn.Linear(4, 3)
    torch.nn.init.zeros_(head.weight)
    networks = {"zeros": (lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), head), (("vector", 4),))}
    monkeypatch.setitem(sys.modules, "zeros", SimpleNamespace(NETWORKS=networks))
    assert zoo.build("zeros", "zeros")[1].weight.count_nonzero() == 12


def test_a_network_goes_through_the_stages():
    """A U-Net with nearest upsampling, which failed on the torch engines; all others are the command's."""
    outcome = run.outcomes("unet", ["static/onednn"], jobs=1)["static/onednn"]
    assert outcome["status"] == "ok", outcome["reason"]
    assert outcome["sqnr"] > 20


@pytest.mark.parametrize("network", ["module_loop", "transposed"])
def test_a_network_that_keeps_things_on_its_modules_goes_through_the_stages(network):
    """A forward that reads where each module takes its input from, and one that asks a layer for the device of its
    weight: parts that become graphs keep both; numbers that grow with the batch are no part of a graph."""
    outcome = run.outcomes(network, ["static/fbgemm"], jobs=1)["static/fbgemm"]
    assert outcome["status"] == "ok", outcome["reason"]
    assert outcome["sqnr"] > 20
    assert outcome["coverage"] > 0.9


def test_a_variant_is_held_against_that_of_its_own_tool():
    """By how much it is better; more than 1 dB below is suspicious, but for a tool that left most of it float."""
    known = {
        cell: {"status": "ok", "reason": None, "sqnr": decibels, "coverage": coverage, "note": None}
        for cell, decibels, coverage in (
            ("static/onnxruntime", 29.0, 0.9),
            (f"static{run.NATIVE}/onnxruntime", 30.0, 0.9),
            (f"static{run.BY_HAND}/onnxruntime", 26.0, 0.9),
            ("static/openvino", 27.0, 0.9),
            (f"static{run.NATIVE}/openvino", 29.0, 0.9),
            (f"static{run.BY_HAND}/openvino", 30.5, 0.9),
            ("static/fbgemm", 29.0, 0.9),
            (f"static{run.NATIVE}/fbgemm", 29.0, 0.9),
            (f"static{run.BY_HAND}/fbgemm", 60.0, 0.1),
        )
    }
    rows = run.shown("net", run.judged(known), list(known))
    assert [" ".join(row.split()) for row in rows] == [
        "net static/onnxruntime ok (29.0 dB, 90% int8; for this machine alone +4.0 dB over its own tool)",
        "net static/openvino SUSPICIOUS: 29.0 dB for this machine alone, where its own tool has 30.5",
        "net static/fbgemm ok (29.0 dB, 90% int8)",
    ]


@pytest.mark.parametrize(("left", "status"), [(10.0, "skipped"), (30.0, "failed"), (None, "failed")])
def test_outputs_of_chaos_tell_nothing(left, status, monkeypatch):
    """Where a little noise takes fp32's own outputs away, those of int8 are no fault; elsewhere they are."""
    monkeypatch.setattr(run, "count_decibels_left", lambda network: left)
    outcome = run._judged(decibels=6.0, coverage=1.0, note=None)
    assert run._without_chaos("net", outcome)["status"] == status
    assert run._without_chaos("net", run._judged(decibels=30.0, coverage=1.0, note=None))["status"] == "ok"


def test_a_small_network_is_no_chaos():
    """Noise of -40 dB at the inputs of a U-Net leaves more than 20 dB of its outputs."""
    assert run.count_decibels_left("unet") > run.LEAST_LEFT


def test_a_network_is_built_by_its_own_tool_too():
    """The recipe ``framework-default`` of the same mode and backend, beside qbench's for this machine alone."""
    cells = [f"static{run.NATIVE}/onnxruntime", f"static{run.BY_HAND}/onnxruntime"]
    outcomes = run.outcomes("unet", cells, jobs=1)
    assert {cell: outcomes[cell]["status"] for cell in cells} == dict.fromkeys(cells, "ok")
    assert outcomes[cells[0]]["sqnr"] > outcomes[cells[1]]["sqnr"] - run.LESS


@needs_openvino
def test_the_last_place_of_a_sequence_is_right_on_openvino():
    """A GPT whose head ends in ``[:, -1]``: OpenVINO gave [1, batch, classes] for its int8 form."""
    outcome = run.outcomes("gpt_tied", ["static/openvino"], jobs=1)["static/openvino"]
    assert outcome["status"] == "ok", outcome["reason"]
    assert outcome["sqnr"] > 20


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
    assert lines[3] == "1 ok, 1 skipped, 1 failed, 0 suspicious, 0 not run"
    assert run.main([*arguments, "--modes", "static", "--show"]) == 0


def ok(decibels, coverage=1.0):
    return {"status": "ok", "reason": None, "sqnr": decibels, "coverage": coverage, "note": None}


def suspicious(**decibels):
    outcomes = {
        f"static/{name}": outcome if isinstance(outcome, dict) else ok(outcome) for name, outcome in decibels.items()
    }
    return {cell.split("/")[1] for cell, outcome in run.judged(outcomes).items() if outcome["status"] == "suspicious"}


def test_what_is_far_below_the_other_backends_is_suspicious():
    """A CRNN whose biases were wrong had 8.7 dB, a CBAM with wrong maxima 34.2: above any floor for one cell alone."""
    assert suspicious(fbgemm=30.0, x86=30.0, onnxruntime=35.4, openvino=8.7) == {"openvino"}
    assert suspicious(fbgemm=38.5, x86=38.5, qnnpack=38.4, onnxruntime=45.9, openvino=34.2) == {"openvino"}
    assert suspicious(fbgemm=15.0, x86=31.0, qnnpack=31.0) == {"fbgemm"}


def test_what_recipes_differ_by_is_not_suspicious():
    """Reduced ranges on torch beside ONNX files; float convolutions beside int8 ones; a single backend."""
    assert not suspicious(fbgemm=25.8, x86=25.7, onednn=25.7, qnnpack=26.3, onnxruntime=38.4, openvino=39.5)
    assert not suspicious(fbgemm=ok(43.4, 0.01), x86=ok(43.4, 0.01), onnxruntime=ok(31.2, 1.0))
    assert not suspicious(onnxruntime=31.5, openvino=40.1)
    yolo = {f"qat/{name}": ok(level) for name, level in {"x86": 19.0, "onnxruntime": 16.6, "openvino": 28.6}.items()}
    assert run.judged(yolo) == yolo
    assert not suspicious(openvino=12.0, onnxruntime={"status": "failed", "reason": "broken"})


def test_a_suspicious_cell_ends_in_1_and_is_judged_when_it_is_shown(tmp_path, capsys):
    """The stored outcome stays ok: the others of its mode may still change."""
    file = tmp_path / "unet.json"
    text = json.dumps({"static/onnxruntime": ok(35.4), "static/openvino": ok(8.7)})
    file.write_text(text)
    assert run.main(["--only", "unet", "--modes", "static", "--out", str(tmp_path), "--show"]) == 1
    assert "static/openvino      SUSPICIOUS: 8.7 dB where others have 35.4" in capsys.readouterr().out
    assert file.read_text() == text


@pytest.mark.parametrize(("bias", "chaos"), [(None, True), (1.0, False)])
def test_biases_above_0_keep_noise_from_growing(bias, chaos, monkeypatch):
    """Of 40 layers with random weights, one output among others: a family says so where its networks are deep."""
    from torch import nn

    class Named(nn.Sequential):
        def forward(self, x):
            return {"pictures": x, "scores": [super().forward(x)]}

    def build():
        layers = [(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(40)]
        return Named(nn.Conv2d(3, 8, 1), *(part for layer in layers for part in layer))

    family = type(sys)("deep")
    family.NETWORKS = {"deep_plain": (build, (("photo", 3, 8, 8),), {"output": '"scores.0"'})}
    if bias is not None:
        family.NORM_BIAS = bias
    monkeypatch.setitem(sys.modules, "deep", family)
    monkeypatch.setattr(zoo, "FAMILIES", ("deep",))
    run.count_decibels_left.cache_clear()
    assert (run.count_decibels_left("deep_plain") < run.LEAST_LEFT) is chaos
    run.count_decibels_left.cache_clear()
