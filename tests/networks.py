"""Small networks of the kinds that users have; also loaded by path as a user's own file."""

from __future__ import annotations

import torch
from torch import nn


class ResidualCNN(nn.Module):
    """Conv-BatchNorm-ReLU with a residual add; input (n, 1, 8, 8), output (n, 10)."""

    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.body = nn.Conv2d(width, width, 3, padding=1)
        self.relu2 = nn.ReLU()
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.relu(self.norm(self.stem(x)))
        x = self.relu2(self.body(x) + x)
        return self.head(x.mean((2, 3)))


class LSTMClassifier(nn.Module):
    """Rows as a sequence; input (n, 1, 8, 8), output (n, 10)."""

    def __init__(self, hidden=16):
        super().__init__()
        self.lstm = nn.LSTM(8, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 10)

    def forward(self, x):
        out, _ = self.lstm(x.squeeze(1))
        return self.head(out[:, -1])


class Perceptron(nn.Module):
    """Linear layers only."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 32)
        self.second = nn.Linear(32, 10)

    def forward(self, x):
        return self.second(torch.relu(self.first(torch.flatten(x, 1))))


class Grouped(nn.Module):
    """Grouped, strided and transposed convolutions: every way in which multiply-accumulates are counted."""

    def __init__(self):
        super().__init__()
        self.grouped = nn.Conv2d(1, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, stride=2)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        return self.head(self.up(torch.relu(self.depthwise(self.grouped(x)))).mean((2, 3)))


class Branching(nn.Module):
    """Control flow on values: FX cannot trace it."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = torch.flatten(x, 1)
        if float(x.sum()) > 0:
            x = -x
        return self.head(x)


class NothingToQuantize(nn.Module):
    """No layer with weights."""

    def forward(self, x):
        return torch.flatten(x, 1)[:, :10]


def residual_cnn():
    torch.manual_seed(0)
    return ResidualCNN().eval()


def lstm():
    torch.manual_seed(0)
    return LSTMClassifier().eval()


def perceptron():
    torch.manual_seed(0)
    return Perceptron().eval()


def unseeded():
    """A factory whose weights differ at every call, whatever the seed was."""
    generator = torch.Generator()
    generator.seed()
    model = Perceptron()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return model.eval()
