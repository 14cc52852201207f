"""Quantization-aware training: its steps and epochs, what is held out of it, and its state from which it goes on."""

from __future__ import annotations

import math
from typing import Any

from qbench.errors import BuildError, first_names, out_of_memory
from qbench.progress.callback import Progress
from qbench.quant import model_call
from qbench.quant.pytorch import optimizers
from qbench.quant.pytorch.distillation import Aim
from qbench.quant.pytorch.fake_quant_sites import sites
from qbench.quant.pytorch.training_state import EpochMeans, TrainingState
from qbench.quant.recipe import Recipe

# Shares of all steps after which ranges and then BatchNorm statistics stay as they are, so that the weights settle on
# what ships (the order of torch's own recipe: references/classification/train_quantization.py in torchvision).
OBSERVERS_FROZEN = 0.8
BATCH_NORM_FROZEN = 0.9

EPOCHS, BATCH_SIZE = 1, 64  # where a recipe leaves them open

# Of 1,000 examples and more one in 20, at most 512, is not trained on but predicted after each epoch.
_HELD_OUT, _HELD_OUT_FROM, _HELD_OUT_MOST = 20, 1000, 512
_PROGRESS_EVERY = 8  # steps
_ONE_VALUE = "Expected more than 1 value per channel when training"  # BatchNorm's own words


class QatTrainer:
    """A training of a fake-quantized network: all that changes from step to step, how to store and restore it."""

    def __init__(self, prepared: Any, flow: Any, recipe: Recipe, inputs: tuple[Any, ...], aim: Aim) -> None:
        import torch

        self.epoch, self.step = 0, 0
        self.epochs = recipe.epochs or EPOCHS
        self._prepared, self._flow, self._inputs, self._aim = prepared, flow, inputs, aim
        self._size = recipe.batch_size or BATCH_SIZE
        self._examples, self._held_out = split_examples(len(inputs[0]), recipe.seed or 0, recipe.samples)
        self._available = len(inputs[0])
        self._batches = count_batches(len(self._examples), self._size)
        self.total = self.epochs * self._batches
        self._recipe = recipe
        optimizer = optimizers.make(recipe, prepared.parameters())
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self._share_of_rate)
        order = torch.Generator().manual_seed(recipe.seed or 0)
        self._state = TrainingState(network=prepared, optimizer=optimizer, schedule=schedule, order=order)
        self._last, self._held = "", ""
        self._title = getattr(flow, "TITLE", "QAT")
        self._to_freeze = [
            (math.ceil(OBSERVERS_FROZEN * self.total), flow.freeze_observers),
            (math.ceil(BATCH_NORM_FROZEN * self.total), flow.freeze_batch_norm),
        ]

    def _share_of_rate(self, step: int) -> float:
        return optimizers.share_of_rate(self._recipe, step, self.epochs, self.total)

    def run_epoch(self, progress: Progress) -> None:
        """One pass over all examples in a new order."""
        import torch

        order = self._examples[torch.randperm(len(self._examples), generator=self._state.order)]
        means = EpochMeans()
        for done, index in enumerate(order.tensor_split(self._batches), start=1):
            self._freeze()
            means.add(*self._take_step(index), len(index))
            self._last = _means_text(means)
            if done == self._batches and len(self._held_out):
                self._held = f"; held out: {self._predict_held_out()}"
            if done % _PROGRESS_EVERY == 0 or done == self._batches:
                text = f"{self._title} epoch {self.epoch + 1}/{self.epochs}: {self._last}{self._held}"
                progress(text, 0.1 + 0.7 * self.step / self.total)
        self.epoch += 1

    def _predict_held_out(self) -> str:
        """Loss and accuracy of the network in eval mode on what is held out, of which no range or statistic knows."""
        import torch

        means, observing = EpochMeans(), [site.module.observer_enabled for site in sites(self._prepared)]
        before = {name: value.clone() for name, value in self._prepared.state_dict().items()}
        self._flow.qat_modes(self._prepared, False)
        try:
            for flag in observing:
                flag.fill_(0)
            with torch.no_grad():
                for index in self._held_out.split(self._size):
                    outputs = self._forward(tuple(tensor[index] for tensor in self._inputs))
                    means.add(float(self._aim.of(outputs, index)), self._aim.right(outputs, index), len(index))
        finally:
            self._flow.qat_modes(self._prepared, True)
            self._prepared.load_state_dict(before)  # the flags, and what plain observers have seen (flow eager)
        return _means_text(means)

    def _take_step(self, index: Any) -> tuple[float, int | None]:
        """One step: the loss before it, and how many predictions were right."""
        outputs = self._forward(tuple(tensor[index] for tensor in self._inputs))
        loss = self._aim.of(outputs, index)
        value = float(loss.detach())
        self._require_finite(math.isfinite(value), value)
        self._state.optimizer.zero_grad()
        loss.backward()
        self._state.optimizer.step()
        self._state.schedule.step()
        self.step += 1
        return value, self._aim.right(outputs, index)

    def _forward(self, batch: tuple[Any, ...]) -> Any:
        try:
            return self._prepared(*batch)
        except Exception as error:  # whatever the user's forward raises in train mode
            if out_of_memory(error):
                raise
            reason = model_call.reason(error)
            too_small = _ONE_VALUE in reason
            advice = "; BatchNorm needs more than one value a channel: raise batch_size" if too_small else ""
            raise BuildError(
                f"{self._title}: the network failed in train mode on a batch of {len(batch[0])} ({reason}){advice}"
            ) from error

    def _freeze(self) -> None:
        """Freezes what is due; BatchNorm's freeze is in no state, so a resumed training does it again."""
        while self._to_freeze and self.step >= self._to_freeze[0][0]:
            self._to_freeze.pop(0)[1](self._prepared)

    def finish(self) -> None:
        """Freezes what a short training has not reached, and turns dropout and statistics off."""
        import torch

        finite = all(bool(torch.isfinite(value).all()) for value in self._prepared.parameters())
        self._require_finite(finite, math.nan)
        self.step = self.total
        self._freeze()
        self._flow.qat_modes(self._prepared, False)

    def _require_finite(self, finite: bool, value: float) -> None:
        if not finite and self.step == 0 and self._aim.loss.whole:
            raise BuildError(
                f"{self._title} cannot begin: the loss {self._aim.loss.name} is {value} on the first batch, before any "
                "step; it must be a finite number: look for a logarithm of 0 or a division by 0, or check the data"
            )
        if not finite and self.step == 0:
            raise BuildError(
                f"{self._title} cannot begin: the loss of the first batch is {value} before any step; the fp32 network "
                "gives no finite numbers on the training examples in train mode, or their labels are none: check the "
                "data"
            )
        if not finite:
            mend = f", or mend the loss {self._aim.loss.name}" if self._aim.loss.whole else ""
            raise BuildError(
                f"{self._title} diverged: the loss is {value} in epoch {min(self.epoch + 1, self.epochs)}; lower "
                f"learning_rate (it is {optimizers.rate(self._recipe):g}){mend}"
            )

    def state(self) -> dict[str, Any]:
        """All that the next epoch depends on."""
        counts = {"epoch": self.epoch, "step": self.step, "last": self._last, "held": self._held}
        return counts | self._state.capture()

    def resume(self, state: dict[str, Any] | None) -> None:
        """Goes back to a state; None is the beginning."""
        if state is None:
            return
        self.epoch, self.step, self._last, self._held = (state[key] for key in ("epoch", "step", "last", "held"))
        self._state.restore(state)

    def notes(self) -> tuple[str, ...]:
        """How it was trained and where it ended, as a reader of the record wants it."""
        blind = sorted({site.name for site in sites(self._prepared) if not site.observed})
        trained = (
            f"{self._title}: {optimizers.describe(self._recipe)}, {self.epochs} x {self._batches} steps, last epoch: "
            f"{self._last}{self._held}"
        )
        if len(self._examples) + len(self._held_out) < self._available:
            trained += f"; trained on {len(self._examples)} of {self._available} examples"
        unseen = f"no training example reached {first_names(blind, 5)}: no range is known there"
        return (trained, unseen) if blind else (trained,)


