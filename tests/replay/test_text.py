"""Rules of qbench/replay/text.py: one sentence, what differs first, then the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from made_runs import run_folder

from qbench.record.stored_run import read_run
from qbench.replay import text
from qbench.replay.comparison import Difference, Replayed


def replayed(tmp_path: Path, *differences: Difference) -> Replayed:
    """A replay with these differences."""
    run = read_run(run_folder(tmp_path / "run", []))
    return Replayed(
        suite="demo",
        before=run,
        after=replace(run, folder=tmp_path / "again"),
        differences=differences,
        artifacts=1,
        answers=1450,
        settings=2,
        reservations=("cpu of this machine is another",),
    )


def test_the_same_is_said_with_what_was_compared(tmp_path: Path) -> None:
    """And what could not be made as it was."""
    lines = text.text(replayed(tmp_path)).splitlines()
    assert lines[0] == "The same: 1 artifact byte for byte, the answers on all 1,450 examples, 2 decisions"
    assert lines[1] == "note: cpu of this machine is another"
    assert lines[-2:] == [f"run: {tmp_path}/run", f"replay: {tmp_path}/again"]


def test_the_first_difference_is_the_sentence(tmp_path: Path) -> None:
    """The others follow, one a line."""
    first = Difference(what="artifact", where="m/static", before="1", now="2\n3")
    result = replayed(tmp_path, first, replace(first, what="score"))
    lines = text.text(result).splitlines()
    assert lines[0] == "Not the same; the first thing that differs: artifact of m/static: 1, now 2 3"
    assert lines[1] == "then: score of m/static: 1, now 2 3"
    assert lines[2] == "note: cpu of this machine is another"
    assert result.exit_code == 1


def test_one_decision_is_one(tmp_path: Path) -> None:
    """And no artifact is none of them."""
    few = replace(replayed(tmp_path), artifacts=0, settings=1)
    assert text.write_sentence(few).endswith("0 artifacts byte for byte, the answers on all 1,450 examples, 1 decision")


def test_a_program_reads_all_of_it(tmp_path: Path) -> None:
    """In a schema, with letters as they are."""
    difference = Difference(what="score", where="r\u00e9seau/static", before="0.5", now="0.25")
    written = text.as_json(replayed(tmp_path, difference))
    data = {
        "schema": 1,
        "suite": "demo",
        "sentence": "Not the same; the first thing that differs: score of r\u00e9seau/static: 0.5, now 0.25",
        "run": f"{tmp_path}/run",
        "replay": f"{tmp_path}/again",
        "differences": [{"what": "score", "where": "r\u00e9seau/static", "before": "0.5", "now": "0.25"}],
        "reservations": ["cpu of this machine is another"],
        "exit_code": 1,
    }
    assert written == json.dumps(data, ensure_ascii=False, indent=1) + "\n"
