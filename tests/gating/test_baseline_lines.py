"""Rules of qbench/gating/baseline_lines.py: what a committed line holds, and how it reads."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from made_records import RUN_V1, accuracy, failed, int8, latency, list_outputs

from qbench.gating.baseline_lines import to_line
from qbench.record import jsonl
from qbench.record.schema import TwinChange
from qbench.record.stored_run import read_run
from qbench.stats.interval_type import Interval

RECORDS = read_run(RUN_V1).records


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.case.id)
def test_a_line_is_small_and_a_record(record) -> None:
    """At most a third of what the run stores; what is read back is the same case, artifact and score."""
    line = to_line(record)
    assert len(line) <= max(400, len(jsonl.to_line(record)) / 2)
    kept = jsonl.from_line(line)
    assert (kept.case, kept.status, kept.reason) == (record.case, record.status, record.reason)
    if record.artifact is not None:
        assert kept.artifact is not None
        assert (kept.artifact.sha256, kept.artifact.size_bytes) == (record.artifact.sha256, record.artifact.size_bytes)
    if record.accuracy is not None:
        assert kept.accuracy is not None
        assert kept.accuracy.value == pytest.approx(record.accuracy.value, rel=1e-5)


def test_figures_have_no_more_digits_than_they_bear() -> None:
    """A speed-up of 2.123456789 is 2.123; an exact count stays exact."""
    record = int8(size_bytes=1_234_567)
    assert record.speedup is not None
    line = json.loads(to_line(replace(record, speedup=replace(record.speedup, value=2.123456789))))
    assert line["speedup"]["value"] == 2.123
    assert line["artifact"]["size_bytes"] == 1_234_567
    assert line["accuracy"]["value"] == 0.97


def test_scores_and_shares_have_six_digits_and_times_four() -> None:
    """One example of a million still shows in a score, in its limits and in the share of work in int8."""
    score = replace(accuracy(), value=0.123456789, delta=Interval(value=-0.0123456789, low=-0.02, high=0.0))
    record = int8(coverage=0.987654321, accuracy=score, latency=latency(0.00123456789))
    line = json.loads(to_line(record))
    assert (line["accuracy"]["value"], line["accuracy"]["delta"]["value"]) == (0.123457, -0.0123457)
    assert line["artifact"]["coverage"]["macs_int8"] == 0.987654
    assert line["latency"]["p50_seconds"] == 0.001235


def test_what_no_rule_reads_is_left_out() -> None:
    """Of the record, of its score and of its artifact; what is kept of them stays."""
    score = replace(accuracy(), interval="score", twin=TwinChange(baseline="x", delta=None), only_answer=3)
    record = int8(accuracy=score, recipe={"flow": "fx"}, samples="a.npz", elapsed_seconds={"build": 1.0})
    assert record.artifact is not None
    artifact = replace(record.artifact, cached=True, rewrites=("x",), rewrite_difference=0.5, flow="fx")
    line = json.loads(to_line(replace(record, artifact=artifact)))
    assert not {"recipe", "samples", "elapsed_seconds"} & set(line)
    assert not {"interval", "twin"} & set(line["accuracy"])
    assert not {"cached", "rewrites", "rewrite_difference"} & set(line["artifact"])
    assert (line["accuracy"]["only_answer"], line["artifact"]["flow"]) == (3, "fx")
    assert line["artifact"]["coverage"]["float_layers"] == ["fc"]
    bare = jsonl.from_line(to_line(replace(record, artifact=None, accuracy=None)))
    assert (bare.artifact, bare.accuracy) == (None, None)


def test_keys_are_sorted_and_defaults_left_out() -> None:
    """So that a change of a baseline shows what changed, and nothing else."""
    line = to_line(int8())
    keys = list(json.loads(line))
    assert keys == sorted(keys)
    assert "null" not in line.replace('"p99_seconds": null', "")
    assert "observed" not in keys


def test_a_failed_case_keeps_its_reason() -> None:
    """A baseline that was written with failed cases says which."""
    assert jsonl.from_line(to_line(failed())) == failed()


def test_what_stands_in_a_list_is_kept_as_what_stands_alone() -> None:
    """Without the fields that are as by default, and with as many digits."""
    outputs = tuple(replace(each, value=31.123456789) for each in list_outputs("boxes"))
    record = int8(accuracy=replace(accuracy(), outputs=outputs))
    kept = json.loads(to_line(record))["accuracy"]["outputs"]
    assert [set(each) - {"judged"} for each in kept] == [{"name", "metric", "value"}] * 2
    alone = json.loads(to_line(int8(accuracy=replace(accuracy(), value=31.123456789))))["accuracy"]["value"]
    assert kept[1]["value"] == alone != 31.123456789


def test_a_line_has_these_parts_and_is_strict() -> None:
    """A reference is a case like any other; letters are letters, and a number that JSON does not have is an error."""
    record = int8(reference=True, recipe={"flow": "fx"}, coverage=0.5)
    assert set(json.loads(to_line(record))) == {
        "schema",
        "case",
        "status",
        "artifact",
        "accuracy",
        "latency",
        "speedup",
    }
    assert "é" in to_line(failed(reason="é"))
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_line(int8(latency=latency(float("nan"))))
