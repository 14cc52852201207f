"""``shapes-unet``: a small U-Net for the masks of ``shapes``, 0.1 million weights.

Down by convolutions of stride 2, up by nearest neighbours and a concatenation with what lay at that size before: the
joins and resizes of segmentation networks. Source: Ronneberger, Fischer and Brox, "U-Net: Convolutional Networks for
Biomedical Image Segmentation" (2015), arXiv:1505.04597.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from qbench.models.base import BuiltIn, Training

if TYPE_CHECKING:
    from torch import Tensor, nn

WIDTHS = (16, 24, 32, 48)
UNKNOWN = -1  # the class of a pixel that does not count


def build(channels: int = 3, classes: int = 4) -> nn.Module:
    """A network from (n, channels, height, width), sides that 8 divides, to (n, classes, height, width) logits."""
    import torch
    from torch import nn
    from torch.nn.functional import interpolate

    def convolution(before: int, width: int, stride: int = 1) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())

    class UNet(nn.Module):  # type: ignore[misc]  # mypy skips torch (pyproject), so its base is Any
        def __init__(self) -> None:
            super().__init__()
            self.first = convolution(channels, WIDTHS[0])
            pairs = list(itertools.pairwise(WIDTHS))
            self.down = nn.ModuleList(
                nn.Sequential(convolution(before, width, 2), convolution(width, width)) for before, width in pairs
            )
            self.up = nn.ModuleList(convolution(width + before, before) for before, width in reversed(pairs))
            self.head = nn.Conv2d(WIDTHS[0], classes, 1)

        def forward(self, x: Tensor) -> Tensor:
            """(n, channels, height, width) -> (n, classes, height, width)."""
            x = self.first(x)
            sizes = [x]
            for layer in self.down:
                x = layer(x)
                sizes.append(x)
            sizes.pop()
            for layer in self.up:
                x = layer(torch.cat([interpolate(x, scale_factor=2.0), sizes.pop()], 1))
            return self.head(x)

    return UNet()


def compute_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of the pixels whose class is known, for labels (n, height, width)."""
    from torch.nn.functional import cross_entropy

    loss: Tensor = cross_entropy(outputs, targets.long(), ignore_index=UNKNOWN)
    return loss


MODEL = BuiltIn(
    name="shapes-unet",
    summary="a small U-Net, a class for each pixel",
    dataset="shapes",
    data_value="masks",
    build=build,
    from_data=("channels", "classes"),
    labels="masks",
    loss=compute_loss,
    training=Training(epochs=4, batch_size=16, learning_rate=4e-3, weight_decay=1e-3, shards=2, channels_last=True),
)
