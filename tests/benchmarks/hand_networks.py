"""The networks that ``by_hand.py`` measures: their last layers, activations and joins are what quantizers differ in."""

from __future__ import annotations

import itertools

import torch
from torch import nn


def srcnn() -> nn.Module:
    """Super-resolution: the last convolution is the output."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 9, padding=4), nn.ReLU(), nn.Conv2d(64, 32, 1), nn.ReLU(), nn.Conv2d(32, 32, 5, padding=2)
    )


class SqueezeExcite(nn.Module):
    """Scales channels by what is seen of the whole image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // 4, 1), nn.ReLU(), nn.Conv2d(width // 4, width, 1),
            nn.Hardsigmoid(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x)


class Inverted(nn.Module):
    """An inverted residual block as in MobileNetV3."""

    def __init__(self, before: int, wide: int, after: int, kernel: int, stride: int, act: type[nn.Module]) -> None:
        super().__init__()
        self.residual = stride == 1 and before == after
        self.body = nn.Sequential(
            nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), act(),
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False), nn.BatchNorm2d(wide),
            SqueezeExcite(wide), act(), nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


def mobilenet() -> nn.Module:
    """Shaped as MobileNetV3-Small."""
    blocks = [
        (16, 16, 16, 3, 2, nn.ReLU), (16, 72, 24, 3, 2, nn.ReLU), (24, 88, 24, 3, 1, nn.ReLU),
        (24, 96, 40, 5, 2, nn.Hardswish), (40, 240, 40, 5, 1, nn.Hardswish), (40, 240, 40, 5, 1, nn.Hardswish),
        (40, 120, 48, 5, 1, nn.Hardswish), (48, 144, 48, 5, 1, nn.Hardswish), (48, 288, 96, 5, 2, nn.Hardswish),
        (96, 576, 96, 5, 1, nn.Hardswish), (96, 576, 96, 5, 1, nn.Hardswish),
    ]  # fmt: skip
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish(),
        *(Inverted(*block) for block in blocks),
        nn.Conv2d(96, 576, 1, bias=False), nn.BatchNorm2d(576), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(576, 1024), nn.Hardswish(), nn.Linear(1024, 100),
    )  # fmt: skip


def _double(before: int, after: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
        nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """Three levels, transposed convolutions, concatenations."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        widths = [3, width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(_double(*pair) for pair in itertools.pairwise(widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * channels, channels, 2, 2) for channels in widths[-2:0:-1])
        self.join = nn.ModuleList(_double(2 * channels, channels) for channels in widths[-2:0:-1])
        self.pool, self.last = nn.MaxPool2d(2), nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sides = [self.down[0](x)]
        for level in self.down[1:]:
            sides.append(level(self.pool(sides[-1])))
        x = sides.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), sides.pop()], 1))
        return self.last(x)


class Encoder(nn.Module):
    """A transformer encoder and a classifier."""

    def __init__(self, width: int = 384, heads: int = 6, layers: int = 4) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, dropout=0.0, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x).mean(1))


def _silu(before: int, after: int, kernel: int = 1, stride: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(after), nn.SiLU()
    )


class Stages(nn.Module):
    """Half of the channels go through residual blocks, whose outputs are all joined."""

    def __init__(self, before: int, after: int, blocks: int, *, residual: bool = False) -> None:
        super().__init__()
        half = after // 2
        self.first, self.last = _silu(before, after), _silu((2 + blocks) * half, after)
        self.blocks = nn.ModuleList(
            nn.Sequential(_silu(half, half, 3), _silu(half, half, 3)) for _ in range(blocks)
        )  # fmt: skip
        self.residual = residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(parts[-1] + block(parts[-1]) if self.residual else block(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Detector(nn.Module):
    """Convolutions with SiLU at three sizes, joined up and down, a head for boxes and one for classes at each."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Sequential(
            _silu(3, 16, 3, 2), _silu(16, 32, 3, 2), Stages(32, 32, 1, residual=True), _silu(32, 64, 3, 2),
            Stages(64, 64, 2, residual=True),
        )  # fmt: skip
        self.middle = nn.Sequential(_silu(64, 128, 3, 2), Stages(128, 128, 2, residual=True))
        self.large = nn.Sequential(_silu(128, 256, 3, 2), Stages(256, 256, 1, residual=True))
        self.narrow, self.wide, self.pool = _silu(256, 128), _silu(512, 256), nn.MaxPool2d(5, 1, 2)
        self.up = nn.Upsample(scale_factor=2)
        self.up_middle, self.up_small = Stages(384, 128, 1), Stages(192, 64, 1)
        self.down_small, self.down_middle = _silu(64, 64, 3, 2), _silu(128, 128, 3, 2)
        self.out_middle, self.out_large = Stages(192, 128, 1), Stages(384, 256, 1)
        self.heads = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(_silu(width, given, 3), _silu(given, given, 3), nn.Conv2d(given, given, 1))
                for given in (64, 80)
            )
            for width in (64, 128, 256)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = self.small(x)
        middle = self.middle(small)
        pooled = [self.narrow(self.large(middle))]
        for _ in range(3):
            pooled.append(self.pool(pooled[-1]))
        large = self.wide(torch.cat(pooled, 1))
        middle = self.up_middle(torch.cat([self.up(large), middle], 1))
        small = self.up_small(torch.cat([self.up(middle), small], 1))
        middle = self.out_middle(torch.cat([self.down_small(small), middle], 1))
        large = self.out_large(torch.cat([self.down_middle(middle), large], 1))
        sizes = zip((small, middle, large), self.heads, strict=True)
        return torch.cat([torch.cat([head(x) for head in heads], 1).flatten(2) for x, heads in sizes], 2)


NETWORKS = {
    "srcnn": (srcnn, (1, 128, 128)),
    "mobilenet": (mobilenet, (3, 224, 224)),
    "unet": (UNet, (3, 128, 128)),
    "encoder": (Encoder, (64, 384)),
    "bert": (lambda: Encoder(256, 4), (128, 256)),
    "vit": (lambda: Encoder(384, 6, 6), (197, 384)),
    "detector": (Detector, (3, 320, 320)),
}
