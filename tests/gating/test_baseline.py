"""Rules of qbench/gating/baseline.py."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_records import CASE, FP32, RUN_V1, failed, fp32, info, int8, skipped
from made_runs import run_folder

from qbench.cache import store
from qbench.errors import UsageError
from qbench.gating import baseline
from qbench.gating.baseline import artifact_file, info_file, locate_artifacts, read_baseline, to_text, write_baseline
from qbench.record import jsonl
from qbench.record.locate import committed_baseline
from qbench.record.schema import ArtifactFacts, Record
from qbench.record.stored_run import PlanInfo, QuickInfo, SuiteInfo, read_run


def test_a_baseline_reads_back_as_the_run(tmp_path: Path) -> None:
    """Records and description survive, sorted by case, without paths into the run's folder."""
    folder = run_folder(tmp_path / "run", [int8(samples="samples/x.npz"), fp32()], info((CASE, FP32)))
    file = write_baseline(folder, tmp_path / "baselines")
    assert file == tmp_path / "baselines" / "demo.jsonl"
    stored = read_baseline(file)
    assert [record.case.id for record in stored.records] == [FP32, CASE]
    was, kept = int8(), stored.records[1]
    assert (kept.case, kept.status) == (was.case, was.status)
    assert (kept.artifact, kept.speedup) == (was.artifact, was.speedup)
    assert kept.accuracy is not None
    assert was.accuracy is not None
    assert kept.accuracy.value == pytest.approx(was.accuracy.value, abs=1e-6)
    assert stored.info == info((CASE, FP32))


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    """Order of records does not matter, and nothing depends on when or where it is written."""
    first = write_baseline(run_folder(tmp_path / "a", [int8(), fp32()], info()), tmp_path / "x" / "one.jsonl")
    two = write_baseline(run_folder(tmp_path / "b", [fp32(), int8()], info()), tmp_path / "y")
    assert first.read_bytes() == two.read_bytes()
    assert info_file(first).read_bytes() == info_file(two).read_bytes()
    assert sorted(path.name for path in first.parent.iterdir()) == ["one.jsonl", "one.run.json"]


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


def test_a_quick_look_is_never_a_baseline(tmp_path: Path) -> None:
    """Not even where failed cases are allowed; the message says what to run."""
    look = replace(info((CASE,)), quick=QuickInfo(examples=50, of=500))
    folder = run_folder(tmp_path / "run", [int8()], look)
    with pytest.raises(UsageError, match="without --quick: `qbench run"):
        write_baseline(folder, tmp_path, allow_failed=True)


def test_a_missing_baseline_says_what_to_do(tmp_path: Path) -> None:
    """Neither the file nor the description beside it may be absent."""
    with pytest.raises(UsageError, match="qbench baseline RUN"):
        read_baseline(tmp_path / "demo.jsonl")
    jsonl.write(tmp_path / "demo.jsonl", [int8()])
    with pytest.raises(
        UsageError,
        match=r"demo\.run\.json: missing: .*; take it from where it was committed, or .*`qbench baseline RUN`$",
    ):
        read_baseline(tmp_path / "demo.jsonl")


def test_an_empty_baseline_is_said(tmp_path: Path) -> None:
    """A file that was cut to nothing would make every case a new one."""
    file = write_baseline(run_folder(tmp_path / "run", [int8(), fp32()], info()), tmp_path / "baselines")
    file.write_text("")
    with pytest.raises(UsageError, match=r"demo\.jsonl: no case stands in it; .*`qbench baseline RUN`$"):
        read_baseline(file)


@pytest.mark.parametrize("name", ["../../home/train", "/tmp/train", "..", "a\\b", "", "-x", "a\nb"])
def test_a_baseline_lands_nowhere_but_where_it_is_asked_for(tmp_path: Path, name: str) -> None:
    """The suite's name in a run's folder is data of whoever made it: one that is a path is refused before anything is
    written, by what writes baselines and by what looks for them."""
    folder = run_folder(tmp_path / "run", [fp32(), int8()], replace(info(), suite=SuiteInfo(name=name)))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=r"run\.json: suite\.name: .*so it is no name of a file"):
        write_baseline(folder, tmp_path / "baselines")
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(ValueError, match="no name of a file"):
        committed_baseline(name, tmp_path)


