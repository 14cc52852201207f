"""Rules of qbench/bisect/picture.py: a row for each look, what is drawn in it, and the words where nothing is."""

from __future__ import annotations

import numpy as np
import pytest
from made_bisections import ANSWERS, METRIC, ask

from qbench.bisect import picture
from qbench.bisect.picture import list_rows


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
