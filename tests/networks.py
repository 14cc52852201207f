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


class Loud(nn.Module):
    """Control flow on values that most examples do not show: a pixel above 5 turns the outputs round."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = self.head(torch.flatten(x, 1))
        return -x if float(x.detach().abs().max()) > 50 else x


class Crowded(nn.Module):
    """Another function for a batch of several than for one example."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = self.head(torch.flatten(x, 1))
        return -x if x.shape[0] > 1 else x


class NeverAlone(nn.Module):
    """A forward that raises for a batch of 1."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        if len(x) < 2:
            raise ValueError("expected several examples")
        return self.head(torch.flatten(x, 1))


class Forgetful(nn.Module):
    """Dropout that nobody turned off."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(nn.functional.dropout(torch.flatten(x, 1), 0.5))


class Tokens(nn.Module):
    """Token ids (n, 6) in, 10 scores and the hidden state out."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, ids):
        hidden = self.embedding(ids).mean(1)
        return self.head(hidden), hidden


class Masked(nn.Module):
    """Two inputs and one that may be left out."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 10)

    def forward(self, values, mask, scale=None):
        return self.head(values * mask)


class Head(nn.Module):
    """A small trunk, and outputs in one of the forms that users give."""

    def __init__(self, outputs=1, form="plain"):
        super().__init__()
        self.trunk = nn.Linear(4, 16)
        self.head = nn.Linear(16, outputs)
        self.form = form

    def forward(self, x):
        hidden = torch.relu(self.trunk(x))
        found = self.head(hidden)
        if self.form == "flat":
            return found.squeeze(1)
        return (found, hidden) if self.form == "tuple" else found


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


def tokens():
    torch.manual_seed(0)
    return Tokens().eval()


def masked():
    torch.manual_seed(0)
    return Masked().eval()


def unseeded():
    """A factory whose weights differ at every call, whatever the seed was."""
    generator = torch.Generator()
    generator.seed()
    model = Perceptron()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return model.eval()
