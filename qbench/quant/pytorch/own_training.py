"""A training loop of the user's own: ``train(model, batches, settings)`` trains the model in place and returns it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench import user_code
from qbench.errors import BuildError
from qbench.progress.callback import Progress
from qbench.quant import training_code
from qbench.quant.pytorch import optimizers
from qbench.quant.pytorch.fake_quant_sites import sites
from qbench.quant.pytorch.trainer import BATCH_SIZE, EPOCHS, count_batches, draw_examples
from qbench.quant.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What the recipe says, for the loop to use, and what it may call: ``progress(text, share)`` says how far it is,
    ``freeze_ranges()`` and ``freeze_batch_norm()`` leave scales and statistics as they are from then on, which qbench
    does at the end."""

    epochs: int
    learning_rate: float
    batch_size: int
    seed: int
    progress: Progress
    freeze_ranges: Callable[[], None]
    freeze_batch_norm: Callable[[], None]


class TrainingBatches:
    """The training examples: each loop over it is a pass in a new order, of pairs of inputs (a tensor, or a tuple where
    the network has several) and labels (None without any)."""

    def __init__(self, inputs: tuple[Any, ...], labels: Any, recipe: Recipe) -> None:
        import torch

        self._inputs, self._labels = inputs, labels
        self._examples = draw_examples(len(inputs[0]), recipe.seed or 0, recipe.samples)
        self._order = torch.Generator().manual_seed(recipe.seed or 0)
        self._count = count_batches(len(self._examples), recipe.batch_size or BATCH_SIZE)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        import torch

        order = self._examples[torch.randperm(len(self._examples), generator=self._order)]
        for index in order.tensor_split(self._count):
            batch = tuple(tensor[index] for tensor in self._inputs)
            labels = None if self._labels is None else self._labels[index]
            yield batch if len(batch) > 1 else batch[0], labels


class OwnTraining:
    """A training by the user's loop, in the form of ``QatTrainer``; all of it is one step, which begins anew where it
    was interrupted."""

    def __init__(self, prepared: Any, flow: Any, recipe: Recipe, batches: TrainingBatches, base: Path | None) -> None:
        assert recipe.train is not None  # else qbench's own trainer is taken
        self.epoch, self.epochs, self.total = 0, 1, (recipe.epochs or EPOCHS) * len(batches)
        self._prepared, self._flow, self._recipe, self._batches = prepared, flow, recipe, batches
        self._name = recipe.train
        self._title = getattr(flow, "TITLE", "QAT")
        self._function, self._file = training_code.load(recipe.train, base)

    def run_epoch(self, progress: Progress) -> None:
        """The user's whole loop; raises ``BuildError`` where it gives back something else than the trained network."""
        settings = TrainSettings(
            epochs=self._recipe.epochs or EPOCHS,
            learning_rate=optimizers.rate(self._recipe),
            batch_size=self._recipe.batch_size or BATCH_SIZE,
            seed=self._recipe.seed or 0,
            progress=lambda text, share: progress(f"{self._title}: {text}", 0.1 + 0.7 * min(1.0, max(0.0, share))),
            freeze_ranges=lambda: self._flow.freeze_observers(self._prepared),
            freeze_batch_norm=lambda: self._flow.freeze_batch_norm(self._prepared),
        )
        progress(f"{self._title} by {self._name}", 0.1)
        before, sites_before = [weight.detach().clone() for weight in self._prepared.parameters()], self._places()
        arguments = (self._prepared, self._batches, settings)
        result = user_code.call(self._function, *arguments, path=self._file, error=BuildError)
        self._require_trained(result, before, sites_before)
        self.epoch = 1

    def _require_trained(self, result: Any, before: list[Any], sites_before: list[tuple[str, str]]) -> None:
        import torch

        task = "train the model that it is given, in place, and end in `return model`"
        if result is None:
            raise BuildError(f"{self._name} returned nothing (is a `return model` missing?): {task}")
        if result is not self._prepared:
            another = "another model" if isinstance(result, torch.nn.Module) else f"a {type(result).__name__}"
            raise BuildError(f"{self._name} returned {another}: {task}")
        if self._places() != sites_before:
            raise BuildError(
                f"{self._name} took fake quantization out of the model; leave it, qbench converts the model"
            )
        after = list(self._prepared.parameters())
        if not all(bool(torch.isfinite(weight).all()) for weight in after):
            raise BuildError(
                f"{self._name} left weights that are no finite numbers: it diverged; lower its learning rate"
            )
        if len(after) == len(before) and all(map(torch.equal, before, after)):
            raise BuildError(f"{self._name} changed no weight of the model; is optimizer.step() missing?")

    def _places(self) -> list[tuple[str, str]]:
        return [(site.name, site.of) for site in sites(self._prepared)]

    def finish(self) -> None:
        """Freezes ranges and statistics, and turns dropout off."""
        self._flow.freeze_observers(self._prepared)
        self._flow.freeze_batch_norm(self._prepared)
        self._flow.qat_modes(self._prepared, False)

    def state(self) -> dict[str, Any]:
        """The trained network."""
        return {"epoch": self.epoch, "network": self._prepared.state_dict()}

    def resume(self, state: dict[str, Any] | None) -> None:
        """Takes over a trained network; None is the beginning."""
        if state is not None:
            self.epoch = state["epoch"]
            self._prepared.load_state_dict(state["network"])

    def notes(self) -> tuple[str, ...]:
        """By what it was trained."""
        return (f"{self._title}: by the training loop {self._name}",)
