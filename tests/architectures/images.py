"""Classifiers of images as people write them: the blocks of well-known networks, with few channels."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # as people write it
from torch import nn


def conv_bn(inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1, groups: int = 1, act=nn.ReLU):
    """Convolution, BatchNorm and an activation; ``act`` None leaves it out."""
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([] if act is None else [act()]))


def head(channels: int, classes: int = 10) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def vgg_inplace() -> nn.Module:
    """In-place ReLU and Dropout, a flattened map, as in torchvision."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (16, 32, 48):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2, 2)]
        channels = width
    classifier = nn.Sequential(
        nn.Linear(48 * 4 * 4, 64), nn.ReLU(True), nn.Dropout(), nn.Linear(64, 64), nn.ReLU(True), nn.Dropout(),
        nn.Linear(64, 10),
    )  # fmt: skip
    return nn.Sequential(nn.Sequential(*layers), nn.AdaptiveAvgPool2d((4, 4)), nn.Flatten(1), classifier)


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)  # one module, called twice
        same = stride == 1 and inputs == outputs
        self.downsample = None if same else conv_bn(inputs, outputs, 1, stride=stride, act=None)

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


def resnet() -> nn.Module:
    """Basic blocks with one shared ReLU and an in-place addition."""
    return nn.Sequential(
        conv_bn(3, 16), Residual(16, 16), Residual(16, 32, 2), nn.Dropout(0.1), Residual(32, 48, 2), head(48)
    )


class InceptionBlock(nn.Module):
    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.one = conv_bn(inputs, width, 1)
        self.three = nn.Sequential(conv_bn(inputs, width, 1), conv_bn(width, width, 3))
        self.five = nn.Sequential(conv_bn(inputs, width, 1), conv_bn(width, width, 3), conv_bn(width, width, 3))
        self.pool = conv_bn(inputs, width, 1)

    def forward(self, x):
        pooled = F.avg_pool2d(x, kernel_size=3, stride=1, padding=1)
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(pooled)], 1)


def inception() -> nn.Module:
    """Four branches, one behind an average pool, side by side in a cat."""
    return nn.Sequential(conv_bn(3, 16, stride=2), InceptionBlock(16, 8), InceptionBlock(32, 16), head(64))


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features):
        x = self.conv1(F.relu(self.norm1(torch.cat(features, 1))))
        return F.dropout(self.conv2(F.relu(self.norm2(x))), p=0.1, training=self.training)


class DenseNet(nn.Module):
    """BatchNorm and ReLU before each convolution, and a growing list of features."""

    def __init__(self, growth: int = 12, depth: int = 4):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.layers = nn.ModuleList(DenseLayer(16 + i * growth, growth) for i in range(depth))
        width = 16 + depth * growth
        self.norm, self.classifier = nn.BatchNorm2d(width), nn.Linear(width, 10)

    def forward(self, x):
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(features))
        out = F.relu(self.norm(torch.cat(features, 1)), inplace=True)
        out = torch.flatten(F.adaptive_avg_pool2d(out, (1, 1)), 1)
        return self.classifier(out)


def channel_shuffle(x, groups: int):
    n, c, h, w = x.size()
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


class ShuffleUnit(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            conv_bn(half, half, 1), conv_bn(half, half, 3, groups=half, act=None), conv_bn(half, half, 1)
        )

    def forward(self, x):
        left, right = x.chunk(2, dim=1)
        return channel_shuffle(torch.cat((left, self.branch(right)), dim=1), 2)


def shufflenet() -> nn.Module:
    """Chunk, cat, view and transpose of channels around depthwise convolutions."""
    return nn.Sequential(
        conv_bn(3, 32, stride=2), ShuffleUnit(32), ShuffleUnit(32), conv_bn(32, 64, 3, stride=2), ShuffleUnit(64),
        head(64),
    )  # fmt: skip


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, gate=nn.Hardsigmoid):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)
        self.act, self.gate = nn.ReLU(), gate()

    def forward(self, x):
        return self.gate(self.fc2(self.act(self.fc1(self.pool(x))))) * x


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, expand: int, *, stride: int = 1, kernel: int = 3, act, gate):
        super().__init__()
        wide = inputs * expand
        self.use_res = stride == 1 and inputs == outputs
        self.block = nn.Sequential(
            conv_bn(inputs, wide, 1, act=act),
            conv_bn(wide, wide, kernel, stride=stride, groups=wide, act=act),
            SqueezeExcite(wide, gate),
            conv_bn(wide, outputs, 1, act=None),
        )

    def forward(self, x):
        return x + self.block(x) if self.use_res else self.block(x)


