"""Rules of qbench/ship/folder.py, on real engines: a folder answers without qbench what the run stored, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_records import int8
from made_runs import run_folder
from short_measurements import short_measurements

from qbench import suite
from qbench.cache import manifest
from qbench.errors import UsageError
from qbench.progress.live import Silent
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun, read_run
from qbench.registry import load
from qbench.running import run
from qbench.ship.folder import Chosen, Shipped, _read_fixed_batch, plain_name, write_folder

NETWORKS = Path(__file__).parents[1] / "fixtures" / "networks.py"
TEXT = f"""
suite: shipped
models: [{{name: net, source: {{python: "{NETWORKS}:perceptron"}}}}]
data:
  dataset: {{npz: data.npz, scale: 0.0625, mean: 0.3, std: 0.4}}
  calibrate: {{samples: 32}}
matrix:
  modes: [fp32, dynamic, static]
  backends: [torch, onednn, onnxruntime, openvino, inductor]
  exclude: [{{mode: dynamic, backend: onednn}}, {{mode: dynamic, backend: inductor}},
            {{mode: static, backend: onednn, recipe: framework-default}},
            {{mode: static, backend: inductor, recipe: framework-default}},
            {{mode: dynamic, recipe: framework-default}}]
recipe: [default, framework-default]
measure: {{max_seconds: 0.1, precision: 20%, processes: 1, cold_starts: 1}}
"""
BACKENDS = ("torch", "onednn", "onnxruntime", "openvino", "inductor")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run of every way to ship, and its raw evaluation examples."""
    folder = tmp_path_factory.mktemp("shipped")
    images = np.random.default_rng(0).integers(0, 17, (104, 1, 8, 8), dtype=np.uint8)
    labels = np.arange(104) % 10
    np.savez(folder / "data.npz", train_inputs=images[:64], train_labels=labels[:64],
             test_inputs=images[64:], test_labels=labels[64:])  # fmt: skip
    np.savez(folder / "examples.npz", images[64:])
    (folder / "s.yaml").write_text(TEXT)
    with short_measurements():
        options: dict[str, Any] = {"only": None, "resume": None, "jobs": None, "progress": Silent()}
        result = run.run(suite.read(folder / "s.yaml"), out=folder / "reports", **options)
    return SimpleNamespace(folder=folder, run=read_run(result.folder), examples=folder / "examples.npz")


def ship(run: StoredRun, record: Record, folder: Path, answer: str | None = None) -> Shipped:
    """One case alone in a folder."""
    (written,) = write_folder(run, {"net": Chosen(record=record, answer=answer)}, folder)
    return written


