"""Places for the labels of points, so that no label covers another, a point or the edge; pure geometry in points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

_RINGS = (0.0, 8.0, 18.0, 30.0, 44.0, 60.0, 80.0, 105.0, 135.0)
_ANGLES = 24
_APART = 2.0  # points between two labels
_CROWD, _CLOSE = 3, 15.0  # so many points within so many points of each other
Box = tuple[float, float, float, float]  # left, bottom, right, top
Line = tuple[float, float, float, float]  # from x, y to x, y


@dataclass(frozen=True, kw_only=True)
class Label:
    """A label of that size for the point at ``x``, ``y``, whose mark reaches ``reach`` to every side."""

    x: float
    y: float
    width: float
    height: float
    reach: float = 6.0


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The label's box, and the end of a line from its point where it is not beside it (None: none is needed)."""

    box: Box
    leader: tuple[float, float] | None = None


def place_labels(labels: Sequence[Label], points: Sequence[Box], area: Box) -> list[Placed | None]:
    """A place for each label, the first ones first; None where there is no room. ``points`` are the boxes of all
    marks, which no label covers. Labels of points that lie close together form a column beside them."""
    taken = _Taken(points=points, area=area)
    placed: dict[int, Placed] = {}
    for crowd in _find_crowds(labels):
        for count in (len(crowd), *(number for number in (12, 9, 7, 5, _CROWD) if number < len(crowd))):
            first = [i for i in crowd if i in sorted(crowd)[:count]]
            stacked = _stack([labels[i] for i in first], taken)
            if stacked:
                placed |= dict(zip(first, stacked, strict=True))
                break
    for i, label in enumerate(labels):
        if i not in placed and (best := _place_beside(label, taken)) is not None:
            placed[i] = best
    return [placed.get(i) for i in range(len(labels))]


@dataclass(frozen=True, kw_only=True)
class _Taken:
    """What is drawn already."""

    points: Sequence[Box]
    area: Box
    boxes: list[Box] = field(default_factory=list)
    leaders: list[Line] = field(default_factory=list)

    def is_free(self, candidate: Placed, label: Label) -> bool:
        """Whether the label covers nothing, and its line crosses nothing."""
        box, area = candidate.box, self.area
        if box[0] < area[0] or box[1] < area[1] or box[2] > area[2] or box[3] > area[3]:
            return False
        if any(meet(box, other, _APART) for other in self.boxes) or any(meet(box, other, 0.5) for other in self.points):
            return False
        if any(_line_meets(line, box) for line in self.leaders):
            return False
        if candidate.leader is None:
            return True
        line = (label.x, label.y, *candidate.leader)
        if any(_line_meets(line, other) for other in self.boxes) or any(_cross(line, other) for other in self.leaders):
            return False
        return not any(_line_meets(line, other) for other in self.points if not _holds(other, label.x, label.y))

    def add(self, placed: Placed, label: Label) -> None:
        """Takes the place."""
        self.boxes.append(placed.box)
        if placed.leader is not None:
            self.leaders.append((label.x, label.y, *placed.leader))


def _place_beside(label: Label, taken: _Taken) -> Placed | None:
    """The nearest free place around the point."""
    best: tuple[float, Placed] | None = None
    for cost, candidate in _list_candidates(label):
        if (best is None or cost < best[0]) and taken.is_free(candidate, label):
            best = cost, candidate
    if best is None:
        return None
    taken.add(best[1], label)
    return best[1]


def _find_crowds(labels: Sequence[Label]) -> list[list[int]]:
    """The labels of points that lie so close together that there is no room around each, the topmost first."""
    rest, crowds = set(range(len(labels))), []
    while rest:
        crowd, pending = set[int](), [min(rest)]
        while pending:
            i = pending.pop()
            crowd.add(i)
            near = {j for j in rest - crowd if _are_close(labels[i], labels[j])}
            pending += near - set(pending)
        rest -= crowd
        if len(crowd) >= _CROWD:
            crowds.append(sorted(crowd, key=lambda i: (-labels[i].y, labels[i].x)))
    return crowds


def _are_close(label: Label, other: Label) -> bool:
    return abs(label.x - other.x) < _CLOSE and abs(label.y - other.y) < _CLOSE


