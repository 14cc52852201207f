"""Rules of qbench/gating/gate.py: what of a run and its baseline ``--filter`` leaves to be judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_records import CASE, FP32, fp32, info, int8

from qbench.errors import UsageError
from qbench.gating.baseline import Baseline
from qbench.gating.gate import keep_cases
from qbench.record.stored_run import PlanInfo, SkipInfo, StoredRun

X86, LIKE_FP32 = "net/static/x86/t1/b1", "zoo/fp32-cnn/static/x86/t1/b1"


def run() -> StoredRun:
    """Two cases with records, two that the run did not reach, and two that were skipped."""
    skips = tuple(SkipInfo(id=f"net/{mode}/inductor/t1/b1", reason="no compiler") for mode in ("static", "qat"))
    planned = PlanInfo(cases=(FP32, CASE, X86, LIKE_FP32), skipped=skips)
    return StoredRun(folder=Path("r"), info=info(plan=planned), records=(fp32(), int8(), int8(X86)))


def test_what_matches_no_glob_is_neither_judged_nor_missed() -> None:
    """Nor is a planned case whose model's name begins with fp32; every fp32 stays, for what is compared with it."""
    baseline = Baseline(info=info(), records=(fp32(), int8(), int8("net/qat/inductor/t1/b1")))
    part, held = keep_cases(run(), baseline, "*/onednn/*, */qat/inductor/*")
    assert [record.case.id for record in part.records] == [FP32, CASE]
    assert part.info.plan.cases == (FP32, CASE)
    assert [skip.id for skip in part.info.plan.skipped] == ["net/qat/inductor/t1/b1"]
    assert held is not None
    assert [record.case.id for record in held.records] == [FP32, CASE, "net/qat/inductor/t1/b1"]


def test_a_glob_may_match_what_only_the_plan_or_the_baseline_has() -> None:
    """A case that was not reached is missed by name; without a baseline there is none to filter."""
    assert keep_cases(run(), None, LIKE_FP32)[0].info.plan.cases == (FP32, LIKE_FP32)
    assert keep_cases(run(), None, LIKE_FP32)[1] is None
    with pytest.raises(UsageError, match=r"--filter 'nothing' matches no case; there are "):
        keep_cases(run(), None, "*, nothing")


def test_a_filter_without_a_match_names_five_cases() -> None:
    """And says how many more there are; what contradicts itself in the baseline is kept of the cases that match."""
    others = tuple(int8(f"net/static/{name}/t1/b1") for name in ("a", "b"))
    texts = {CASE: "its examples score 1", X86: "its examples score 2"}
    baseline = Baseline(info=info(), records=others, contradictions=texts)
    with pytest.raises(UsageError, match=rf"there are {FP32}, net/static/a/t1/b1, net/static/b/t1/b1, .* and 1 more$"):
        keep_cases(run(), baseline, "nothing")
    held = keep_cases(run(), baseline, CASE)[1]
    assert held is not None
    assert held.contradictions == {CASE: "its examples score 1"}
