"""Rules of qbench/report/plots/labels.py: labels cover neither each other nor a mark."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.report.plots.labels import (
    Box,
    Label,
    Line,
    Placed,
    _cross,
    _find_crowds,
    _holds,
    _line_meets,
    _Taken,
    meet,
    place_labels,
)

AREA = (0.0, 0.0, 286.0, 250.0)
PLACES = st.lists(st.tuples(st.floats(0, 286), st.floats(0, 250)), min_size=1, max_size=15)


def box_of(x: float, y: float) -> tuple[float, float, float, float]:
    """The box of a mark."""
    return x - 5, y - 5, x + 5, y + 5


@settings(max_examples=40, deadline=None)
@given(PLACES)
def test_no_label_covers_anything(places: list[tuple[float, float]]) -> None:
    """Whatever is placed lies in the area, away from marks and other labels."""
    marks = [box_of(x, y) for x, y in places]
    placed = place_labels([Label(x=x, y=y, width=90, height=12) for x, y in places], marks, AREA)
    boxes = [label.box for label in placed if label is not None]
    assert all(not meet(label_box, other) for label_box, other in combinations(boxes, 2))
    assert all(not meet(box, mark) for box in boxes for mark in marks)
    assert all(AREA[0] <= box[0] and box[2] <= AREA[2] and AREA[1] <= box[1] and box[3] <= AREA[3] for box in boxes)


def test_many_equal_points_are_told_apart_by_lines() -> None:
    """Of eight variants at one place each has its label, those that are not beside it with a line."""
    places = [(140.0 + i * 0.3, 120.0) for i in range(8)]
    labels = [Label(x=x, y=y, width=90, height=12) for x, y in places]
    placed = place_labels(labels, [box_of(*place) for place in places], AREA)
    assert None not in placed
    assert sum(label is not None and label.leader is not None for label in placed) >= 4


@pytest.mark.parametrize(
    ("boxes", "leaders", "free"),
    [
        ([], [], True),
        ([(95.0, 90.0, 105.0, 110.0)], [], False),
        ([], [(100.0, 80.0, 100.0, 120.0)], False),
        ([(95.0, 140.0, 105.0, 160.0)], [(0.0, 80.0, 0.0, 120.0)], True),
    ],
    ids=["nothing there", "a label", "a line", "both elsewhere"],
)
def test_a_line_crosses_neither_a_label_nor_another_line(
    boxes: list[tuple[float, float, float, float]], leaders: list[tuple[float, float, float, float]], free: bool
) -> None:
    """One of the two is enough to look for another place."""
    taken = _Taken(points=[], area=AREA, boxes=boxes, leaders=leaders)
    label = Label(x=50.0, y=100.0, width=40, height=12)
    candidate = Placed(box=(150.0, 94.0, 190.0, 106.0), leader=(150.0, 100.0))
    assert taken.is_free(candidate, label) is free


@pytest.mark.parametrize(
    ("area", "free"),
    [
        ((40.0, 94.0, 190.0, 106.0), True),
        ((150.1, 0.0, 300.0, 250.0), False),
        ((0.0, 94.1, 300.0, 250.0), False),
        ((0.0, 0.0, 189.9, 250.0), False),
        ((0.0, 0.0, 300.0, 105.9), False),
    ],
    ids=["just so", "left", "below", "right", "above"],
)
def test_a_label_lies_within_the_area_on_every_side(area: tuple[float, float, float, float], free: bool) -> None:
    """Up to its edge; areas begin anywhere, and are no squares."""
    taken = _Taken(points=[], area=area)
    label = Label(x=140.0, y=100.0, width=40, height=12)
    assert taken.is_free(Placed(box=(150.0, 94.0, 190.0, 106.0)), label) is free


def test_a_label_without_room_is_left_out() -> None:
    """It is not put on another."""
    labels = [Label(x=50.0, y=10.0, width=95, height=12) for _ in range(4)]
    placed = place_labels(labels, [box_of(50, 10)], (0.0, 0.0, 100.0, 40.0))
    assert None in placed


def test_points_in_a_row_or_a_column_are_no_crowd() -> None:
    """Close are points that are near in both directions; such a label stands beside its point, without a line."""
    for places in (
        [(20.0, 100.0), (120.0, 100.0), (220.0, 100.0)],
        [(140.0, 30.0), (140.0, 110.0), (140.0, 190.0)],
    ):
        assert _find_crowds([Label(x=x, y=y, width=40, height=12) for x, y in places]) == []
    near = [(100.0, 100.0), (114.0, 86.0), (128.0, 100.0), (200.0, 100.0)]
    labels = [Label(x=x, y=y, width=40, height=12) for x, y in near]
    assert _find_crowds(labels) == [[0, 2, 1]]
    assert _find_crowds(labels[:2]) == []


def test_the_labels_of_a_crowd_stand_in_a_column_about_its_middle() -> None:
    """As far above the points as below, the topmost point's label first, so that lines do not cross."""
    places = [(100.0, 100.0), (100.0, 104.0), (100.0, 108.0)]
    placed = place_labels([Label(x=x, y=y, width=40, height=12) for x, y in places], [], AREA)
    boxes = [label.box for label in placed if label is not None]
    assert len({box[0] for box in boxes}) == 1
    assert [box[1] for box in boxes] == sorted(box[1] for box in boxes)
    lowest, highest = min(box[1] for box in boxes), max(box[3] for box in boxes)
    assert abs((lowest + highest) / 2 - 104.0) <= 2.0


