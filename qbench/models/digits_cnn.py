"""``digits-cnn``: convolutions with BatchNorm and a residual add on 8 x 8 digits; 431,000 weights, 1.73 MB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qbench.models.base import BuiltIn, Training

if TYPE_CHECKING:
    from torch import Tensor, nn


def build(classes: int = 10) -> nn.Module:
    """A network from (n, 1, 8, 8) to (n, classes) logits with fresh weights; 1.8 million MACs at n = 1.

    Most work is in the convolutions and most weights are in the hidden Linear layer, so that dynamic quantization
    (Linear only) shrinks it as static does, and yet speeds it up less: the difference that a report should show.
    """
    import torch
    from torch import nn

    class DigitsCNN(nn.Module):  # type: ignore[misc]  # mypy skips torch (pyproject), so its base is Any
        """Each activation is a module of its own, so that FX can fuse it."""

        def __init__(self) -> None:
            super().__init__()
            self.stem = convolution(1, 32)
            self.body1 = convolution(32, 32)
            self.body2 = convolution(32, 32)[:2]  # the activation comes after the add
            self.body_relu = nn.ReLU()
            self.down = convolution(32, 48, stride=2)
            self.hidden = nn.Linear(48 * 4 * 4, 512)
            self.hidden_relu = nn.ReLU()
            self.head = nn.Linear(512, classes)

        def forward(self, x: Tensor) -> Tensor:
            """(n, 1, 8, 8) -> (n, classes)."""
            x = self.stem(x)
            x = self.body_relu(self.body2(self.body1(x)) + x)
            x = torch.flatten(self.down(x), 1)
            return self.head(self.hidden_relu(self.hidden(x)))

    def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
        )

    return DigitsCNN()


MODEL = BuiltIn(
    name="digits-cnn",
    summary="a residual network of convolutions with BatchNorm",
    dataset="digits",
    build=build,
    from_data=("classes",),
    training=Training(epochs=8, batch_size=64, learning_rate=3e-3, weight_decay=1e-2),
)
