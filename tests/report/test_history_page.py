"""Rules of qbench/report/history_page.py: history.html and history.csv."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_history import CASE, write_history
from made_records import FP32, failed, info, int8, same_as_golden
from made_runs import HOSTILE, HOSTILE_NAME, Page, run_folder

from qbench.foreign_text import CONTROL
from qbench.record import jsonl
from qbench.record.stored_run import MetricInfo, PlanInfo, QuickInfo
from qbench.report.history import PastRun
from qbench.report.history_page import _runs_table, build_history


def build(folder: Path) -> str:
    """The text of a history's page."""
    return build_history(folder).read_text(encoding="utf-8")


def test_a_change_is_the_first_thing_that_a_reader_sees(tmp_path: Path) -> None:
    """Counted on top, listed with its commit before any chart, ringed and named in the charts."""
    source = build(write_history(tmp_path))
    assert "16 runs on 1 machine: 2 change points, 2 for the worse, 0 for the better." in source
    table = source[source.index("Change points") : source.index('class="charts"')]
    for words in (CASE, "quant: step 9", "quant: step 8", "run 10 of 16", "(worse)"):
        assert words in table
    page = Page(source)
    assert len(page.all("svg")) == 5
    assert page.all("circle")
    assert "static · onednn" in source[source.index("<svg") :]


def test_it_needs_no_script_and_asks_for_nothing(tmp_path: Path) -> None:
    """Its policy allows inline styles alone."""
    source = build(write_history(tmp_path, runs=3))
    page = Page(source)
    assert page.all("script") == []
    policies = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    ]
    assert "too few to look for change points" in source


@pytest.mark.parametrize("runs", [1, 2, 9])
def test_any_history_has_a_page(tmp_path: Path, runs: int) -> None:
    """One run, two, and one in which nothing changed."""
    source = build(write_history(tmp_path, runs=runs, changed=None))
    assert ("No change point in" in source) == (runs == 9)
    assert f"{runs} run{'s' if runs > 1 else ''} in the lines." in source


def test_a_suite_whose_every_run_failed_has_a_page(tmp_path: Path) -> None:
    """No chart, and each run with its reason."""
    run_folder(tmp_path / "a", [failed()])
    source = build(tmp_path)
    assert "<svg" not in source
    assert "killed by signal 9" in source


