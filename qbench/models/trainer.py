"""The fp32 weights of a built-in model: seeded, the same on any number of cores, and after any interruption."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from qbench.errors import ModelError
from qbench.models.base import BuiltIn, Training
from qbench.models.sharded_gradients import Loss, Shards
from qbench.process.threads import one_torch_thread
from qbench.progress.callback import Progress
from qbench.quant.pytorch import checkpoint
from qbench.quant.pytorch.training_state import EpochMeans, TrainingState

if TYPE_CHECKING:
    from torch import Tensor, nn

Arrays = tuple[NDArray[Any], ...]
CHECKPOINT_SECONDS = 10.0  # at most so much work is lost with a training that is killed
_PROGRESS_EVERY = 8  # steps


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Where an unfinished training leaves its state, and every how many seconds; ``key`` names the training."""

    folder: Path
    key: str
    seconds: float

    def save(self, state: dict[str, Any]) -> None:
        """Replaces the state before in one move."""
        checkpoint.save(self.folder, {"training": self.key}, state)

    def load(self) -> dict[str, Any] | None:
        """The last state; None where there is none, or none that can be read."""
        return checkpoint.load(self.folder, {"training": self.key})


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """How a training ended: mean loss and share of right predictions (None: they are no classes) over its last epoch,
    while the weights still changed; ``seconds`` it took, all attempts together; ``resumed``: the share that an earlier
    attempt had done."""

    loss: float
    accuracy: float | None
    seconds: float
    resumed: float


def fresh(model: BuiltIn, **args: Any) -> nn.Module:
    """The built-in's network with the initial weights of its seed."""
    import torch

    if model.build is None:
        raise ModelError(f"{model.name} is an ONNX file: it has no module with fresh weights")

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(model.training.seed if model.training else 0)
        module: nn.Module = model.build(**args)
    return module


def _keep_inputs(inputs: Arrays) -> Arrays:
    return inputs


def train(
    module: nn.Module,
    inputs: Arrays,
    labels: NDArray[Any],
    training: Training,
    progress: Progress,
    *,
    cores: int,
    preprocess: Callable[[Arrays], Arrays] = _keep_inputs,
    checkpoints: Checkpoints | None = None,
    loss: Loss | None = None,
) -> TrainingOutcome:
    """Trains in place on examples and their labels, class numbers without a ``loss`` of their own, and leaves the
    module in eval mode.

    AdamW with a one-cycle schedule (Smith 2018, arXiv:1803.09820). ``preprocess`` makes of the raw examples of a batch
    what the network takes; ``cores`` work on a batch; ``progress`` gets a text and the share done. With ``checkpoints``
    an interrupted training goes on, and ends with the weights that it would have had.
    Raises ``ModelError`` when the loss is no longer finite.
    """
    import torch

    with one_torch_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        module.train()
        if training.channels_last:
            module.to(memory_format=torch.channels_last)
        targets = torch.from_numpy(labels)
        trainer = _Fp32Trainer(module, targets.long() if loss is None else targets, training)
        trainer.resume(None if checkpoints is None else checkpoints.load())
        resumed = trainer.share
        with Shards(module, training.shards, cores, loss) as shards:
            feed = _Feed(inputs, preprocess, channels_last=training.channels_last)
            while trainer.epoch < training.epochs:
                trainer.run_epoch(shards, feed, progress, checkpoints)
        module.to(memory_format=torch.contiguous_format)
    module.eval()
    return TrainingOutcome(
        loss=trainer.means.mean_loss, accuracy=trainer.accuracy, seconds=trainer.seconds, resumed=resumed
    )


@dataclass(frozen=True)
class _Feed:
    """Batches as the network takes them."""

    inputs: Arrays
    preprocess: Callable[[Arrays], Arrays]
    channels_last: bool

    def __call__(self, index: Tensor) -> list[Tensor]:
        import torch

        chosen = index.numpy()
        batch = [torch.from_numpy(array) for array in self.preprocess(tuple(array[chosen] for array in self.inputs))]
        if not self.channels_last:
            return batch
        return [x.to(memory_format=torch.channels_last) if x.ndim == 4 else x for x in batch]


