"""Rules of qbench/bisect/picture.py: a row for each look, what is drawn in it, and the words where nothing is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_bisections import ANSWERS, METRIC, ask, make_question

from qbench.bisect import picture
from qbench.bisect.picture import list_rows
from qbench.bisect.search import Judged
from qbench.report.plots import canvas
from qbench.report.plots.canvas import ROLES
from qbench.stats.interval_type import Interval


def test_rows_follow_the_candidates_and_tell_what_was_left_out() -> None:
    """From the good end to the bad one; the one that is named stands out."""
    asked, answer = ANSWERS["named"]
    rows = list_rows(ask(asked), answer)
    assert [row.label for row in rows] == ["1.20.0", "… 2 more", "1.23.0", "1.24.0", "… 3 more", "1.28.0"]
    assert [row.label for row in rows if row.is_named] == ["1.24.0"]


def test_the_threshold_is_drawn_where_there_is_one() -> None:
    """Half of the whole change, beside the good end's level."""
    asked, answer = ANSWERS["named"]
    (axes,) = picture.draw(ask(asked), answer, METRIC).axes
    lines = [line for line in axes.lines if line.get_linestyle() != "-" and len(line.get_xdata()) == 2]
    assert [round(float(line.get_xdata()[0]), 2) for line in lines] == [2.47]


def take(name: str) -> tuple[list[tuple[float, int, str]], list[tuple[float, ...]], list[str], str]:
    """What a picture draws: each point with its row and marker, the ends of each bar, its words, and its axis's."""
    asked, answer = ANSWERS[name]
    (axes,) = picture.draw(ask(asked), answer, METRIC).axes
    points, bars = [], []
    for line in axes.lines:
        values, rows = [np.asarray(each, dtype=float) for each in line.get_data()]
        if line.get_marker() != "None":
            points.append((round(float(values[0]), 2), int(rows[0]), line.get_marker()))
        elif rows[0] == rows[-1]:
            bars.append(tuple(np.round(values, 2).tolist()))
    return points, bars, [each.get_text() for each in axes.texts], axes.get_xlabel()


def test_of_several_none_stands_out() -> None:
    """Nor where the search was cut short."""
    for name in ("several", "cut", "doubtful", "same", "good unusable"):
        asked, answer = ANSWERS[name]
        assert not any(row.is_named for row in list_rows(ask(asked), answer)), name


def test_a_picture_grows_by_its_rows() -> None:
    """Points of the page: labels at the left, a row of 26 for each, the axis and its words below."""
    for name, count in (("named", 6), ("same", 3)):
        asked, answer = ANSWERS[name]
        figure = picture.draw(ask(asked), answer, METRIC)
        (axes,) = figure.axes
        width, height = (72 * side for side in figure.get_size_inches())
        assert (width, height) == pytest.approx((338, 48 + 26 * count))
        left, bottom, across, up = axes.get_position().bounds
        assert (left * width, bottom * height) == pytest.approx((118, 40))
        assert (across * width, up * height) == pytest.approx((208, 8 + 26 * count))
        assert axes.get_ylim() == pytest.approx((count - 0.5, -0.5 - 8 / 26))
        assert axes.margins() == pytest.approx((0.08, 0.05))
        assert list(axes.get_yticks()) == []


def test_names_stand_at_the_left_and_words_in_the_picture() -> None:
    """What is named in bold, what was left out muted, words in the colour of their side."""
    asked, answer = ANSWERS["named by failure"]
    (axes,) = picture.draw(ask(asked), answer, METRIC).axes
    drawn = {(each.get_text(), each.get_ha()): each for each in axes.texts}
    names = {text: each for (text, side), each in drawn.items() if side == "right"}
    assert list(names) == ["1.20.0", "… 2 more", "1.23.0", "1.24.0", "… 3 more", "1.28.0"]
    assert [text for text, each in names.items() if each.get_weight() == "bold"] == ["1.24.0"]
    assert {text for text, each in names.items() if each.get_color() == ROLES["muted"]} == {"… 2 more", "… 3 more"}
    assert {each.get_color() for each in names.values()} == {ROLES["ink"], ROLES["muted"]}
    assert [each.get_position() for each in names.values()] == [
        pytest.approx((-8 / 208, number)) for number in range(6)
    ]
    words = {text: each for (text, side), each in drawn.items() if side == "left"}
    assert {text: each.get_color() for text, each in words.items()} == {
        "runs": ROLES["good"],
        "fails": ROLES["bad"],
        "cannot be looked at": ROLES["muted"],
    }
    assert [each.get_position()[0] for each in words.values()] == [pytest.approx(10 / 208)] * len(words)
    assert list(axes.get_xticks()) == []


