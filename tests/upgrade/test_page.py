"""Rules of qbench/upgrade/page.py and picture.py: the answer first, every case and verdict, nothing that is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from made_changes import CHANGE, make_upgraded
from made_runs import HOSTILE, Page
from made_verdicts import FASTER, GONE, SAME, SIZE, SLOW, UNSURE

from qbench.foreign_text import CONTROL
from qbench.gating.verdict import Verdict
from qbench.report.plots import canvas
from qbench.report.plots.canvas import MARKERS
from qbench.stats.interval_type import Interval
from qbench.upgrade import page, picture
from qbench.upgrade.sentence import write_sentence
from qbench.upgrade.upgrade import ANEW, Upgraded

CHANGES = (replace(CHANGE, now_float=("layer4.0.conv1",)), replace(CHANGE, way=ANEW, same_file=False))


def judge(kept: Sequence[Verdict], anew: Sequence[Verdict], changes: object = CHANGES) -> Upgraded:
    """An upgrade with these verdicts on the case of ``CHANGE``."""
    sides = [[replace(each, case=CHANGE.case) for each in verdicts] for verdicts in (kept, anew)]
    return make_upgraded(*sides, changes=changes, along={"numpy": ("2.4.6", "2.1.3")})  # type: ignore[arg-type]


def test_the_answer_stands_first_then_cases_then_verdicts() -> None:
    """The page says what the terminal says, with the outcome of each way beside its case."""
    upgraded = judge([SLOW], [SAME])
    source = page.render(upgraded)
    texts = (
        *(write_sentence(upgraded), "with it numpy 2.1.3 (was 2.4.6)", "exit code 0", "Time of a call"),
        *("same bits (450)", "What the gate says", "the whole interval is beyond", "Three arms"),
    )
    places = [source.index(text) for text in texts]
    assert places == sorted(places)
    pills = [cell["class"] for cell in Page(source).all("span") if str(cell.get("class")).startswith("pill")]
    assert pills[:2] == ["pill bad", "pill good"]


def test_it_needs_no_script_and_asks_for_nothing() -> None:
    """Its policy allows inline styles alone."""
    parsed = Page(page.render(judge([SLOW], [SAME])))
    assert parsed.all("script") == []
    policies = [meta["content"] for meta in parsed.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    ]


def test_names_are_text() -> None:
    """Markup and control characters of cases, layers and reasons."""
    hostile = replace(CHANGE, case=HOSTILE, name=HOSTILE, model=HOSTILE, now_float=(HOSTILE,), first_layer=HOSTILE)
    gone = replace(hostile, way=ANEW, reason=HOSTILE)
    verdict = replace(SLOW, case=HOSTILE, rule=HOSTILE, text=HOSTILE, reason=HOSTILE)
    source = page.render(replace(make_upgraded([verdict], [verdict], changes=[hostile, gone]), suite=HOSTILE))
    assert Page(source).all("script") == []
    assert HOSTILE not in source
    assert not CONTROL.search(source.replace("\n", ""))


def test_each_case_has_a_row_for_each_way_that_was_timed() -> None:
    """Below its name, with the gate's verdict on that very time; a case that does not run has none."""
    other = replace(CHANGE, case="net/static/onnxruntime/t1/b1", time=None, reason="opset 21")
    rows = picture.list_rows(judge([SLOW, GONE], [UNSURE], (*CHANGES, other)))
    assert [row.label for row in rows] == [CHANGE.case, "same file", "built anew"]
    assert [row.verdict and row.verdict.outcome for row in rows] == [None, "FAIL", "INCONCLUSIVE"]


def test_the_limit_of_the_suite_is_drawn_beside_the_interval() -> None:
    """In per cent, at the row that it holds for."""
    (axes,) = picture.draw(picture.list_rows(judge([SLOW], [SAME], CHANGES[:1]))).axes
    lines = [[round(float(x), 2) for x in line.get_xdata()] for line in axes.lines]
    assert lines == [[0, 0], [5, 5], [3, 5], [4]]


def test_a_page_of_what_was_not_timed_has_no_picture() -> None:
    """Where nothing runs, it says why."""
    gone = [replace(CHANGE, way=way, time=None, reason="opset 21") for way in ("kept", ANEW)]
    source = page.render(judge([GONE], [GONE], gone))
    assert "<svg" not in source
    assert "(same, anew) does not run: opset 21" in source


def test_each_time_is_marked_by_its_verdict() -> None:
    """A circle that passes, a square that fails, a diamond that is open; one that nothing judged as it is, without a
    limit, and without an interval where there is none."""
    other = replace(CHANGE, case="other", time=Interval(value=0.9))
    upgraded = judge([SLOW], [SAME], (*CHANGES, other))
    rows = picture.list_rows(upgraded)
    unsure = picture.list_rows(judge([UNSURE], [SIZE], CHANGES))
    assert [row.label for row in rows] == [CHANGE.case, "same file", "built anew", "other", "same file"]
    marks = []
    for listed in (rows, unsure):
        (axes,) = picture.draw(listed).axes
        marks.append(
            [
                (round(float(line.get_xdata()[0]), 2), float(line.get_ydata()[0]), line.get_marker())
                for line in axes.lines
                if len(line.get_xdata()) == 1
            ]
        )
    good, bad, unsure_mark = (MARKERS[name] for name in ("circle", "square", "diamond"))
    assert marks == [[(4, 1, bad), (4, 2, good), (-10, 4, good)], [(4, 1, unsure_mark), (4, 2, good)]]
    (axes,) = picture.draw(rows).axes
    dashed = [(round(float(line.get_xdata()[0]), 2), round(float(line.get_ydata()[0]), 2)) for line in axes.lines
              if line.get_linestyle() == "--"]  # fmt: skip
    assert dashed == [(5, 0.58), (5, 1.58)]
    assert len([line for line in axes.lines if line.get_linewidth() == 2]) == 2
    assert axes.get_ylim()[0] == len(rows) - 0.5
    assert axes.get_xlabel() == "time, %, beside the old side"