# --- the artifacts that a gate runs again --------------------------------------------------------------------


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Record, str], Record]:
    """Puts an artifact of two files into a cache of the test's own; the record that names it."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))

    def put(record: Record, text: str) -> Record:
        def fill(folder: Path) -> dict[str, str]:
            (folder / "model.onnx").write_text(text)
            (folder / "weights.bin").write_text(f"weights of {text}")
            return {"file": "model.onnx"}

        key = store.key_of({"artifact": text})
        entry = store.fetch(store.open_cache(), "artifacts", key, fill)
        sha256 = store.file_digest(entry.folder / "model.onnx")
        return replace(record, artifact=ArtifactFacts(format="onnx", sha256=sha256, size_bytes=len(text), key=key))

    return put


Cached = Callable[[Record, str], Record]


def written(tmp_path: Path, records: list[Record]) -> Path:
    """A baseline of those records."""
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    return write_baseline(run_folder(folder, records, info()), tmp_path / "baselines")


def test_artifacts_stay_in_the_cache_unless_asked_for(tmp_path: Path, cached: Cached) -> None:
    """They may be large: nothing is put beside the baseline, and they are found where the run left them."""
    record = cached(int8(), "one")
    file = written(tmp_path, [fp32(), record])
    stored = locate_artifacts(file, keep=False)
    assert (stored.available, stored.missing, stored.folder) == (1, (), None)
    assert sorted(path.name for path in file.parent.iterdir()) == ["demo.jsonl", "demo.run.json"]
    assert artifact_file(record, beside=file) is not None
    assert "1 of 1, in the cache" in to_text(stored)


def test_the_artifact_of_a_case_that_failed_is_never_run_again(tmp_path: Path, cached: Cached) -> None:
    """It is neither counted nor kept; what a plan had to note is no part of a baseline either."""
    broken = replace(cached(int8("net/qat/x86/t1/b1"), "two"), status="failed", reason="it does not load")
    described = info(plan=PlanInfo(cases=(CASE,), notes=("a note",)))
    folder = run_folder(tmp_path / "run", [cached(int8(), "one"), broken], described)
    file = write_baseline(folder, tmp_path / "baselines", allow_failed=True)
    assert locate_artifacts(file, keep=True).available == 1
    assert len(list((file.parent / "demo").iterdir())) == 1
    assert read_baseline(file).info.plan.notes == ()


def test_kept_artifacts_outlive_the_cache(tmp_path: Path, cached: Cached) -> None:
    """Copies lie under their sha256 with every file of theirs; fp32 is never run again and not copied."""
    record = cached(int8(), "one")
    file = written(tmp_path, [cached(fp32(), "fp32"), record])
    stored = locate_artifacts(file, keep=True)
    assert record.artifact is not None
    assert [path.name for path in (file.parent / "demo").iterdir()] == [record.artifact.sha256]
    shutil.rmtree(tmp_path / "cache")
    copy = artifact_file(record, beside=file)
    assert copy is not None
    assert copy.read_text() == "one"
    assert (copy.parent / "weights.bin").read_text() == "weights of one"
    assert stored.folder == file.parent / "demo"
    assert stored.size_bytes == sum(path.stat().st_size for path in copy.parent.iterdir())
    before = copy.parent.stat().st_ino
    assert locate_artifacts(file, keep=True) == stored
    assert copy.parent.stat().st_ino == before  # what lies there is not copied anew


def test_a_new_baseline_takes_its_former_artifacts_away(tmp_path: Path, cached: Cached) -> None:
    """Beside a baseline lie exactly its own; what is no artifact is left alone."""
    first = written(tmp_path, [cached(int8(), "one")])
    locate_artifacts(first, keep=True)
    (first.parent / "demo" / "notes.txt").write_text("mine")
    record = cached(int8(), "two")
    file = written(tmp_path, [record])
    locate_artifacts(file, keep=True)
    assert record.artifact is not None
    assert {path.name for path in (file.parent / "demo").iterdir()} == {record.artifact.sha256, "notes.txt"}


def test_each_artifact_is_copied_that_does_not_lie_there_yet(tmp_path: Path, cached: Cached) -> None:
    """Also behind one that does; both are counted, with their size and the folder to commit."""
    first, second = cached(int8(), "one"), cached(int8("net/qat/x86/t1/b1"), "two")
    locate_artifacts(written(tmp_path, [second]), keep=True)
    stored = locate_artifacts(written(tmp_path, [first, second]), keep=True)
    folder = tmp_path / "baselines" / "demo"
    names = {record.artifact.sha256 for record in (first, second) if record.artifact is not None}
    assert {path.name for path in folder.iterdir()} == names
    text = to_text(stored)
    assert f"again: 2 of 2, in {folder} (" in text
    assert "; commit them, or let CI cache them" in text


def test_the_description_is_made_to_be_read_in_a_review(tmp_path: Path) -> None:
    """Sorted keys on lines of their own, by one blank a level; letters are letters, and NaN is an error."""
    described = info((CASE,), environment={"cpu": "Prozessor für Öfen"})
    text = info_file(write_baseline(run_folder(tmp_path / "run", [int8()], described), tmp_path)).read_text()
    assert '\n "environment": {\n  "cpu": "Prozessor für Öfen"\n },\n' in text
    keys = list(json.loads(text))
    assert keys == sorted(keys)
    run = read_run(tmp_path / "run")
    unreal = replace(run, info=replace(run.info, environment={"share": float("nan")}))
    with pytest.raises(ValueError, match="not JSON compliant"):
        baseline._write_info(tmp_path / "x.run.json", unreal)


def test_only_copies_that_qbench_made_go(tmp_path: Path, cached: Cached) -> None:
    """A folder beside the baseline that has a manifest.json, one named like a hash, and what a link leads to are not
    former copies; nor is a former copy in which somebody has put a file."""
    first = written(tmp_path, [cached(int8(), "one")])
    locate_artifacts(first, keep=True)
    target = first.parent / "demo"
    (copy,) = target.iterdir()
    shutil.copytree(copy, tmp_path / "elsewhere" / copy.name)
    (copy / "notes.txt").write_text("mine")
    for name in ("extension", "a" * 64):
        (target / name).mkdir()
        (target / name / store.MANIFEST).write_text("{}")
    (target / ("b" * 64)).symlink_to(tmp_path / "elsewhere" / copy.name)
    locate_artifacts(written(tmp_path, [cached(int8(), "two")]), keep=True)
    assert len(list(target.iterdir())) == 5
    assert (copy / "model.onnx").exists()
    assert (tmp_path / "elsewhere" / copy.name / "model.onnx").exists()


def test_a_damaged_copy_is_made_again_unless_somebody_put_a_file_there(tmp_path: Path, cached: Cached) -> None:
    """The files that the manifest lists are qbench's; any other is named, and all stays as it is."""
    file = written(tmp_path, [cached(int8(), "one")])
    locate_artifacts(file, keep=True)
    (copy,) = (file.parent / "demo").iterdir()
    (copy / "weights.bin").write_text("damaged")
    locate_artifacts(file, keep=True)
    assert (copy / "weights.bin").read_text() == "weights of one"
    (copy / "weights.bin").write_text("damaged")
    (copy / "notes.txt").write_text("mine")
    with pytest.raises(
        UsageError, match=r"did not put there; move it away \(notes\.txt does not belong to it\)"
    ) as raised:
        locate_artifacts(file, keep=True)
    assert str(raised.value).startswith(f"{copy}: cannot be written: ")
    assert (copy / "weights.bin").read_text() == "damaged"


