"""Rules of qbench/report/terminal.py: what `qbench run` prints fits the terminal and keeps what matters longest."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import RUN_V1, accuracy, failed, fp32, int8, latency, same_as_golden, speedup

from qbench.decide.decision import decide
from qbench.decide.judged import Judged, SuiteRules
from qbench.decide.judged import judge as judge_records
from qbench.record.schema import ColdStart, Fastest, Memory, Record
from qbench.record.stored_run import MetricInfo, read_run
from qbench.report import ruling, terminal
from qbench.report.build import judge
from qbench.report.cells import CaseRow
from qbench.report.columns import list_shown
from qbench.stats.interval_type import Interval
from qbench.suite.gate import GateSpec
from qbench.suite.settings import DecideSpec

TOP1 = MetricInfo(name="top1")
QAT = "net/qat/onednn/t1/b1"
BEST = Fastest(baseline="net/fp32/torch/t1/b1", value=2.504, low=2.46, high=2.55)


def judged(*records: Record, metric: MetricInfo = TOP1) -> Judged:
    """Records with their accuracy tests."""
    return judge_records(records, metric, SuiteRules())


def fastest(record: Record) -> Fastest | None:
    """A record's speed-up as if it were that over the fastest fp32."""
    known = record.speedup
    return (
        None if known is None else Fastest(baseline=known.baseline, value=known.value, low=known.low, high=known.high)
    )


def drawn(run: Judged, width: int | None = None, *, wide: bool = False) -> str:
    """The tables, with today's rulings."""
    return terminal.draw(run, ruling.rule(run, decide(run)), width=width, wide=wide)


def rows(text: str) -> list[list[str]]:
    """The lines of the first table after its titles, cut at two spaces or more."""
    lines = text.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]


@pytest.mark.parametrize("width", [80, 100, 140, None])
def test_the_table_is_golden(width: int | None) -> None:
    """What `qbench run` prints for the run of schema 1, on three terminals and into a file."""
    run = judge(read_run(RUN_V1))
    # speed-ups of this old run have no limits; with them the widths differ
    records = [replace(record, speedup_fastest=fastest(record)) for record in run.records]
    assert same_as_golden(f"terminal_{width or 'file'}.txt", drawn(replace(run, records=records), width) + "\n")


def test_what_was_only_screened_is_marked_as_coarse() -> None:
    """A ratio of one process carries a ~, in the narrow table and the wide one, and what that means is said once."""
    run = judge(read_run(RUN_V1))
    screened = next(record for record in run.records if record.speedup is not None)
    assert screened.speedup is not None
    left = replace(screened, speedup=replace(screened.speedup, stopped="screened"), speedup_fastest=fastest(screened))
    records = [left if record is screened else record for record in run.records]
    narrow = drawn(replace(run, records=records), 100)
    assert [line for line in narrow.splitlines() if re.search(r"[0-9]~ ", line)] == [
        line for line in narrow.splitlines() if line.startswith(left.case.variant)
    ]
    assert " ".join(narrow.split()).count("coarse, from the screening") == 1
    wide = drawn(replace(run, records=records), wide=True)
    assert "~" in wide.partition("In brackets")[0]
    assert wide.count("~: coarse, from the screening") == 1
    assert "coarse" not in drawn(run, 100)


def test_the_wide_table_is_golden() -> None:
    """--wide shows every column of the report."""
    assert same_as_golden("terminal_wide.txt", drawn(judge(read_run(RUN_V1)), wide=True) + "\n")


def test_a_wide_table_leaves_out_what_no_case_has() -> None:
    """p90 of too few calls is a dash in every row: no column then."""
    assert "9 in 10" in drawn(judged(fp32(), int8()), wide=True)
    without = [replace(record, latency=replace(latency(0.001), p90_seconds=None)) for record in (fp32(), int8())]
    text = drawn(judged(*without), wide=True)
    assert "9 in 10" not in text
    assert "time, ms" in text


