"""What a run of anybody's holds does nothing to who reads what is printed of it."""

from __future__ import annotations

import csv
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_records import accuracy, failed, fp32, info, int8, speedup
from made_runs import HOSTILE, run_folder

from qbench.cli import main
from qbench.foreign_text import CONTROL, join_lines
from qbench.progress.terminal import plain_output

EVIL = f"{HOSTILE}\n::error::mine\n  ::add-mask::a\nPWNED ##[group]x]]>\u2028=cmd()"
SUITE = """suite: demo
models: [{name: digits-cnn}]
data: {dataset: digits}
matrix: {modes: [fp32, static], backends: [onednn]}
gate: {size: {max_growth: 1%}, accuracy: {margin: 1.0}}
"""
COMMANDS = (
    *("compare RUN RUN", "compare RUN RUN --json", "portability RUN", "portability RUN --json"),
    *("baseline RUN --out OUT --allow-failed", "baseline RUN --out OUT", "gate RUN --baseline none.jsonl", "gate RUN"),
    *("export RUN --format pytest-benchmark", "explain RUN CASE", "explain RUN --all", "run --resume RUN"),
    "report RUN --wide",
)


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose every text that is no name of a file is hostile; the folder that one works in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    base, case = f"{EVIL}/fp32/torch/t1/b1", f"{EVIL}/static/onednn/t1/b1"
    recipe, observed = {"flow": f"=cmd()|{EVIL}", EVIL: EVIL}, {EVIL: EVIL}
    fast = speedup(baseline=base)
    records = [
        fp32(base),
        int8(case, speedup=fast, recipe=recipe, observed=observed, accuracy=accuracy()),
        failed(f"{EVIL}/qat/x86/t1/b1", reason=EVIL),
    ]
    described = info((base, case), environment={EVIL: EVIL}, versions={EVIL: EVIL})
    suite = replace(described.suite, file=EVIL.replace("/", ""), text=EVIL)
    run_folder(tmp_path / "run", records, replace(described, suite=suite))
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_what_acts(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """No control character, nothing that a runner of CI obeys, and no line of a name's own, on either stream."""
    given = {
        "RUN": str(hostile / "run"),
        "OUT": str(hostile / "baselines"),
        "CASE": f"{join_lines(EVIL)}/static/onednn/t1/b1",
    }
    monkeypatch.setattr(sys, "argv", ["qbench", *(given.get(word, word) for word in command.split())])
    with plain_output():
        assert main._run_command() in (0, 1, 2, 3, 4)
    for text in capsys.readouterr():
        assert not CONTROL.search(text)
        lines = text.split("\n")
        assert not any(line.strip().startswith("::") or "##[" in line for line in lines)
        assert not any(line.startswith("PWNED") for line in lines)


def test_no_file_that_is_written_of_it_acts(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a spreadsheet (a formula), in a page or a comment (an element, a line of its own), in a log of CI, nor in
    what reads XML: no file holds control characters, and all are well formed."""
    run = hostile / "run"
    told = json.loads((run / "run.json").read_text(encoding="utf-8"))
    told["suite"]["text"] = SUITE  # else the gate refuses it
    (run / "run.json").write_text(json.dumps(told), encoding="utf-8")
    base = f"base/{told['suite']['name']}.jsonl"
    keep = ["baseline", str(run), "--out", "base", "--allow-failed"]
    ask = ["gate", str(run), "--baseline", base, "--junit", "j.xml", "--markdown", "g.md"]
    for words in (["report", str(run)], keep, ask):
        monkeypatch.setattr(sys, "argv", ["qbench", *words])
        assert main._run_command() in (0, 1, 3)
    pages = [run / "summary.md", run / "report.html", hostile / "g.md"]
    for file in (*pages, run / "results.csv", hostile / "j.xml"):
        text = file.read_text(encoding="utf-8")
        assert not CONTROL.search(text), file
        spoken = re.sub(r"`[^`\n]*`", "", text)  # in a span of code nothing is an element
        assert "<script>alert" not in spoken or file.suffix == ".csv", file
        if file.suffix in (".md", ".xml"):  # what a log may show
            assert not any(line.strip().startswith(("::", "PWNED")) for line in text.split("\n")), file
    ElementTree.parse(hostile / "j.xml")  # raises where it is not well formed
    with (run / "results.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    assert len({len(row) for row in rows}) == 1
    assert any(cell.startswith("'=cmd()") for row in rows for cell in row)
    assert not any(cell.lstrip().startswith(("=", "@", "+")) for row in rows for cell in row)