def _means_text(means: EpochMeans) -> str:
    """As a progress line shows it."""
    loss = f"loss {means.mean_loss:.4g}"
    return loss if means.accuracy is None else f"{loss}, accuracy {means.accuracy:.1%}"


def split_examples(examples: int, seed: int, most: int | None = None) -> tuple[Any, Any]:
    """The numbers of the examples to train on (at most ``most``), and of those that are held out, drawn by the seed;
    both ascending.

    None is held out of fewer than 1,000: the training needs them, and 49 would tell an accuracy to 2 % at best.
    """
    import torch

    out = min(_HELD_OUT_MOST, examples // _HELD_OUT) if examples >= _HELD_OUT_FROM else 0
    order = torch.randperm(examples, generator=torch.Generator().manual_seed(seed))
    trained = order[out:] if most is None else order[out : out + most]
    return trained.sort().values, order[:out].sort().values


def draw_examples(examples: int, seed: int, most: int | None) -> Any:
    """The numbers of all examples, or of ``most`` that the seed draws, ascending."""
    import torch

    order = torch.randperm(examples, generator=torch.Generator().manual_seed(seed))
    return order[:most].sort().values


def count_batches(examples: int, size: int) -> int:
    """The number of nearly equal batches of at most ``size``, none of a single example (BatchNorm cannot train on it)
    unless ``size`` is 1 or there is no other."""
    count = math.ceil(examples / size)
    return max(1, examples // 2) if size > 1 and examples // count < 2 else count
