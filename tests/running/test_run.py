"""The story of a run on real engines: what a fault costs, what is kept, and how it goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ending_signals import as_a_shell_starts_it
from short_measurements import PEAK, short_measurements

from qbench import suite
from qbench.cache.clean import clean
from qbench.cache.store import hold_folder, open_cache
from qbench.errors import CaseError, MemoryExhausted, QbenchError, UsageError
from qbench.evaluate.predictions import load_predictions
from qbench.files import atomic
from qbench.machine.peak import measure_peak
from qbench.process.child_process import Limits
from qbench.progress.live import Silent
from qbench.record import jsonl, schema
from qbench.record.stored_run import QuickInfo, read_run
from qbench.report.build import build_report
from qbench.running import build_stage, run
from qbench.running.directory import RunDirectory
from qbench.running.evaluate_stage import evaluate
from qbench.running.prepare_stage import prepare

ROOT = Path(__file__).parents[2]
NETWORKS = ROOT / "tests" / "fixtures" / "networks.py"

TEXT = """
suite: small
models: [{{name: mine, source: {{python: "{source}:{factory}"}}}}]
data: {{dataset: {{npz: data.npz}}, calibrate: {{samples: 32}}}}
matrix: {{modes: {modes}, backends: {backends}}}
measure: {{max_seconds: 0.5, precision: 20%, processes: 1, cold_starts: 1, spend: {spend}}}
limits: {{stage_seconds: {seconds}}}
"""
ALL = {"backends": "[torch, onednn, qnnpack]", "spend": "all"}
CASE = schema.CaseKey(id="m/fp32/fake/t1/b1", model="m", mode="fp32", backend="fake", threads=1, batch_size=1)


@pytest.fixture(autouse=True, scope="module")
def _short_measurements():
    with short_measurements():
        yield


class Heard:
    """A progress that remembers."""

    def __init__(self):
        self.stages, self.steps, self.notes, self.reached = [], [], [], []

    def stage(self, name, total):
        self.stages.append((name, total))

    def advance(self, text, share=None):
        if share is None:
            self.steps.append(text)

    def note(self, text):
        self.notes.append(text)

    def expect(self, seconds):
        self.expected = seconds

    def reach(self, share):
        self.reached.append(share)


class Interrupting(Heard):
    """Somebody presses Ctrl-C as a stage begins."""

    def __init__(self, stage):
        super().__init__()
        self.last = stage

    def stage(self, name, total):
        super().stage(name, total)
        if name == self.last:
            raise KeyboardInterrupt


@pytest.fixture
def folder(tmp_path):
    write_data(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def run_of_all(tmp_path_factory):
    """A folder with a suite of three cases and its run, which tests copy."""
    folder, progress = tmp_path_factory.mktemp("whole"), Heard()
    write_data(folder)
    file = write(folder, **ALL)
    return SimpleNamespace(folder=folder, result=go(file, folder, progress=progress), progress=progress)


@pytest.fixture
def finished(run_of_all, tmp_path):
    """A copy of that folder: ``file``, ``folder``, ``result`` and what its ``progress`` heard."""
    folder = tmp_path / "copy"
    shutil.copytree(run_of_all.folder, folder, symlinks=True)
    result = replace(run_of_all.result, folder=folder / run_of_all.result.folder.relative_to(run_of_all.folder))
    return SimpleNamespace(file=folder / "s.yaml", folder=folder, result=result, progress=run_of_all.progress)


def write_data(folder):
    rng = np.random.default_rng(0)
    train, test = (rng.random((count, 1, 8, 8), dtype=np.float32) for count in (64, 40))
    test[-1] = test[-2]
    np.savez(
        folder / "data.npz",
        train_inputs=train,
        train_labels=np.arange(64) % 10,
        test_inputs=test,
        test_labels=np.arange(40) % 10,
    )


def write(folder, **changes):
    """The suite of ``TEXT`` in a folder, with these values in place of its own."""
    values = {
        "source": NETWORKS,
        "factory": "perceptron",
        "modes": "[fp32, static]",
        "backends": "[torch, onednn]",
        "spend": "decision",
        "seconds": 120,
    }
    file = folder / "s.yaml"
    file.write_text(TEXT.format(**values | changes))
    return file


def go(file, folder, **changes):
    options = {"out": folder / "reports", "only": None, "resume": None, "jobs": None, "progress": Silent()}
    return run.run(suite.read(file), **options | changes)


def test_the_numbers_of_layers_are_kept_where_the_suite_asks(folder, finished):
    """`evaluate.layers=true`: SQNR and cosine of each layer lie in the run and in its report; else nowhere."""
    asked = run.run(
        suite.read(write(folder), ["evaluate.layers=true"]),
        out=folder / "reports", only=None, resume=None, jobs=None, progress=Silent(),
    )  # fmt: skip
    int8 = by_case(asked)["static/onednn/t1/b1"]
    numbers = json.loads((asked.folder / int8.layers).read_text())
    assert len(numbers) == 2
    assert all(entry["sqnr_db"] > 10 and entry["cosine"] > 0.9 for entry in numbers)
    assert by_case(asked)["fp32/torch/t1/b1"].layers is None
    assert by_case(finished.result)["static/onednn/t1/b1"].layers is None


def test_a_run_takes_the_artifacts_of_another_as_they_are(finished):
    """Nothing is built, the run says so, and its answers are those of the same bytes; what the other run has not, or
    the cache no more, fails with that reason."""
    before = finished.result
    text = finished.file.read_text().replace("[fp32, static]", "[fp32, static, dynamic]")
    finished.file.write_text(text)
    after = go(finished.file, finished.folder, artifacts=before.folder, only="*/onednn/*")
    records = by_case(after)
    assert records["static/onednn/t1/b1"].status == "ok"
    assert records["static/onednn/t1/b1"].artifact.sha256 == by_case(before)["static/onednn/t1/b1"].artifact.sha256
    assert "none of it that is still in the cache" in records["dynamic/onednn/t1/b1"].reason
    assert f"nothing was built: the artifacts are those of {before.folder.name}" in read_run(after.folder).info.notes
    clean()
    with pytest.raises(UsageError, match="none of its artifacts is in the cache any more"):
        go(finished.file, finished.folder, artifacts=before.folder)


def test_latest_is_a_run_that_has_something_to_show(finished, monkeypatch):
    """A run that is killed before its first record leaves `latest` where it was."""
    first = finished.result
    link = first.folder.parent / "latest"
    assert link.resolve() == first.folder
    monkeypatch.setattr(run, "_run_stages", lambda context, suite, elapsed: None)  # as if it were killed here
    second = go(finished.file, finished.folder)
    assert second.folder != first.folder
    assert link.resolve() == first.folder


def test_a_run_folder_is_there_whole_or_not_at_all(folder, monkeypatch):
    """A run that is killed while its folder is made leaves none that is no run; what it left goes with a later one."""
    reports = folder / "reports" / "small"
    reports.mkdir(parents=True)
    kill_in_workplaces(reports / "20250101T000000Z-0000")
    assert len(list(reports.iterdir())) == 1
    monkeypatch.setattr(run, "_run_stages", lambda context, suite, elapsed: None)
    result = go(write(folder), folder)
    assert [path.name for path in reports.iterdir()] == [result.folder.name]
    assert {path.name for path in result.folder.iterdir()} == {"run.json", "samples", "predictions"}

    def killed(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        go(write(folder), folder)
    assert [path.name for path in reports.glob("2*")] == [result.folder.name]


def test_latest_is_never_an_earlier_run_again(tmp_path):
    """An older run that is resumed is not the latest."""
    folders = [tmp_path / name for name in ("20250101T000000Z-0000", "20260101T000000Z-ab12")]
    for path in folders:
        path.mkdir()
        (path / "run.json").write_text("{}")
    failed = schema.Record(case=CASE, status="failed", stage="build", reason="no")
    for path in reversed(folders):
        RunDirectory(path).write_record(failed)
    assert (tmp_path / "latest").resolve() == folders[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*[path.name for path in folders], "latest"]


def test_what_killed_parts_of_a_run_left_goes_at_its_end(finished):
    """Samples of a group that a resumed run has no longer, and files that were not whole yet: what qbench has marked.
    Whatever else has such a name is somebody's own, also a copy with the mark in it, and so is what a link leads to."""
    first = finished.result
    samples = first.folder / "samples"
    kill_in_workplaces(first.folder / "run.json", first.folder / "predictions" / "mine.npz")
    with atomic.replace_folder(samples / f"partial-{'a' * 64}") as part:
        (part / "0.npz").write_bytes(b"")
    left = [samples / f"partial-{'a' * 64}", *first.folder.rglob(".*.part")]
    assert len(left) == 3
    users = [
        first.folder / ".venv3.11",
        first.folder / ".cache.2",
        samples / f"partial-{'b' * 64}",
        samples / f".partial-{'c' * 64}",
        first.folder / ".run.json.12345",
        first.folder / ".mine.part",
        shutil.copytree(left[0], samples / f"partial-{'d' * 64}"),
    ]
    for path in users[:-1]:
        path.mkdir()
        (path / "notes").write_text("the user's own")
    (samples / f"partial-{'e' * 64}").symlink_to(left[0])
    go(finished.file, finished.folder, resume=first.folder)
    assert not any(path.exists() for path in left)
    assert all(any(path.iterdir()) for path in users)
    for path in users:
        shutil.rmtree(path)
    (samples / f"partial-{'e' * 64}").unlink()


