"""qbench.compare_words: a comparison for a program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from qbench.compare import Delta
from qbench.compare_words import as_json
from qbench.record import Interval


def test_json_holds_every_delta_raw_and_null_where_nothing_is_known() -> None:
    """Names of both sides, the field in which the machines differ, and each delta's numbers as they are."""
    delta = Delta(
        case="m/static/x86/t1/b1",
        change="compared",
        base=None,
        contender=None,
        slowdown=Interval(value=1.0123, low=0.99, high=1.03),
    )
    data = json.loads(as_json("old", "new", [delta], incomparable="isa"))
    assert (data["schema"], data["base"], data["contender"], data["incomparable"]) == (1, "old", "new", "isa")
    (told,) = data["deltas"]
    assert told["slowdown"] == {"value": 1.0123, "low": 0.99, "high": 1.03}
    assert told["size_ratio"] is None


def test_two_suites_are_not_compared() -> None:
    """What differs between suites is no change: exit code 3, naming both."""
    records = Path(__file__).parent / "data/records"
    command = [sys.executable, "-m", "qbench", "compare", str(records / "v1"), str(records / "v1-ci")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3
    assert "compare two runs of one suite" in done.stderr