def test_nothing_is_copied_behind_a_link(tmp_path: Path, cached: Cached) -> None:
    """The folder of copies is qbench's own or none."""
    file = written(tmp_path, [cached(int8(), "one")])
    (tmp_path / "elsewhere").mkdir()
    (file.parent / "demo").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="demo: cannot be written: it is a link"):
        locate_artifacts(file, keep=True)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_examples_that_are_none_are_left(tmp_path: Path) -> None:
    """A run without predictions takes the examples of a former baseline away, and no other file of that name."""
    folder = run_folder(tmp_path / "run", [int8()], info())
    (tmp_path / "demo.examples.json").write_text("mine")
    with pytest.raises(UsageError, match=r"demo\.examples\.json"):
        write_baseline(folder, tmp_path)
    assert (tmp_path / "demo.examples.json").read_text() == "mine"


def test_a_missing_artifact_is_named(tmp_path: Path, cached: Cached) -> None:
    """The case whose artifact a clean has taken is said when the baseline is written, not only at the gate."""
    record = cached(int8(), "one")
    file = written(tmp_path, [record])
    shutil.rmtree(tmp_path / "cache")
    stored = locate_artifacts(file, keep=False)
    assert (stored.available, stored.missing) == (0, (CASE,))
    assert CASE in to_text(stored)