def kill_in_workplaces(*files):
    """A process that ends without a word while it writes each of the files."""
    code = (
        "import contextlib, os, pathlib, sys\n"
        "from qbench.files import atomic\n"
        "with contextlib.ExitStack() as stack:\n"
        "    for file in sys.argv[1:]:\n"
        "        stack.enter_context(atomic.replace_file(pathlib.Path(file))).write_text('half')\n"
        "    os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, *map(str, files)], check=True)


def test_a_new_run_removes_nothing_of_the_users(folder, monkeypatch):
    """DIR/<suite>/ may hold anything: a folder with a dot and a number in its name, one or a file that is called
    latest, however old they are."""
    reports = folder / "reports" / "small"
    users = [reports / name for name in (".venv3.11", ".cache.2", ".a.part", "latest")]
    for path in users:
        path.mkdir(parents=True)
        (path / "notes").write_text("the user's own")
        os.utime(path, (0, 0))
    (reports / "latest.txt").write_text("the latest news")
    failed = schema.Record(case=CASE, status="failed", stage="build", reason="no")
    monkeypatch.setattr(run, "_run_stages", lambda context, suite, elapsed: context.directory.write_record(failed))
    result = go(write(folder), folder)
    assert all((path / "notes").exists() for path in users)
    assert (reports / "latest.txt").read_text() == "the latest news"
    assert len(list(reports.iterdir())) == len(users) + 2
    assert len(jsonl.read(result.folder)) == 1


@pytest.mark.parametrize("target", ["mine", "../elsewhere"])
def test_latest_of_the_users_own_is_not_taken_away(tmp_path, target):
    """A link that leads to no run, and a file, stay; ``latest.txt`` then says which run it is."""
    folder = tmp_path / "20260101T000000Z-ab12"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    (tmp_path / "latest").symlink_to(target)
    RunDirectory(folder).write_record(schema.Record(case=CASE, status="failed", stage="build", reason="no"))
    assert str((tmp_path / "latest").readlink()) == target
    assert (tmp_path / "latest.txt").read_text() == f"{folder.name}\n"


def test_a_pipe_that_is_called_latest_is_not_waited_for(tmp_path):
    """It stays where it is."""
    folder = tmp_path / "20260101T000000Z-ab12"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    os.mkfifo(tmp_path / "latest.txt")
    RunDirectory(folder).write_record(schema.Record(case=CASE, status="failed", stage="build", reason="no"))
    assert (tmp_path / "latest").readlink() == Path(folder.name)
    assert (tmp_path / "latest.txt").is_fifo()


def test_nobody_empties_the_cache_of_a_run(folder):
    """From its first stage to its last a run needs what it built: `qbench clean` beside it removes nothing."""
    refused = []

    class Cleaning(Heard):
        def stage(self, name, total):
            with pytest.raises(UsageError, match="uses this cache, so nothing was removed"):
                clean()
            refused.append(name)

    assert go(write(folder), folder, progress=Cleaning()).exit_code == 0
    assert refused == ["prepare", "build", "evaluate", "measure"]
    clean(dry_run=True)


def by_case(result):
    return {record.case.id.removeprefix("mine/"): record for record in result.records}


def test_a_run_ends_with_a_complete_record_for_every_case(finished):
    """Everything that the record's schema names is there, measured, and adds up."""
    result, folder = finished.result, finished.folder
    assert result.exit_code == 0
    records = by_case(result)
    assert set(records) == {"fp32/torch/t1/b1", "static/onednn/t1/b1", "static/qnnpack/t1/b1"}
    int8 = records["static/onednn/t1/b1"]
    assert int8.status == "ok"
    assert int8.artifact.coverage.macs_int8 == 1.0
    assert int8.artifact.size_bytes > 0
    assert int8.speedup.baseline == "mine/fp32/torch/t1/b1"
    assert int8.speedup.low <= int8.speedup.value <= int8.speedup.high
    assert int8.speedup.control is not None
    assert int8.latency.n > 0
    assert int8.throughput_per_second == pytest.approx(1 / int8.latency.p50_seconds)
    assert int8.observed["threads"] == 1
    assert int8.observed["engine"] == "onednn"
    assert len(int8.observed["affinity"]) == 1
    assert int8.accuracy.n == 40
    assert int8.accuracy.delta is not None
    assert int8.roofline.macs == 64 * 32 + 32 * 10
    assert 0 < int8.roofline.peak_fraction < 1
    assert int8.speedup_fastest.baseline == "mine/fp32/torch/t1/b1"
    assert int8.cold_start.processes >= 1
    assert int8.interference.blocks > 0
    assert int8.interference.shared is not None
    assert int8.latency.p50_from in ("undisturbed", "all")
    assert int8.cold_start.load_seconds > 0
    assert (result.folder / int8.samples).exists()
    assert (result.folder / int8.predictions).exists()
    assert int8.recipe["calibrator"] == "histogram"
    assert records["fp32/torch/t1/b1"].speedup is None
    assert set(int8.elapsed_seconds) == {"build", "evaluate", "measure"}
    content = json.loads((result.folder / "run.json").read_text())
    assert content["finished"]
    assert content["commit"] is None  # the suite lies in no repository
    assert content["suite"]["text"] == (folder / "s.yaml").read_text()
    assert (folder / "reports/small/latest").resolve() == result.folder.resolve()
    assert [name for name, _ in finished.progress.stages] == ["prepare", "build", "evaluate", "runtimes", "measure"]


def test_a_calibration_subset_scores_as_a_run_with_its_seed_does(folder):
    """On a real engine: the second subset's artifact, predictions and score are those of a suite with its seed."""
    file = write(folder)
    outcomes = []
    for overrides in (["data.calibrate.seeds=2"], ["data.calibrate.seed=1"]):
        read = suite.read(file, overrides)
        context = run.open_run(read, out=folder / "reports", only=None, resume=None, jobs=2, progress=Silent())
        prepared = prepare(context, read)
        built = build_stage.build_variants(context, prepared)
        outcomes.append((context.directory.path, built, evaluate(context, prepared, built)))
    (path, both, scores), (alone_path, alone, alone_scores) = outcomes
    spread = scores["mine/static/onednn/t1/b1"].accuracy.calibration
    assert spread.seeds == (0, 1)
    assert alone_scores["mine/static/onednn/t1/b1"].accuracy.value == spread.values[1]
    recalibrated = both["mine/static/onednn"].recalibrated[0].artifact
    assert alone["mine/static/onednn"].artifact == replace(recalibrated, fresh=False)
    outputs = [load_predictions(path / name)["outputs"] for name in spread.predictions]
    shipped = load_predictions(alone_path / "predictions/mine__static__onednn.npz")["outputs"]
    assert np.array_equal(outputs[1], shipped)
    assert not np.array_equal(outputs[0], outputs[1])


HOSTILE = """
import os, shutil, signal, sys, tempfile, time
from pathlib import Path
import torch

def remove_temporary():
    end = time.monotonic() + 0.5  # while the next model's process is about to start
    while time.monotonic() < end:
        shutil.rmtree(Path(tempfile.gettempdir()).parent, ignore_errors=True)
    os._exit(0)
def signal_parent(): os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)
def kill_group(): os.killpg(0, signal.SIGKILL)
def kill_server():
    os.kill(int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    sys.exit("the server is gone")
def close_files(): os.closerange(0, 1000)
def remove_folder(): os.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd()); os.getcwd()
def recurse(): recurse()
def limit_itself():
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))

def network(does):
    globals().get(does, lambda: None)()
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
"""
REASONS = {
    "remove_temporary": "the process ended with exit code 0",
    "signal_parent": "the process was ended with the one above it",
    "kill_group": "the process was ended by SIGKILL",
    "kill_server": "SystemExit: the server is gone",
    "close_files": "the process ended with exit code 1",
    "remove_folder": "FileNotFoundError",
    "recurse": "RecursionError",
    "limit_itself": "Too many open files",
}


def test_one_model_takes_no_other_down(folder):
    """Whatever a model does to its process, the temporary files or the server of children: it fails with a reason, and
    the model beside it is measured."""
    (folder / "hostile.py").write_text(HOSTILE)
    sources = [
        f"{{name: {name.replace('_', '-')}, source: {{python: 'hostile.py:network', args: {{does: {name}}}}}}}"
        for name in (*REASONS, "nothing")
    ]
    file = write(folder, modes="[fp32]", backends="[torch]")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(f"models: [{', '.join(sources)}]\n" if "models:" in line else line for line in lines))
    result = go(file, folder, jobs=2)
    records = {record.case.model.replace("-", "_"): record for record in result.records}
    assert records.pop("nothing").status == "ok"
    assert {name: record.status for name, record in records.items()} == dict.fromkeys(REASONS, "failed")
    assert {name: records[name].reason for name, reason in REASONS.items() if reason not in records[name].reason} == {}


