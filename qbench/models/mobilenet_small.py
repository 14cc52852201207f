"""``mobilenet-small``: inverted residuals with depthwise convolutions and ReLU6 for small images, 49,000 weights.

The kind of network that loses most by per-tensor weights and 7-bit activations.
Source: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (2018), arXiv:1801.04381.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qbench.models.base import BuiltIn, Training

if TYPE_CHECKING:
    from torch import Tensor, nn

# Output channels and stride of each inverted residual; each widens its input fourfold inside.
BLOCKS = ((16, 1), (24, 2), (24, 1), (32, 2), (32, 1), (48, 1))
EXPANSION = 4
STEM = 16
LAST = 128


def build(channels: int = 1, classes: int = 10) -> nn.Module:
    """A network from (n, channels, height, width) to (n, classes) logits with fresh weights. Each activation is a
    module of its own, so that FX can fuse it."""
    import torch
    from torch import nn

    def convolution(before: int, width: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
        return [
            nn.Conv2d(before, width, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(width),
        ]

    class Inverted(nn.Module):  # type: ignore[misc]  # mypy skips torch (pyproject), so its base is Any
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            inside = before * EXPANSION
            self.adds = stride == 1 and before == width
            self.layers = nn.Sequential(
                *convolution(before, inside),
                nn.ReLU6(),
                *convolution(inside, inside, 3, stride, inside),
                nn.ReLU6(),
                *convolution(inside, width),
            )

        def forward(self, x: Tensor) -> Tensor:
            return x + self.layers(x) if self.adds else self.layers(x)

    class MobileNetSmall(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(*convolution(channels, STEM, 3), nn.ReLU6())
            befores = (STEM, *(width for width, _ in BLOCKS[:-1]))
            self.blocks = nn.Sequential(
                *(Inverted(before, *block) for before, block in zip(befores, BLOCKS, strict=True))
            )
            self.last = nn.Sequential(*convolution(BLOCKS[-1][0], LAST), nn.ReLU6())
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.head = nn.Linear(LAST, classes)

        def forward(self, x: Tensor) -> Tensor:
            """(n, channels, height, width) -> (n, classes)."""
            return self.head(torch.flatten(self.pool(self.last(self.blocks(self.stem(x)))), 1))

    return MobileNetSmall()


MODEL = BuiltIn(
    name="mobilenet-small",
    summary="inverted residuals with depthwise convolutions and ReLU6",
    dataset="fashion-mnist",
    build=build,
    from_data=("channels", "classes"),
    training=Training(epochs=3, batch_size=128, learning_rate=1e-2, weight_decay=1e-3, shards=4, channels_last=True),
)
