"""Rules of qbench/report/calibration_seeds.py: the table of scores by calibration seed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from made_records import fp32, int8

from qbench.compare.calibration_seeds import SeedSpread
from qbench.decide.judged import SuiteRules, judge
from qbench.formatting import DASH
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.report.calibration_seeds import table
from qbench.suite.gate import GateSpec

SPREAD = SeedSpread(seeds=(0, 1), values=(0.97, 0.961234), worst=1, failed={5: "no\nmemory"})


def rows(*records: Record, metric: MetricInfo | None = None, tested: bool = False) -> Any:
    """The table's rows of int8 cases that all have the same scores."""
    rules = SuiteRules(gate=GateSpec.model_validate({"accuracy": {"margin": 1.0}}))
    judged = judge([fp32(), *records], metric or MetricInfo(name="top1"), rules)
    spread = replace(SPREAD, test=judged.test_of(records[0]) if tested else None)
    return table(replace(judged, seed_spreads={record.case.id: spread for record in records})).rows


def test_a_row_has_each_seed_the_spread_and_the_worst() -> None:
    """A seed that failed says why; without a test nothing stands for it."""
    case = int8().case.id
    assert rows(int8()) == ((case, "0: 97.00, 1: 96.12, 5: no memory", "0.88 points", "1", DASH, DASH),)
    assert rows(int8(), tested=True)[0][-1] == "PASS"
    pixels = MetricInfo(name="mae", percent=False, higher_is_better=False, own_unit="px")
    assert rows(int8(), metric=pixels)[0][1:3] == ("0: 0.9700, 1: 0.9612, 5: no memory", "0.0088 px")


def test_cases_that_share_predictions_are_one_row() -> None:
    """Those of other numbers of threads; cases without stored predictions are rows of their own."""
    second = int8("net/static/onednn/t2/b1")
    assert len(rows(int8(), second)) == 2
    stored = [replace(record, predictions="p.npz") for record in (int8(), second)]
    assert [row[0] for row in rows(*stored)] == [int8().case.id]
    assert len(rows(stored[0], replace(second, predictions="q.npz"))) == 2