def test_a_build_that_memory_was_short_for_is_tried_once_more_alone(folder, monkeypatch):
    """Two builds are killed as they run beside each other, as the system kills them: each is done by itself then."""
    begins, attempts, building, build = threading.Barrier(2), Counter(), [], build_stage.build

    def killed_once(variant, **options):
        attempts[variant.id] += 1
        building.append(variant.id)
        try:
            if variant.mode == "static" and attempts[variant.id] == 1:
                begins.wait(60)
                raise MemoryExhausted("the process was ended by SIGKILL (most often: the system ran out of memory)")
            assert len(building) == 1
            return build(variant, **options)
        finally:
            building.remove(variant.id)

    monkeypatch.setattr(build_stage, "build", killed_once)
    result = go(write(folder, **ALL), folder, jobs=2)
    assert [record.status for record in result.records] == ["ok"] * 3
    assert attempts == {"mine/fp32/torch": 1, "mine/static/onednn": 2, "mine/static/qnnpack": 2}


def test_a_finished_run_resumes_to_nothing(finished):
    """Resuming does only what is not done."""
    heard = Heard()
    again = go(finished.file, finished.folder, resume=finished.result.folder, progress=heard)
    assert again.records == finished.result.records
    assert heard.steps == []


def test_a_run_that_is_gone_on_with_tells_its_skipped_cases_once(folder):
    """A case that the plan skips has one record, however often the run is opened."""
    read = suite.read(write(folder, modes="[fp32, dynamic]", backends="[torch, openvino]"))
    options = {"out": folder / "reports", "only": None, "jobs": 1, "progress": Silent()}
    context = run.open_run(read, resume=None, **options)
    told = (context.directory.path / "records.jsonl").read_text()
    assert '"stage": "plan"' in told
    run.open_run(read, resume=context.directory.path, **options)
    assert (context.directory.path / "records.jsonl").read_text() == told


