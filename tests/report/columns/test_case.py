"""Rules of qbench/report/columns/case.py: what a decision says of a case, and what is minimized."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_records import failed, fp32, int8

from qbench.decide.cases import Setting
from qbench.decide.decision import Decision
from qbench.decide.judged import SuiteRules, judge
from qbench.record.schema import ColdStart, Memory, Record
from qbench.record.stored_run import MetricInfo
from qbench.report.cells import CaseRow, Cell
from qbench.report.columns import COLUMNS, draw_cells, list_shown
from qbench.suite.settings import DecideSpec

BASE, OWN, OTHER, THIRD = fp32(), int8(), int8("net/static/x86/t1/b1"), int8("net/qat/x86/t1/b1")


def row_of(record: Record, decision: Decision | None = None, best: Record | None = None, **decide: Any) -> CaseRow:
    """A case with what was decided in its setting."""
    rules = SuiteRules(decide=DecideSpec.model_validate(decide))
    return CaseRow(
        judged=judge([BASE, OWN], MetricInfo(name="top1"), rules), record=record, decision=decision, best=best
    )


def decided(verdict: Any, **changes: Any) -> Decision:
    """A decision between these cases."""
    setting = Setting(model="net", threads=1, batch_size=1)
    plain = Decision(
        setting=setting, verdict=verdict, headline="", pick=OWN, runner_up=OTHER, fp32=BASE, tied=(THIRD.case.id,)
    )
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("verdict", "roles"),
    [
        ("ship", ("ship", None, None, "tied")),
        ("either", ("either", "either", None, "tied")),
        ("undecided", ("undecided", None, None, "tied")),
        ("keep fp32", (None, None, "keep fp32", "tied")),
        ("none qualifies", (None, None, None, "tied")),
    ],
)
def test_a_case_has_the_role_that_the_decision_gives_it(verdict: str, roles: tuple[str | None, ...]) -> None:
    """Only what is named for it, and what ties; how sure that is stands with what is named."""
    decision = decided(verdict, probability=0.9)
    rows = [row_of(record, decision) for record in (OWN, OTHER, BASE, THIRD)]
    assert tuple(COLUMNS["decision.role"].value(row) for row in rows) == roles
    sure = tuple(COLUMNS["decision.probability"].value(row) for row in rows)
    assert sure == tuple(0.9 if role == verdict else None for role in roles)
    assert {COLUMNS["decision.verdict"].value(row) for row in rows} == {decision.status}


def test_what_is_not_decided_has_no_role() -> None:
    """Nor does a decision without a pick name one."""
    assert COLUMNS["decision.role"].value(row_of(OWN)) is None
    assert COLUMNS["decision.probability"].value(row_of(OWN)) is None
    assert COLUMNS["decision.verdict"].value(row_of(OWN)) is None
    empty = decided("undecided", pick=None, tied=())
    assert COLUMNS["decision.role"].value(row_of(OWN, empty)) is None
    assert [COLUMNS["decision.is_best_fp32"].value(row_of(each, best=BASE)) for each in (BASE, OWN)] == [True, False]
    assert COLUMNS["decision.tie"].value(row_of(OWN, tie=0.05)) == 0.05
    assert [COLUMNS[name].value(row_of(OWN)) for name in ("run", "suite")] == [None, None]


@pytest.mark.parametrize(
    ("minimize", "cell"),
    [
        ("memory", Cell(text="100 MB", sort=100_000_000)),
        ("cold_start", Cell(text="30.0 ms", sort=pytest.approx(0.03))),
        ("latency", None),
        ("size", None),
    ],
)
def test_what_is_minimized_beside_time_and_size_has_its_column(minimize: str, cell: Cell | None) -> None:
    """In its own unit; a dash for a case that lacks it."""
    start = ColdStart(load_seconds=0.02, first_call_seconds=0.01)
    record = replace(OWN, cold_start=start, memory=Memory(loaded_rss_bytes=10**8, peak_rss_bytes=None))
    row = row_of(record, minimize=minimize)
    assert ("minimized" in list_shown(row.judged, "ms")) is (cell is not None)
    if cell is not None:
        assert draw_cells(row)["minimized"] == cell
        assert draw_cells(row_of(failed(), minimize=minimize))["minimized"] == Cell()
