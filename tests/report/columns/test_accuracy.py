"""Rules of qbench/report/columns/accuracy.py: what the cells of a score and of its change say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_records import accuracy, fp32, int8

from qbench.compare.calibration_seeds import SeedSpread
from qbench.decide.judged import Judged, SuiteRules, judge
from qbench.record.schema import Flips, OutputScore, Record, ScoreChange, TwinChange
from qbench.record.stored_run import MetricInfo
from qbench.report.cells import CaseRow, Cell, list_rows
from qbench.report.columns import COLUMNS, draw_cells
from qbench.suite.gate import GateSpec


def row_of(record: Record, metric: MetricInfo | None = None, margin: float = 1.0, **changes: Any) -> CaseRow:
    """A case beside its fp32, held against a margin."""
    rules = SuiteRules(gate=GateSpec.model_validate({"accuracy": {"margin": margin}}))
    judged: Judged = replace(judge([fp32(), record], metric or MetricInfo(name="top1"), rules), **changes)
    return list_rows(judged, judged.records, 1e-3)[1]


def cell(row: CaseRow, key: str) -> Cell:
    """What the table of cases has in a column."""
    return draw_cells(row)[key]


def spread_of(worst: str | None) -> Any:
    """Scores by three seeds, of which the worst was tested with this outcome."""
    record = int8()
    test = row_of(record).judged.test_of(record)
    assert test is not None
    held = None if worst is None else replace(test, outcome=worst)
    return {record.case.id: SeedSpread(seeds=(0, 1, 2), values=(0.97, 0.9612345, 0.98), worst=1, test=held)}


@pytest.mark.parametrize(
    ("case", "worst", "tone"),
    [("PASS", "FAIL", "unsure"), ("PASS", "INCONCLUSIVE", "unsure"), ("PASS", "PASS", ""), ("PASS", None, ""),
     ("FAIL", "FAIL", "")],
)  # fmt: skip
def test_a_pass_that_another_seed_would_not_have_is_doubtful(case: str, worst: str | None, tone: str) -> None:
    """The lowest and the highest score, and how the worst one ends; what fails anyway is not in doubt."""
    record = int8() if case == "PASS" else int8(accuracy=accuracy(harmful=60))
    row = row_of(record, seed_spreads=spread_of(worst))
    assert row.judged.outcome(record) == case
    shown = cell(row, "seeds")
    assert (shown.text, shown.tone, shown.sort) == ("96.12 to 98.00", tone, pytest.approx(0.0187655))
    assert shown.hint == f"the worst of 3 seeds, 1: {worst or 'not judged'}"


def test_seeds_of_a_score_with_a_unit_have_four_digits() -> None:
    """And without several seeds there is nothing to show."""
    metric = MetricInfo(name="mae", percent=False, higher_is_better=False, own_unit="px")
    assert cell(row_of(int8(), metric, seed_spreads=spread_of(None)), "seeds").text == "0.9612 to 0.9800"
    assert cell(row_of(int8(), seed_spreads={}), "seeds") == Cell()


def test_a_change_against_the_twin_tells_both_ways() -> None:
    """Whose network it is, and what was lost and gained beside it where that is known."""
    delta = ScoreChange(value=-0.01, low=-0.02, high=0.0)
    twin = TwinChange(baseline="net/qat/torch/t1/b1", delta=delta, flips=Flips(harmful=12, beneficial=2))
    record = int8(accuracy=replace(accuracy(harmful=1), twin=twin))
    assert cell(row_of(record), "twin").hint == ("against net/qat/torch/t1/b1; 12 right to wrong, 2 wrong to right")
    plain = replace(record, accuracy=replace(record.accuracy, twin=replace(twin, flips=None)))
    assert cell(row_of(plain), "twin").hint == "against net/qat/torch/t1/b1"
    assert cell(row_of(plain), "twin").text == "-1.00"
    unknown = replace(record, accuracy=replace(record.accuracy, twin=replace(twin, delta=None)))
    assert [cell(row_of(each), "twin") for each in (unknown, int8(), replace(int8(), accuracy=None))] == [Cell()] * 3


def test_each_of_several_outputs_has_its_score_or_its_name_alone() -> None:
    """And the place of the judged one is written only where there are several."""
    outputs = (
        OutputScore(name="boxes", judged=True, metric="map", value=0.5),
        OutputScore(name="masks", judged=False, metric="sqnr"),
    )
    several = int8(accuracy=replace(accuracy(harmful=1), outputs=outputs, judged=0))
    values = {name: COLUMNS[f"accuracy.{name}"].value(row_of(several)) for name in ("outputs", "judged")}
    assert values == {"outputs": "boxes map 0.5; masks", "judged": 0}
    for record in (int8(accuracy=replace(accuracy(harmful=1), judged=0)), int8(accuracy=None)):
        assert [COLUMNS[f"accuracy.{name}"].value(row_of(record)) for name in ("outputs", "judged")] == [None, None]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (int8(), ("OK (limit -1.0)", "good", 3)),
        (int8(accuracy=accuracy(harmful=60)), ("loses too much (limit -1.0)", "bad", 1)),
        (int8(accuracy=accuracy(harmful=8)), ("open (limit -1.0)", "unsure", 2)),
        (int8(accuracy=replace(accuracy(), delta=None)), ("not judged", "muted", 0)),
        (int8("net/dynamic/x86/t1/b1", coverage=0.001), ("no candidate", "muted", 0)),
    ],
)
def test_a_verdict_is_a_word_with_the_limit_and_sorts_by_how_good_it_is(record: Record, expected: Any) -> None:
    """What is fp32 in effect is no candidate; of fp32 there is none."""
    shown = cell(row_of(record), "judged")
    assert (shown.text, shown.tone, shown.sort) == expected
    base = row_of(record)
    assert cell(replace(base, record=fp32()), "judged") == Cell()


def test_a_verdict_that_cannot_be_told_says_how_many_examples_would() -> None:
    """As far as that is known; a decided one says nothing."""
    undecided = cell(row_of(int8(accuracy=accuracy(harmful=8))), "judged")
    assert undecided.limits.startswith("about ")
    assert undecided.hint == f"{undecided.limits} would decide, if the change stays as it is"
    decided = cell(row_of(int8()), "judged")
    assert (decided.limits, decided.hint) == ("", "")


def test_flips_are_counted_both_ways_with_their_p_value() -> None:
    """Nothing where they are not known."""
    shown = cell(row_of(int8(accuracy=accuracy(harmful=4, beneficial=1))), "flips")
    assert (shown.text, shown.sort, shown.limits) == ("4 lost, 1 gained", 4, "p = 0.22")
    assert shown.hint == "4 right to wrong, 1 wrong to right; McNemar's test of no change: mid-p = 0.22"
    for scored in (None, replace(accuracy(), flips=None)):
        assert cell(row_of(int8(accuracy=scored)), "flips") == Cell()


def test_a_change_is_nothing_where_nothing_is_held_against_fp32() -> None:
    """Of fp32 on its own runtime it is the reference; of a case without a score there is none."""
    row = row_of(int8())
    assert (cell(row, "delta").text, cell(row, "delta").sort) == ("0.00", 0.0)
    (base,) = (each for each in list_rows(row.judged, row.judged.records, 1e-3) if each.record.case.mode == "fp32")
    assert cell(base, "delta") == Cell(text="0", limits="(reference)", sort=0.0)
    for scored in (None, replace(accuracy(), delta=None)):
        assert cell(row_of(int8(accuracy=scored)), "delta") == Cell()
    assert cell(row_of(int8(accuracy=None)), "accuracy") == Cell()
    assert cell(row, "accuracy").hint.startswith("1,000 examples")


def test_margins_are_in_the_metrics_own_scale() -> None:
    """Of cases with a score; a least score is none, and has its own column."""
    row = row_of(int8(), margin=2.0)
    assert (COLUMNS["accuracy.margin"].value(row), COLUMNS["accuracy.at_least"].value(row)) == (0.02, None)
    for name in ("margin", "at_least", "delta.level", "delta.low"):
        assert COLUMNS[f"accuracy.{name}"].value(row_of(int8(accuracy=None))) is None
    assert COLUMNS["accuracy.delta.level"].value(row) == 0.9