@given(width=st.integers(min_value=30, max_value=200))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Limits go, then the table becomes blocks; a single word may be longer."""
    text = drawn(
        judged(fp32(), int8(speedup_fastest=BEST), int8(QAT, accuracy=accuracy(harmful=9, beneficial=2))), width
    )
    assert max(len(line) for line in text.splitlines()) <= width


def test_eighty_columns_hold_the_longest_names_of_a_plain_suite() -> None:
    """dynamic on onnxruntime with limits on what decides is a table, no block."""
    cases = [int8(f"net/{mode}/onnxruntime/t1/b1", speedup_fastest=BEST) for mode in ("dynamic", "static")]
    text = drawn(judged(fp32(), *cases), 80)
    assert text.count("2.50 [") == 2
    assert text.splitlines()[1].startswith("variant ")


def test_candidates_stand_first_and_the_pick_before_them() -> None:
    """Then fp32, then what cannot be shipped, each the fastest first."""
    lossy = int8("net/static/x86/t1/b1", accuracy=accuracy(harmful=60), speedup=speedup(4.0))
    open_ = int8(QAT, accuracy=accuracy(harmful=9, beneficial=2), speedup=speedup(2.2))
    later = int8("net/static/fbgemm/t1/b1", speedup=speedup(2.0))
    slow = int8("net/dynamic/onednn/t1/b1", speedup=speedup(0.5))
    table = rows(drawn(judged(lossy, fp32(), later, slow, open_, int8())))
    assert [(row[0], row[-1]) for row in table] == [
        ("static · onednn", "ship"),
        ("qat · onednn", "accuracy open"),
        ("static · fbgemm", "slower"),
        ("fp32 · torch", "fastest fp32"),
        ("static · x86", "loses too much"),
        ("dynamic · onednn", "slower than fp32"),
    ]


def test_a_column_has_one_number_of_decimals() -> None:
    """Times have three significant digits of the shortest, ratios and points two decimals."""
    cases = [int8(latency=latency(0.00123)), int8(QAT, latency=latency(0.0456), accuracy=accuracy(harmful=3))]
    table = rows(drawn(judged(fp32(), *cases), 60 + 20))
    decimals = [{len(row[column].split(" ")[0].partition(".")[2]) for row in table[:2]} for column in (1, 2, 3)]
    assert decimals == [{2}, {2}, {2}]


def test_more_examples_show_smaller_changes() -> None:
    """One example of 10,000 is 0.01 points: a tenth of a point would hide it."""
    table = rows(drawn(judged(fp32(), int8(accuracy=accuracy(harmful=1, n=10_000, right=9700)))))
    assert "-0.01" in table[0][3]


def test_an_error_shows_the_digits_that_its_limits_support() -> None:
    """A metric in its own unit has no fixed decimals of its own."""
    mae = MetricInfo(name="mae", percent=False, higher_is_better=False, own_unit="px")
    text = drawn(judged(fp32(), int8(), metric=mae))
    assert "mae: its change, px (limit +1.0);" in text
    assert "0.000" in text


def test_a_metric_against_fp32_shows_how_near_it_is() -> None:
    """Its score is no change of anything."""
    agreement = MetricInfo(name="top1_agreement", against="fp32")
    text = drawn(judged(fp32(), int8(), metric=agreement))
    assert "top1_agreement: its score, %;" in text
    assert "97.0" in text


def test_what_is_not_known_is_a_dash() -> None:
    """Never 0; a case that was not measured has no row, and a run without any no table."""
    empty = replace(int8(), latency=None, speedup=None, artifact=None, accuracy=None)
    assert rows(drawn(judged(empty)))[0][1:-1] == ["—", "—", "—", "—"]
    assert drawn(judged(failed())) == ""


def test_the_fastest_fp32_is_once_as_fast_as_itself() -> None:
    """It has no limits there: nothing was measured against itself."""
    own = replace(fp32(), speedup_fastest=Fastest(baseline=fp32().case.id, value=1.0, low=1.0, high=1.0))
    table = rows(drawn(judged(own, int8(speedup=speedup(), speedup_fastest=BEST))))
    assert table[1][2] == "1 (reference)"


def test_a_long_line_is_wrapped_between_words() -> None:
    """A path stays whole, and what follows is indented; a file gets the line as it is."""
    line = "report: " + "x" * 50 + " and some more words"
    assert terminal.wrap(line, None) == line
    assert terminal.wrap(line, 30).splitlines() == ["report:", "  " + "x" * 50, "  and some more words"]
    assert terminal.wrap("  a point of several words", 20).splitlines() == ["  a point of several", "    words"]


@given(width=st.integers(min_value=30, max_value=80))
def test_a_figure_stays_beside_its_unit_and_limits(width: int) -> None:
    """No line begins with a unit, an interval or the second half of a variant."""
    lines = terminal.wrap("Ship static · onednn: 2.5 [2.4, 2.6] times as fast, 26 % of its size, 100 % in int8", width)
    assert not [line for line in lines.splitlines() if line.strip()[0] in "%·["]


@pytest.mark.parametrize(
    ("minimize", "title", "cells"),
    [
        ("memory", "memory, MB", ["100", "200"]),
        ("cold_start", "cold start, ms", ["20.0", "40.0"]),
        ("size", "bytes, kB", ["260", "1000"]),
        ("latency", None, []),
    ],
)
def test_what_is_minimized_has_its_column(minimize: str, title: str | None, cells: list[str]) -> None:
    """In the narrow table and in the report's columns; the best comes first."""

    def cost(times: int) -> dict[str, Any]:
        start = ColdStart(load_seconds=0.01 * times, first_call_seconds=0.01 * times)
        return {"cold_start": start, "memory": Memory(loaded_rss_bytes=times * 10**8, peak_rss_bytes=None)}

    records = [replace(fp32(), **cost(2)), int8(**cost(1))]
    run = judge_records(records, TOP1, SuiteRules(decide=DecideSpec.model_validate({"minimize": minimize})))
    assert ("minimized" in list_shown(run, "ms")) == (minimize in ("memory", "cold_start"))
    text = drawn(run)
    if title is not None:
        assert title in text
        assert [row[1] for row in rows(text)] == cells


