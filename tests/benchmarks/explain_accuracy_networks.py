"""Networks and data of ``explain_accuracy_error.py``: copied beside each suite, which names their functions.

Images of ten smooth patterns with noise, without end: each split draws its own. Features are drawn by a seed, the last
layer is fitted by ridge regression, so that a network is right on most images and made in a second.
"""

import numpy as np
import torch
from fitted_layer import fit_last_layer
from torch import nn

SIZE, EXAMPLES = 8, 400
SPLITS = {"train": 1, "test": 2, "train2": 3, "test2": 4}


def _draw(seed, count):
    patterns = np.kron(np.random.default_rng(0).random((10, 1, 4, 4)), np.ones((2, 2)))
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count)
    noise = random.normal(0, 0.2, (count, 1, SIZE, SIZE))
    return np.clip(patterns[labels] + noise, 0, 1).astype(np.float32), labels


def patterns(split):
    """Images (n, 1, 8, 8) from 0 to 1, with labels."""
    return _draw(SPLITS[split], EXAMPLES)


def dark(split):
    """The same, but what is calibrated on is four times as dark."""
    images, labels = patterns(split)
    return images / 4 if split.startswith("train") else images, labels


def bright(split):
    """The same, but what is calibrated on is eight times as bright."""
    images, labels = patterns(split)
    return images * 8 if split.startswith("train") else images, labels


patterns.splits = ("train", "test", "train2", "test2")
dark.splits = ("train", "test", "train2", "test2")
bright.splits = ("train", "test", "train2", "test2")
patterns.classes = dark.classes = bright.classes = 10


class SigmoidCall(nn.Module):
    """A sigmoid that is called as a function."""

    def forward(self, x):
        """As torch.sigmoid."""
        return torch.sigmoid(x)


def unlabelled(split):
    """Images alone: int8 is compared with fp32."""
    return patterns(split)[0], None


unlabelled.splits = patterns.splits


class Heads(nn.Module):
    """Three scales, each with boxes of hundreds of pixels joined to scores; all of them in one output, as detectors
    are exported. ``even``: nothing is larger than the rest, and a layer with weights reads what is joined."""

    def __init__(self, even):
        super().__init__()
        self.scales = nn.ModuleList(nn.Sequential(nn.Conv2d(n, 16, 3, 2, 1), nn.ReLU()) for n in (1, 16, 16))
        self.boxes = nn.ModuleList(nn.Conv2d(16, 4, 1) for _ in range(3))
        self.scores = nn.ModuleList(nn.Conv2d(16, 5, 1) for _ in range(3))
        self.last = nn.Conv1d(9, 6, 1) if even else nn.Identity()
        with torch.no_grad():
            for boxes in () if even else self.boxes:
                boxes.weight *= 10 ** (1.5 + torch.rand(1))
                boxes.bias.fill_(float(50 + 100 * torch.rand(1)))
        self.even = even

    def forward(self, x):
        """All boxes and scores, (n, 9, places)."""
        joined = []
        for scale, boxes, scores in zip(self.scales, self.boxes, self.scores, strict=True):
            x = scale(x)
            sides, values = torch.relu(boxes(x)), scores(x)
            values = torch.relu(values) if self.even else torch.sigmoid(values)
            joined.append(torch.cat([sides, values], 1).flatten(2))
        return self.last(torch.cat(joined, 2))


def build(kind="plain", seed=0):
    """A network of a kind with the weights of a seed."""
    torch.manual_seed(100 + seed)
    if kind in ("heads", "even-heads"):
        return Heads(even=kind == "even-heads").eval()
    width = 96 if kind == "depthwise" else 16
    first, second, gate = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()
    with torch.no_grad():
        if kind == "outlier":  # weights fifty times as large in one channel, which is silent behind its ReLU
            second.weight[7] *= 50
            second.bias[7] = -100.0
        elif kind == "loud-channel":  # one channel of activations is sixty times the others; the next layer undoes it
            first.weight[3], first.bias[3] = 60 * first.weight[3].abs(), 0.0
            second.weight[:, 3] /= 60
        elif kind in ("gates", "called-gates"):  # values between 0 and 0.03
            second.bias -= 5.0
            gate = nn.Sigmoid() if kind == "gates" else SigmoidCall()
        if kind in ("loud", "depthwise"):  # values near the largest behind the first layer
            first.weight *= 0.2
            first.bias.fill_(1.0)
        if kind == "loud":  # all weights of a channel near the largest, of one sign
            sign = torch.where(torch.rand(32, 1, 1, 1) < 0.7, 1.0, -1.0)
            second.weight.copy_((1 - 0.1 * torch.rand(32, 16, 3, 3)) * sign)
        elif kind == "depthwise":
            second = nn.Conv2d(96, 96, 3, padding=1, groups=96)
            sign = torch.where(torch.rand(96, 1, 1, 1) < 0.5, 1.0, -1.0)
            second.weight.copy_((1 - 0.1 * torch.rand(96, 1, 3, 3)) * sign)
    deep = [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()] if kind == "deep" else []
    return fit_last_layer(nn.Sequential(first, nn.ReLU(), second, gate, *deep, nn.Flatten()), *_draw(9, 1500))
