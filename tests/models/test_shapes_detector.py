"""The detector's loss: what it lowers is what its boxes are judged by."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qbench.metrics.detection import MAP
from qbench.models import shapes_detector, shapes_unet
from qbench.models.postprocess import fill_up

BOXES = torch.tensor([[[8.0, 8, 24, 24, 1, 0], [40, 40, 80, 84, 2, 0], [-1, -1, -1, -1, -1, -1]], [[-1.0] * 6] * 3])


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
