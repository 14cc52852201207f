"""A run on disk: what its folder holds, when others see it, and what is refused as its continuation."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_records import FP32, fp32

from qbench.datasets.base import Examples
from qbench.datasets.preprocessing import Preprocessing
from qbench.errors import QbenchError, UsageError
from qbench.files import atomic
from qbench.machine import fingerprint
from qbench.metrics.spec import MetricSpec
from qbench.plan.planner import make_plan
from qbench.record.stored_run import read_info
from qbench.running import directory as directories
from qbench.running.directory import RunDirectory, create, reopen
from qbench.suite import Suite, parse

TEXT = """\
suite: s
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [fp32], backends: [fake], threads: [1, 64]}
"""
TOP1 = MetricSpec(name="top1")


def parse_suite(*overrides: str, quick: bool = False) -> Suite:
    """The suite with what is given on the command line."""
    return parse(TEXT, file="s.yaml", overrides=overrides, quick=quick)


def begin(out: Path, suite: Suite | None = None, only: str | None = None) -> RunDirectory:
    """A run that has been written to disk."""
    suite = suite or parse_suite()
    directory = create(suite, out)
    directory.write_info(suite, make_plan(suite, cores=2), TOP1, started="2026-01-01T00:00:00+00:00", only=only)
    return directory


def read(run: RunDirectory) -> dict[str, Any]:
    """``run.json``."""
    content: dict[str, Any] = json.loads((run.path / "run.json").read_text())
    return content


def test_a_runs_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """Named by its time and four digits below its suite's; with what lies in it once it is described."""
    directory = create(parse_suite(), tmp_path / "out")
    assert directory.path.parent == tmp_path / "out" / "s"
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{4}", directory.path.name)
    assert list(directory.path.parent.iterdir()) == []
    run = begin(tmp_path / "out")
    assert {path.name for path in run.path.iterdir()} == {"run.json", "samples", "predictions"}
    assert [path.name for path in run.path.parent.iterdir()] == [run.path.name]
    assert run.records() == []


def test_runs_land_in_reports_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the folder that one works in."""
    monkeypatch.chdir(tmp_path)
    assert create(parse_suite(), None).path.parent == Path("reports/s")


def test_a_place_that_takes_no_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """The message says which, why, and where to choose another."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file/s/.*: cannot be made \(.*\); choose another place with --out"):
        create(parse_suite(), tmp_path / "file")


def test_a_run_says_what_it_was_asked_for(tmp_path: Path) -> None:
    """The suite as read with its overrides, the plan with what is skipped, the metric, the machine, the filter."""
    suite = parse_suite("measure.seed=3")
    told = read(begin(tmp_path, suite, only="*/t1/*"))
    plan = make_plan(suite, cores=2)
    assert told["suite"] == {"name": "s", "file": "s.yaml", "text": TEXT, "overrides": ["measure.seed=3"]}
    assert (told["started"], told["finished"], told["quick"], told["filter"], told["notes"]) == (
        "2026-01-01T00:00:00+00:00", None, None, "*/t1/*", [],
    )  # fmt: skip
    assert told["plan"]["cases"] == [each.case.id for each in plan.cases]
    assert [skip["id"] for skip in told["plan"]["skipped"]] == ["digits-cnn/fp32/fake/t64/b1"]
    assert "64" in told["plan"]["skipped"][0]["reason"]
    metric = told["metric"]
    assert (metric["name"], metric["percent"], metric["higher_is_better"]) == ("top1", True, True)
    assert told["environment"] == fingerprint.fingerprint()
    assert read(begin(tmp_path, parse_suite(quick=True)))["quick"] == {"examples": None, "of": None}


def test_what_is_learned_later_takes_its_place_and_leaves_the_rest(tmp_path: Path) -> None:
    """Metric, examples, notes, digests, the end."""
    run = begin(tmp_path)
    before = read(run)
    run.write_metric(MetricSpec(name="top1_agreement"))
    run.write_quick(examples=500, of=900)
    run.write_end(finished="2026-01-01T01:00:00+00:00", elapsed_seconds={"build": 1.5})
    run.require_same_inputs({"data": "d"})
    after = read(run)
    assert after["metric"]["name"] == "top1_agreement"
    assert after["quick"] == {"examples": 500, "of": 900}
    assert (after["finished"], after["elapsed_seconds"]) == ("2026-01-01T01:00:00+00:00", {"build": 1.5})
    assert after["digests"] == {"data": "d"}
    changed = {"metric", "quick", "finished", "elapsed_seconds", "digests"}
    assert {key: after[key] for key in after.keys() - changed} == {key: before[key] for key in before.keys() - changed}
    run.write_end(finished=None, elapsed_seconds={})
    assert read(run)["finished"] is None