def mobilenet_v3() -> nn.Module:
    """Squeeze and excitation with hard sigmoid and hard swish."""
    options = {"act": nn.Hardswish, "gate": nn.Hardsigmoid}
    return nn.Sequential(
        conv_bn(3, 16, stride=2, act=nn.Hardswish),
        InvertedResidual(16, 16, 2, **options),
        InvertedResidual(16, 24, 3, stride=2, kernel=5, **options),
        InvertedResidual(24, 24, 3, kernel=5, **options),
        conv_bn(24, 96, 1, act=nn.Hardswish),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 64), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(64, 10),
    )  # fmt: skip


def efficientnet() -> nn.Module:
    """SiLU everywhere, sigmoid gates."""
    options = {"act": nn.SiLU, "gate": nn.Sigmoid}
    return nn.Sequential(
        conv_bn(3, 16, stride=2, act=nn.SiLU),
        InvertedResidual(16, 16, 2, **options),
        InvertedResidual(16, 24, 4, stride=2, **options),
        InvertedResidual(24, 24, 4, kernel=5, **options),
        head(24),
    )


class GhostModule(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.outputs, half = outputs, (outputs + 1) // 2
        self.primary, self.cheap = conv_bn(inputs, half, 1), conv_bn(half, half, 3, groups=half)

    def forward(self, x):
        first = self.primary(x)
        return torch.cat([first, self.cheap(first)], dim=1)[:, : self.outputs, :, :]


class GhostBlock(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.ghost1, self.ghost2 = GhostModule(channels, 2 * channels), GhostModule(2 * channels, channels)

    def forward(self, x):
        return self.ghost2(self.ghost1(x)) + x


def ghostnet() -> nn.Module:
    """Half of the channels made of the other half, and cut to size by a slice."""
    return nn.Sequential(conv_bn(3, 16, stride=2), GhostBlock(16), conv_bn(16, 33, stride=2), GhostBlock(33), head(33))


class ConvNeXtBlock(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.pwconv1, self.act, self.pwconv2 = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(0.5 * torch.ones(width))

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)
        y = self.gamma * self.pwconv2(self.act(self.pwconv1(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """A patch stem, 7x7 depthwise convolutions, LayerNorm and Linear over channels, a layer scale."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(ConvNeXtBlock(width), ConvNeXtBlock(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.head(self.norm(x.mean([-2, -1])))


class CBAM(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(channels, channels // 4), nn.ReLU(), nn.Linear(channels // 4, channels))
        self.spatial = nn.Conv2d(2, 1, 7, padding=3)

    def forward(self, x):
        average, most = self.mlp(x.mean(dim=(2, 3))), self.mlp(x.amax(dim=(2, 3)))
        x = x * torch.sigmoid(average + most)[:, :, None, None]
        maps = torch.cat([x.mean(dim=1, keepdim=True), x.max(dim=1, keepdim=True)[0]], dim=1)
        return x * torch.sigmoid(self.spatial(maps))


def cbam() -> nn.Module:
    """Channel attention by one MLP that is called twice, then spatial attention over mean and maximum."""
    return nn.Sequential(conv_bn(3, 16, stride=2), CBAM(16), conv_bn(16, 32, stride=2), CBAM(32), head(32))


def groupnorm() -> nn.Module:
    """GroupNorm and Mish in place of BatchNorm and ReLU."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (16, 32, 32):
        layers += [nn.Conv2d(channels, width, 3, 2, 1), nn.GroupNorm(4, width), nn.Mish()]
        channels = width
    return nn.Sequential(*layers, head(32))


def prelu() -> nn.Module:
    """One slope per channel, and LeakyReLU and ELU beside it."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.PReLU(16), nn.Conv2d(16, 32, 3, 2, 1), nn.PReLU(),
        nn.Conv2d(32, 32, 3, 1, 1), nn.LeakyReLU(0.1), nn.Conv2d(32, 32, 3, 1, 1), nn.ELU(), head(32),
    )  # fmt: skip


def squeezenet() -> nn.Module:
    """Fire modules; the classifier is a convolution, so its output goes straight to pooling."""

    class Fire(nn.Module):
        def __init__(self, inputs: int, squeeze: int, expand: int):
            super().__init__()
            self.squeeze = nn.Conv2d(inputs, squeeze, 1)
            self.expand1, self.expand3 = nn.Conv2d(squeeze, expand, 1), nn.Conv2d(squeeze, expand, 3, padding=1)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            x = self.relu(self.squeeze(x))
            return torch.cat([self.relu(self.expand1(x)), self.relu(self.expand3(x))], 1)

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(16, 8, 16),
        Fire(32, 8, 24), nn.Dropout(0.5), nn.Conv2d(48, 10, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(),
    )  # fmt: skip


def weight_norm() -> nn.Module:
    """Parametrized weights: weight_norm of each convolution, spectral_norm of the Linear."""
    from torch.nn.utils.parametrizations import spectral_norm
    from torch.nn.utils.parametrizations import weight_norm as normed

    return nn.Sequential(
        normed(nn.Conv2d(3, 16, 3, 2, 1)), nn.ReLU(), normed(nn.Conv2d(16, 32, 3, 2, 1)), nn.ReLU(), nn.Flatten(),
        spectral_norm(nn.Linear(32 * 8 * 8, 32)), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def spectral_norm_old() -> nn.Module:
    """The older, hook-based weight_norm and spectral_norm."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = nn.utils.weight_norm
        return nn.Sequential(
            nn.utils.spectral_norm(nn.Conv2d(3, 16, 4, 2, 1)), nn.LeakyReLU(0.2),
            old(nn.Conv2d(16, 32, 4, 2, 1)), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(32 * 8 * 8, 1),
        )  # fmt: skip


class FunctionalConv(nn.Module):
    """``F.conv2d`` and ``F.linear`` with weights that are plain parameters, and integers for stride and padding."""

    def __init__(self):
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(16, 3, 3, 3) * 0.2), nn.Parameter(torch.zeros(16))
        self.w2, self.b2 = nn.Parameter(torch.randn(32, 16, 3, 3) * 0.08), nn.Parameter(torch.zeros(32))
        self.w3, self.b3 = nn.Parameter(torch.randn(32, 1, 3, 3) * 0.3), nn.Parameter(torch.zeros(32))
        self.w4, self.b4 = nn.Parameter(torch.randn(10, 32) * 0.2), nn.Parameter(torch.zeros(10))

    def forward(self, x):
        x = F.relu(F.conv2d(x, self.w1, self.b1, stride=2, padding=1))
        x = F.relu(F.conv2d(x, self.w2, self.b2, 2, 1))
        x = F.relu6(F.conv2d(x, self.w3, self.b3, padding="same", groups=32))
        return F.linear(x.mean((2, 3)), self.w4, self.b4)


def cnn_3d() -> nn.Module:
    """A video network of 3-D convolutions and BatchNorm3d."""
    return nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d((1, 2, 2)),
        nn.Conv3d(8, 16, 3, stride=2, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
        nn.Linear(16, 10),
    )  # fmt: skip


class SharedBlock(nn.Module):
    """One residual block that is called three times (weights shared over depth), and a trunk of its own before."""

    def __init__(self):
        super().__init__()
        self.stem = conv_bn(3, 16, stride=2)
        self.block = nn.Sequential(conv_bn(16, 16), nn.Conv2d(16, 16, 3, padding=1))
        self.head = head(16)

    def forward(self, x):
        x = self.stem(x)
        for _ in range(3):
            x = torch.relu(x + self.block(x))
        return self.head(x)


NETWORKS = {
    "vgg_inplace": (vgg_inplace, [("image", 3, 32, 32)]),
    "resnet": (resnet, [("image", 3, 32, 32)]),
    "inception": (inception, [("image", 3, 32, 32)]),
    "densenet": (DenseNet, [("image", 3, 32, 32)]),
    "shufflenet": (shufflenet, [("image", 3, 32, 32)]),
    "mobilenet_v3": (mobilenet_v3, [("image", 3, 32, 32)]),
    "efficientnet": (efficientnet, [("image", 3, 32, 32)]),
    "ghostnet": (ghostnet, [("image", 3, 32, 32)]),
    "convnext": (ConvNeXt, [("image", 3, 32, 32)]),
    "cbam": (cbam, [("image", 3, 32, 32)]),
    "groupnorm": (groupnorm, [("image", 3, 32, 32)]),
    "prelu": (prelu, [("image", 3, 32, 32)]),
    "squeezenet": (squeezenet, [("image", 3, 32, 32)]),
    "weight_norm": (weight_norm, [("image", 3, 32, 32)]),
    "spectral_norm_old": (spectral_norm_old, [("image", 3, 32, 32)]),
    "functional_conv": (FunctionalConv, [("image", 3, 32, 32)]),
    "cnn_3d": (cnn_3d, [("image", 1, 8, 16, 16)]),
    "shared_block": (SharedBlock, [("image", 3, 32, 32)]),
}
