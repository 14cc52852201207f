"""Rules of qbench/cli/ship.py: which case is meant, and where its folder lies."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import CASE, case_key, fp32, info, int8, speedup
from made_runs import run_folder

from qbench.cli import main
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun, SuiteInfo
from qbench.ship import folder as shipping

Ship = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ship(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ship:
    """``qbench ship`` in an empty folder, of artifacts that need not be there: exit code and both streams."""

    def fill(run: StoredRun, chosen: shipping.Chosen, folder: Path) -> str:
        folder.mkdir(exist_ok=True)
        (folder / "written.json").write_text(json.dumps([chosen.record.case.id, chosen.answer]))
        return "net.pt"

    def command(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["qbench", "ship", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main.main()
        captured = capsys.readouterr()
        return int(str(ended.value.code)), captured.out, captured.err

    monkeypatch.setattr(shipping, "_fill", fill)
    monkeypatch.chdir(tmp_path)
    return command


SUITE = """
suite: demo
models: [{name: net, source: {python: "net.py:make"}}]
data: {dataset: digits}
matrix: {modes: [fp32, static], backends: [torch, onednn]}
gate: {accuracy: {metric: top1, margin: 2.0}}
"""


def stored(path: Path, records: list[Record]) -> Path:
    """A run of a suite with a margin, by which it can decide."""
    return run_folder(path, records, info(suite=SuiteInfo(name="demo", file="suites/demo.yaml", text=SUITE)))


def written(folder: Path) -> list[str | None]:
    """Which case lies in a folder, and as the answer of what."""
    content: list[str | None] = json.loads((folder / "written.json").read_text())
    return content


def test_without_a_case_it_is_the_answer_of_the_run(ship: Ship, tmp_path: Path) -> None:
    """The pick, with the sentence that says so, in a folder named after the suite."""
    code, out, _ = ship(stored(tmp_path / "run", [fp32(), int8()]))
    assert code == 0
    (folder,) = (tmp_path / "shipped").iterdir()
    case, answer = written(folder)
    assert (case, str(answer).partition(" static")[0]) == (CASE, "net: ship")
    assert out.startswith(f"{CASE}: {folder / 'net.pt'}, and README.md beside it")


def test_a_named_case_is_shipped_whatever_the_run_says(ship: Ship, tmp_path: Path) -> None:
    """Its page does not call it the answer."""
    run = stored(tmp_path / "run", [fp32(), int8()])
    assert ship(run, fp32().case.id, "-o", "out")[0] == 0
    assert written(tmp_path / "out") == [fp32().case.id, None]


def test_answers_of_several_settings_lie_side_by_side(ship: Ship, tmp_path: Path) -> None:
    """One folder each, named after the case, so that none takes the place of another."""
    second = [
        replace(fp32("net/fp32/torch/t2/b1"), case=case_key("net/fp32/torch/t2/b1")),
        replace(int8("net/static/onednn/t2/b1"), case=case_key("net/static/onednn/t2/b1")),
    ]
    assert ship(stored(tmp_path / "run", [fp32(), int8(), *second]), "-o", "out")[0] == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "net-static-onednn-t1-b1",
        "net-static-onednn-t2-b1",
    }


def test_a_run_that_names_nothing_says_why_and_what_to_write(ship: Ship, tmp_path: Path) -> None:
    """No int8 case: the run's own sentence, and how a case is named."""
    code, out, err = ship(stored(tmp_path / "run", [fp32()]))
    assert (code, out) == (2, "")
    assert "the run names nothing to ship" in err
    assert "qbench ship RUN CASE" in err


def test_an_unknown_case_is_answered_with_those_there_are(ship: Ship, tmp_path: Path) -> None:
    """One message."""
    code, _, err = ship(stored(tmp_path / "run", [fp32(), int8()]), "net/static/none/t1/b1")
    assert code == 2
    assert "no such case in" in err
    assert CASE in err


def test_long_names_that_are_cut_alike_keep_their_folders(ship: Ship, tmp_path: Path) -> None:
    """No answer takes the place of another."""
    model, records = "m" * 90, []
    for batch in (1, 8):
        fp32_id, int8_id = (f"{model}/{mode}/t1/b{batch}" for mode in ("fp32/torch", "static/onednn"))
        records += [replace(fp32(), case=case_key(fp32_id)), int8(int8_id, speedup=speedup(baseline=fp32_id))]
    assert ship(stored(tmp_path / "run", records), "-o", "out")[0] == 0
    first, second = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert second == f"{first}-2"


def test_a_case_is_named_where_the_run_names_none(ship: Ship, tmp_path: Path) -> None:
    """Whatever the reason: the person decides."""
    assert ship(stored(tmp_path / "run", [fp32()]), fp32().case.id, "-o", "out")[0] == 0
    assert written(tmp_path / "out") == [fp32().case.id, None]
