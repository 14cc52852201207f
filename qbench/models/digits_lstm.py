"""``digits-lstm``: the rows of an 8 x 8 digit as a sequence of 8; two LSTM layers; 204,000 weights, 0.82 MB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qbench.models.base import BuiltIn, Training

if TYPE_CHECKING:
    from torch import Tensor, nn


def build(hidden: int = 128, layers: int = 2, classes: int = 10) -> nn.Module:
    """A network from (n, 1, 8, 8) to (n, classes) logits with fresh weights; 1.6 million MACs at n = 1."""
    from torch import nn

    class DigitsLSTM(nn.Module):  # type: ignore[misc]  # mypy skips torch (pyproject), so its base is Any
        """The last step of an LSTM over the rows, then a linear layer."""

        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, hidden, layers, batch_first=True)
            self.fc = nn.Linear(hidden, classes)

        def forward(self, x: Tensor) -> Tensor:
            """Logits of shape (n, classes)."""
            steps, _ = self.lstm(x.squeeze(1))
            return self.fc(steps[:, -1])

    return DigitsLSTM()


MODEL = BuiltIn(
    name="digits-lstm",
    summary="an LSTM over the rows of the image",
    dataset="digits",
    build=build,
    from_data=("classes",),
    training=Training(epochs=20, batch_size=64, learning_rate=5e-3, weight_decay=1e-4),
)
