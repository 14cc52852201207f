"""qbench.running.text: the words under a run's table."""

from __future__ import annotations

import json
from pathlib import Path

from qbench.record.schema import CaseKey, Latency, Record
from qbench.running.run import RunResult
from qbench.running.text import as_json, problems, times


def record(backend: str, status: str = "ok", stage: str | None = None, reason: str | None = None) -> Record:
    """A record of one case of a model m."""
    key = CaseKey(id=f"m/static/{backend}/t1/b1", model="m", mode="static", backend=backend, threads=1, batch_size=1)
    return Record(case=key, status=status, stage=stage, reason=reason)  # type: ignore[arg-type]


def test_nothing_is_said_of_cases_that_are_ok() -> None:
    """A run whose cases are all ok has no problems."""
    assert problems([record("fbgemm"), record("onednn")]) == []


def test_failures_come_first_with_their_stage_and_each_reason_once() -> None:
    """Cases that share a reason share a line, at most three by name; a reason of several lines stays together."""
    skips = [record(f"b{n}", "skipped", "plan", "no compiler; install g++") for n in range(5)]
    failed = [record("x86", "failed", "build", "wrong\nbits"), record("fbgemm", "failed", "measure", "it hung")]
    assert problems([*skips, *failed]) == [
        "failed: m/static/x86/t1/b1",
        "  build: wrong",
        "  bits",
        "failed: m/static/fbgemm/t1/b1",
        "  measure: it hung",
        "skipped: m/static/b0/t1/b1, m/static/b1/t1/b1, m/static/b2/t1/b1 and 2 more",
        "  no compiler; install g++",
    ]


def test_a_reason_cannot_steer_the_terminal() -> None:
    """Reasons quote users' files and libraries; control characters in them are replaced."""
    (_, line) = problems([record("x86", "failed", "build", "\x1b[2Jgone")])
    assert "\x1b" not in line


def test_times_name_every_stage_and_the_sum() -> None:
    """The last line of a run says where the time went, in the order of the stages."""
    assert times({"build": 12.07, "evaluate": 3.04, "measure": 130.0, "report": 0.5}) == (
        "time: build 12.1 s, evaluate 3.04 s, measure 2 min 10 s, report 500 ms; 2 min 25 s in all"
    )


def test_json_holds_the_records_as_they_are_and_null_for_what_is_unknown() -> None:
    """A program gets raw numbers, the folder, the report and the exit code."""
    latency = Latency(
        p50_seconds=0.00131,
        p50_low=None,
        p50_high=None,
        p90_seconds=None,
        p99_seconds=None,
        mean_seconds=None,
        n=5,
    )
    one = Record(case=record("x86").case, status="ok", latency=latency)
    result = RunResult(folder=Path("r"), records=[one], elapsed_seconds={"build": 1.0}, interrupted=True)
    data = json.loads(as_json(result, None, {"build": 1.0, "report": 2.0}))
    assert (data["folder"], data["report"], data["exit_code"], data["interrupted"]) == ("r", None, 130, True)
    assert data["elapsed_seconds"] == {"build": 1.0, "report": 2.0}
    assert data["records"][0]["latency"]["p50_seconds"] == 0.00131
    assert data["records"][0]["speedup"] is None
