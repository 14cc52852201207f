"""What every training shares: the state from which it goes on, the means of an epoch, and one thread to compute on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """What a step changes: a network, its optimizer with its schedule, and the generator of the examples' order."""

    network: Any
    optimizer: Any
    schedule: Any
    order: Any

    def capture(self) -> dict[str, Any]:
        """All that the next step depends on, torch's own random numbers included."""
        import torch

        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "order": self.order.get_state(),
            "random": torch.get_rng_state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes back to what ``capture`` returned."""
        import torch

        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.order.set_state(state["order"])
        torch.set_rng_state(state["random"])


@dataclass(kw_only=True)
class EpochMeans:
    """Sum of the losses and count of right predictions over so many examples of an epoch; ``right`` is None where the
    task has no right and wrong."""

    loss: float = 0.0
    right: int | None = 0
    examples: int = 0

    def add(self, loss: float, right: int | None, examples: int) -> None:
        """Adds a batch with its mean loss."""
        self.loss, self.examples = self.loss + loss * examples, self.examples + examples
        self.right = None if right is None or self.right is None else self.right + right

    @property
    def mean_loss(self) -> float:
        """Per example; 0 of none."""
        return self.loss / max(1, self.examples)

    @property
    def accuracy(self) -> float | None:
        """The share of right predictions; None where the task has no right and wrong."""
        return None if self.right is None else self.right / max(1, self.examples)
