"""Rules of qbench/report/case_table.py and cells.py: one table of columns that someone fills, in even decimals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from made_records import accuracy, fp32, int8, latency, speedup

from qbench.decide.decision import decide
from qbench.decide.judged import SuiteRules, judge
from qbench.progress.table import TextTable
from qbench.record.schema import CaseKey, ColdStart, Interference, Latency, Memory, Record, Roofline, Sequential
from qbench.record.stored_run import MetricInfo
from qbench.report.case_table import CaseTable, case_table, list_details
from qbench.report.ruling import rule

QAT = "net/qat/onednn/t1/b1"


def drawn(*records: Record) -> CaseTable:
    """The table of some records."""
    judged = judge(records, MetricInfo(name="top1"), SuiteRules())
    decisions = decide(judged)
    return case_table(judged, decisions, rule(judged, decisions))


def test_a_column_that_nobody_fills_is_left_out() -> None:
    """So are the columns that say of every case the same place in the matrix."""
    table = drawn(fp32(), int8(speedup=speedup(control=None)))
    assert "control" not in [column.key for column in table.columns]
    assert table.keys == ()
    assert drawn(fp32(), int8(), int8("net/static/onednn/t2/b1")).keys == ("threads",)


def test_decimals_are_the_same_throughout_a_column() -> None:
    """However large a value is and however wide its limits are."""
    cases = [int8(latency=latency(0.00123)), int8(QAT, speedup=speedup(0.3172), latency=latency(0.0456),
             accuracy=accuracy(harmful=9))]  # fmt: skip
    table = drawn(fp32(), *cases)
    for key in ("p50", "speedup", "delta", "accuracy"):
        texts = [line.cells[key].text for line in table.lines if line.cells[key].sort is not None]
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
    table = drawn(fp32(), int8(accuracy=accuracy(harmful=4, beneficial=1)))
    assert table.lines[0].cells["flips"].text == "4 lost, 1 gained"


def test_what_hangs_on_a_cell_is_read_without_a_mouse() -> None:
    """A row unfolds: what it is compared with, and how many calls were kept."""
    facts = dict(drawn(fp32(), int8()).lines[0].facts)
    assert facts["compared"] == "against net/fp32/torch/t1/b1, paired, 3 processes"
    assert facts["calls"] == "400 kept"


def test_many_rows_scroll_within_the_table() -> None:
    """A page of 300 cases stays a page."""
    several = [int8(f"net/static/b{number}/t1/b1") for number in range(30)]
    assert not drawn(*several).many
    assert drawn(fp32(), *several).many


def record(name: str = "a", **changes: Any) -> Record:
    """A measured case that knows only its calls."""
    key = CaseKey(id=name, model="m", mode="static", backend="x86", threads=1, batch_size=1)
    latency = Latency(
        p50_seconds=1e-3,
        p50_low=None,
        p50_high=None,
        p90_seconds=None,
        p99_seconds=None,
        mean_seconds=1e-3,
        n=1234,
        effective_n=800.4,
    )
    return replace(Record(case=key, status="ok", latency=latency), **changes)


def details_of(*records: Record) -> TextTable:
    """What else was measured of some records."""
    return list_details(judge(records, None, None))


def test_columns_without_content_are_left_out() -> None:
    """A record that knows only its calls has two columns beside its name."""
    table = details_of(record())
    assert table.columns == ("case", "calls", "effective sample size")
    assert table.rows == (("a", "1,234", "800"),)


def test_everything_that_is_known_is_shown() -> None:
    """Each field of the record has its place; what another case lacks is a dash."""
    full = record(
        "full",
        cold_start=ColdStart(load_seconds=0.02, first_call_seconds=0.03, next_calls_seconds=0.001),
        memory=Memory(loaded_rss_bytes=100_000_000, peak_rss_bytes=None),
        interference=Interference(blocks=3, involuntary_switches=5, page_faults=None),
        sequential=Sequential(mean_seconds=0.002, n=100, speedup=1.5),
        roofline=Roofline(macs=1000, peak_fraction=0.41),
        throughput_per_second=1000.0,
    )
    table = details_of(full, record("bare"))
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["of this core's peak"] == "41.0 %"
    assert row["sequential mean"] == "2.00 ms (n = 100)"
    assert row["involuntary context switches"] == "5"
    assert "page faults" not in row
    assert "memory, peak" not in row
    assert dict(zip(table.columns, table.rows[1], strict=True))["load"] == "—"


def test_what_the_host_did_is_shown() -> None:
    """How much of the time the core was shared, and which blocks p50 is of, beside the p50 of all."""
    host = Interference(blocks=9, involuntary_switches=0, page_faults=0, shared=0.6, undisturbed_blocks=4)
    plain = record().latency
    shared = record(interference=host, latency=replace(plain, p50_from="undisturbed", p50_all_seconds=2e-3))
    busy = record("b", interference=host, latency=replace(plain, p50_from="all", p50_all_seconds=1e-3))
    table = details_of(shared, busy)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [row["core busy with other work"] for row in rows] == ["60 %", "60 %"]
    assert [row["p50 from blocks"] for row in rows] == ["undisturbed (of all: 2.00 ms)", "all"]


def test_failed_and_skipped_cases_have_no_row() -> None:
    """What was not measured has nothing else measured."""
    assert details_of(replace(record(), status="failed"), replace(record(), latency=None)).rows == ()
