"""What is neither image nor sequence, and what has several inputs: tables, pairs, masks, odd arithmetic."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # as people write it
from images import conv_bn
from torch import nn


class Tabular(nn.Module):
    """Embedded categories beside numbers, BatchNorm1d, an MLP."""

    def __init__(self, sizes: tuple[int, ...] = (100, 100, 100)):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(size, 8) for size in sizes])
        self.norm = nn.BatchNorm1d(6)
        self.mlp = nn.Sequential(
            nn.Linear(8 * len(sizes) + 6, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Dropout(0.1), nn.Linear(64, 32),
            nn.ReLU(), nn.Linear(32, 1),
        )  # fmt: skip

    def forward(self, categories, numbers):
        embedded = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        return self.mlp(torch.cat([*embedded, self.norm(numbers)], 1))


class EmbeddingBagClassifier(nn.Module):
    """``nn.EmbeddingBag`` and Linear, as fastText."""

    def __init__(self):
        super().__init__()
        self.bag, self.fc = nn.EmbeddingBag(100, 32, mode="mean"), nn.Linear(32, 4)

    def forward(self, tokens):
        return self.fc(self.bag(tokens))


class Siamese(nn.Module):
    """One trunk for two images; their distance goes into a Linear layer."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            conv_bn(1, 16, stride=2),
            conv_bn(16, 32, stride=2),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 32),
        )
        self.out = nn.Linear(32, 1)

    def forward(self, left, right):
        return self.out(torch.abs(self.trunk(left) - self.trunk(right)))


class MultiInput(nn.Module):
    """An image and a table of numbers, joined late; a tuple comes out."""

    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(conv_bn(3, 16, stride=2), conv_bn(16, 24, stride=2), nn.AdaptiveAvgPool2d(1))
        self.numbers = nn.Sequential(nn.Linear(5, 16), nn.ReLU())
        self.classes, self.value = nn.Linear(40, 10), nn.Linear(40, 1)

    def forward(self, image, numbers):
        x = torch.cat([self.image(image).flatten(1), self.numbers(numbers)], 1)
        return self.classes(x), self.value(x)


class BooleanMask(nn.Module):
    """Comparisons, ``where`` and products with a boolean inside the network."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, 1, 1)
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = self.conv1(x)
        bright = x > x.mean(dim=(2, 3), keepdim=True)
        x = torch.where(bright, x, 0.1 * x)
        x = self.conv2(x) * bright
        keep = (x.abs() > 0.05) & bright
        return self.fc(x.masked_fill(~keep, 0.0).mean((2, 3)))


class Fourier(nn.Module):
    """A Fourier transform in the middle: complex tensors between two convolutions."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Conv1d(1, 8, 3, padding=1), nn.Conv1d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        spectrum = torch.fft.rfft(F.relu(self.before(x)), dim=-1)
        return self.fc(F.relu(self.after(torch.log1p(spectrum.abs()))).mean(-1))


class Elementwise(nn.Module):
    """maximum, clamp, pow, sum and sqrt before a Linear layer."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(width, 32), nn.Linear(width, 32), nn.Linear(32, 10)

    def forward(self, x):
        y = torch.maximum(self.first(x), self.second(x)).clamp(min=0.01, max=4.0)
        y = y.pow(2) / torch.sqrt(y.pow(2).sum(-1, keepdim=True) + 1e-6) * 8
        return self.out(y)


class Experts(nn.Module):
    """A soft mixture of experts: a gate's softmax weighs stacked outputs."""

    def __init__(self, width: int = 24):
        super().__init__()
        self.gate = nn.Linear(width, 3)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, 5)) for _ in range(3)]
        )

    def forward(self, x):
        weights = self.gate(x).softmax(-1).unsqueeze(-1)
        return (torch.stack([expert(x) for expert in self.experts], 1) * weights).sum(1)


class Functional(nn.Module):
    """Everything called as a function, module attributes of other kinds, a constant that is a buffer."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 16, 3, padding="same"), nn.BatchNorm2d(16), nn.Linear(16, 10)
        self.register_buffer("mean", torch.tensor([0.1, 0.0, -0.1]).view(1, 3, 1, 1))
        self.scale = 0.5

    def forward(self, x):
        x = (x - self.mean) / self.scale
        x = F.leaky_relu(self.bn(self.conv(x)), 0.2)
        x = F.avg_pool2d(F.max_pool2d(x, 2), 2)
        x = F.dropout(x, 0.2, self.training)
        x = F.hardtanh(x, -2.0, 2.0) + F.softplus(x)
        return F.softmax(self.fc(F.adaptive_avg_pool2d(x, 1).view(x.size(0), -1)), dim=1)


class GraphConv(nn.Module):
    """Graph convolution: an adjacency matrix that is an input, features, ``matmul``."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.first, self.second = nn.Linear(width, 32), nn.Linear(32, 4)

    def forward(self, features, adjacency):
        weights = torch.softmax(adjacency, dim=-1)
        x = F.relu(torch.matmul(weights, self.first(features)))
        return torch.matmul(weights, self.second(x)).mean(1)


class NerfMLP(nn.Module):
    """Coordinates encoded by sine and cosine, a skip from the input halfway."""

    def __init__(self, width: int = 48):
        super().__init__()
        self.register_buffer("bands", 2.0 ** torch.arange(4))
        encoded = 3 + 3 * 2 * 4
        self.a, self.b = nn.Linear(encoded, width), nn.Linear(width, width)
        self.c, self.out = nn.Linear(width + encoded, width), nn.Linear(width, 4)

    def forward(self, x):
        angles = (x[..., None] * self.bands).flatten(-2)
        encoded = torch.cat([x, angles.sin(), angles.cos()], -1)
        y = F.relu(self.b(F.relu(self.a(encoded))))
        y = F.relu(self.c(torch.cat([y, encoded], -1)))
        return torch.sigmoid(self.out(y))


NETWORKS = {
    "tabular": (Tabular, [("tokens", 3), ("vector", 6)]),
    "embedding_bag": (EmbeddingBagClassifier, [("tokens", 10)]),
    "siamese": (Siamese, [("image", 1, 28, 28), ("image", 1, 28, 28)]),
    "multi_input": (MultiInput, [("image", 3, 32, 32), ("vector", 5)]),
    "boolean_mask": (BooleanMask, [("image", 3, 32, 32)]),
    "fourier": (Fourier, [("vector", 1, 64)]),
    "elementwise": (Elementwise, [("vector", 32)]),
    "experts": (Experts, [("vector", 24)]),
    "functional": (Functional, [("image", 3, 32, 32)]),
    "graph_conv": (GraphConv, [("vector", 8, 16), ("vector", 8, 8)]),
    "nerf_mlp": (NerfMLP, [("vector", 3)]),
}