@pytest.mark.parametrize("name", ["model.onnx", "weights.bin", store.MANIFEST])
def test_an_artifact_that_was_changed_is_none(tmp_path: Path, cached: Cached, name: str) -> None:
    """A copy must have the record's sha256, and its other files those of its manifest: else it is not loaded."""
    record = cached(int8(), "one")
    file = written(tmp_path, [record])
    locate_artifacts(file, keep=True)
    assert record.artifact is not None
    shutil.rmtree(tmp_path / "cache")
    (file.parent / "demo" / record.artifact.sha256 / name).write_text("{}")
    assert artifact_file(record, beside=file) is None


def test_a_copy_whose_manifest_agrees_with_itself_only_is_none(tmp_path: Path, cached: Cached) -> None:
    """Another model put in the place of the recorded one, manifest and all, is refused by the record's sha256."""
    record, other = cached(int8(), "one"), cached(int8(), "two")
    file = written(tmp_path, [record])
    locate_artifacts(file, keep=True)
    assert record.artifact is not None
    assert other.artifact is not None
    copy = file.parent / "demo" / record.artifact.sha256
    shutil.rmtree(copy)
    shutil.copytree(tmp_path / "cache" / "artifacts" / str(other.artifact.key), copy)
    shutil.rmtree(tmp_path / "cache")
    assert artifact_file(record, beside=file) is None


def test_artifacts_that_cannot_be_kept_are_a_usage_error(tmp_path: Path, cached: Cached) -> None:
    """The folder that cannot be made is named."""
    file = written(tmp_path, [cached(int8(), "one")])
    (file.parent / "demo").write_text("in the way")
    with pytest.raises(UsageError, match="demo: cannot be written"):
        locate_artifacts(file, keep=True)


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
        ("[" * 100_000, "run.json: not the description of a run: nested too deep"),
        ('{"schema": 1, "suite": {"name": "s"}, "elapsed_seconds": {"a": NaN}}', "NaN is no number of JSON"),
        ('{"schema": 1, "suite": {"name": "s"}, "elapsed_seconds": {"a": 1e999}}', "1e999 is beyond"),
        ('{"schema": 1, "suite": {"name": "s"}, "elapsed_seconds": {"a": "inf"}}', "finite number"),
        ("caf\xe9", "not the description of a run: 'utf-8' codec"),
    ],
)
def test_a_bad_description_is_named(tmp_path: Path, text: str, said: str) -> None:
    """What is wrong in run.json is said with the file and the field, and with what to do: bytes, JSON that only Python
    takes, any depth."""
    (tmp_path / "run.json").write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=said) as raised:
        read_run(tmp_path)
    assert str(raised.value).endswith(("install a newer qbench", "or make a new run with `qbench run SUITE`"))


def test_arrays_are_read_from_the_run_folder_alone(tmp_path: Path) -> None:
    """A record cannot name a file outside its run, and a damaged file is an error that says what to do."""
    np.savez(tmp_path / "secret.npz", calls_ns=np.arange(3))
    with pytest.raises(UsageError, match=r"records\.jsonl:1: samples: '\.\./secret\.npz' begins with '\.'"):
        read_run(run_folder(tmp_path / "evil", [int8(samples="../secret.npz")], info()))
    folder = run_folder(tmp_path / "run", [int8(samples="linked.npz", predictions="bad.npz")], info())
    (folder / "bad.npz").write_bytes(b"not an archive")
    (folder / "linked.npz").symlink_to(tmp_path / "secret.npz")
    run = read_run(folder)
    assert run.samples(run.records[0]) == {}
    with pytest.raises(UsageError, match="delete it to go on without"):
        run.predictions(run.records[0])


