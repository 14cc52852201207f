"""The detector's loss: what it lowers is what its boxes are judged by."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from qbench.metrics.detection import MAP
from qbench.models import shapes_detector, shapes_unet, trainer
from qbench.models.postprocess import fill_up

BOXES = torch.tensor([[[8.0, 8, 24, 24, 0, 0], [40, 40, 80, 84, 2, 0], [-1, -1, -1, -1, -1, -1]], [[-1.0] * 6] * 3])


def perfect() -> torch.Tensor:
    """Answers (2, 7, 180) that put each object's box and class into the cells that are asked for it."""
    centres = torch.cat([shapes_detector._centres(96 // s, 96 // s, s) for s in shapes_detector.STRIDES], 1)
    strides = torch.tensor([8.0] * 144 + [16.0] * 36)
    chosen, theirs = shapes_detector._assign(BOXES, centres, strides)
    answers = torch.full((2, 7, 180), 1e-6)
    for image, cell in chosen.nonzero().tolist():
        x1, y1, x2, y2, kind, _ = theirs[image, cell].tolist()
        answers[image, :4, cell] = torch.tensor([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1])
        answers[image, 4 + int(kind), cell] = 1 - 1e-6
    assert chosen.sum() > 4
    assert not chosen[1].any()
    return answers


def test_exact_answers_have_no_loss_and_every_point() -> None:
    """Boxes and classes as the labels say; worse ones have more of one and less of the other."""
    answers = perfect()
    assert float(shapes_detector.compute_loss(answers, BOXES)) == pytest.approx(0, abs=1e-4)
    labels = BOXES.numpy()
    assert MAP.value(fill_up(shapes_detector.postprocess(answers.numpy()), ""), labels) == 1.0
    beside, doubted = answers.clone(), answers.clone()
    beside[:, :2] += 4
    doubted[:, 4:] = 0.3
    for worse in (beside, doubted):
        assert float(shapes_detector.compute_loss(worse, BOXES)) > 0.1
        assert MAP.value(fill_up(shapes_detector.postprocess(worse.numpy()), ""), labels) < 0.6


def test_an_image_without_an_object_has_a_finite_loss() -> None:
    """All cells are told that there is nothing."""
    answers = perfect().requires_grad_()
    loss = shapes_detector.compute_loss(answers, BOXES[1:].expand(2, -1, -1))
    loss.backward()
    assert np.isfinite(float(loss.detach()))
    assert answers.grad is not None
    assert bool(answers.grad.isfinite().all())


def test_a_mask_is_learned_where_its_class_is_known() -> None:
    """Pixels of -1 do not count."""
    outputs, masks = torch.zeros(1, 4, 2, 2), torch.tensor([[[0, 1], [-1, -1]]])
    outputs[0, 0, 0, 0] = outputs[0, 1, 0, 1] = 50.0
    assert float(shapes_unet.compute_loss(outputs, masks)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("side", [16, 32, 48, 96, 320, 640])
def test_the_side_of_an_image_follows_from_its_cells(side: int) -> None:
    """Of both scales together."""
    assert shapes_detector._find_side((side // 8) ** 2 + (side // 16) ** 2) == side


def assign(*boxes: tuple[float, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Which of the 144 cells of 8 pixels and the 36 of 16 have an object, and its label."""
    centres = torch.cat([shapes_detector._centres(96 // s, 96 // s, s) for s in shapes_detector.STRIDES], 1)
    strides = torch.tensor([8.0] * 144 + [16.0] * 36)
    chosen, labels = shapes_detector._assign(torch.tensor([boxes]), centres, strides)
    return chosen[0], labels[0]


@pytest.mark.parametrize(
    ("middle", "sides", "fine", "coarse"),
    [
        ((20, 20), (16, 16), 1, 0),  # the centre of a cell: the next ones are 8 pixels away
        ((24, 20), (16, 16), 2, 0),
        ((24, 24), (16, 16), 4, 0),
        ((21, 21), (28, 28), 4, 0),
        ((24, 24), (28.5, 4), 0, 1),
        ((32, 32), (4, 40), 0, 4),
    ],
)
def test_cells_near_the_centre_have_an_object_of_their_size(
    middle: tuple[float, float], sides: tuple[float, float], fine: int, coarse: int
) -> None:
    """Less than a stride away; up to 28 pixels long it is the finer scale's."""
    (x, y), (width, height) = middle, sides
    box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2, 0, 0)
    chosen, labels = assign(box, (*box[:4], -1, 0))
    assert (int(chosen[:144].sum()), int(chosen[144:].sum())) == (fine, coarse)
    assert (labels[chosen] == torch.tensor(box)).all()


def test_of_two_objects_a_cell_has_the_smaller_one() -> None:
    """Wherever it stands."""
    large, small = (8.0, 8, 32, 32, 1, 0), (12.0, 12, 28, 28, 2, 0)
    for boxes in ((large, small), (small, large)):
        chosen, labels = assign(*boxes)
        assert set(labels[chosen][:, 4].tolist()) == {2.0}


@pytest.mark.parametrize("factor", [1.0, 2.0**-6])
@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [
        ((0, 0, 10, 10), (0, 0, 10, 10), 1.0),
        ((0, 0, 10, 10), (5, 0, 15, 10), 50 / 150),
        ((0, 0, 10, 10), (20, 0, 30, 10), -100 / 300),
        ((0, 0, 10, 10), (5, 5, 15, 15), 25 / 175 - 50 / 225),
        ((10, 10, 0, 0), (0, 0, 10, 10), 0.0),  # turned over, as a network that has learned nothing may give it
    ],
)
def test_the_overlap_is_the_generalized_one(first: Any, second: Any, overlap: float, factor: float) -> None:
    """The intersection over the union, less the part of the hull that neither covers; of boxes of any size."""
    boxes, true = (factor * torch.tensor([box], dtype=torch.float32) for box in (first, second))
    assert float(shapes_detector._overlap(boxes, true)[0]) == pytest.approx(overlap, abs=1e-6)


def test_the_loss_is_that_of_its_sources() -> None:
    """Focal, with a quarter for what is there, of scores; twice what boxes lack of their overlap; by the cells that
    have an object."""
    answers = perfect()
    answers[:, 4:] = 0.3
    counts = [int(assign(tuple(box))[0].sum()) for box in BOXES[0, :2].tolist()]
    cells = sum(counts)
    there, absent = 0.25 * 0.7**2 * -math.log(0.3), 0.75 * 0.3**2 * -math.log(0.7)
    focal = 4 * (cells * there + (2 * 3 * 180 - cells) * absent) / cells
    assert float(shapes_detector.compute_loss(answers, BOXES)) == pytest.approx(focal, rel=1e-5)
    answers[:, 0] += 4.0  # of 16 x 16 and 40 x 44 pixels, to the right
    lacking = (counts[0] * (1 - 192 / 320) + counts[1] * (1 - 1584 / 1936)) / cells
    assert float(shapes_detector.compute_loss(answers, BOXES)) == pytest.approx(focal + 2 * lacking, rel=1e-5)


def test_a_fresh_network_knows_that_objects_are_rare_and_has_its_centres_from_its_size() -> None:
    """Its scores begin at 5 %, its sides at a stride; what follows from the size is no weight."""
    module = trainer.fresh(shapes_detector.MODEL)
    for head in module.heads:
        assert (set(head.scores.bias.tolist()), set(head.sides.bias.tolist())) == ({-3.0}, {1.0})
    assert not [name for name in module.state_dict() if "centres" in name]