def test_a_long_name_is_cut_to_its_room() -> None:
    """That of a row beside the picture, and that of the good end below it."""
    long = tuple(f"{'layer' * 20}{number}" for number in range(9))
    question = make_question("latency", candidates=long)
    (axes,) = picture.draw(question, ANSWERS["named"][1], METRIC).axes
    names = [each.get_text() for each in axes.texts if each.get_ha() == "right" and "more" not in each.get_text()]
    assert names == [canvas.fit_text(long[place], 104, bold=place == 4) for place in (0, 3, 4, 8)]
    assert axes.get_xlabel() == f"time, %, {canvas.fit_text(f'beside {long[0]}', 150)}"


def test_points_lie_over_bars_and_bars_over_levels() -> None:
    """Thin lines behind, marks in front."""
    asked, answer = ANSWERS["named"]
    (axes,) = picture.draw(ask(asked), answer, METRIC).axes
    level, threshold, *rows = axes.lines
    assert list(level.get_xdata()) == [0, 0]
    assert threshold.get_linestyle() == "--"
    assert threshold._unscaled_dash_pattern == (0, (3, 3))
    for line in (level, threshold):
        assert (line.get_zorder(), line.get_linewidth(), line.get_color()) == (1, 1, ROLES["muted"])
    bars, points = rows[::2], rows[1::2]
    assert {(bar.get_zorder(), bar.get_linewidth()) for bar in bars} == {(2, 2)}
    assert {(point.get_zorder(), point.get_markersize()) for point in points} == {(3, 7)}
    assert [bar.get_color() for bar in bars] == [ROLES["good"], ROLES["bad"], ROLES["bad"]]


def test_a_score_without_a_metric_is_drawn_as_it_is() -> None:
    """And has no unit."""
    asked, answer = ANSWERS["named by accuracy"]
    (axes,) = picture.draw(ask(asked), answer).axes
    values = [float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() != "None"]
    assert values == pytest.approx([-0.02, -0.02])
    assert axes.get_xlabel() == "score, beside 1.20.0"


def test_what_runs_the_same_as_an_end_has_its_words() -> None:
    """Beside the good end itself, which has no value either; a value without limits has no bar."""
    same = Judged(side="good", p_bad=0.0, reason="runs the same as onnxruntime 1.20.0")
    point = Judged(side="open", p_bad=0.5, value=Interval(value=1.02))
    half = Judged(side="open", p_bad=0.5, value=Interval(value=1.03, low=1.01))
    answer = replace(ANSWERS["named"][1], judged={**ANSWERS["named"][1].judged, 3: same, 5: point, 6: half})
    (axes,) = picture.draw(ask("latency"), answer, METRIC).axes
    words = [each.get_text() for each in axes.texts if each.get_ha() == "left"]
    assert words == ["the good end", "the same as an end"]
    bars = [line for line in axes.lines if line.get_marker() == "None" and line.get_ydata()[0] == line.get_ydata()[-1]]
    assert len(bars) == 2
    assert [line.get_marker() for line in axes.lines if line.get_marker() != "None"] == ["s", "D", "D", "s"]


def test_time_is_drawn_in_per_cent_beside_the_good_end() -> None:
    """A circle on the good side, a square on the bad one, each with its limits."""
    points, bars, words, axis = take("named")
    assert points == [(0.1, 2, "o"), (4.9, 3, "s"), (5.0, 5, "s")]
    assert bars == [(-0.5, 0.7), (4.3, 5.5), (4.4, 5.6)]
    assert words == ["1.20.0", "the good end", "… 2 more", "1.23.0", "1.24.0", "… 3 more", "1.28.0"]
    assert axis == "time, %, beside 1.20.0"


def test_scores_are_drawn_in_points_and_bits_in_per_cent() -> None:
    """Of a score what was lost, below that of the good end."""
    points, bars, _, axis = take("named by accuracy")
    assert [point[0] for point in points] == [-2.0, -2.0]
    assert bars == [(-3.0, -1.0)] * 2
    assert axis == f"score, {METRIC.unit}, beside 1.20.0"
    points, _, _, axis = take("named by bits")
    assert [point[0] for point in points] == [50.0, 0.0]
    assert axis == "examples that differ, %"


def test_what_has_no_value_is_told() -> None:
    """Whether it runs, where that was asked."""
    points, bars, words, axis = take("named by failure")
    assert (points, bars, axis) == ([], [], "")
    assert words == [
        *("1.20.0", "runs", "… 2 more", "1.23.0", "runs", "1.24.0", "fails", "… 3 more"),
        *("1.28.0", "cannot be looked at"),
    ]
    assert "cannot be looked at" in take("several")[2]


@pytest.mark.parametrize(
    ("name", "dashed"), [("named", 1), ("named by accuracy", 1), ("same", 0), ("named by bits", 0)]
)
def test_half_of_the_change_is_dashed_where_the_bad_end_is_bad(name: str, dashed: int) -> None:
    """Of times and scores."""
    asked, answer = ANSWERS[name]
    (axes,) = picture.draw(ask(asked), answer, METRIC).axes
    lines = [float(line.get_xdata()[0]) for line in axes.lines if line.get_linestyle() == "--"]
    assert len(lines) == dashed
    assert name != "named by accuracy" or lines == [-1.0]
