"""Networks and data of ``explain_checks.py``: copied beside each suite, which names their functions.

Features are drawn at random, the last layer is fitted to scikit-learn's digits by ridge regression: right on about 95
of 100, made in a second, the same every time.
"""

import numpy as np
import torch
from fitted_layer import fit_last_layer
from sklearn.datasets import load_digits
from torch import nn

TRAIN = 1200


def _digits(split):
    digits = load_digits()
    rows = slice(TRAIN) if split == "train" else slice(TRAIN, None)
    return digits.images[rows, None].astype(np.float32) / 16, digits.target[rows]


def digits(split):
    """Images (n, 1, 8, 8) from 0 to 1, with labels."""
    return _digits(split)


def dark(split):
    """The same, but the calibration split is four times as dark."""
    images, labels = _digits(split)
    return images / 4 if split == "train" else images, labels


def images(split):
    """Smooth images (16, 1, 48, 48) without labels."""
    random = np.random.default_rng(split == "train")
    coarse = random.standard_normal((16, 1, 12, 12)).astype(np.float32)
    return {"inputs": np.kron(coarse, np.ones((4, 4), np.float32)), "labels": None}


def tokens(split):
    """Sequences (16, 128, 256) without labels."""
    random = np.random.default_rng(split == "train")
    return {"inputs": random.standard_normal((16, 128, 256)).astype(np.float32), "labels": None}


for _load in (digits, dark, images, tokens):
    _load.splits = ("train", "test")
for _load in (digits, dark):
    _load.classes = 10


def plain():
    """Two convolutions."""
    torch.manual_seed(0)
    return fit_last_layer(
        nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten()
        ),
        *_digits("train"),
    )  # fmt: skip


def outlier():
    """One channel has weights fifty times as large as the others, and is silent behind its ReLU."""
    torch.manual_seed(0)
    second = nn.Conv2d(16, 32, 3, 2, 1)
    second.weight.data[7] *= 50
    second.bias.data[7] = -100.0
    return fit_last_layer(
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), second, nn.ReLU(), nn.Flatten()), *_digits("train")
    )


def gates():
    """Sigmoids whose values lie between 0 and 0.03."""
    torch.manual_seed(0)
    second = nn.Conv2d(16, 32, 3, 2, 1)
    second.bias.data -= 5.0
    return fit_last_layer(
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), second, nn.Sigmoid(), nn.Flatten()), *_digits("train")
    )


def depthwise():
    """A depthwise convolution whose neighbouring weights are all near the largest, on values near the largest."""
    torch.manual_seed(0)
    second = nn.Conv2d(96, 96, 3, padding=1, groups=96)
    second.weight.data = (1 - 0.1 * torch.rand(96, 1, 3, 3)) * torch.where(torch.rand(96, 1, 1, 1) < 0.5, 1.0, -1.0)
    return fit_last_layer(
        nn.Sequential(nn.Conv2d(1, 96, 3, padding=1), nn.ReLU(), second, nn.ReLU(), nn.Flatten()), *_digits("train")
    )


def loud():
    """A convolution whose weights are all near the largest of their channel, of one sign in each."""
    torch.manual_seed(0)
    second = nn.Conv2d(16, 32, 3, 2, 1)
    second.weight.data = (1 - 0.1 * torch.rand(32, 16, 3, 3)) * torch.where(torch.rand(32, 1, 1, 1) < 0.7, 1.0, -1.0)
    return fit_last_layer(
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), second, nn.ReLU(), nn.Flatten()), *_digits("train")
    )


def srcnn():
    """Super-resolution: the last convolution is the output."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 64, 9, padding=4), nn.ReLU(), nn.Conv2d(64, 32, 1), nn.ReLU(), nn.Conv2d(32, 1, 5, padding=2)
    )


class Attention(nn.Module):
    """Two einsums of activations between two Linear layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.before, self.after = nn.Linear(256, 256), nn.Linear(256, 256)

    def forward(self, x):
        """(n, 128, 256) -> (n, 128, 256)."""
        y = self.before(x)
        weights = torch.einsum("nqd,nkd->nqk", y, x) / 256
        return self.after(torch.einsum("nqk,nkd->nqd", weights, x))


def attention():
    """Einsums of activations."""
    return Attention()