def test_the_raw_examples_are_described(tmp_path: Path) -> None:
    """Their type and shape without the number of them, and what is done to them."""
    data: Any = SimpleNamespace(
        preprocessing=Preprocessing(scale=0.5),
        evaluation_examples=lambda: Examples(inputs=(np.zeros((7, 3, 4), np.uint8),), labels=None),
    )
    run = begin(tmp_path)
    run.write_examples(data)
    described = read_info(run.path / "run.json").examples
    assert described is not None
    assert (described.types, described.shapes, described.scale) == (("uint8",), ((3, 4),), 0.5)


def test_a_note_is_kept_once_also_where_a_run_goes_on(tmp_path: Path) -> None:
    """In the order in which they came."""
    run = begin(tmp_path)
    for text in ("first", "second", "first"):
        run.write_note(text)
    assert read(run)["notes"] == ["first", "second"]
    again = reopen(run.path, parse_suite())
    again.write_note("second")
    again.write_note("third")
    assert read(run)["notes"] == ["first", "second", "third"]


def test_inputs_that_changed_are_named(tmp_path: Path) -> None:
    """Cases of two data sets would not belong together; what is new since is taken."""
    run = begin(tmp_path)
    run.require_same_inputs({"data": "a", "model m": "b"})
    again = reopen(run.path, parse_suite())
    again.require_same_inputs({"data": "a", "model n": "c"})
    assert read(run)["digests"] == {"data": "a", "model m": "b", "model n": "c"}
    with pytest.raises(UsageError, match="data and model n changed since this run was started; start a new run"):
        again.require_same_inputs({"data": "x", "model m": "b", "model n": "y"})
    assert read(run)["digests"] == {"data": "a", "model m": "b", "model n": "c"}


