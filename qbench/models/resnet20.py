"""``resnet20``: the residual network for small images, 0.27 million weights; trained on Fashion-MNIST or CIFAR-10.

Source: He et al., "Deep Residual Learning for Image Recognition" (2015), section 4.2; shortcuts of option B.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qbench.models.base import BuiltIn, Training

if TYPE_CHECKING:
    from torch import Tensor, nn

WIDTHS = (16, 32, 64)
BLOCKS = 3


def build(channels: int = 1, classes: int = 10) -> nn.Module:
    """A network from (n, channels, height, width) to (n, classes) logits with fresh weights; 31 million MACs at 28 x 28
    and n = 1. Each activation is a module of its own, so that FX can fuse it."""
    import torch
    from torch import nn

    class ResidualBlock(nn.Module):  # type: ignore[misc]  # mypy skips torch (pyproject), so its base is Any
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.relu1 = nn.ReLU()
            self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.relu2 = nn.ReLU()
            self.shortcut = nn.Identity()
            if stride != 1 or before != width:
                self.shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

        def forward(self, x: Tensor) -> Tensor:
            return self.relu2(self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x))))) + self.shortcut(x))

    class ResNet20(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(
                nn.Conv2d(channels, WIDTHS[0], 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU()
            )
            blocks, before = [], WIDTHS[0]
            for width in WIDTHS:
                for position in range(BLOCKS):
                    blocks.append(ResidualBlock(before, width, 2 if position == 0 and width != WIDTHS[0] else 1))
                    before = width
            self.blocks = nn.Sequential(*blocks)
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.head = nn.Linear(before, classes)

        def forward(self, x: Tensor) -> Tensor:
            """(n, channels, height, width) -> (n, classes)."""
            return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))

    return ResNet20()


MODEL = BuiltIn(
    name="resnet20",
    summary="the residual network for small images",
    dataset="fashion-mnist",
    build=build,
    from_data=("channels", "classes"),
    training=Training(epochs=2, batch_size=128, learning_rate=1e-2, weight_decay=1e-3, shards=4, channels_last=True),
)