def test_the_tables_of_a_page() -> None:
    """Each case and way with the verdict that weighs most, those of the gate that are no PASS apart from those that
    are."""
    upgraded = judge([SAME, SLOW], [FASTER], CHANGES)
    table = page._tabulate_cases(upgraded)
    assert [row[:3] for row in table.rows] == [(CHANGE.case, "FAIL", "same"), (CHANGE.case, "IMPROVED", "anew")]
    assert (table.columns[:3], len(table.columns)) == (("case", "gate", "file"), len(table.rows[0]))
    bare = page._tabulate_cases(judge([], [], CHANGES))
    assert [row[1] for row in bare.rows] == ["not judged"] * 2
    tones = [page._choose_tone(verdict) for verdict in (None, SAME, SLOW, UNSURE)]
    assert tones == ["", "good", "bad", page._TONES.get(UNSURE.effect, "")]
    (row,) = page._tabulate_verdicts([replace(SLOW, reason="two\nlines")]).rows
    assert row == (SLOW.case, "FAIL", SLOW.rule, SLOW.text, "two lines", SLOW.source)


def test_words_stand_to_the_left_and_figures_to_the_right() -> None:
    """In both tables; a verdict on another case is none on this one."""
    cases, verdicts = (
        page._tabulate_cases(make_upgraded([replace(SLOW, case="another")], [])),
        page._tabulate_verdicts([]),
    )
    assert [row[1] for row in cases.rows] == ["not judged"] * 2
    assert [cases.columns[place] for place in cases.words] == ["case", "gate", "file", "answers", "layers"]
    assert [verdicts.columns[place] for place in verdicts.words] == ["case", "outcome", "rule", "why", "where"]


def test_verdicts_that_hold_are_folded_away_below_those_that_do_not() -> None:
    """Each stands in one of the two tables, and what is not told apart by a verdict has no colour."""
    source = page.render(judge([SLOW], [replace(SAME, rule="held")]))
    shown, held = source.index("Verdicts that are no PASS"), source.index("1 that hold")
    assert shown < source.index("latency (same file)") < held < source.index("held (built anew)")
    pills = [cell["class"] for cell in Page(source).all("span") if str(cell.get("class")).startswith("pill")]
    assert pills == ["pill bad", "pill good"]
    assert "Every rule holds." in page.render(judge([SAME], [SAME]))


def test_the_picture_is_laid_out_in_points() -> None:
    """Rows of 24 points below 8 and above 40 for the axis; names of cases begin at the left edge, ways end before the
    axes; marks lie above intervals and these above limits."""
    rows = picture.list_rows(judge([SLOW], [SAME], CHANGES[:1]))
    figure = picture.draw(rows)
    (axes,) = figure.axes
    assert (figure.get_size_inches() * 72).tolist() == pytest.approx([338, 8 + 2 * 24 + 40])
    box = axes.get_position()
    places = (338 * box.x0, 96 * box.y0, 338 * box.width, 96 * box.height)
    assert places == pytest.approx((84, 40, 338 - 84 - 12, 2 * 24 + 8))
    assert axes.get_ylim() == pytest.approx((1.5, -0.5 - 8 / 24))
    assert axes.get_yticks().tolist() == []
    assert not axes.spines["top"].get_visible()
    low, high = axes.get_xlim()
    assert (low, high) == pytest.approx((-0.4, 5.4), abs=0.01)
    case, way = axes.texts
    assert [(each.get_position(), each.get_ha(), each.get_va()) for each in (case, way)] == [
        ((4 - 84, 0), "left", "center"),
        ((-8, 1), "right", "center"),
    ]
    assert case.get_text() == CHANGE.case
    assert case.get_weight() == "bold"
    left = axes.transAxes.transform((0, 0))[0]
    shifts = [each.get_transform().transform((each.get_position()[0], 0))[0] - left for each in (case, way)]
    assert shifts == pytest.approx([4 - 84, -8])
    drawn = [
        (line.get_zorder(), line.get_linewidth(), [round(float(y), 2) for y in line.get_ydata()])
        for line in axes.lines[:3]
    ]
    assert drawn == [(1, 1, [0.58, 1.42]), (1, 1, [0.58, 1.42]), (2, 2, [1, 1])]
    mark = axes.lines[3]
    assert (mark.get_zorder(), mark.get_markersize()) == (3, 7)
    assert axes.lines[1]._unscaled_dash_pattern == (0, (3, 3))


def test_a_name_that_is_too_long_for_the_picture_is_cut() -> None:
    """It ends at the right edge less the room that is left there and at the left."""
    long = "a" * 200
    (axes,) = picture.draw([picture.Row(label=long)]).axes
    assert axes.texts[0].get_text() == canvas.fit_text(long, 338 - 12 - 4, bold=True)
    assert axes.texts[0].get_text() != long
