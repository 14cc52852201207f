"""Networks whose output is a map or an image: segmentation, detection, super-resolution, generators."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # as people write it
from images import Residual, conv_bn
from torch import nn


class UNet(nn.Module):
    """Skips by cat around ``F.interpolate``; the last convolution is the output."""

    def __init__(self, mode: str = "nearest", width: int = 12):
        super().__init__()
        self.mode = mode
        self.down1, self.down2 = conv_bn(3, width), conv_bn(width, 2 * width)
        self.middle = conv_bn(2 * width, 2 * width)
        self.up2, self.up1 = conv_bn(4 * width, width), conv_bn(2 * width, width)
        self.out = nn.Conv2d(width, 4, 1)

    def grown(self, x):
        if self.mode == "nearest":
            return F.interpolate(x, scale_factor=2.0)
        return F.interpolate(x, scale_factor=2.0, mode=self.mode, align_corners=False)

    def forward(self, x):
        shallow = self.down1(x)
        deep = self.down2(F.max_pool2d(shallow, 2))
        x = self.grown(self.middle(F.max_pool2d(deep, 2)))
        x = self.grown(self.up2(torch.cat([x, deep], 1)))
        return self.out(self.up1(torch.cat([x, shallow], 1)))


def unet_bilinear() -> nn.Module:
    return UNet("bilinear")


class UNetTransposed(nn.Module):
    """Grows by ConvTranspose2d in place of interpolation."""

    def __init__(self, width: int = 12):
        super().__init__()
        self.down, self.middle = conv_bn(3, width), conv_bn(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last, self.out = conv_bn(2 * width, width), nn.Conv2d(width, 2, 1)

    def forward(self, x):
        skip = self.down(x)
        x = self.up(self.middle(F.max_pool2d(skip, 2)))
        return torch.sigmoid(self.out(self.last(torch.cat([skip, x], 1))))


class FPN(nn.Module):
    """A pyramid: lateral 1x1 convolutions, nearest upsampling to a size, additions; one of three maps is returned."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.c1, self.c2, self.c3 = conv_bn(3, 16, stride=2), conv_bn(16, 24, stride=2), conv_bn(24, 32, stride=2)
        self.lateral = nn.ModuleList([nn.Conv2d(channels, width, 1) for channels in (16, 24, 32)])
        self.smooth = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(3)])

    def forward(self, x):
        c1 = self.c1(x)
        c2 = self.c2(c1)
        c3 = self.c3(c2)
        p3 = self.lateral[2](c3)
        p2 = self.lateral[1](c2) + F.interpolate(p3, size=c2.shape[-2:], mode="nearest")
        p1 = self.lateral[0](c1) + F.interpolate(p2, size=c1.shape[-2:], mode="nearest")
        return self.smooth[0](p1), self.smooth[1](p2), self.smooth[2](p3)


class Yolo(nn.Module):
    """Two heads whose maps are viewed, permuted, decoded with sigmoid and exp, and joined."""

    def __init__(self, classes: int = 3, anchors: int = 2):
        super().__init__()
        self.anchors, self.each = anchors, 5 + classes
        self.trunk = nn.Sequential(
            conv_bn(3, 16, stride=2, act=nn.SiLU), Residual(16, 24, 2), conv_bn(24, 32, 3, act=nn.SiLU)
        )
        self.deep = conv_bn(32, 48, stride=2, act=nn.SiLU)
        self.head1 = nn.Conv2d(32 + 48, anchors * self.each, 1)
        self.head2 = nn.Conv2d(48, anchors * self.each, 1)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")

    def decode(self, raw):
        n, _, h, w = raw.shape
        raw = raw.view(n, self.anchors, self.each, h, w).permute(0, 1, 3, 4, 2)
        xy, wh, scores = raw[..., :2].sigmoid() * 2 - 0.5, torch.exp(raw[..., 2:4].clamp(max=4)), raw[..., 4:].sigmoid()
        return torch.cat([xy, wh, scores], -1).reshape(n, -1, self.each)

    def forward(self, x):
        shallow = self.trunk(x)
        deep = self.deep(shallow)
        first = self.head1(torch.cat([shallow, self.up(deep)], 1))
        return torch.cat([self.decode(first), self.decode(self.head2(deep))], 1)