def test_an_array_of_another_form_is_named(tmp_path: Path) -> None:
    """What is stored under a name has its type and its axes; names that a newer run adds are taken as they are."""
    folder = run_folder(tmp_path / "run", [int8(samples="samples.npz", predictions="odd.npz")], info())
    np.savez(folder / "samples.npz", calls_ns=np.arange(3), contents=np.zeros((3, 16), np.uint8))
    np.savez(folder / "odd.npz", outputs=np.float32(1))
    run = read_run(folder)
    assert set(run.samples(run.records[0])) == {"calls_ns", "contents"}
    with pytest.raises(UsageError, match=r"odd.npz: outputs: float32\[\] is not what a run stores under this name"):
        run.predictions(run.records[0])


def test_a_run_without_records_yet_has_none(tmp_path: Path) -> None:
    """A run that was killed before its first case can still be read."""
    folder = run_folder(tmp_path / "run", [], info())
    (folder / "records.jsonl").unlink()
    assert read_run(folder).records == ()
    with pytest.raises(UsageError, match="no such folder"):
        read_run(tmp_path / "nowhere")


# --- what a merge, an edit or another tool may leave --------------------------------------------------------------


def test_a_case_that_stands_twice_in_a_baseline_is_refused(tmp_path: Path) -> None:
    """A run may record a case again, the last one counts; in a committed file it is a merge that went wrong."""
    file = written(tmp_path, [fp32(), int8()])
    file.write_text(file.read_text() + jsonl.to_line(int8(size_bytes=1)) + "\n")
    with pytest.raises(UsageError, match=rf"demo\.jsonl:3: {CASE} stands in line 2, too.*take it from where it was"):
        read_baseline(file)
    assert len(jsonl.read(file)) == 2


def test_a_baseline_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    """A run's last line may be torn, since a run may be killed; a committed file has no such excuse. A missing newline
    at its end alone is what editors leave."""
    file = written(tmp_path, [fp32(), int8()])
    whole = file.read_text()
    file.write_text(whole.removesuffix("\n"))
    assert len(read_baseline(file).records) == 2
    file.write_text(whole[:-40])
    with pytest.raises(
        UsageError, match=r"demo\.jsonl:2:\d+: not JSON: .*; take it from where it was committed"
    ) as cut:
        read_baseline(file)
    assert "remove the line" not in str(cut.value)


@pytest.mark.parametrize("lost", [FP32, CASE])
def test_a_line_that_is_gone_is_missed(tmp_path: Path, lost: str) -> None:
    """Also that of a fp32, of which no verdict would speak: what the run had stands beside the lines."""
    file = write_baseline(run_folder(tmp_path / "run", [fp32(), int8()], info((FP32, CASE))), tmp_path)
    file = file.rename(tmp_path / "demo.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if f'"id": "{lost}"' not in line))
    with pytest.raises(UsageError, match=rf"demo\.jsonl: no line of {lost}, which the run had by demo\.run\.json"):
        read_baseline(file)


def test_a_case_that_the_run_did_not_reach_is_no_lost_line(tmp_path: Path) -> None:
    """With ``--allow-failed`` it has no line from the start."""
    planned = info((FP32, CASE, "net/qat/x86/t1/b1"))
    file = write_baseline(run_folder(tmp_path / "run", [fp32(), int8()], planned), tmp_path, allow_failed=True)
    assert read_baseline(file).info.plan.cases == (FP32, CASE)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", '"NaN"', '"inf"'])
def test_nan_and_infinity_are_one_message_in_records_and_descriptions(tmp_path: Path, number: str) -> None:
    """JSON has no such number, though readers take it: it is said where it stands, before anything is computed from
    it, in a run and in a baseline."""
    file = written(tmp_path, [fp32(), int8()])
    folder = tmp_path / "run"
    for records, read in ((file, read_baseline), (folder / "records.jsonl", lambda _: read_run(folder))):
        text = records.read_text()
        assert '"value": 2.5' in text
        records.write_text(text.replace('"value": 2.5', f'"value": {number}'))
        with pytest.raises(UsageError, match=r"jsonl:2: .*(NaN|Infinity|beyond|finite)"):
            read(records)
        records.write_text(text)
    described = folder / "run.json"
    described.write_text(
        described.read_text().replace('"elapsed_seconds": {}', f'"elapsed_seconds": {{"a": {number}}}')
    )
    with pytest.raises(UsageError, match=r"run\.json: .*(NaN|Infinity|beyond|finite)"):
        read_run(folder)