class _Fp32Trainer:
    """A training of a built-in: all that changes from step to step, how to store and restore it."""

    def __init__(self, module: nn.Module, targets: Tensor, training: Training) -> None:
        import torch

        self.epoch, self.seconds = 0, 0.0
        self._kept = time.monotonic()
        self._done, self.means = 0, EpochMeans()
        self._targets, self._training = targets, training
        optimizer = torch.optim.AdamW(
            module.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay
        )
        self._batches = len(_split_batches(torch.arange(len(targets)), training.batch_size))
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, training.learning_rate, total_steps=training.epochs * self._batches
        )
        order = torch.Generator().manual_seed(training.seed)
        self._state = TrainingState(network=module, optimizer=optimizer, schedule=schedule, order=order)
        self._order_before = order.get_state()  # of this epoch

    @property
    def share(self) -> float:
        """How far it is, 0 to 1."""
        return (self.epoch + self._done / self._batches) / self._training.epochs

    @property
    def accuracy(self) -> float | None:
        """The share of right predictions over what the last epoch has done so far; None where they are no classes."""
        return self.means.accuracy

    def run_epoch(self, shards: Shards, feed: _Feed, progress: Progress, checkpoints: Checkpoints | None) -> None:
        """One pass over all examples in a new order, or the rest of one; leaves a checkpoint now and then."""
        import torch

        self._order_before = self._state.order.get_state()
        batches = _split_batches(
            torch.randperm(len(self._targets), generator=self._state.order), self._training.batch_size
        )
        if self._done == 0:
            self.means = EpochMeans()
        for batch in batches[self._done :]:
            started = time.monotonic()
            self._take_step(shards, feed(batch), self._targets[batch])
            self.seconds += time.monotonic() - started
            if self._done == len(batches):
                self.epoch, self._done = self.epoch + 1, 0
                self._order_before = self._state.order.get_state()
            self._save_when_due(checkpoints)
            if self._done % _PROGRESS_EVERY == 0:
                progress(self._progress_text(), self.share)

    def _take_step(self, shards: Shards, inputs: list[Tensor], targets: Tensor) -> None:
        loss, right = shards.gradients(inputs, targets)
        if not math.isfinite(loss):
            raise ModelError(
                f"training diverged: the loss is {loss}; lower learning_rate (it is {self._training.learning_rate:g})"
            )
        self._state.optimizer.step()
        self._state.schedule.step()
        self._done += 1
        self.means.add(loss, right, len(targets))

    def _progress_text(self) -> str:
        """As a progress line shows it."""
        epoch = self.epoch + (self._done != 0)
        right = "" if self.accuracy is None else f", accuracy {self.accuracy:.1%}"
        means = f"loss {self.means.mean_loss:.4f}{right}"
        left = "" if self.share == 1 else f", {_duration_text(self.seconds / self.share - self.seconds)} left"
        return f"epoch {epoch}/{self._training.epochs}: {means}{left}"

    def _save_when_due(self, checkpoints: Checkpoints | None) -> None:
        if checkpoints is None or time.monotonic() - self._kept < checkpoints.seconds:
            return
        checkpoints.save(self.state())
        self._kept = time.monotonic()

    def state(self) -> dict[str, Any]:
        """All that the next step depends on."""
        return {
            **self._state.capture(),
            "counts": [self.epoch, self._done, self.means.examples, self.means.right],
            "sums": [self.means.loss, self.seconds],
            "order": self._order_before,
        }

    def resume(self, state: dict[str, Any] | None) -> None:
        """Goes back to a state; None is the beginning."""
        if state is None:
            return
        self.epoch, self._done, examples, right = state["counts"]
        loss, self.seconds = state["sums"]
        self.means = EpochMeans(loss=loss, right=right, examples=examples)
        self._state.restore(state)


def _duration_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _split_batches(order: Tensor, size: int) -> list[Tensor]:
    """Batches of positions; a last one of a single example is left out (BatchNorm cannot train on it)."""
    batches = list(order.split(size))
    return batches[:-1] if len(batches) > 1 and len(batches[-1]) == 1 else batches