SQUARE = (0.0, 0.0, 10.0, 10.0)


@pytest.mark.parametrize(
    ("other", "apart", "expected"),
    [
        ((5.0, 5.0, 15.0, 15.0), 0.0, True),
        ((10.0, 0.0, 20.0, 10.0), 0.0, False),
        ((0.0, 10.0, 10.0, 20.0), 0.0, False),
        ((11.0, 0.0, 20.0, 10.0), 2.0, True),
        ((-20.0, 0.0, -1.0, 10.0), 2.0, True),
        ((0.0, 11.0, 10.0, 20.0), 2.0, True),
        ((0.0, -20.0, 10.0, -1.0), 2.0, True),
        ((0.0, 13.0, 10.0, 20.0), 2.0, False),
        ((0.0, -20.0, 10.0, -3.0), 2.0, False),
        ((13.0, 0.0, 20.0, 10.0), 2.0, False),
        ((-20.0, 0.0, -3.0, 10.0), 2.0, False),
    ],
)
def test_boxes_meet_where_they_overlap_or_come_too_near(other: Box, apart: float, expected: bool) -> None:
    """On every side, whichever of the two is asked."""
    assert meet(SQUARE, other, apart) == meet(other, SQUARE, apart) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ((-5.0, 5.0, 15.0, 5.0), True),
        ((5.0, -5.0, 5.0, 15.0), True),
        ((4.0, 4.0, 6.0, 6.0), True),
        ((5.0, 5.0, 20.0, 5.0), True),
        ((-5.0, 5.0, -1.0, 5.0), False),
        ((11.0, 5.0, 15.0, 5.0), False),
        ((-5.0, 11.0, 15.0, 11.0), False),
        ((-1.0, -5.0, -1.0, 15.0), False),
        ((0.0, -5.0, 0.0, 15.0), False),
        ((-5.0, 8.0, 8.0, 21.0), False),
        ((-5.0, 5.0, 5.0, 15.0), False),
        ((-5.0, 4.0, 6.0, 15.0), True),
    ],
)
def test_a_line_meets_a_box_that_it_passes_through(line: Line, expected: bool) -> None:
    """Not one whose side or corner it touches; in both directions."""
    assert _line_meets(line, SQUARE) == _line_meets((*line[2:], *line[:2]), SQUARE) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ((0.0, 10.0, 10.0, 0.0), True),
        ((0.0, 1.0, 10.0, 11.0), False),
        ((20.0, 0.0, 15.0, 30.0), False),
        ((0.0, 5.0, 4.0, 5.0), False),
        ((0.0, 5.0, 5.0, 5.0), False),
    ],
)
def test_lines_cross_where_each_parts_the_ends_of_the_other(line: Line, expected: bool) -> None:
    """An end that touches is no crossing."""
    diagonal = (0.0, 0.0, 10.0, 10.0)
    assert _cross(line, diagonal) == _cross(diagonal, line) == expected


WIDE_AREA = (-500.0, -500.0, 500.0, 500.0)


@pytest.mark.parametrize(
    ("marks", "box", "leader"),
    [
        ([], (148.0, 114.0, 238.0, 126.0), None),
        ([(149.0, 119.0, 150.0, 121.0)], (42.0, 114.0, 132.0, 126.0), None),
        ([(186.0, 90.0, 240.0, 150.0), (40.0, 90.0, 94.0, 150.0)], (95.0, 128.0, 185.0, 140.0), None),
        ([(60.0, 104.0, 220.0, 136.0)], (145.205, 136.627, 235.205, 148.627), (145.205, 136.627)),
    ],
    ids=["right", "left", "above", "farther off"],
)
def test_a_label_stands_beside_its_point_as_near_as_there_is_room(
    marks: list[Box], box: Box, leader: tuple[float, float] | None
) -> None:
    """To the right reads best, then to the left, then around; farther off it has a line to its nearest corner."""
    (placed,) = place_labels([Label(x=140.0, y=120.0, width=90.0, height=12.0)], marks, WIDE_AREA)
    assert placed is not None
    assert placed.box == pytest.approx(box, abs=1e-3)
    assert placed.leader == (None if leader is None else pytest.approx(leader, abs=1e-3))


def test_a_column_stands_fourteen_points_off_with_a_line_for_each_label() -> None:
    """Two and a half points between labels; to the left where there is no room to the right."""
    labels = [Label(x=100.0, y=y, width=40.0, height=12.0) for y in (108.0, 104.0, 100.0)]
    for area, start, end in ((WIDE_AREA, 114.0, 113.0), ((-500.0, -500.0, 150.0, 500.0), 46.0, 87.0)):
        placed = place_labels(labels, [], area)
        assert [(each.box, each.leader) for each in placed if each is not None] == [
            ((start, bottom, start + 40.0, bottom + 12.0), (end, bottom + 6.0)) for bottom in (111.25, 96.75, 82.25)
        ]


@pytest.mark.parametrize(
    ("x", "y", "inside"),
    [
        *((x, y, True) for x, y in ((10.0, 40.0), (20.0, 60.0), (15.0, 50.0))),
        *((x, y, False) for x, y in ((9.0, 50.0), (21.0, 50.0), (15.0, 39.0), (15.0, 61.0))),
    ],
)
def test_a_box_holds_what_lies_within_its_sides(x: float, y: float, inside: bool) -> None:
    """Up to them."""
    assert _holds((10.0, 40.0, 20.0, 60.0), x, y) is inside
