"""Rules of qbench/report/case_table.py and cells.py: one table of columns that someone fills, in even decimals."""

from __future__ import annotations

from made_records import accuracy, fp32, int8, latency, speedup

from qbench.decide.decision import decide
from qbench.decide.judged import Rules, judge
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.report.case_table import MANY, CaseTable, case_table
from qbench.report.ruling import rule

QAT = "net/qat/onednn/t1/b1"


def drawn(*records: Record) -> CaseTable:
    """The table of some records."""
    judged = judge(records, MetricInfo(name="top1"), Rules())
    decisions = decide(judged)
    return case_table(judged, decisions, rule(judged, decisions))


def test_a_column_that_nobody_fills_is_left_out() -> None:
    """So are the columns that say of every case the same place in the matrix."""
    found = drawn(fp32(), int8(speedup=speedup(control=None)))
    assert "control" not in [column.key for column in found.columns]
    assert found.keys == ()
    assert drawn(fp32(), int8(), int8("net/static/onednn/t2/b1")).keys == ("threads",)


def test_decimals_are_the_same_throughout_a_column() -> None:
    """However large a value is and however wide its limits are."""
    cases = [int8(latency=latency(0.00123)), int8(QAT, speedup=speedup(0.3172), latency=latency(0.0456),
             accuracy=accuracy(harmful=9))]  # fmt: skip
    found = drawn(fp32(), *cases)
    for key in ("p50", "speedup", "delta", "accuracy"):
        texts = [line.cells[key].text for line in found.lines if line.cells[key].sort is not None]
        places = {len(text.partition(".")[2]) for text in texts if line_is_measured(text)}
        assert places == {2}, key


def line_is_measured(text: str) -> bool:
    """Whether a text is a figure, no reference."""
    return text not in ("0", "1")


def test_the_fastest_fp32_is_the_reference() -> None:
    """1 (reference), no dash; so is its accuracy, which nothing is held against."""
    line = next(line for line in drawn(fp32(), int8()).lines if line.record.case.mode == "fp32")
    assert (str(line.cells["best"]), str(line.cells["delta"])) == ("1 (reference)", "0 (reference)")


def test_changed_answers_are_told_in_words() -> None:
    """4 lost, 1 gained."""
    found = drawn(fp32(), int8(accuracy=accuracy(harmful=4, beneficial=1)))
    assert found.lines[0].cells["flips"].text == "4 lost, 1 gained"


def test_what_hangs_on_a_cell_is_read_without_a_mouse() -> None:
    """A row unfolds: its id, what it is compared with, and how many calls were kept."""
    facts = dict(drawn(fp32(), int8()).lines[0].facts)
    assert facts["case"] == "net/static/onednn/t1/b1"
    assert facts["compared"] == "against net/fp32/torch/t1/b1, paired, 3 processes"
    assert facts["calls"] == "400 kept"


def test_many_rows_scroll_within_the_table() -> None:
    """A page of 300 cases stays a page."""
    assert not drawn(fp32(), int8()).many
    assert drawn(fp32(), *(int8(f"net/static/b{number}/t1/b1") for number in range(MANY))).many