def test_no_import_goes_on_after_a_run_that_ended_early(folder, monkeypatch):
    """Who called qbench in this process may import the same next, and two threads that import meet half a module."""
    story = []
    ahead = SimpleNamespace(join=lambda: story.append("joined"))
    monkeypatch.setattr(run, "import_ahead", lambda names: ahead)

    def fail(context, read):
        story.append("prepare")
        raise UsageError("no such data")

    monkeypatch.setattr(run, "prepare", fail)
    with pytest.raises(UsageError, match="no such data"):
        go(write(folder), folder)
    assert story == ["prepare", "joined"]


def test_what_touches_the_answer_is_kept_once_beside_the_records(finished):
    """Repeated examples make intervals too narrow: `--quiet` leaves the note out, run.json keeps it, also after another
    round."""
    heard = [note for note in finished.progress.notes if "1 of 40 evaluation examples repeat an earlier one" in note]
    assert len(heard) == 1
    go(finished.file, finished.folder, resume=finished.result.folder)
    assert read_run(finished.result.folder).info.notes == tuple(heard)


def test_a_twin_is_trained_measured_and_held_against_its_qat(folder):
    """An fp32 with the training of QAT: scored and measured as the others, and there again when the run goes on."""
    file = write(folder, modes="[qat]", backends="[onednn]")
    file.write_text(file.read_text() + "quantize: {qat: {fp32_twin: true, batch_size: 16}}\n")
    first = go(file, folder)
    cases = by_case(first)
    assert {case: record.status for case, record in cases.items()} == dict.fromkeys(
        ("fp32/torch/t1/b1", "fp32@twin/torch/t1/b1", "qat/onednn/t1/b1"), "ok"
    )
    twin, qat = cases["fp32@twin/torch/t1/b1"], cases["qat/onednn/t1/b1"]
    assert twin.artifact.coverage is None
    assert twin.artifact.note.startswith("trained on cross_entropy; fp32 twin: Adam")
    assert twin.artifact.sha256 != cases["fp32/torch/t1/b1"].artifact.sha256
    assert twin.recipe == {"epochs": 1, "learning_rate": 1e-3, "batch_size": 16, "seed": 0, "schedule": "cosine"}
    assert twin.speedup.baseline == qat.speedup.baseline == "mine/fp32/torch/t1/b1"
    assert twin.accuracy.delta is not None
    assert (qat.accuracy.twin.baseline, qat.accuracy.twin.delta is None) == (twin.case.id, False)
    records = first.folder / jsonl.RECORDS
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(line for line in lines if '"id": "mine/qat/' not in line))
    again = by_case(go(file, folder, resume=first.folder))
    assert again["fp32@twin/torch/t1/b1"] == twin
    assert again["qat/onednn/t1/b1"].accuracy == qat.accuracy


