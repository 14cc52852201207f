"""Artifacts of a run that another machine made, answered here: by their bytes, on the same examples, or not at all."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from made_records import fp32, info, int8

from qbench import suite
from qbench.cache.store import open_cache
from qbench.data import request_of
from qbench.data_preparation import prepare_data
from qbench.errors import CaseError, UsageError
from qbench.gating.baseline import artifact_file, write_baseline
from qbench.gating.baseline import locate_artifacts as keep_artifacts
from qbench.hosts.base import KernelView
from qbench.machine.peak import Peak
from qbench.portability import here
from qbench.portability.compare_hosts import compare_hosts
from qbench.portability.here import GONE, _list_artifacts, _require_same_examples, answer_here
from qbench.process.child_process import Limits
from qbench.progress.live import Silent
from qbench.record.schema import HostFacts, read_case_id
from qbench.record.stored_run import StoredRun, read_run
from qbench.report.build import judge
from qbench.running import run

NETWORKS = Path(__file__).parent.parent / "fixtures" / "networks.py"
TEXT = f"""
suite: carried
models: [{{name: loud, source: {{python: "{NETWORKS}:loud"}}}}]
data: {{dataset: {{npz: data.npz}}, calibrate: {{samples: 32}}}}
matrix: {{modes: [static], backends: [qnnpack]}}
measure: {{max_seconds: 0.2, precision: 20%, processes: 1, cold_starts: 1}}
"""
LIMITS = Limits(seconds=120)
PEAK = Peak(
    fp32_flops_per_second=1e11, fp32_kernel="made up", fp32_size=1, int8_ops_per_second=4e11, int8_kernel="made up",
    int8_size=1, core=None, seconds=0.0, versions={},
)  # fmt: skip


def prepare(folder, root):
    """The suite's data in a cache."""
    read = suite.read(folder / "s.yaml")
    return prepare_data(request_of(read.data, read.base, train=False), root, progress=lambda *_: None)


@pytest.fixture(scope="module")
def carried(tmp_path_factory):
    """The folder of a run, of its suite and of the artifacts that were kept beside a baseline, and the baseline."""
    folder = tmp_path_factory.mktemp("carried")
    rng = np.random.default_rng(0)
    images, labels = rng.uniform(0.7, 1.0, (48, 64)).astype(np.float32), np.arange(48) % 10
    np.savez(folder / "data.npz", train_inputs=images[:32], train_labels=labels[:32], test_inputs=images[32:],
             test_labels=labels[32:])  # fmt: skip
    (folder / "s.yaml").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QBENCH_CACHE", str(folder / "there"))
        patch.setattr("qbench.machine.peak.measure_peak", lambda *args, **options: PEAK)
        read = suite.read(folder / "s.yaml")
        result = run.run(read, out=folder / "reports", only=None, resume=None, jobs=1, progress=Silent())
        file = write_baseline(result.folder, folder / "kept")
        assert keep_artifacts(file, keep=True).missing == ()
        shutil.rmtree(folder / "there")
    return folder, read_run(result.folder), file


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Another machine's cache: nothing of the run lies in it."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "here"))


def answer(carried, find_file, data=None):
    """The run with the answers of here."""
    folder, stored, _ = carried
    root = open_cache()
    return answer_here(
        stored, data or prepare(folder, root), find_file, root=root, limits=LIMITS, progress=lambda *_: None
    )


def test_a_kept_artifact_answers_here_as_it_did_there(carried):
    """The same bytes on the same machine give the same bits, by the way that another machine goes."""
    answered = answer(carried, lambda record: artifact_file(record, beside=carried[2]))
    (artifact,) = compare_hosts(answered, judge(answered))
    native, here = artifact.hosts
    assert (native.host, here.host, here.status) == ("native", "here", "ok")
    assert here.outputs is not None
    assert here.outputs.same_bits
    assert here.p50_seconds is None
    assert here.facts is not None
    assert here.facts.cpu


def test_what_is_not_named_is_not_run(carried):
    """Without the file that names them, artifacts beside a baseline stay where they are."""
    answered = answer(carried, lambda record: artifact_file(record, beside=None))
    assert [(record.status, record.reason) for record in answered.records if record.case.host == "here"] == [
        ("skipped", GONE)
    ]


def test_a_damaged_artifact_is_a_failure_with_its_reason(carried, tmp_path):
    """Whatever the machine that kept it said of it."""
    folder = tmp_path / "kept"
    shutil.copytree(carried[2].with_suffix(""), folder)
    (file,) = folder.glob("*/model.pt")
    file.write_bytes(b"no model")
    answered = answer(carried, lambda record: file)
    (here,) = (record for record in answered.records if record.case.host == "here")
    assert here.status == "failed"
    assert "not an artifact that qbench kept" in str(here.reason)


def test_other_examples_are_refused(carried, tmp_path):
    """Answers to other questions cannot be compared."""
    root = open_cache()
    data = prepare(carried[0], root)
    other = tmp_path / "other"
    shutil.copytree(data.folder, other)
    np.save(other / "evaluate_contents.npy", np.load(other / "evaluate_contents.npy")[::-1])
    with pytest.raises(UsageError, match="other evaluation examples"):
        answer(carried, lambda record: artifact_file(record, beside=carried[2]), replace(data, folder=other))


