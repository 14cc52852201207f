"""Whole runs that are judged without labels, or by a score of the user's own: run, report, gate and resume."""

from __future__ import annotations

import json

import numpy as np
import pytest

from qbench import suite
from qbench.errors import UsageError
from qbench.gating.gate import gate_run
from qbench.progress.live import Silent
from qbench.record import stored_run
from qbench.report.build import judge
from qbench.running import run

TEXT = """
suite: small
models: [{{name: mine, source: {{python: "net.py:build"}}}}]
data: {{dataset: {{npz: data.npz}}, calibrate: {{samples: 8}}}}
matrix: {{modes: [fp32, static], backends: [fake]}}
measure: {{max_seconds: 0.1, precision: 20%, processes: 1, cold_starts: 1, protocol: sequential, calls: 2}}
{gate}
"""
NET = "from torch import nn\n\ndef build():\n    return nn.Flatten()\n"


@pytest.fixture(autouse=True)
def _no_peak(monkeypatch):
    """The peak takes seconds to measure and is proven in test_peak."""
    monkeypatch.setattr("qbench.machine.peak.measure_peak", lambda *args, **options: None)


def go(folder, gate="", net=NET, **options):
    """A run of the fake backend on 40 examples without labels."""
    random = np.random.default_rng(0)
    arrays = {f"{split}_inputs": random.random((40, 10), dtype=np.float32) for split in ("train", "test")}
    np.savez(folder / "data.npz", **arrays)
    (folder / "net.py").write_text(net, encoding="utf-8")
    (folder / "s.yaml").write_text(TEXT.format(gate=gate), encoding="utf-8")
    notes = []
    progress = Silent()
    progress.note = notes.append
    arguments = {"out": folder / "reports", "only": None, "resume": None, "jobs": None, "progress": progress} | options
    return run.run(suite.read(folder / "s.yaml"), **arguments), notes


def test_a_model_without_labels_is_judged_by_its_agreement_with_fp32(tmp_path):
    """The gate names no metric: the run says what judges, records it, and the gate decides by it; a run that goes on
    keeps it."""
    gate = "gate: {accuracy: {margin: 1.0}}"
    result, notes = go(tmp_path, gate=gate)
    assert result.exit_code == 0
    assert [note for note in notes if "no labels" in note and "top1_agreement" in note]
    actual = {record.case.mode: record.accuracy for record in result.records}
    assert (actual["fp32"].value, actual["fp32"].delta, actual["fp32"].flips) == (1.0, None, None)
    assert (actual["static"].metric, actual["static"].n) == ("top1_agreement", 40)
    classes = [np.load(file)["outputs"].argmax(axis=1) for file in sorted(result.folder.glob("predictions/*.npz"))]
    assert (actual["static"].value, actual["static"].delta.value) == (
        np.mean(classes[0] == classes[1]),
        pytest.approx(np.mean(classes[0] == classes[1]) - 1),
    )
    verdicts = [record for record in gate_run(result.folder).verdicts if record.rule == "top1_agreement"]
    assert [record.outcome for record in verdicts] in (
        ["INCONCLUSIVE"],
        ["FAIL"],
    )  # of 40 examples no margin of 1 point
    again, notes = go(tmp_path, gate=gate, resume=result.folder)
    assert [note for note in notes if "done already" in note]
    assert stored_run.read_run(again.folder).info.metric.name == "top1_agreement"


def test_outputs_that_are_no_classes_are_judged_by_their_noise(tmp_path):
    """Without labels and without a word of accuracy in the suite: the run says so, records it, the answer and the gate
    hold the least of it; a run that goes on keeps it."""
    maps = "from torch import nn\n\ndef build():\n    return nn.Unflatten(1, (2, 5))\n"
    gate = "gate: {size: {max_ratio: 0.9}}"
    result, notes = go(tmp_path, gate=gate, net=maps)
    assert result.exit_code == 0
    assert [note for note in notes if "no labels" in note and "judged by sqnr" in note and "at least 20 dB" in note]
    static = next(record for record in result.records if record.case.mode == "static")
    assert static.accuracy.metric == "sqnr"
    judged = judge(stored_run.read_run(result.folder))
    (check,) = [check for check in judged.checks[static.case.id] if check.limit == "accuracy"]
    assert check.outcome == ("PASS" if static.accuracy.value >= 20 else "FAIL")
    (verdict,) = [each for each in gate_run(result.folder).verdicts if each.rule == "sqnr"]
    assert verdict.outcome == check.outcome
    assert "  at least 20 dB" in verdict.text  # and no margin of 80 below fp32's own score
    assert (verdict.value, verdict.threshold) == (pytest.approx(static.accuracy.value), 20)
    again, notes = go(tmp_path, gate=gate, net=maps, resume=result.folder)
    assert [note for note in notes if "done already" in note]
    assert stored_run.read_run(again.folder).info.metric.name == "sqnr"


def test_a_margin_in_points_is_not_turned_into_another_metrics(tmp_path):
    """Who writes a loss has a metric in mind: the message says which fits."""
    maps = "from torch import nn\n\ndef build():\n    return nn.Unflatten(1, (2, 5))\n"
    result, _ = go(tmp_path, gate="gate: {accuracy: {margin: 1.0}}", net=maps)
    assert result.exit_code == 1
    assert all("choose cosine or sqnr" in record.reason for record in result.records)


def test_a_score_of_the_users_own_judges_a_run_and_must_stay_what_it_was(tmp_path):
    """Its values pair the variants in the gate; a run does not go on with another text of it."""
    (tmp_path / "my.py").write_text("def far(outputs, fp32):\n    return abs(outputs - fp32).max(axis=1)\n")
    keys = "{python: 'my.py:far', against: fp32, higher_is_better: false, unit: V}"
    result, _ = go(tmp_path, gate=f"gate: {{accuracy: {{metric: {keys}, margin: 100}}}}")
    assert result.exit_code == 0
    actual = {record.case.mode: record for record in result.records}
    assert actual["static"].accuracy.metric == "my.py:far"
    read = stored_run.read_run(result.folder)
    new, old = read.pairs(actual["static"], actual["fp32"])
    assert (len(new), new.mean(), old.max()) == (40, pytest.approx(actual["static"].accuracy.value), 0.0)
    (verdict,) = [record for record in gate_run(result.folder).verdicts if record.rule == "my.py:far"]
    assert (verdict.outcome, verdict.value) == ("INCONCLUSIVE", pytest.approx(-new.mean()))
    assert "goes unseen in 67 % of samples of 40; about 300 examples would decide" in verdict.reason
    assert json.loads((result.folder / "run.json").read_text())["metric"]["higher_is_better"] is False
    (tmp_path / "my.py").write_text("def far(outputs, fp32):\n    return abs(outputs - fp32).min(axis=1)\n")
    with pytest.raises(UsageError, match=r"the score in my\.py changed since this run was started"):
        again(tmp_path, result.folder, keys)


def again(folder, before, keys):
    """The same run, of which one case has to be measured again."""
    file = before / "records.jsonl"
    file.write_text(file.read_text().splitlines()[0] + "\n")
    go(folder, gate=f"gate: {{accuracy: {{metric: {keys}, margin: 100}}}}", resume=before)
