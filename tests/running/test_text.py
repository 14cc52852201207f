"""qbench.running.text: the words under a run's table."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.record.schema import CaseKey, Latency, Record
from qbench.running.run import RunResult
from qbench.running.text import as_json, problems, suggest_checks, times


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
    measured = Record(case=record("x86").case, status="ok", latency=latency)
    result = RunResult(folder=Path("r"), records=[measured], elapsed_seconds={"build": 1.0}, interrupted=True)
    data = json.loads(as_json(result, None, {"build": 1.0, "report": 2.0}))
    assert (data["folder"], data["report"], data["exit_code"], data["interrupted"]) == ("r", None, 130, True)
    assert data["elapsed_seconds"] == {"build": 1.0, "report": 2.0}
    assert data["records"][0]["latency"]["p50_seconds"] == 0.00131
    assert data["records"][0]["speedup"] is None
    assert (data["schema"], data["decisions"], data["warnings"]) == (1, [], [])
    text = as_json(result, Path("é"), {}, {"decisions": ["d"]})
    assert json.loads(text)["decisions"] == ["d"]
    assert "warnings" not in json.loads(text)
    assert text.startswith('{\n "schema": 1,\n')
    assert '"report": "é"' in text
    assert text.endswith("}\n")
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json(result, None, {"build": math.nan})


def test_three_cases_under_one_reason_are_all_named() -> None:
    """A failure without a stage stands as it is, and a skipped case with its reason alone."""
    alike = [record(f"b{n}", "failed", None, "killed") for n in range(3)]
    assert problems(alike) == ["failed: m/static/b0/t1/b1, m/static/b1/t1/b1, m/static/b2/t1/b1", "  killed"]
    assert problems([record("x", "skipped", None, "why")])[1] == "  why"


def model(name: str, loader: str = "onnx", **int8: str) -> Any:
    """A model of a suite whose file is that of its name, with int8 files by recipe."""
    source = SimpleNamespace(file=f"{name}.onnx", loader=loader)
    return SimpleNamespace(
        name=name, source=source, int8=[SimpleNamespace(recipe=recipe, file=file) for recipe, file in int8.items()]
    )


def of_recipe(failed: Record, recipe: str) -> Record:
    """The same of another recipe."""
    return replace(failed, case=replace(failed.case, recipe=recipe))


def test_a_file_of_which_a_case_failed_is_to_be_checked_once() -> None:
    """An int8 file of the user's own goes before the model's; what failed while it was measured is no file's fault."""
    base, failed = Path("a folder"), record("x86", "failed", "build", "wrong")
    own = of_recipe(failed, "mine")
    words = "`qbench check 'a folder/{}'` says what each runtime makes of it"
    models = [model("n"), model("m", mine="own.onnx")]
    assert suggest_checks([failed, failed, own], models, base) == [words.format("m.onnx"), words.format("own.onnx")]
    assert suggest_checks([of_recipe(failed, "other")], models, base) == [words.format("m.onnx")]
    for stage, count in (("model", 1), ("evaluate", 1), ("measure", 0), ("prepare", 0)):
        assert len(suggest_checks([record("x86", "failed", stage, "why")], models, base)) == count
    assert suggest_checks([record("x86", "skipped", "build", "why"), record("x86")], models, base) == []
    assert suggest_checks([failed], [model("m", "python")], base) == []
    assert suggest_checks([failed], [SimpleNamespace(name="m", source=None, int8=[])], base) == []