class DeepLab(nn.Module):
    """Dilated convolutions side by side, a pooled branch, bilinear upsampling to the input's size."""

    def __init__(self, width: int = 16, classes: int = 5):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 16, stride=2), conv_bn(16, 32, stride=2))
        self.branches = nn.ModuleList(
            [nn.Conv2d(32, width, 1), *(nn.Conv2d(32, width, 3, padding=r, dilation=r) for r in (2, 4))]
        )
        self.pooled = nn.Conv2d(32, width, 1)
        self.out = nn.Conv2d(4 * width, classes, 1)

    def forward(self, x):
        size = x.shape[-2:]
        x = self.stem(x)
        parts = [F.relu(branch(x)) for branch in self.branches]
        pooled = F.relu(self.pooled(F.adaptive_avg_pool2d(x, 1)))
        parts.append(F.interpolate(pooled, size=x.shape[-2:], mode="bilinear", align_corners=False))
        return F.interpolate(self.out(torch.cat(parts, 1)), size=size, mode="bilinear", align_corners=False)


def srcnn() -> nn.Module:
    """Three convolutions, the last of which is the output."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 9, padding=4), nn.ReLU(), nn.Conv2d(32, 16, 1), nn.ReLU(), nn.Conv2d(16, 1, 5, padding=2)
    )


class PixelShuffleSR(nn.Module):
    """A global residual around PixelShuffle, as in ESPCN and EDSR."""

    def __init__(self, width: int = 24):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(True), nn.Conv2d(width, width, 3, 1, 1)
        )
        self.last, self.shuffle = nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2)

    def forward(self, x):
        y = self.first(x)
        y = y + 0.1 * self.body(y)
        return self.shuffle(self.last(y)) + F.interpolate(x, scale_factor=2, mode="nearest")


class Generator(nn.Module):
    """A DCGAN generator: ConvTranspose2d, BatchNorm, Tanh."""

    def __init__(self, latent: int = 32, width: int = 16):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(latent, 2 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh(),
        )  # fmt: skip

    def forward(self, z):
        return self.main(z[:, :, None, None])


class Autoencoder(nn.Module):
    """Convolutions down to a code, and back; the reconstruction is the output."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * 7 * 7, 16),
        )  # fmt: skip
        self.widen = nn.Linear(16, 16 * 7 * 7)
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (16, 7, 7)), nn.ReLU(), nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1), nn.ReLU(),
            nn.ConvTranspose2d(8, 1, 3, 2, 1, output_padding=1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x):
        return self.decoder(self.widen(self.encoder(x)))


class StyleBlock(nn.Module):
    """Reflection padding, InstanceNorm and nearest upsampling, as in fast neural style."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(3, width, 3, 2), nn.InstanceNorm2d(width, affine=True), nn.ReLU(),
            nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width, affine=True), nn.ReLU(),
            nn.Upsample(scale_factor=2), nn.ReflectionPad2d(1), nn.Conv2d(width, 3, 3),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


NETWORKS = {
    "unet": (UNet, [("image", 3, 32, 32)]),
    "unet_bilinear": (unet_bilinear, [("image", 3, 32, 32)]),
    "unet_transposed": (UNetTransposed, [("image", 3, 32, 32)]),
    "fpn": (FPN, [("image", 3, 32, 32)]),
    "yolo": (Yolo, [("image", 3, 32, 32)]),
    "deeplab": (DeepLab, [("image", 3, 32, 32)]),
    "srcnn": (srcnn, [("image", 1, 24, 24)]),
    "pixel_shuffle": (PixelShuffleSR, [("image", 3, 16, 16)]),
    "gan_generator": (Generator, [("vector", 32)]),
    "autoencoder": (Autoencoder, [("image", 1, 28, 28)]),
    "style_transfer": (StyleBlock, [("image", 3, 32, 32)]),
}
