"""``shapes-detector``: a one-stage detector without anchors, two scales and one concatenated head, 0.2 million weights.

Its answer has the shape that YOLO's exports have: (n, 4 + classes, cells), for each cell of both scales the centre,
width and height of a box in pixels and a score between 0 and 1 for each class. Boxes of up to 96 beside scores of up to
1 in one tensor: under one scale of int8 the scores have three values.

Sources: Tian et al., "FCOS: Fully Convolutional One-Stage Object Detection" (2019), arXiv:1904.01355 (distances to the
four sides, cells near the centre); Lin et al., "Focal Loss for Dense Object Detection" (2017), arXiv:1708.02002;
Rezatofighi et al., "Generalized Intersection over Union" (2019), arXiv:1902.09630.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qbench.models.base import BuiltIn, Training

if TYPE_CHECKING:
    from torch import Tensor, nn

STRIDES = (8, 16)
# An object whose longer side is longer is found by the coarser scale, in pixels.
LONGEST_OF_FINE = 28
WIDTHS = (16, 32, 48, 64)
HEAD = 48
_NEAR = 1.0  # strides from an object's centre to a cell's, at most
_ALPHA, _GAMMA = 0.25, 2.0  # of the focal loss
_BOX_WEIGHT = 2.0
_RARE = -3.0  # a first bias of the scores: objects are rare


def build(classes: int = 3, size: int = 96) -> nn.Module:
    """A network from (n, 3, size, size), where 16 divides the size, to (n, 4 + classes, cells), fresh weights."""
    import torch
    from torch import nn
    from torch.nn.functional import interpolate

    def convolution(before: int, width: int, stride: int = 1) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())

    class Head(nn.Module):  # type: ignore[misc]  # mypy skips torch (pyproject), so its base is Any
        """Distances to the four sides, in strides, and scores before the sigmoid."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.hidden = convolution(width, HEAD)
            self.sides = nn.Conv2d(HEAD, 4, 1)
            self.scores = nn.Conv2d(HEAD, classes, 1)
            nn.init.constant_(self.scores.bias, _RARE)
            nn.init.constant_(self.sides.bias, 1.0)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self.hidden(x)
            return torch.relu(self.sides(hidden)), self.scores(hidden)

    class Detector(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            first, second, fine, coarse = WIDTHS
            self.stem = nn.Sequential(
                convolution(3, first, 2), convolution(first, second, 2), convolution(second, second)
            )
            self.fine = nn.Sequential(convolution(second, fine, 2), convolution(fine, fine))
            self.coarse = nn.Sequential(convolution(fine, coarse, 2), convolution(coarse, coarse))
            self.joined = convolution(fine + coarse, fine)
            self.heads = nn.ModuleList([Head(fine), Head(coarse)])
            for stride in STRIDES:
                self.register_buffer(f"centres_{stride}", _centres(size // stride, size // stride, stride), False)

        def forward(self, x: Tensor) -> Tensor:
            """(n, 3, size, size) -> (n, 4 + classes, cells)."""
            fine = self.fine(self.stem(x))
            coarse = self.coarse(fine)
            fine = self.joined(torch.cat([fine, interpolate(coarse, scale_factor=2.0)], 1))
            boxes, scores = [], []
            for head, features, stride in zip(self.heads, (fine, coarse), STRIDES, strict=True):
                sides, logits = head(features)
                boxes.append(_decode(sides.flatten(2) * stride, getattr(self, f"centres_{stride}")))
                scores.append(logits.flatten(2))
            return torch.cat([torch.cat(boxes, 2), torch.sigmoid(torch.cat(scores, 2))], 1)

    return Detector()


def _centres(height: int, width: int, stride: int) -> Tensor:
    """The centres of the cells of one scale in pixels, (2, cells): x and y."""
    import torch

    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return (torch.stack([x, y]).flatten(1).float() + 0.5) * stride


def _decode(sides: Tensor, centres: Tensor) -> Tensor:
    """Distances (n, 4, cells) left, up, right, down of the centres -> centre, width and height of the boxes."""
    import torch

    before, behind = sides[:, :2], sides[:, 2:]
    return torch.cat([centres + (behind - before) / 2, before + behind], 1)


def compute_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Focal loss of the scores and generalized intersection over union of the boxes, for answers (n, 4 + classes,
    cells) and labels (n, m, 6) as ``datasets.boxes`` has them; both by the number of cells that an object has."""
    import torch
    from torch.nn.functional import binary_cross_entropy, one_hot

    size = _find_side(outputs.shape[2])
    centres = torch.cat([_centres(size // stride, size // stride, stride) for stride in STRIDES], 1)
    strides = torch.cat([torch.full(((size // stride) ** 2,), float(stride)) for stride in STRIDES])
    classes = outputs.shape[1] - 4
    chosen, theirs = _assign(targets, centres, strides)
    labels = one_hot(theirs[..., 4].long().clamp(min=0), classes).float() * chosen[..., None]
    scores = outputs[:, 4:].transpose(1, 2)
    weight = torch.where(labels > 0, _ALPHA, 1 - _ALPHA) * (labels - scores).detach().abs() ** _GAMMA
    count = chosen.sum().clamp(min=1)
    loss: Tensor = (binary_cross_entropy(scores, labels, reduction="none") * weight).sum() / count * 4
    centre, extent = outputs[:, :2].transpose(1, 2)[chosen], outputs[:, 2:4].transpose(1, 2)[chosen]
    boxes = torch.cat([centre - extent / 2, centre + extent / 2], 1)
    return loss + _BOX_WEIGHT * (1 - _overlap(boxes, theirs[..., :4][chosen])).sum() / count


def _find_side(cells: int) -> int:
    """The side in pixels of a square image that has so many cells."""
    return int(0.5 + (cells / sum(stride**-2 for stride in STRIDES)) ** 0.5)


def _assign(targets: Tensor, centres: Tensor, strides: Tensor) -> tuple[Tensor, Tensor]:
    """Which cells (n, cells) have an object, and its label (n, cells, 6): the smallest one whose centre is near and
    whose size is the scale's."""
    import torch

    boxes = targets[:, None]  # (n, 1, m, 6)
    middle = (boxes[..., :2] + boxes[..., 2:4]) / 2
    extent = boxes[..., 2:4] - boxes[..., :2]
    apart = (centres.T[None, :, None] - middle).abs().amax(3)
    coarse = extent.amax(3) > LONGEST_OF_FINE
    fits = (apart < strides[None, :, None] * _NEAR) & (coarse == (strides[None, :, None] > STRIDES[0]))
    fits &= boxes[..., 4] >= 0
    area = torch.where(fits, extent.prod(3), torch.inf)
    smallest, place = area.min(2)
    index = place[..., None].expand(-1, -1, targets.shape[2])
    return torch.isfinite(smallest), torch.gather(targets, 1, index)


def _overlap(boxes: Tensor, true: Tensor) -> Tensor:
    """Generalized intersection over union of pairs of boxes (k, 4), -1 to 1."""
    import torch

    inside = (torch.minimum(boxes[:, 2:], true[:, 2:]) - torch.maximum(boxes[:, :2], true[:, :2])).clamp(min=0).prod(1)
    around = (torch.maximum(boxes[:, 2:], true[:, 2:]) - torch.minimum(boxes[:, :2], true[:, :2])).clamp(min=1e-6)
    areas = [(box[:, 2:] - box[:, :2]).clamp(min=0).prod(1) for box in (boxes, true)]
    union = areas[0] + areas[1] - inside
    hull = around.prod(1)
    return inside / union.clamp(min=1e-6) - (hull - union) / hull


def postprocess(outputs: Any) -> list[Any]:
    """The boxes of each image, rows ``x1, y1, x2, y2, score, class``: of those that overlap the best."""
    import numpy as np

    from qbench.models.suppression import suppress_overlaps

    centre, extent, scores = outputs[:, :2], outputs[:, 2:4], outputs[:, 4:]
    boxes = np.concatenate([centre - extent / 2, centre + extent / 2], axis=1).transpose(0, 2, 1)
    return [suppress_overlaps(image, image_scores.T) for image, image_scores in zip(boxes, scores, strict=True)]


MODEL = BuiltIn(
    name="shapes-detector",
    summary="a one-stage detector of two scales with one concatenated head",
    dataset="shapes",
    data_value="boxes",
    build=build,
    from_data=("classes",),
    labels="boxes",
    loss=compute_loss,
    postprocess=postprocess,
    training=Training(epochs=12, batch_size=32, learning_rate=4e-3, weight_decay=1e-3, shards=2, channels_last=True),
)
