"""What a run of anybody's holds does nothing to who reads what is printed of it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import accuracy, failed, fp32, info, int8, speedup
from made_runs import HOSTILE, run_folder

from qbench.cli import main
from qbench.foreign_text import CONTROL
from qbench.progress.terminal import plain_output

EVIL = f"{HOSTILE}\n::error::mine\n  ::add-mask::a\nPWNED ##[group]x"
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
    recipe, observed = {"flow": EVIL, EVIL: EVIL}, {EVIL: EVIL}
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
    given = {"RUN": str(hostile / "run"), "OUT": str(hostile / "baselines"), "CASE": f"{EVIL}/static/onednn/t1/b1"}
    monkeypatch.setattr(sys, "argv", ["qbench", *(given.get(word, word) for word in command.split())])
    with plain_output():
        assert main._run_command() in (0, 1, 2, 3, 4)
    for text in capsys.readouterr():
        assert not CONTROL.search(text)
        lines = text.split("\n")
        assert not any(line.strip().startswith("::") or "##[" in line for line in lines)