def test_a_lost_case_is_measured_again_and_nothing_else(finished):
    """A record that a kill has torn off is made again; the others stay as they are, and so do the files that they name,
    from which every figure can still be derived."""
    first = finished.result
    before = by_case(first)
    done = before["static/onednn/t1/b1"], before["fp32/torch/t1/b1"]
    kept = [(first.folder / name).read_bytes() for record in done for name in (record.samples, record.predictions)]
    records = first.folder / jsonl.RECORDS
    lines = records.read_text().splitlines(keepends=True)
    lost = [line for line in lines if "static/qnnpack" in line]
    records.write_text("".join(line for line in lines if line not in lost) + lost[0][: len(lost[0]) // 2])
    again = by_case(go(finished.file, finished.folder, resume=first.folder))
    assert set(again) == set(before)
    assert (again["static/onednn/t1/b1"], again["fp32/torch/t1/b1"]) == done
    assert again["static/qnnpack/t1/b1"].status == "ok"
    assert kept == [
        (first.folder / name).read_bytes() for record in done for name in (record.samples, record.predictions)
    ]
    assert not list((first.folder / "samples").glob("*partial*"))


def test_resuming_another_suite_is_refused(finished):
    """A changed suite would mix two runs in one folder."""
    with pytest.raises(UsageError, match="another text of the suite"):
        go(write(finished.folder, **ALL, seconds=121), finished.folder, resume=finished.result.folder)


def test_a_run_that_still_runs_is_not_resumed(finished):
    """Two processes would measure at once and write the same records; nothing is changed by the second."""
    before = (finished.result.folder / "run.json").read_bytes()
    busy = pytest.raises(UsageError, match="another qbench writes here now")
    with hold_folder(open_cache(), finished.result.folder), busy:
        go(finished.file, finished.folder, resume=finished.result.folder)
    assert (finished.result.folder / "run.json").read_bytes() == before


def test_resuming_what_is_no_run_is_refused(folder):
    """The message names the folder."""
    with pytest.raises(UsageError, match="the folder of a run"):
        go(write(folder), folder, resume=folder)


BUILD_FAULTS = {
    "kill": ("os.kill(os.getpid(), 9)", "SIGKILL"),
    "leave": ("os._exit(7)", "exit code 7"),
    "error": ("raise ValueError('from the user')", "from the user"),
    "memory": ("bytearray(10**15)", "ran out of memory"),
    "hang": ("time.sleep(600)", "took longer than 10 s"),
}


def test_a_model_that_breaks_its_worker_fails_alone(folder):
    """Whatever the user's code does to its process, the run goes on and the other model is measured."""
    file = write(folder, seconds=10)
    models = "".join(f"{{name: {fault}, source: {{python: 'bad.py:{fault}'}}}}, " for fault in BUILD_FAULTS)
    file.write_text(file.read_text().replace("models: [", f"models: [{models}"))
    factories = (f"def {fault}():\n    {action}\n" for fault, (action, _) in BUILD_FAULTS.items())
    (folder / "bad.py").write_text("import os, time\n" + "".join(factories))
    result = go(file, folder)
    records = {record.case.id: record for record in result.records}
    for fault, (_, words) in BUILD_FAULTS.items():
        assert records[f"{fault}/static/onednn/t1/b1"].status == "failed"
        assert words in records[f"{fault}/fp32/torch/t1/b1"].reason
        assert records[f"{fault}/fp32/torch/t1/b1"].stage == "model"
    assert records["mine/static/onednn/t1/b1"].status == "ok"
    assert result.exit_code == 1


def test_an_int8_case_without_int8_fails_with_the_reason(folder):
    """Coverage 0 in an int8 mode is a failure, and fp32 is measured all the same."""
    (folder / "plain.py").write_text(
        "import torch\n"
        "class Plain(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.w = torch.nn.Parameter(torch.ones(64, 10))\n"
        "    def forward(self, x):\n"
        "        return torch.flatten(x, 1) @ self.w\n"
        "def build():\n"
        "    return Plain()\n"
    )
    records = by_case(go(write(folder, source="plain.py", factory="build"), folder))
    assert records["static/onednn/t1/b1"].status == "failed"
    assert "nothing runs in int8" in records["static/onednn/t1/b1"].reason
    assert records["fp32/torch/t1/b1"].status == "ok"


def test_data_that_cannot_be_read_fails_every_case_once(folder):
    """One reason, one record for each case, exit code 1."""
    (folder / "data.npz").write_bytes(b"not a zip")
    result = go(write(folder), folder)
    assert {record.status for record in result.records} == {"failed"}
    assert {record.stage for record in result.records} == {"data"}
    assert len({record.reason for record in result.records}) == 1
    assert result.exit_code == 1


def test_skips_are_records_with_their_reason(folder):
    """A cell that cannot exist is recorded, and does not fail the run."""
    file = write(folder, modes="[fp32, dynamic]", backends="[torch, openvino]")
    result = go(file, folder, only="*/fp32/torch/*,*/dynamic/*")
    records = by_case(result)
    assert records["dynamic/openvino/t1/b1"].status == "skipped"
    assert records["dynamic/openvino/t1/b1"].stage == "plan"
    assert result.exit_code == 0


def test_an_output_that_cannot_be_written_is_refused_before_anything_runs(folder):
    """The message names the folder and the option."""
    (folder / "reports").write_text("a file")
    with pytest.raises(UsageError, match="--out"):
        go(write(folder), folder)


def test_a_cache_that_cannot_be_written_is_refused_before_anything_runs(folder, monkeypatch):
    """The message names the folder and the variable."""
    (folder / "cache").write_text("a file")
    monkeypatch.setenv("QBENCH_CACHE", str(folder / "cache"))
    with pytest.raises(UsageError, match="QBENCH_CACHE"):
        go(write(folder), folder)


def test_ctrl_c_keeps_what_is_known_and_tells_how_to_go_on(folder):
    """An interrupt ends with exit code 130 and the command that resumes."""
    file = write(folder)
    result = go(file, folder, progress=Interrupting("measure"))
    assert result.interrupted
    assert result.exit_code == 130
    assert result.resume is not None
    assert f"--resume {result.folder}" in result.resume
    assert json.loads((result.folder / "run.json").read_text())["finished"] is None
    resumed = go(file, folder, resume=result.folder)
    assert {record.status for record in resumed.records} == {"ok"}


def test_the_resume_command_repeats_filter_and_overrides(folder):
    """What was given once need not be remembered."""
    demo = suite.read(write(folder), ["measure.seed=3"])
    command = RunDirectory(Path("reports/x y")).resume_command(demo, "*/static/*")
    assert command == f"qbench run {folder}/s.yaml --filter '*/static/*' --set measure.seed=3 --resume 'reports/x y'"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_resume_command_of_a_quick_look_is_one(folder):
    """Its own overrides are not repeated, those of the user are."""
    look = suite.read(write(folder), ["measure.seed=3"], quick=True)
    command = RunDirectory(Path("reports/x")).resume_command(look, None)
    assert command == f"qbench run {folder}/s.yaml --quick --set measure.seed=3 --resume reports/x"


def test_a_quick_look_says_what_it_scored(folder, finished):
    """run.json tells a quick look and how many examples of how many it scored; a run proper has none of it. Nobody is
    measured beyond the screening."""
    file = write(folder)
    heard = Heard()
    options = {"out": folder / "reports", "only": None, "resume": None, "jobs": None, "progress": heard}
    look = run.run(suite.read(file, ["data.evaluate.at_most=30"], quick=True), **options)
    assert {record.status for record in look.records} == {"ok"}
    assert {record.accuracy.n for record in look.records} == {30}
    assert {record.speedup.processes for record in look.records if record.speedup} == {1}
    assert {record.speedup.stopped for record in look.records if record.speedup} == {"screened"}
    assert heard.expected == {}
    assert heard.reached
    assert all(0 <= share <= 1 for share in heard.reached)
    assert read_run(look.folder).info.quick == QuickInfo(examples=30, of=40)
    assert read_run(finished.result.folder).info.quick is None
    again = run.run(suite.read(file, ["data.evaluate.at_most=30"], quick=True), **options | {"resume": look.folder})
    assert again.records == look.records
    with pytest.raises(UsageError, match="other --set"):
        go(file, folder, resume=look.folder)


def test_a_killed_parent_leaves_no_child_and_resumes(folder):
    """kill -9 of qbench: every child ends by itself, and --resume finishes the run."""
    (folder / "slow.py").write_text(
        "import time, torch\n"
        "from pathlib import Path\n"
        "def build():\n"
        "    if not Path(__file__).with_name('go').exists():\n"
        "        Path(__file__).with_name('started').touch()\n"
        "        time.sleep(600)\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
    )
    file = write(folder, source="slow.py", factory="build")
    command = [sys.executable, "-m", "qbench", "run", str(file), "--out", str(folder / "reports"), "--quiet"]
    parent = subprocess.Popen(command, cwd=folder, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (folder / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    parent.send_signal(signal.SIGKILL)
    parent.wait(10)
    while members(parent.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert members(parent.pid) == []
    (folder / "go").touch()
    stopped = next(path for path in (folder / "reports/small").iterdir() if not path.is_symlink())
    assert {record.status for record in go(file, folder, resume=stopped).records} == {"ok"}


def members(session):
    """The living processes of a session (a zombie that nobody has waited for is not living)."""
    living = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            living.append(stat.parent.name)
    return living


def test_two_runs_at_once_share_one_cache(folder, tmp_path_factory, monkeypatch):
    """Both end with every case ok, and the cache holds each artifact once."""
    cache_folder = tmp_path_factory.mktemp("shared")
    monkeypatch.setenv("QBENCH_CACHE", str(cache_folder))
    measure_peak(open_cache(), limits=Limits(), call=lambda *args, **options: PEAK)
    file = write(folder)
    command = [sys.executable, "-m", "qbench", "run", str(file), "--quiet", "--out"]
    both = [subprocess.Popen([*command, str(folder / name)], cwd=folder, stdout=subprocess.PIPE) for name in "ab"]
    for process in both:
        process.communicate(timeout=180)
    assert [process.returncode for process in both] == [0, 0]
    keys = [{record.artifact.key for record in jsonl.read(folder / name / "small/latest")} for name in "ab"]
    assert keys[0] == keys[1]
    assert {path.name for path in (cache_folder / "artifacts").iterdir()} == keys[0]


@pytest.fixture(scope="module")
def warm_cache(tmp_path_factory):
    """The cache of a run of fp32 on torch, which tests copy."""
    folder, cache_folder = tmp_path_factory.mktemp("warming"), tmp_path_factory.mktemp("warm")
    write_data(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QBENCH_CACHE", str(cache_folder))
        go(write(folder, backends="[torch]", modes="[fp32]"), folder)
    return cache_folder


@pytest.mark.parametrize("damage", ["artifacts", "weights", "data"])
def test_a_damaged_cache_entry_is_rebuilt_in_passing(folder, warm_cache, monkeypatch, damage):
    """The second run finds a changed file, makes it again, and ends ok."""
    cache_folder = folder / "cache"
    shutil.copytree(warm_cache, cache_folder)
    monkeypatch.setenv("QBENCH_CACHE", str(cache_folder))
    file = write(folder, backends="[torch]", modes="[fp32]")
    entry = next((cache_folder / damage).iterdir())
    victim = next(path for path in sorted(entry.iterdir()) if path.name != "manifest.json")
    victim.write_bytes(b"damaged")
    heard = Heard()
    assert {record.status for record in go(file, folder, progress=heard).records} == {"ok"}
    assert victim.read_bytes() != b"damaged"
    assert any("damaged" in note for note in heard.notes)


def test_ctrl_c_during_a_long_build_stops_at_once_and_fails_nothing(folder):
    """Children at work are ended, no case is recorded as failed, and resuming finishes the run."""
    (folder / "slow.py").write_text(
        "import time, torch\n"
        "from pathlib import Path\n"
        "def build():\n"
        "    if not Path(__file__).with_name('go').exists():\n"
        "        Path(__file__).with_name('started').touch()\n"
        "        time.sleep(600)\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
    )
    file = write(folder, source="slow.py", factory="build")
    command = [sys.executable, "-m", "qbench", "run", str(file), "--out", str(folder / "reports")]
    running = subprocess.Popen(
        command,
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts background jobs with SIGINT ignored, and the tests may run in one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not (folder / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "--resume" in said
    assert "Traceback" not in said
    (stopped,) = (folder / "reports/small").iterdir()  # no `latest`: there is nothing to show yet
    assert not (stopped / jsonl.RECORDS).exists()
    (folder / "go").touch()
    assert {record.status for record in go(file, folder, resume=stopped).records} == {"ok"}


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc, which Linux has")
@pytest.mark.parametrize(
    ("stage", "steps", "number"),
    [("evaluate", 0, signal.SIGTERM), ("measure", 1, signal.SIGINT), ("measure", 1, signal.SIGHUP)],
)
def test_a_signal_ends_what_a_stage_has_started(folder, number, stage, steps):
    """No child is left, and this process may use the same cores; what was recorded can be shown, stays, and is gone on
    with."""
    file = write(folder, modes="[fp32]", backends="[fake], batch_sizes: [1, 2]")
    words = [file, folder / "reports", stage, steps, int(number)]
    with as_a_shell_starts_it():
        running = subprocess.Popen(
            [sys.executable, "-c", "import signalled_run; signalled_run.main()", *map(str, words)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(NETWORKS.parent)))},
            stdout=subprocess.PIPE,
            text=True,
        )
    told, _ = running.communicate(timeout=120)
    facts = json.loads(told)
    stopped = read_run(Path(facts.pop("folder")))
    assert facts == {"interrupted": True, "same_cores": True, "children_left": []}
    assert [record.status for record in stopped.records] == ["ok"] * steps
    assert build_report(stopped.folder).is_file()
    finished = go(file, folder, resume=stopped.folder)
    assert [record.status for record in finished.records] == ["ok"] * 2
    assert list(finished.records[:steps]) == list(stopped.records)


def test_a_full_disk_keeps_what_was_recorded(folder, monkeypatch):
    """When a record cannot be written the run ends with what to do, and earlier records stay."""
    file = write(folder)
    real = jsonl.append
    calls = []

    def full(path, record):
        calls.append(record)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        real(path, record)

    monkeypatch.setattr(jsonl, "append", full)
    with pytest.raises(QbenchError, match=r"No space left on device.*--resume"):
        go(file, folder)
    monkeypatch.undo()
    assert len(jsonl.read(folder / "reports/small/latest")) == 1


def test_a_warm_cache_serves_other_evaluation_examples(folder, finished):
    """The proof of bit-equality does not depend on which examples a suite evaluates."""
    file = write(folder, modes="[fp32]", backends="[torch]")
    read = suite.read(file, ["data.evaluate.samples=7", "data.evaluate.seed=5"])
    options = {"out": folder / "reports", "only": None, "resume": None, "jobs": None, "progress": Silent()}
    again = run.run(read, **options)
    assert [(record.status, record.accuracy.n, record.artifact.cached) for record in again.records] == [("ok", 7, True)]


def test_a_network_that_reads_a_configuration_is_told_apart(folder):
    """Neither code nor weights differ, but what the network gives does: it is another model."""
    (folder / "net.py").write_text(
        "import pathlib, torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self, sign):\n"
        "        super().__init__()\n"
        "        self.head, self.sign = torch.nn.Linear(64, 10), sign\n"
        "    def forward(self, x):\n"
        "        return self.head(torch.flatten(x, 1)) * self.sign\n"
        "def build():\n"
        "    return Net(float(pathlib.Path(__file__).with_name('sign.txt').read_text()))\n"
    )
    file = write(folder, source="net.py", factory="build", modes="[fp32]", backends="[torch]")
    keys = set()
    for sign in ("1", "-1"):
        (folder / "sign.txt").write_text(sign)
        read = suite.read(file)
        context = run.open_run(read, out=folder / "reports", only=None, resume=None, jobs=1, progress=Silent())
        built = build_stage.build_variants(context, prepare(context, read))
        keys.add(built["mine/fp32/torch"].artifact.key)
    assert len(keys) == 2


def lose(run_folder, case):
    """Takes one case's record out, as a kill before it would have."""
    records = run_folder / jsonl.RECORDS
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(line for line in lines if case not in line))


def test_resuming_with_another_network_is_refused(folder):
    """Two models in one run would be compared as one."""
    (folder / "net.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
    )
    file = write(folder, source="net.py", factory="build")
    first = go(file, folder, progress=Interrupting("build"))
    source = (folder / "net.py").read_text()
    (folder / "net.py").write_text(source.replace("torch.nn.Flatten()", "torch.nn.Flatten(), torch.nn.ReLU()"))
    with pytest.raises(UsageError, match="model mine changed since this run was started"):
        go(file, folder, resume=first.folder)


def test_a_baseline_that_breaks_on_resume_takes_its_contenders_along(finished, monkeypatch):
    """The contender fails with the reason; the baseline's record of before stays."""
    first = finished.result
    lose(first.folder, "static/onednn")
    real = build_stage.build

    def broken(variant, **options):
        if variant.mode == "fp32":
            raise CaseError("no more")
        return real(variant, **options)

    monkeypatch.setattr(build_stage, "build", broken)
    again = by_case(go(finished.file, finished.folder, resume=first.folder))
    assert again["fp32/torch/t1/b1"].status == "ok"
    assert "has no result: no more" in again["static/onednn/t1/b1"].reason


def test_nothing_to_run_is_a_usage_error(folder):
    """An empty matrix is not a success."""
    file = write(folder, modes="[static]", backends="[torch]")
    with pytest.raises(UsageError, match="nothing to run"):
        go(file, folder)


def test_a_killed_race_goes_on_where_it_was_kept(folder, monkeypatch):
    """A kill in the last of four generations costs that one: the resumed run does not measure the others again, and
    every record still says what its process observed."""
    from qbench.measure import samples
    from qbench.measure.generation import Generation

    read = suite.read(write(folder), ["measure.processes=3"])
    options = {"out": folder / "reports", "only": None, "jobs": None, "progress": Silent()}
    real = Generation.run
    numbers = []

    def counted(generation):
        numbers.append(generation.number)
        if len(numbers) == 4:
            raise KeyboardInterrupt
        real(generation)

    monkeypatch.setattr(Generation, "run", counted)
    stopped = run.run(read, resume=None, **options)
    assert stopped.interrupted
    again = run.run(read, resume=stopped.folder, **options)
    assert numbers == [0, 1, 2, 3, 3]
    stored = samples.load(again.folder / by_case(again)["static/onednn/t1/b1"].samples)
    assert sorted(set(stored.process.tolist())) == [0, 1, 2, 3]
    assert all(record.observed for record in again.records)


def test_a_mode_that_a_network_cannot_have_is_skipped_with_its_reason(folder):
    """Dynamic quantization of a network without Linear, LSTM and GRU is no failure: the run ends in 0."""
    (folder / "convolutions.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.Conv2d(1, 10, 3), nn.ReLU(), nn.Conv2d(10, 10, 6), nn.Flatten())\n"
    )
    file = write(folder, source="convolutions.py", factory="build", modes="[fp32, dynamic]")
    result = go(file, folder)
    skipped = by_case(result)["dynamic/onednn/t1/b1"]
    assert (skipped.status, skipped.stage, result.exit_code) == ("skipped", "build", 0)
    assert skipped.reason == (
        "dynamic quantization covers Linear, LSTM and GRU layers, and this model has none; use static instead"
    )


# --- without an engine ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statuses", "interrupted", "code"),
    [((), False, 0), (("ok", "skipped"), False, 0), (("ok", "failed"), False, 1), (("failed",), True, 130)],
)
def test_the_exit_code_is_that_of_the_worst(statuses, interrupted, code):
    """What is skipped with a reason is no failure; an interrupted run is neither."""
    records = [schema.Record(case=CASE, status=status) for status in statuses]
    assert run.RunResult(folder=Path(), records=records, elapsed_seconds={}, interrupted=interrupted).exit_code == code


PLAIN = """\
suite: s
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [fp32], backends: [fake], threads: [1, 3]}
"""


def open_plain(tmp_path, monkeypatch, *, more="", jobs=None, fleet=None, resume=None, heard=None):
    """What the stages of a run on a machine of four cores are given."""
    monkeypatch.setattr(run.fingerprint, "allowed_cores", lambda root=None: (0, 1, 2, 3))
    return run.open_run(
        suite.parse(PLAIN + more, file="s.yaml"), out=tmp_path, only=None, resume=resume, jobs=jobs,
        progress=heard or Silent(), fleet=fleet,
    )  # fmt: skip


def count_slots(place):
    """How many processes may work at a place."""
    count = 0
    while place.slots.take_spare():
        count += 1
    return count


def make_nodes(*, cores, home, places=9):
    """A cluster with so many places; a node of the class of this machine has ``home`` cores (None: there is none)."""
    return SimpleNamespace(
        home=None if home is None else SimpleNamespace(cores=home), cores_by_host={}, places=places,
        own=SimpleNamespace(cores=tuple(range(cores))),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "nodes", "expected"),
    [
        (None, None, (4, 4)),
        (2, None, (2, 2)),
        (9, None, (9, 9)),
        (None, {"cores": 2, "home": None}, (9, 2)),
        (1, {"cores": 2, "home": None}, (1, 1)),
    ],
)
def test_as_many_things_happen_as_there_are_places(tmp_path, monkeypatch, jobs, nodes, expected):
    """A core each, or those of the nodes; what happens on this machine is no more than its cores then."""
    context = open_plain(tmp_path, monkeypatch, jobs=jobs, fleet=None if nodes is None else make_nodes(**nodes))
    assert (context.jobs, count_slots(context.here)) == expected


@pytest.mark.parametrize(("home", "threads"), [(None, {1, 3}), (2, {1}), (8, {1, 3})])
def test_a_case_takes_no_more_threads_than_where_it_is_native(tmp_path, monkeypatch, home, threads):
    """On the nodes that are like this machine, and here."""
    fleet = make_nodes(cores=4, home=home)
    context = open_plain(tmp_path, monkeypatch, fleet=fleet)
    assert {planned.case.threads for planned in context.tracker.planned} == threads
    assert [record.status for record in context.directory.records()] == ["skipped"] * (len({1, 3} - threads))


def test_stages_are_given_what_the_suite_says(tmp_path, monkeypatch):
    """The limits of a child, whether QAT is trained, and how many examples are emulated."""
    more = "limits: {stage_seconds: 77, memory_bytes: 3000000000, train_qat: false}\nevaluate: {emulated_samples: 5}\n"
    context = open_plain(tmp_path, monkeypatch, more=more)
    assert (context.limits.seconds, context.limits.memory_bytes) == (77, 3_000_000_000)
    assert (context.train_qat, context.emulated_samples, context.fleet) == (False, 5, None)


@pytest.mark.parametrize("layers", [True, False])
def test_the_stages_come_in_their_order(tmp_path, monkeypatch, layers):
    """Each is given what the ones before gave; numbers of layers are kept where the suite asks, and what is imported
    ahead is there before anything is timed."""
    done, heard = [], Heard()
    context = open_plain(tmp_path, monkeypatch, more=f"evaluate: {{layers: {layers}}}\n", heard=heard)
    context.tracker.done.add("digits-cnn/fp32/fake/t1/b1")
    monkeypatch.setattr(run, "import_ahead", lambda names: SimpleNamespace(join=lambda: done.append("join")))
    for name in ("warn_of_guessing", "keep_flip_images", "keep_layer_numbers"):
        monkeypatch.setattr(run, name, lambda *given, name=name: done.append(name))
    for name in ("prepare", "read_hosts", "build_variants", "evaluate", "compare_runtimes", "name_layers"):
        monkeypatch.setattr(run, name, lambda *given, name=name: done.append(name) or f"by {name}")
    monkeypatch.setattr(run, "measure", lambda *given: done.append(given[2:]) or [])
    elapsed = {}
    run._run_stages(context, suite.parse(PLAIN + f"evaluate: {{layers: {layers}}}\n"), elapsed)
    assert list(elapsed) == ["prepare", "build", "evaluate", "measure"]
    assert all(0 <= seconds < 60 for seconds in elapsed.values())
    assert done == [
        "prepare", "join", "read_hosts", "build_variants", "evaluate", "warn_of_guessing", "compare_runtimes",
        "name_layers", "keep_flip_images", *(["keep_layer_numbers"] if layers else []),
        ("by prepare", "by build_variants", "by name_layers"),
    ]  # fmt: skip
    assert heard.notes == ["1 of 2 cases are done already"]


def test_a_run_without_open_cases_ends_after_its_first_stage(tmp_path, monkeypatch):
    """Nothing is built; the seconds of a stage are kept also where it is interrupted."""
    context, elapsed = open_plain(tmp_path, monkeypatch), {}
    monkeypatch.setattr(run, "import_ahead", lambda names: SimpleNamespace(join=lambda: None))
    monkeypatch.setattr(run, "prepare", lambda *given: None)
    run._run_stages(context, suite.parse(PLAIN), elapsed)
    assert list(elapsed) == ["prepare"]

    def stop(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "prepare", stop)
    elapsed.clear()
    with pytest.raises(KeyboardInterrupt):
        run._run_stages(context, suite.parse(PLAIN), elapsed)
    assert list(elapsed) == ["prepare"]