def test_runs_that_lost_something_are_counted_with_the_reason(tmp_path: Path) -> None:
    """On top how many are in no line, at the machine how many lost files, and each one's cases in its row."""
    folders = sorted(write_history(tmp_path, runs=10, changed=None).iterdir())
    lines = (folders[0] / "records.jsonl").read_text(encoding="utf-8")
    (folders[0] / "records.jsonl").write_text(lines[:-40], encoding="utf-8")
    for place, name in ((1, "gone.npz"), (2, "cut.npz")):
        (record,) = [record for record in jsonl.read(folders[place]) if record.case.id == CASE]
        (folders[place] / "cut.npz").write_bytes(b"PK\x03\x04")
        jsonl.write(folders[place] / "records.jsonl", [*jsonl.read(folders[place]), replace(record, samples=name)])
    source = build(tmp_path)
    assert "10 runs on 1 machine (1 in no line: 1 damaged): no change point." in source
    assert "9 runs in the lines, 2 of them with samples or predictions gone or cut (their records are whole)" in source
    assert "1 of 3 planned cases have no record, though the run ended: records.jsonl is cut" in source
    assert source.count(f"samples or predictions are gone or cut, the records are whole: {CASE}") == 2


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Names of suites, cases, commits, machines, versions and folders open no element and are no formula."""
    case = f"=cmd|{HOSTILE}/static/onednn/t1/b1"

    def edit(number: int, changes: dict[str, Any]) -> dict[str, Any]:
        described = info()
        changes["suite"] = replace(described.suite, name=HOSTILE_NAME, text=HOSTILE * number)
        changes["commit"] = replace(changes["commit"], subject=HOSTILE, sha=HOSTILE)
        changes["versions"] = {HOSTILE: f"{HOSTILE}{number}"}
        changes["environment"] = {"cpu": HOSTILE, HOSTILE: number}
        return changes

    source = build(write_history(tmp_path, runs=10, changed=5, cases=(case,), edit=edit))
    page = Page(source)
    assert page.all("script") == []
    assert page.all("img") == []
    assert page.all("b") == []
    assert not CONTROL.search(source)
    assert source.count("</svg>") == len(page.all("svg")) == 5
    text = (tmp_path / "history.csv").read_text(encoding="utf-8")
    cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
    assert [cell for cell in cells if cell[:1] in ("=", "+", "@", "-")] == []


def test_every_value_is_in_the_table(tmp_path: Path) -> None:
    """One row a run and case, raw; what was not measured is empty."""
    build(write_history(tmp_path, runs=3))
    with (tmp_path / "history.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    (first,) = [row for row in rows if row["run"].endswith("-0000") and row["case.id"] == CASE]
    assert float(first["speedup"]) == pytest.approx(2.5, rel=0.1)
    assert [row["speedup"] for row in rows if "fp32" in row["case.id"]] == ["", "", ""]


def test_many_cases_are_a_page_that_opens(tmp_path: Path) -> None:
    """Of 300 cases a chart shows 15 lines and says how many more there are."""
    cases = tuple(f"net/static/b{number}/t1/b1" for number in range(300))
    source = build(write_history(tmp_path, runs=3, changed=None, cases=cases))
    assert source.count("<polyline") <= 5 * 15
    assert "285 more lines are in history.csv" in source
    assert len(source) < 1_000_000


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    """In another process with another hash and another clock."""
    folder = write_history(tmp_path, runs=9)
    first = build(folder)
    command = [sys.executable, "-m", "qbench", "report", "--history", str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": "5", "TZ": "Asia/Tokyo"}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(folder / "history.html")
    assert (folder / "history.html").read_text(encoding="utf-8") == first


def test_a_run_and_a_history_are_two_things() -> None:
    """Both at once, or neither, is a usage error."""
    for words in (["report"], ["report", "x", "--history", "y"]):
        done = subprocess.run([sys.executable, "-m", "qbench", *words], capture_output=True, text=True)
        assert done.returncode == 2
        assert "--history" in done.stderr


def write_of_every_kind(folder: Path) -> Path:
    """A history with a run of every state on one machine, two runs on one that is not named, and one that is lost."""

    def edit(number: int, changes: dict[str, Any]) -> dict[str, Any]:
        plain = info()
        changes["suite"] = replace(plain.suite, name="renamed" if number > 12 else "demo", text="a: 1\n")
        changes["versions"] = {"torch": "2.13.0" if number < 9 else "2.13.1"}
        changes["environment"] = plain.environment | {"isa": ["avx2", "vnni"]}
        states: dict[int, dict[str, Any]] = {
            1: {"quick": QuickInfo(examples=5, of=50)}, 3: {"finished": None},
            4: {"plan": PlanInfo(cases=(FP32, CASE, "net/static/gone/t1/b1")), "finished": None},
            13: {"environment": {}, "metric": MAE, "commit": None},
            14: {"environment": {}, "metric": MAE, "commit": None, "started": "2026-01-15T00:00:00Z"},
        }  # fmt: skip
        return changes | states.get(number, {})

    folders = sorted(write_history(folder, runs=15, changed=9, edit=edit).iterdir())
    for path in folders[:9]:  # more memory than later
        worse = [
            replace(record, memory=replace(record.memory, peak_rss_bytes=4 * 10**8)) for record in jsonl.read(path)
        ]
        jsonl.write(path / "records.jsonl", worse)
    lost = [replace(record, samples=f"gone{number}.npz") for number, record in enumerate(jsonl.read(folders[6]))]
    more = [int8(f"net/static/b{number}/t1/b1", samples=f"more{number}.npz") for number in range(2)]
    jsonl.write(folders[6] / "records.jsonl", [*lost, *more])
    (folders[7] / "run.json").write_text("{", encoding="utf-8")
    reasons = [failed(f"net/static/b{number}/t1/b1", f"reason {number}") for number in range(5)]
    machine = info().environment | {"isa": ["avx2", "vnni"]}
    run_folder(folder / "failed", reasons, info(started="2026-01-10T12:00:00Z", environment=machine))
    run_folder(folder / "empty", [], info(started=None, environment=machine))
    return folder


MAE = MetricInfo(name="mae", percent=False, higher_is_better=False, own_unit="px")


def test_the_words_of_a_history_are_golden(tmp_path: Path) -> None:
    """In their order, with the figures behind each chart, which another golden file draws."""
    source = re.sub(r"<(svg|style)\b.*?</\1>", "", build(write_of_every_kind(tmp_path)), flags=re.DOTALL)
    words = [" ".join(text.split()) for text in Page(source).words]
    text = "\n".join(filter(None, words)) + "\n"
    assert same_as_golden("history_page.txt", text.replace(str(tmp_path), "FOLDER"))


def test_of_many_runs_the_latest_200_are_listed() -> None:
    """All are in history.csv."""
    runs = tuple(PastRun(name=f"{number}", state="whole", records={}) for number in range(201))
    rows = _runs_table(runs).rows
    assert (len(rows), rows[0][0], rows[-1][0]) == (200, "1", "200")
    assert _runs_table(runs[:1]).rows == (("0", "0", "\u2014", "whole", ""),)
