"""Rules of decide/json_text: a decision for a program."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from made_records import FP32, accuracy, fp32, int8, latency, list_outputs, speedup

from qbench.decide.decision import decide
from qbench.decide.json_text import as_json
from qbench.decide.judged import SuiteRules, judge
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo

STATIC, QAT = "net/static/onednn/t1/b1", "net/qat/onednn/t1/b1"


def read(*records: Record, planned: tuple[str, ...] = ()) -> dict[str, Any]:
    """The one decision on some records, through JSON."""
    judged = judge(list(records), MetricInfo(name="top1"), SuiteRules(), planned=planned)
    (decision,) = json.loads(as_json("demo", decide(judged)))["decisions"]
    return dict(decision)


def test_a_program_reads_what_to_ship_and_how_sure_that_is() -> None:
    """Pick, runner-up, probability, limits and reasons; ids are those of the records."""
    slower = int8(QAT, latency=latency(0.0025 / 1.5), speedup=speedup(1.5))
    data = read(fp32(), int8(), slower)
    assert (data["verdict"], data["ship"], data["pick"], data["fp32"]) == ("ship", STATIC, STATIC, FP32)
    assert (data["runner_up"], data["tied"], data["missing"]) == (QAT, [STATIC], [])
    assert data["probability"] > 0.99
    assert data["speedup"] == data["over_fp32"]
    assert data["speedup"]["low"] < data["speedup"]["value"] < data["speedup"]["high"]
    assert data["setting"] == {"model": "net", "threads": 1, "batch_size": 1, "host": "native"}
    outcomes = {limit["limit"]: limit["outcome"] for limit in data["limits"][STATIC]}
    assert outcomes == {"int8": "PASS", "accuracy": "PASS"}
    assert data["not_it"] == [{"reason": "slower than the pick", "cases": [QAT]}]


def test_the_file_is_written_as_a_reader_sees_it() -> None:
    """A line for each key, letters as they are, and a line's end at its own."""
    written = as_json("démo", [], ["low ≤ high"])
    assert written == (
        '{\n "schema": 1,\n "suite": "démo",\n "warnings": [\n  "low ≤ high"\n ],\n "decisions": [],\n'
        ' "by_host": []\n}\n'
    )


@pytest.mark.parametrize(
    ("record", "verdict", "ship"),
    [
        (int8(accuracy=accuracy(harmful=60)), "none qualifies", FP32),
        (int8(speedup=speedup(0.8), latency=latency(0.003)), "keep fp32", FP32),
        (int8(accuracy=accuracy(harmful=9, beneficial=2)), "undecided", None),
    ],
)
def test_fp32_is_shipped_where_it_stays(record: Record, verdict: str, ship: str | None) -> None:
    """What is open ships nothing."""
    data = read(fp32(), record)
    assert (data["verdict"], data["ship"]) == (verdict, ship)


def test_what_is_not_known_is_null() -> None:
    """No probability is claimed where planned cases are missing, and no ratio where there is no fp32."""
    data = read(int8(), planned=(STATIC, QAT))
    assert (data["probability"], data["fp32"], data["over_fp32"], data["speedup"]) == (None, None, None, None)
    assert data["missing"] == [QAT]


@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        (int8(), "ship"),
        (int8(accuracy=accuracy(harmful=60)), "none qualifies"),
        (int8(speedup=speedup(0.8), latency=latency(0.003)), "keep fp32"),
    ],
)
def test_a_run_that_was_cut_ships_nothing(record: Record, verdict: str) -> None:
    """A planned case without a record may be better: it is incomplete, with the cases that are missing; what leads so
    far is the pick."""
    whole, cut = read(fp32(), record), read(fp32(), record, planned=(FP32, STATIC, QAT))
    assert (whole["verdict"], whole["complete"]) == (verdict, True)
    assert (cut["verdict"], cut["complete"], cut["ship"], cut["missing"]) == ("incomplete", False, None, [QAT])
    assert cut["pick"] == whole["pick"]
    assert cut["headline"].startswith("Incomplete: 1 of 3 planned cases is missing")


def test_a_program_reads_which_outputs_nobody_judged() -> None:
    """The probability is at most the share that was; nothing is said of a network with one."""
    unjudged = read(fp32(), int8(accuracy=replace(accuracy(), outputs=list_outputs("boxes", "masks"))))
    assert (unjudged["unjudged_outputs"], unjudged["verdict"]) == (["boxes", "masks"], "ship")
    assert unjudged["probability"] == pytest.approx(1 / 3)
    assert "its outputs boxes (sqnr 31.2 dB), masks (sqnr 31.2 dB)" in unjudged["notes"][0]
    assert read(fp32(), int8())["unjudged_outputs"] == []


def test_each_limit_is_data_besides_its_text() -> None:
    """Key, value, unit, and what was measured with the limits that were tested; a program parses no prose."""
    (limit,) = [limit for limit in read(fp32(), int8())["limits"][STATIC] if limit["limit"] == "accuracy"]
    assert (limit["key"], limit["value"], limit["unit"], limit["level"]) == ("gate.accuracy.margin", 1.0, "points", 0.9)
    assert limit["measured"]["low"] < limit["measured"]["value"] < limit["measured"]["high"]
    assert limit["measured"]["low"] > -limit["value"]
    assert limit["place"] is None


def test_the_file_of_what_is_shipped_is_named() -> None:
    """By its digest and size, and where the run left it below the cache; null where nothing is shipped."""
    record = int8()
    assert record.artifact is not None
    keyed = replace(record, artifact=replace(record.artifact, key="a" * 64))
    assert read(fp32(), keyed)["file"] == {
        "format": record.artifact.format,
        "sha256": record.artifact.sha256,
        "size_bytes": record.artifact.size_bytes,
        "cache": f"artifacts/{'a' * 64}",
    }
    assert read(fp32(), record)["file"]["cache"] is None
    assert read(fp32())["file"] is None


def test_a_number_that_json_has_not_is_no_json() -> None:
    """Whoever reads it would choke on it."""
    judged = judge([fp32(), int8()], MetricInfo(name="top1"), SuiteRules())
    (decision,) = decide(judged)
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json("demo", [replace(decision, capped=float("nan"))])  # type: ignore[arg-type]