@pytest.mark.parametrize(
    ("stored", "here", "same"),
    [
        ({"contents": np.array([1, 2]), "ids": np.array(["a", "b"])}, np.array([1, 2]), True),
        ({"contents": np.array([1, 2]), "ids": np.array(["a", "b"])}, np.array([2, 1]), False),
        ({"contents": np.array([1, 2]), "ids": np.array(["a", "b"])}, None, True),
        ({"ids": np.array(["a", "b"])}, np.array([1, 2]), True),
        ({"ids": np.array(["b", "a"])}, np.array([1, 2]), False),
        ({"ids": np.array(["a", "b"])}, None, True),
        ({}, None, False),
    ],
)
def test_examples_are_the_same_by_what_they_hold_or_else_by_name(stored, here, same):
    """Where either side does not tell what its examples hold, as runs of before do not, their names in order count."""
    run = SimpleNamespace(predictions=lambda record: stored, folder="run")
    data = SimpleNamespace(evaluation_contents=lambda: here, evaluation_ids=lambda: ("a", "b"))
    if same:
        _require_same_examples(run, None, data)
    else:
        with pytest.raises(UsageError, match="of other evaluation examples"):
            _require_same_examples(run, None, data)


def test_an_artifact_answers_once_and_a_dynamic_one_by_the_batch():
    """Static ones answer alike at any batch size and on any number of threads; fp32, answers of another host, and what
    failed or left no file, are none."""
    cases = ["net/static/onednn/t1/b1", "net/static/onednn/t2/b8", "net/dynamic/onednn/t1/b1",
             "net/dynamic/onednn/t2/b1", "net/dynamic/onednn/t1/b8"]  # fmt: skip
    records = [int8(case) for case in cases]
    others = [
        fp32("net/fp32/torch/t1/b1"),
        replace(records[0], case=read_case_id(f"{cases[0]}/avx2")),
        replace(int8("net/static/fbgemm/t1/b1"), status="failed"),
        replace(int8("net/static/qnnpack/t1/b1"), artifact=None),
    ]
    listed = _list_artifacts(SimpleNamespace(records=[*others, *records]))
    assert [record.case.id for record in listed] == [cases[0], cases[2], cases[4]]
    of_other_bytes = replace(records[1], artifact=replace(records[1].artifact, sha256="f" * 64))
    assert _list_artifacts(SimpleNamespace(records=[records[0], of_other_bytes])) == [records[0], of_other_bytes]


def test_each_artifact_is_asked_once_and_each_backend_told_once(monkeypatch, tmp_path):
    """Anew, in batches of its record's, in a folder that does not stay; the figures of the other machine are none of
    this one's, and a failure keeps no other from its answers."""
    cases = ["net/static/onednn/t1/b8", "net/dynamic/onednn/t1/b1", "net/static/x86/t1/b1", "net/qat/x86/t1/b1"]
    records = [int8(case) for case in cases]
    asked, told, heard, folders = [], [], [], []

    def read_kernels(backend, *, environment, limits):
        told.append((backend, environment, limits))
        if backend == "x86":
            raise CaseError("no engine")
        return KernelView(torch_isa="T", onednn_isa="O", mkl_isa="M", int8_sums="16 bits")

    def predict_cached(artifact, data, batch_size, file, *, same_answers, root, limits, progress):
        asked.append((artifact, batch_size, same_answers, root, limits))
        folders.append(file.parent)
        np.savez(file, outputs=np.full((2, 3), batch_size), labels=[0, 1], ids=["a", "b"])

    monkeypatch.setattr(here, "read_kernels", read_kernels)
    monkeypatch.setattr(here, "predict_cached", predict_cached)
    monkeypatch.setattr(here, "read_kept", lambda file, record: (file, record.case.id))
    monkeypatch.setattr(here.fingerprint, "cpu_model", lambda: "CPU C")
    data = SimpleNamespace(evaluation_contents=lambda: None, evaluation_ids=lambda: ("a", "b"))
    run = StoredRun(folder=tmp_path, info=info(), records=tuple(records))
    monkeypatch.setattr(StoredRun, "predictions", lambda self, record: {"ids": np.array(["a", "b"])})
    answered = answer_here(
        run,
        data,
        lambda record: tmp_path / "file",
        root=tmp_path,
        limits=LIMITS,
        progress=lambda *said: heard.append(said),
    )
    assert asked == [((tmp_path / "file", case), batch, False, tmp_path, LIMITS) for case, batch in
                     zip(cases[:2], (8, 1), strict=True)]  # fmt: skip
    assert told == [("onednn", {}, LIMITS), ("x86", {}, LIMITS), ("x86", {}, LIMITS)]
    assert heard == [(f"{case} here", 0.0) for case in cases]
    assert not any(folder.exists() for folder in folders)
    added = answered.records[len(records) :]
    assert [record.case.id for record in added] == [f"{case}/here" for case in cases]
    assert [record.status for record in added] == ["ok", "ok", "failed", "failed"]
    assert added[2].reason == "does not run here: no engine"
    assert added[0].host == HostFacts(
        kind="native", cpu="CPU C", torch_isa="T", onednn_isa="O", mkl_isa="M", int8_sums="16 bits"
    )
    assert {each.latency for each in added} == {each.speedup for each in added} == {None}
    assert [answered.predictions(each).get("outputs") is not None for each in added] == [True, True, False, False]
    assert answered.predictions(added[0])["outputs"].tolist() == [[8] * 3] * 2
