"""Rules of qbench/gating/evidence.py: what has changed since the baseline, so that there is anything to measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from made_records import FP32, failed, fp32, info, int8

from qbench import suite
from qbench.compare.compare import compare
from qbench.gating.baseline import Baseline
from qbench.gating.evidence import Evidence, differing_host, is_same_file, list_updates
from qbench.record.schema import Record

RULES = suite.parse("suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n")
ONE, TWO, THREE = (f"net/static/onednn/t{threads}/b1" for threads in (1, 2, 3))


def rebuilt(record: Record) -> Record:
    """The record with another artifact."""
    assert record.artifact is not None
    return replace(record, artifact=replace(record.artifact, sha256="b" * 64))


def gather(now: Sequence[Record], before: Sequence[Record], torch: str = "2.13") -> Evidence:
    """What the rules may read of a run under that version of torch, and of a baseline under 2.13."""
    held, run = info(versions={"torch": "2.13"}), info(versions={"torch": torch})
    return Evidence(
        records=now,
        info=run,
        policy=RULES.gate,
        place=RULES.place,
        baseline=Baseline(info=held, records=tuple(before)),
        deltas={delta.case: delta for delta in compare(before, now)},
        pairs=lambda record, fp32: None,
    )


def test_changed_cases_are_those_of_int8_that_were_built_anew_or_are_run_by_other_versions() -> None:
    """Neither fp32 nor what failed is one; a case that the baseline lacks is."""
    before = [fp32(), int8(ONE), int8(TWO), failed(THREE)]
    assert gather([fp32(), int8(ONE), int8(TWO)], before).changed_cases == 0
    assert gather([fp32(), int8(ONE), int8(TWO)], before, "2.14").changed_cases == 2
    assert gather([rebuilt(fp32()), rebuilt(int8(ONE)), int8(TWO), failed(THREE)], before).changed_cases == 1
    assert gather([fp32(), int8(ONE), int8(THREE)], before).changed_cases == 1


def test_an_update_is_told_with_both_versions() -> None:
    """Of what loads and runs the artifacts of the backend, and only where the baseline knows its version."""
    updated = gather([int8(ONE)], [int8(ONE)], "2.14")
    assert updated.name_updates(int8(ONE)) == "torch 2.13 -> 2.14"
    assert (
        gather([int8(ONE)], [int8(ONE)]).name_updates(int8(ONE)),
        replace(updated, baseline=None).name_updates(int8(ONE)),
    ) == ("", "")
    assert list_updates({"torch": "1"}, {}, "onednn") == ["torch"]
    assert list_updates({"torch": None}, {"torch": "1"}, "onednn") == []
    assert list_updates({"torch": "1"}, {"torch": "2"}, "onnxruntime") == []
    assert "torch" in list_updates({"torch": "1"}, {"torch": "2"}, "a plug-in that is not here")


def test_the_rules_of_a_baseline_that_is_none_have_no_updates() -> None:
    """Nor is anything unchanged."""
    alone = replace(gather([int8(ONE)], [int8(ONE)]), baseline=None)
    assert alone.list_updates(int8(ONE)) == []
    assert (
        alone.judge_unchanged(
            alone.rule(alone.limit(int8(ONE), "size growth", "gate.size.max_growth", 1.0), "size"), int8(ONE)
        )
        is None
    )


@pytest.mark.parametrize("field", ["arch", "isa", "isa_switches", "os"])
def test_a_host_is_of_one_kind_by_what_artifacts_are_built_for(field: str) -> None:
    """Its CPU and its cores are not that; what neither tells is the same."""
    assert differing_host({field: "a"}, {field: "b"}) == field
    assert differing_host({field: "a"}, {}) == field
    assert differing_host({field: "a", "cpu": "A"}, {field: "a", "cpu": "B"}) is None


def test_a_file_is_the_same_by_its_sha256() -> None:
    """A record without an artifact has none that could be the same."""
    assert is_same_file(int8(), int8())
    assert not is_same_file(int8(), rebuilt(int8()))
    bare = replace(int8(), artifact=None)
    assert not any(is_same_file(*pair) for pair in ((None, int8()), (bare, int8()), (int8(), bare), (bare, bare)))
    assert FP32 in gather([fp32()], [fp32()]).deltas