class Noon(datetime.datetime):
    """A clock that stands."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Noon:
        """Noon."""
        return cls(2026, 1, 1, 12, tzinfo=tz)


def test_latest_points_at_a_run_once_it_has_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one alone: a later run that is shown by now stays."""
    ends = iter(("0000", "ffff"))  # of names of one second
    monkeypatch.setattr(directories.secrets, "token_hex", lambda size: next(ends))
    monkeypatch.setattr(directories, "datetime", SimpleNamespace(datetime=Noon, UTC=datetime.UTC))
    first, second = begin(tmp_path), begin(tmp_path)
    latest = tmp_path / "s" / "latest"
    assert not latest.exists()
    for run in (first, second, first):
        run.write_record(fp32(FP32))
    assert latest.resolve() == second.path.resolve()
    assert [len(run.records()) for run in (first, second)] == [1, 1]
    assert len((first.path / "records.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("overrides", "quick", "only", "on", "words"),
    [
        ((), False, None, None, ""),
        ((), True, None, None, "--quick "),
        (("measure.seed=3", "gate.size={max_ratio: 1}"), False, "*/t1/*", "ray",
         "--filter '*/t1/*' --on ray --set measure.seed=3 --set 'gate.size={max_ratio: 1}' "),
        (("measure.seed=3",), True, None, "local-cluster:2", "--quick --on local-cluster:2 --set measure.seed=3 "),
    ],
)  # fmt: skip
def test_the_command_that_goes_on_asks_for_the_same(
    overrides: tuple[str, ...], quick: bool, only: str | None, on: str | None, words: str
) -> None:
    """What ``--quick`` sets is not said twice."""
    run = RunDirectory(Path("reports/s/a b"))
    command = run.resume_command(parse_suite(*overrides, quick=quick), only, on)
    assert command == f"qbench run s.yaml {words}--resume 'reports/s/a b'"
    kept = run.resume_command(parse_suite(), None, artifacts=Path("a b"))
    assert kept == "qbench run s.yaml --artifacts 'a b' --resume 'reports/s/a b'"


def test_layers_are_found_by_their_variant(tmp_path: Path) -> None:
    """None before they are written, and none of another variant."""
    run = begin(tmp_path)
    assert run.layers("m/static/x86") is None
    name = run.write_layers("m/static/x86", [{"layer": "a", "db": 30.0}])
    assert name == run.layers("m/static/x86") == "layers/m__static__x86.json"
    assert json.loads((run.path / name).read_text()) == [{"layer": "a", "db": 30.0}]
    assert run.layers("m/static/onednn") is None


def test_what_killed_parts_left_is_removed(tmp_path: Path) -> None:
    """Marked folders of a checkpoint and half-written files; what a user laid there stays."""
    run = begin(tmp_path)
    with atomic.replace_folder(run.path / "samples" / "partial-1") as part:
        (part / "0.npz").write_bytes(b"1")
    left = [folder / ".left.part" for folder in (run.path, run.path / "samples", tmp_path)]
    for folder in left:
        folder.mkdir()
        atomic._mark(folder)
    (run.path / "samples" / "partial-mine").mkdir()
    (run.path / "mine").mkdir()
    (run.path / "link").symlink_to(tmp_path)
    run.tidy()
    assert {path.name for path in (run.path / "samples").iterdir()} == {"partial-mine"}
    assert (run.path / "mine").is_dir()
    assert [folder.exists() for folder in left] == [False, False, True], "nothing behind a link"


@pytest.mark.parametrize("write", ["write_record", "write_note", "write_end", "write_layers"])
def test_a_full_disk_says_what_is_kept_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """Whatever is being written."""
    run = begin(tmp_path)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(directories.jsonl, "append", fail)
    monkeypatch.setattr(directories.atomic, "write_text", fail)
    calls: dict[str, Any] = {
        "write_record": lambda: run.write_record(fp32(FP32)),
        "write_note": lambda: run.write_note("a"),
        "write_end": lambda: run.write_end(finished=None, elapsed_seconds={}),
        "write_layers": lambda: run.write_layers("m", []),
    }
    with pytest.raises(QbenchError, match=r"cannot be written \(No space left on device\).*go on with --resume"):
        calls[write]()


def test_a_run_goes_on_by_the_same_suite_on_the_same_kind_of_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another text, other overrides and another processor each are refused with what to do."""
    run = begin(tmp_path)
    (run.path / "samples").rmdir()
    assert reopen(run.path, parse_suite()).path == run.path
    assert (run.path / "samples").is_dir()
    other_text = replace_text(parse_suite())
    for suite in (other_text, parse_suite("measure.seed=3")):
        with pytest.raises(UsageError, match="was made from another text of the suite, or other --set; start a new"):
            reopen(run.path, suite)
    here = fingerprint.fingerprint()
    monkeypatch.setattr(fingerprint, "fingerprint", lambda: {**here, "cpu": "another"})
    with pytest.raises(UsageError, match=r"was made on another machine \(cpu differs\); start a new run"):
        reopen(run.path, parse_suite())


def replace_text(suite: Suite) -> Suite:
    """The same suite from another text."""
    return parse(suite.text + "# more\n", file="s.yaml")


@pytest.mark.parametrize("name", ["records.jsonl", "samples"])
def test_nothing_is_written_behind_a_link(tmp_path: Path, name: str) -> None:
    """Somebody may have laid it there; what it leads to stays as it is."""
    run, target = begin(tmp_path), tmp_path / "target"
    if name == "samples":
        target.write_text("")
        (run.path / "samples").rmdir()
    (run.path / name).symlink_to(target)
    with pytest.raises(UsageError, match=r"be gone on with: (records\.jsonl|it) is a link; nothing is written"):
        reopen(run.path, parse_suite())


def test_a_quick_look_goes_on_as_one(tmp_path: Path) -> None:
    """``latest`` then points at it only where no run proper is."""
    look = parse_suite(quick=True)
    run = begin(tmp_path, look)
    assert reopen(run.path, look)._quick is True
    plain = begin(tmp_path)
    assert reopen(plain.path, parse_suite())._quick is False


def test_what_a_run_writes_is_for_people_too(tmp_path: Path) -> None:
    """A line for each thing that is said."""
    run = begin(tmp_path)
    for _ in range(2):
        assert (run.path / "run.json").read_text().splitlines()[1].startswith(' "schema": ')
        run.write_note("a")
    run.write_layers("m", [{"layer": "a"}])
    assert (run.path / "layers" / "m.json").read_text() == '[\n {\n  "layer": "a"\n }\n]'
