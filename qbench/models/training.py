"""The fp32 weights of a built-in model: seeded, on one thread, so that the same machine makes the same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from qbench.errors import ModelError
from qbench.models.base import BuiltIn, Training

if TYPE_CHECKING:
    from torch import Tensor, nn

Progress = Callable[[str, float], None]


def trained(model: BuiltIn, inputs: tuple[NDArray[Any], ...], labels: NDArray[Any], progress: Progress) -> nn.Module:
    """A built-in model after its own training, in eval mode; initial weights are seeded too."""
    if model.training is None:
        raise ModelError(f"{model.name} is not trained here: its weights come with a package")
    module = fresh(model)
    train(module, inputs, labels, model.training, progress)
    return module


def fresh(model: BuiltIn, **args: Any) -> nn.Module:
    """The built-in's network with the initial weights of its seed."""
    import torch

    if model.build is None:
        raise ModelError(f"{model.name} is an ONNX file: it has no module with fresh weights")

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(model.training.seed if model.training else 0)
        module: nn.Module = model.build(**args)
    return module


def train(
    module: nn.Module,
    inputs: tuple[NDArray[Any], ...],
    labels: NDArray[Any],
    training: Training,
    progress: Progress,
) -> None:
    """Trains in place on preprocessed inputs and class labels, and leaves the module in eval mode.

    AdamW with a one-cycle schedule (Smith 2018, arXiv:1803.09820). ``progress`` gets a text and the share done.
    Raises ``ModelError`` when the loss is no longer finite.
    """
    import torch

    data = [torch.from_numpy(array) for array in inputs]
    targets = torch.from_numpy(labels).long()
    with _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        order = torch.Generator().manual_seed(training.seed)
        optimizer = torch.optim.AdamW(
            module.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay
        )
        steps = training.epochs * len(_batches(torch.arange(len(targets)), training.batch_size))
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, training.learning_rate, total_steps=steps)
        module.train()
        for epoch in range(training.epochs):
            batches = _batches(torch.randperm(len(targets), generator=order), training.batch_size)
            loss, right = 0.0, 0
            for done, batch in enumerate(batches):
                batch_loss, batch_right = _step(module, [x[batch] for x in data], targets[batch], optimizer)
                schedule.step()
                loss, right = loss + batch_loss * len(batch), right + batch_right
                if done % 8 == 7:
                    share = (epoch + (done + 1) / len(batches)) / training.epochs
                    progress(f"epoch {epoch + 1}/{training.epochs}", share)
            seen = sum(map(len, batches))
            text = f"epoch {epoch + 1}/{training.epochs}: loss {loss / seen:.4f}, accuracy {right / seen:.1%}"
            progress(text, (epoch + 1) / training.epochs)
    module.eval()


def _batches(order: Tensor, size: int) -> list[Tensor]:
    """Batches of positions; a last one of a single example is left out (BatchNorm cannot train on it)."""
    batches = list(order.split(size))
    return batches[:-1] if len(batches) > 1 and len(batches[-1]) == 1 else batches


def _step(module: nn.Module, inputs: list[Tensor], targets: Tensor, optimizer: Any) -> tuple[float, int]:
    """One step of the optimizer; returns the mean loss and the number of right predictions before it."""
    from torch.nn.functional import cross_entropy

    outputs = module(*inputs)
    loss = cross_entropy(outputs, targets)
    value = float(loss.detach())
    if value != value or value in (float("inf"), float("-inf")):
        raise ModelError(f"training diverged: the loss is {value}; lower learning_rate")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return value, int((outputs.argmax(dim=1) == targets).sum())


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums on several threads differ in their last bits from run to run."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
