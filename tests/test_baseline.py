"""Rules of qbench/baseline.py."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from made_records import CASE, FP32, RUN_V1, failed, fp32, info, int8, skipped

from qbench import record as records_file
from qbench.baseline import info_file, read_baseline, write_baseline
from qbench.errors import UsageError
from qbench.record import Record
from qbench.stored import RunInfo, read_run


def run_folder(path: Path, records: list[Record], described: RunInfo) -> Path:
    """A run on disk."""
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps(asdict(described)), encoding="utf-8")
    records_file.write(path / "records.jsonl", records)
    return path


def test_a_baseline_reads_back_as_the_run(tmp_path: Path) -> None:
    """Records and description survive, sorted by case, without paths into the run's folder."""
    folder = run_folder(tmp_path / "run", [int8(samples="samples/x.npz"), fp32()], info((CASE, FP32)))
    file = write_baseline(folder, tmp_path / "baselines")
    assert file == tmp_path / "baselines" / "demo.jsonl"
    found = read_baseline(file)
    assert [record.case.id for record in found.records] == [FP32, CASE]
    assert found.records[1] == int8()
    assert found.info == info((CASE, FP32))


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    """Order of records does not matter, and nothing depends on when or where it is written."""
    one = write_baseline(run_folder(tmp_path / "a", [int8(), fp32()], info()), tmp_path / "x" / "one.jsonl")
    two = write_baseline(run_folder(tmp_path / "b", [fp32(), int8()], info()), tmp_path / "y")
    assert one.read_bytes() == two.read_bytes()
    assert info_file(one).read_bytes() == info_file(two).read_bytes()
    assert sorted(path.name for path in one.parent.iterdir()) == ["one.jsonl", "one.run.json"]


@pytest.mark.parametrize(
    ("records", "planned", "said"),
    [
        ([int8(), failed("net/qat/x86/t1/b1")], (), "net/qat/x86/t1/b1: the worker was killed"),
        ([int8()], (CASE, "net/qat/x86/t1/b1"), "net/qat/x86/t1/b1: no record"),
    ],
)
def test_a_run_that_is_not_whole_is_refused_unless_allowed(
    tmp_path: Path, records: list[Record], planned: tuple[str, ...], said: str
) -> None:
    """Failed and missing cases are named; ``allow_failed`` takes them."""
    folder = run_folder(tmp_path / "run", records, info(planned))
    with pytest.raises(UsageError, match=said):
        write_baseline(folder, tmp_path)
    assert write_baseline(folder, tmp_path, allow_failed=True).exists()


def test_a_run_without_any_ok_case_is_never_a_baseline(tmp_path: Path) -> None:
    """Nothing could be held against it."""
    folder = run_folder(tmp_path / "run", [skipped()], info())
    with pytest.raises(UsageError, match="no case of this run is ok"):
        write_baseline(folder, tmp_path, allow_failed=True)


def test_a_missing_baseline_says_what_to_do(tmp_path: Path) -> None:
    """Neither the file nor the description beside it may be absent."""
    with pytest.raises(UsageError, match="qbench baseline RUN"):
        read_baseline(tmp_path / "demo.jsonl")
    records_file.write(tmp_path / "demo.jsonl", [int8()])
    with pytest.raises(UsageError, match=r"demo\.run\.json: missing"):
        read_baseline(tmp_path / "demo.jsonl")


def test_an_unwritable_target_is_a_usage_error(tmp_path: Path) -> None:
    """A target under a file cannot be made, and the message names it."""
    folder = run_folder(tmp_path / "run", [int8()], info())
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_baseline(folder, tmp_path / "file" / "baselines")


def test_a_run_of_schema_1_is_read() -> None:
    """The run that qbench 0.1 left is read whole: records, samples, predictions, per-example values."""
    run = read_run(RUN_V1)
    assert len(run.records) == 14
    record = run.by_id["digits-cnn/static/onednn/t1/b1"]
    assert run.samples(record)["calls_ns"].shape == (400,)
    assert run.predictions(record)["outputs"].shape == (450, 10)
    assert run.info.metric is not None
    assert run.info.metric.scale == 100


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not the description of a run"),
        ("[]", "not the description of a run"),
        ('{"schema": 99}', "install a newer qbench"),
        ('{"schema": 1}', "suite: Field required"),
        ('{"schema": 1, "suite": {"name": 3}}', "suite.name"),
    ],
)
def test_a_bad_description_is_named(tmp_path: Path, text: str, said: str) -> None:
    """What is wrong in run.json is said with the file and the field."""
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UsageError, match=said):
        read_run(tmp_path)


def test_arrays_are_read_from_the_run_folder_alone(tmp_path: Path) -> None:
    """A record cannot name a file outside its run, and a damaged file is an error that says what to do."""
    (tmp_path / "secret.npz").write_bytes(b"")
    folder = run_folder(tmp_path / "run", [int8(samples="../secret.npz", predictions="bad.npz")], info())
    (folder / "bad.npz").write_bytes(b"not an archive")
    run = read_run(folder)
    assert run.samples(run.records[0]) == {}
    with pytest.raises(UsageError, match="delete it to go on without"):
        run.predictions(run.records[0])


def test_a_run_without_records_yet_has_none(tmp_path: Path) -> None:
    """A run that was killed before its first case can still be read."""
    folder = run_folder(tmp_path / "run", [], info())
    (folder / "records.jsonl").unlink()
    assert read_run(folder).records == ()
    with pytest.raises(UsageError, match="no such folder"):
        read_run(tmp_path / "nowhere")