def test_a_size_that_breaks_its_limit_does_not_read_like_it() -> None:
    """26.04 % beside a limit of 26 % is not shown as 26 %."""
    gate = GateSpec.model_validate({"size": {"max_ratio": 0.26}})
    run = judge_records([fp32(), int8(size_bytes=260_400)], TOP1, SuiteRules(gate=gate))
    assert "26.04 %" in drawn(run)


def test_the_sequential_protocol_shows_its_means():
    """The literature's figure is the mean; the paired protocol shows none."""
    plain = speedup(1.8, protocol="sequential", low=None, high=None)
    sequential = int8(speedup=plain, latency=replace(latency(0.001), mean_seconds=0.001234))
    printed = " ".join(drawn(judged(fp32(), sequential)).split())
    assert "Means by protocol sequential, without limits: " in printed
    assert f"{sequential.case.id} 1.23 ms" in printed
    assert "Means by" not in drawn(judged(fp32(), int8()))


def test_a_table_that_just_fits_keeps_its_limits() -> None:
    """One column less, and those of p50 go."""
    run = judged(fp32(), int8(speedup_fastest=BEST))
    whole = drawn(run)
    widest = max(map(len, whole.split("\n\n")[0].splitlines()[1:]))
    fitting, narrower = (drawn(run, width).split("\n\n")[0] for width in (widest, widest - 1))
    assert fitting == whole.split("\n\n")[0]
    assert len(narrower.splitlines()) == len(fitting.splitlines())
    assert narrower.count("[") < fitting.count("[")


def test_a_terminal_of_a_few_columns_gets_lines_that_can_be_read() -> None:
    """A line a word would be longer than the screen."""
    assert terminal.wrap("one two three four five six", 5).splitlines() == ["one two three four", "  five six"]


def test_levels_are_named_where_they_are_not_those_of_all_limits() -> None:
    """A run without an accuracy has 95 % limits alone."""
    assert "In brackets 95 % limits. " in drawn(judged(replace(fp32(), accuracy=None)))
    assert "In brackets 95 % limits, of top1 90 %, those of the test. " in drawn(judged(fp32(), int8()))


def test_only_the_fastest_fp32_is_the_reference() -> None:
    """An int8 case that is just as fast has its ratio; one that was screened and has no ratio no mark either."""
    own = int8(QAT, speedup=speedup(stopped="screened"))
    cases: list[Any] = [CaseRow(judged=judged(), record=record) for record in (fp32(), int8(), own)]
    ratios = [Interval(value=1.0), Interval(value=1.0), None]
    assert terminal._mark_reference(["1.00", "1.00", "—"], cases, ratios) == ["1   ", "1.00", "—"]
    assert terminal._mark_coarse(["1.00", "1.00", "—"], cases, ratios) == ["1.00", "1.00", "—"]


def test_a_column_without_limits_has_no_room_for_them() -> None:
    """Nothing behind the figures; where some have limits, the others stand below."""
    plain, limited = Interval(value=1.0), Interval(value=2.0, low=1.9, high=2.1)
    assert terminal._column([plain, None], 1.0, 2, True) == ["1.00", "—"]
    with_limits = terminal._column([plain, limited], 1.0, 2, True)
    assert with_limits == ["1.00             ", "2.00 [1.90, 2.10]"]
    assert terminal._column([plain, limited], 1.0, 2, False) == ["1.00", "2.00"]


def test_an_error_without_limits_has_one_decimal() -> None:
    """Nothing tells how many it supports."""
    mae = MetricInfo(name="mae", percent=False, higher_is_better=False, own_unit="px")
    change = Interval(value=0.123, low=None, high=None)
    record = int8(accuracy=replace(accuracy(), metric="mae", value=0.9, low=None, high=None, flips=None, delta=change))
    assert rows(drawn(judged(fp32(), record, metric=mae)))[0][3] == "+0.1"


def test_a_line_on_the_narrowest_terminal_has_twenty_letters() -> None:
    """No more, however few columns there are."""
    assert terminal.wrap("xxxxx xxxxx xxxxx xxx", 5).splitlines() == ["xxxxx xxxxx xxxxx", "  xxx"]
    assert terminal.wrap("xxxxx xxxxx xxxxx xx", 5).splitlines() == ["xxxxx xxxxx xxxxx xx"]
