"""Boxes of a detector that are kept: which score and which overlap decide it, and how many."""

from __future__ import annotations

import numpy as np
import pytest

from qbench.models.suppression import suppress_overlaps

BASE = (0.0, 0, 10, 10)


def kept(*boxes: tuple[float, ...], scores: list[float], classes: list[int] | None = None, **options: float) -> list:
    """The rows of boxes of one class each, with all scores of the other class 0."""
    each = np.zeros((len(boxes), 2))
    each[range(len(boxes)), classes or [0] * len(boxes)] = scores
    return suppress_overlaps(np.array(boxes), each, **options).tolist()  # type: ignore[arg-type]


def test_the_best_come_first_with_their_class() -> None:
    """One row each: corners, score, class; float32, as detections are."""
    assert kept(BASE, (20, 20, 30, 32), scores=[0.25, 0.5], classes=[0, 1]) == [
        [20, 20, 30, 32, 0.5, 1],
        [0, 0, 10, 10, 0.25, 0],
    ]
    assert suppress_overlaps(np.zeros((1, 4)), np.ones((1, 1))).dtype == np.float32


def test_a_box_of_two_classes_is_two_answers() -> None:
    """Overlaps count within a class only."""
    rows = suppress_overlaps(np.array([BASE]), np.array([[0.5, 0.75]]))
    assert rows[:, 4:].tolist() == [[0.75, 1], [0.5, 0]]


@pytest.mark.parametrize(("score", "count"), [(0.01, 1), (0.0099, 0)])
def test_scores_below_a_hundredth_are_not_looked_at(score: float, count: int) -> None:
    """A hundredth itself is."""
    assert len(kept(BASE, scores=[score])) == count


@pytest.mark.parametrize(("width", "count"), [(6.0, 2), (6.1, 1)])
def test_six_tenths_of_the_union_may_be_shared(width: float, count: int) -> None:
    """A box inside the better one shares its part of it; more than six tenths are too much."""
    assert len(kept(BASE, (0, 0, width, 10), scores=[0.9, 0.8])) == count


def test_of_two_shifted_boxes_the_union_counts_what_is_shared_once() -> None:
    """Three quarters of each are three fifths of both together."""
    assert len(kept(BASE, (2.5, 0, 12.5, 10), scores=[0.9, 0.8])) == 2
    assert len(kept(BASE, (2.25, 0, 12.25, 10), scores=[0.9, 0.8])) == 1
    assert len(kept(BASE, (0, 2.25, 10, 12.25), scores=[0.9, 0.8])) == 1


def test_a_box_apart_on_both_axes_shares_nothing() -> None:
    """Two negative extents make no area."""
    assert len(kept(BASE, (20, 20, 30, 30), scores=[0.9, 0.8], overlap=0.0)) == 2


def test_what_a_box_that_went_overlaps_is_kept() -> None:
    """Only boxes that are kept take others away: the middle one of a chain goes, and its far neighbour stays."""
    chain = [BASE, (2, 0, 12, 10), (4, 0, 14, 10)]
    assert [row[0] for row in kept(*chain, scores=[0.9, 0.8, 0.7])] == [0, 4]


def test_the_best_hundred_are_kept() -> None:
    """Of more boxes that do not overlap."""
    boxes = [(20.0 * place, 0, 20.0 * place + 10, 10) for place in range(101)]
    rows = kept(*boxes, scores=[(place + 1) / 128 + 0.01 for place in range(101)])
    assert [len(rows), rows[-1][0]] == [100, 20]
    assert len(kept(*boxes, scores=[0.5] * 101, most=3)) == 3


def test_every_cell_may_be_a_candidate() -> None:
    """A YOLO without training gives each of 8,400 cells a score above the limit in each of 80 classes: as many pairs do
    not fit into memory (451 GB), so the best 30,000 are looked at, and 100 are kept."""
    cells = np.arange(8400.0)[:, None]
    scores = np.full((8400, 80), 0.5)
    scores[-1] = 0.75
    rows = suppress_overlaps(np.hstack([cells, cells, cells + 1, cells + 1]), scores)
    assert rows.shape == (100, 6)
    assert (rows[:80, 4] == 0.75).all()
    assert (rows[80:, 4] == 0.5).all()


@pytest.mark.parametrize("side", [0.5, 1e-3])
def test_boxes_smaller_than_a_pixel_overlap_as_others_do(side: float) -> None:
    """Corners may be shares of an image; a box whose corners are turned has no area."""
    box = (0.0, 0.0, side, side)
    assert len(kept(box, box, scores=[0.5, 0.4])) == 1
    assert len(kept(box, (side, side, 0.0, 0.0), scores=[0.5, 0.4])) == 2


@pytest.mark.parametrize(("place", "count"), [(29_999, 2), (30_000, 1)])
def test_of_an_image_30_000_candidates_are_looked_at(place: int, count: int) -> None:
    """The best ones: all the others are of one object here, and one apart from it is found where it is among them."""
    boxes = np.tile(np.array(BASE), (30_001, 1))
    boxes[place] = (20, 20, 30, 30)
    scores = np.linspace(0.9, 0.1, 30_001)[:, None]
    assert len(suppress_overlaps(boxes, scores)) == count
