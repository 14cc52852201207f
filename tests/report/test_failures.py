"""Rules of qbench/report/failures.py: each reason once."""

from __future__ import annotations

from pathlib import Path

from made_records import CASE, failed, info, int8, skipped

from qbench.record.stored_run import PlanInfo, SkipInfo, StoredRun
from qbench.report.failures import group_failures

ONE, TWO = "net/static/x86/t1/b1", "net/static/x86/t2/b1"


def test_cases_of_one_reason_stand_together(tmp_path: Path) -> None:
    """Failed first, then skipped, also by the plan alone, then those without a record."""
    plan = PlanInfo(
        cases=(CASE, "net/qat/x86/t1/b1"),
        skipped=(SkipInfo(id=TWO, reason="no C++ compiler found"), SkipInfo(id=ONE, reason="recorded")),
    )
    records = (int8(), skipped(ONE), failed("a/qat/x86/t1/b1"), failed("b/qat/x86/t1/b1"))
    groups = group_failures(StoredRun(folder=tmp_path, info=info(plan=plan), records=records))
    assert [(group.status, group.stage, len(group.cases)) for group in groups] == [
        ("failed", "measure", 2),
        ("skipped", "plan", 2),
        ("no record", "", 1),
    ]
    assert groups[1].cases == (ONE, TWO)
    assert groups[0].sign.symbol == "✗"