def _stack(labels: Sequence[Label], taken: _Taken) -> list[Placed]:
    """The labels as a column to the left or right of their points, nearest first; none where there is no room."""
    left, right = min(label.x for label in labels), max(label.x for label in labels)
    middle = sum(label.y for label in labels) / len(labels)
    line = max(label.height for label in labels) + _APART + 0.5
    others = [box for box in taken.points if not any(_holds(box, label.x, label.y) for label in labels)]
    for away in (14.0, 22.0, 32.0, 46.0, 64.0, 90.0, 120.0):
        for shift in (0.0, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 6.0, -6.0, 8.0, -8.0):
            top = middle + line * (len(labels) / 2 + shift)
            for to_right in (True, False):
                places = []
                for row, label in enumerate(labels):
                    start = right + away if to_right else left - away - label.width
                    bottom = top - line * (row + 1)
                    box = (start, bottom, start + label.width, bottom + label.height)
                    end = (box[0] - 1 if to_right else box[2] + 1, bottom + label.height / 2)
                    places.append(Placed(box=box, leader=end))
                trial = _Taken(points=others, area=taken.area, boxes=[*taken.boxes], leaders=[*taken.leaders])
                if _take_all(places, labels, taken.points, trial):
                    taken.boxes[:], taken.leaders[:] = trial.boxes, trial.leaders
                    return places
    return []


def _take_all(places: Sequence[Placed], labels: Sequence[Label], points: Sequence[Box], taken: _Taken) -> bool:
    """Whether each label gets its place, which covers none of all ``points``; a line may cross those of the column,
    which are not in ``taken``."""
    for placed, label in zip(places, labels, strict=True):
        if not taken.is_free(placed, label) or any(meet(placed.box, box, 0.5) for box in points):
            return False
        taken.add(placed, label)
    return True


def _list_candidates(label: Label) -> list[tuple[float, Placed]]:
    candidates = []
    for ring in _RINGS:
        for step in range(_ANGLES):
            angle = 2 * math.pi * step / _ANGLES
            across, up = math.cos(angle), math.sin(angle)
            away = label.reach + 2 + ring
            x, y = label.x + across * away, label.y + up * away
            # The box touches the ring with the side that faces the point.
            left = x - label.width * (1 - across) / 2
            bottom = y - label.height * (1 - up) / 2
            box = (left, bottom, left + label.width, bottom + label.height)
            end = min(max(label.x, box[0]), box[2]), min(max(label.y, box[1]), box[3])
            tilt = 0.0 if step % (_ANGLES // 2) == 0 else 2.0  # beside the point reads best
            candidates.append((ring + tilt, Placed(box=box, leader=end if ring > 4 else None)))
    return candidates


def meet(box: Box, other: Box, apart: float = 0.0) -> bool:
    """Whether two boxes overlap or come nearer than ``apart``."""
    return (
        box[0] < other[2] + apart
        and other[0] < box[2] + apart
        and box[1] < other[3] + apart
        and other[1] < box[3] + apart
    )


def _holds(box: Box, x: float, y: float) -> bool:
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _line_meets(line: Line, box: Box) -> bool:
    """Whether a segment passes through a box (Liang and Barsky's clipping)."""
    x, y, dx, dy = line[0], line[1], line[2] - line[0], line[3] - line[1]
    first, last = 0.0, 1.0
    for p, q in ((-dx, x - box[0]), (dx, box[2] - x), (-dy, y - box[1]), (dy, box[3] - y)):
        if p == 0:
            if q <= 0:
                return False
            continue
        at = q / p
        if p < 0:
            first = max(first, at)
        else:
            last = min(last, at)
    return first < last - 1e-9


def _cross(line: Line, other: Line) -> bool:
    def side(ax: float, ay: float, bx: float, by: float, px: float, py: float) -> float:
        return (bx - ax) * (py - ay) - (by - ay) * (px - ax)

    first = side(*other, line[0], line[1]) * side(*other, line[2], line[3])
    second = side(*line, other[0], other[1]) * side(*line, other[2], other[3])
    return first < 0 and second < 0