def predict_alone(folder: Path, examples: Path) -> np.ndarray:
    """What the folder's script answers where qbench cannot be imported."""
    answers = folder.parent / "answers.npz"
    run_script = (
        "import runpy, sys; sys.modules['qbench'] = None; "
        f"sys.argv = ['predict.py', {str(examples)!r}, {str(answers)!r}]; "
        f"runpy.run_path({str(folder / 'predict.py')!r}, run_name='__main__')"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    subprocess.run([sys.executable, "-I", "-c", run_script], check=True, env=environment, capture_output=True)
    with np.load(answers) as stored:
        return np.array(stored["arr_0"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_script_answers_what_the_run_stored(shipped: SimpleNamespace, tmp_path: Path, backend: str) -> None:
    """Of every mode that a backend built: with the preprocessing of the suite, in a process without qbench."""
    if (reason := load("backend", backend).missing()) is not None:
        pytest.skip(reason)
    stored: StoredRun = shipped.run
    records = [record for record in stored.records if record.case.backend == backend and record.status == "ok"]
    assert records, [record.reason for record in stored.records]
    for number, record in enumerate(records):
        folder = tmp_path / str(number) / "net"
        ship(stored, record, folder)
        answers = predict_alone(folder, shipped.examples)
        assert np.array_equal(answers, stored.predictions(record)["outputs"]), record.case.id
        assert len((folder / "predict.py").read_text().splitlines()) <= 30


def test_a_folder_says_what_it_is_and_where_it_came_from(shipped: SimpleNamespace, tmp_path: Path) -> None:
    """The page, the versions to install and the whole record; the model has its plain name."""
    stored: StoredRun = shipped.run
    record = stored.by_id["net/static/onnxruntime/t1/b1"]
    written = ship(stored, record, tmp_path / "out", "Ship it.")
    assert written.file == "net.onnx"
    names = {"net.onnx", "predict.py", "README.md", "requirements.txt", "provenance.json"}
    assert {path.name for path in written.folder.iterdir()} == names
    page = (written.folder / "README.md").read_text()
    for said in (
        "Ship it.",
        "uint8 of shape n x 1 x 8 x 8",
        "1 thread, 1 example a call",
        "accumulates in int8",
        "In brackets are 95 % limits",
    ):
        assert said in page
    assert "| '" not in page  # a cell for a spreadsheet has one before a minus
    versions = stored.info.versions
    pinned = [f"numpy=={versions['numpy']}", f"onnxruntime=={versions['onnxruntime']}"]
    assert (written.folder / "requirements.txt").read_text().split() == pinned
    assert "--index-url" not in page  # torch alone has builds with and without graphics cards
    other = ship(stored, record, tmp_path / "other")
    assert "it is not what the run says to ship" in (other.folder / "README.md").read_text()
    text = (written.folder / "provenance.json").read_text()
    provenance = json.loads(text)
    assert text == json.dumps(provenance, indent=1, ensure_ascii=False) + "\n"
    assert provenance["record"]["case"]["id"] == record.case.id
    assert set(provenance["digests"]) == {"data", "model net"}


def test_of_several_cases_all_are_written_or_none(shipped: SimpleNamespace, tmp_path: Path) -> None:
    """Side by side by their names; where one cannot be shipped there is no folder."""
    stored: StoredRun = shipped.run
    fine = {name: Chosen(record=stored.by_id[f"net/{name}/onnxruntime/t1/b1"]) for name in ("fp32", "static")}
    written = write_folder(stored, fine, tmp_path / "both")
    assert [each.folder for each in written] == [tmp_path / "both" / "fp32", tmp_path / "both" / "static"]
    assert all((each.folder / each.file).is_file() for each in written)
    gone = {**fine, "gone": Chosen(record=int8())}
    with pytest.raises(UsageError, match="is gone from the cache"):
        write_folder(stored, gone, tmp_path / "none")
    assert {path.name for path in tmp_path.iterdir()} == {"both"}


def test_only_an_empty_folder_is_written_into(shipped: SimpleNamespace, tmp_path: Path) -> None:
    """What lies there is somebody's: it stays, and the message asks for another folder."""
    record = next(record for record in shipped.run.records if record.status == "ok")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("mine")
    with pytest.raises(UsageError, match="something lies there already"):
        ship(shipped.run, record, tmp_path / "kept")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["file"]
    (tmp_path / "empty").mkdir()
    assert ship(shipped.run, record, tmp_path / "empty").folder == tmp_path / "empty"
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_text("mine")
    for name in ("link", "file"):
        with pytest.raises(UsageError, match=f"{name}: something lies there already"):
            ship(shipped.run, record, tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"


def test_an_artifact_that_is_gone_is_said_with_the_way_back(tmp_path: Path) -> None:
    """A run outlives its cache; nothing is written then."""
    stored = read_run(run_folder(tmp_path / "run", [int8()]))
    with pytest.raises(UsageError, match="its artifact is gone from the cache; run the suite again"):
        ship(stored, stored.records[0], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("record", [int8(status="failed", artifact=None), int8(status="failed"), int8(artifact=None)])
def test_a_case_that_is_not_ok_is_not_shipped(tmp_path: Path, record: Record) -> None:
    """A failed case has no file, or one that nobody measured; nor has one that kept none."""
    stored = read_run(run_folder(tmp_path / "run", [record]))
    with pytest.raises(UsageError, match=f"is {record.status}, so there is nothing to ship"):
        ship(stored, stored.records[0], tmp_path / "out")


@pytest.mark.parametrize(
    ("model", "name"),
    [("digits-cnn", "digits-cnn"), ("a/b c", "a-b-c"), ("../x", "x"), ("\u00e9\u00e9", "model"), ("x" * 90, "x" * 80)],
)
def test_a_model_of_any_name_has_a_plain_file(model: str, name: str) -> None:
    """No folder, no space, nothing hidden."""
    assert plain_name(model) == name


@pytest.mark.parametrize(
    ("facts", "batch"),
    [({"fixed_batch": 3}, 3), ({"fixed_batch": None}, None), ({}, None), ({"fixed_batch": "3"}, None)],
)
def test_the_only_batch_size_is_what_the_build_said(tmp_path: Path, facts: dict[str, Any], batch: int | None) -> None:
    """Whoever wrote the entry may have written anything."""
    manifest.write(tmp_path, facts)
    assert _read_fixed_batch(tmp_path / "model.onnx") == batch
