"""Quantization-aware training: a normal training loop around a fake-quantized model, for any flow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.errors import BuildError
from qbench.quant import checkpoint, distill, forward
from qbench.quant.flow import Converted, Progress
from qbench.quant.learned import WEIGHT, LearnedScale, learned_scales, sites
from qbench.quant.recipe import Recipe

# Shares of all steps after which ranges and then BatchNorm statistics stay as they are, so that the weights settle on
# what ships (the order of torch's own recipe: references/classification/train_quantization.py in torchvision).
OBSERVERS_FROZEN = 0.8
BATCH_NORM_FROZEN = 0.9

# The range of an activation is a moving average over this share of the steps, at most 100 (torch's own constant).
AVERAGED = 0.05

EPOCHS, BATCH_SIZE, LEARNING_RATE = 1, 64, 1e-3  # where a recipe leaves them open
_PROGRESS_EVERY = 8  # steps


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A trained network that is still fake-quantized, its ranges and statistics frozen; of ``loss`` the name."""

    prepared: Any
    loss: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The int8 network, the name of the loss that it was trained on, and the scales that it has learned."""

    converted: Converted
    loss: str
    scales: tuple[LearnedScale, ...] = ()
    notes: tuple[str, ...] = ()


def train(
    module: Any,
    flow: Any,
    engine: str,
    recipe: Recipe,
    inputs: tuple[Any, ...],
    labels: Any,
    *,
    checkpoints: Path | None,
    progress: Progress,
) -> Trained:
    """The int8 network after ``recipe.epochs`` of training ``module``, which is copied; see ``fit``."""
    import torch

    fitted = fit(module, flow, engine, recipe, inputs, labels, checkpoints=checkpoints, progress=progress)
    scales = learned_scales(fitted.prepared)  # before conversion, which may take the network apart
    with torch.random.fork_rng(devices=[]):  # conversion makes layers, whose weights begin at random
        converted = flow.convert_qat(fitted.prepared, engine, recipe, tuple(tensor[:1] for tensor in inputs))
    return Trained(converted=converted, loss=fitted.loss, scales=scales, notes=fitted.notes)


def fit(
    module: Any,
    flow: Any,
    engine: str,
    recipe: Recipe,
    inputs: tuple[Any, ...],
    labels: Any,
    *,
    checkpoints: Path | None,
    progress: Progress,
) -> Fitted:
    """The fake-quantized network of a flow (``quant.fx``, ``eager``, ``pt2e``) after ``recipe.epochs`` of training.

    ``module`` is an fp32 network in eval mode, ``inputs`` and ``labels`` are tensors (first axis = example); of several
    outputs the first is trained. Adam, on the loss that fits outputs and labels (``loss.choose``), of which
    ``recipe.distill`` is the share that is the distance to the outputs of ``module``. Seeded, on one thread.
    After each epoch the whole state goes into the folder ``checkpoints``; a training that finds one there goes on, and
    ends with the same weights, bit for bit, as one that was never interrupted. ``progress`` gets loss and accuracy on
    the training examples.

    Raises ``BuildError`` for labels that fit no loss, where nothing is fake-quantized or the network is not in train
    mode, where the loss is no longer finite, and for the checkpoint of another training.
    """
    import torch

    if len(labels) == 0:
        raise BuildError("QAT needs labelled training examples, and there are none")
    with _one_thread(), torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(recipe.seed or 0)
        aim = distill.aim(module, recipe.distill or 0.0, inputs, labels, recipe.batch_size or BATCH_SIZE)
        prepared = flow.prepare_qat(module, engine, recipe, tuple(tensor[:1] for tensor in inputs))
        require_trainable(prepared)
        flow.qat_modes(prepared, True)
        course = _Course(prepared, flow, recipe, inputs, aim)
        if not recipe.framework_default:
            follow(prepared, course.total)
        whose: dict[str, str] = {}
        if checkpoints is not None:
            whose = checkpoint.identity(module, flow.__name__, engine, recipe, inputs, labels)
            course.resume(checkpoint.load(checkpoints, whose))
        while course.epoch < course.epochs:
            course.run_epoch(progress)
            if checkpoints is not None:
                checkpoint.save(checkpoints, whose, course.state())
    course.finish()
    return Fitted(prepared=prepared, loss=aim.name, notes=course.notes())


def require_trainable(prepared: Any) -> None:
    """Raises ``BuildError`` for what would be something else than QAT: a network that rounds no weight as it runs
    (what ``prepare`` with a qconfig of observers gives), or one that was prepared in eval mode."""
    if not any(site.of == WEIGHT and site.enabled for site in sites(prepared)):
        raise BuildError(
            "prepare inserted no fake-quantize on any weight: this would be plain fp32 training; prepare with a QAT "
            "qconfig, and leave the model a layer that the flow can quantize"
        )
    if not prepared.training:
        raise BuildError(
            "the network was prepared for QAT in eval mode: its BatchNorm and dropout would not train; call train() "
            "before prepare_qat"
        )
    if not any(weight.requires_grad for weight in prepared.parameters()):
        raise BuildError(
            "QAT cannot train: requires_grad is off for every parameter of the network; leave it on for those to train"
        )


def follow(prepared: Any, steps: int) -> None:
    """Lets ranges keep up with a training of that many steps.

    The range of a weight is that of the weight as it is (Jacob et al. 2018, arXiv:1712.05877, section 3.1); torch's
    default averages it, too, over about 100 steps, and a weight that grows out of the average gets no gradient.
    """
    for site in sites(prepared):
        if hasattr(site.observer, "averaging_constant"):
            site.observer.averaging_constant = 1.0 if site.of == WEIGHT else min(0.3, max(0.01, 1 / (AVERAGED * steps)))


class _Course:
    """A training on its way: everything that changes from step to step, and how to store it and take it up again."""

    def __init__(self, prepared: Any, flow: Any, recipe: Recipe, inputs: tuple[Any, ...], aim: distill.Aim) -> None:
        import torch

        self.epoch, self.step = 0, 0
        self.epochs = recipe.epochs or EPOCHS
        self._prepared, self._flow, self._inputs, self._aim = prepared, flow, inputs, aim
        self._batches = batch_count(len(inputs[0]), recipe.batch_size or BATCH_SIZE)
        self.total = self.epochs * self._batches
        self._order = torch.Generator().manual_seed(recipe.seed or 0)
        self._rate, self._schedule_name = recipe.learning_rate or LEARNING_RATE, recipe.schedule or "cosine"
        self._optimizer = torch.optim.Adam(prepared.parameters(), lr=self._rate)
        self._schedule = torch.optim.lr_scheduler.LambdaLR(self._optimizer, self._share_of_rate)
        self._last = ""
        self._to_freeze = [
            (math.ceil(OBSERVERS_FROZEN * self.total), flow.freeze_observers),
            (math.ceil(BATCH_NORM_FROZEN * self.total), flow.freeze_batch_norm),
        ]

    def _share_of_rate(self, step: int) -> float:
        if self._schedule_name == "constant":
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * min(1.0, step / self.total)))

    def run_epoch(self, progress: Progress) -> None:
        """One pass over all examples in a new order."""
        import torch

        count = len(self._inputs[0])
        lost, right, seen = 0.0, 0, 0
        for done, index in enumerate(torch.randperm(count, generator=self._order).tensor_split(self._batches), start=1):
            self._freeze()
            value, hits = self._take(index)
            lost, seen = lost + value * len(index), seen + len(index)
            right += hits or 0
            self._last = f"loss {lost / seen:.4g}" + ("" if hits is None else f", accuracy {right / seen:.1%}")
            if done % _PROGRESS_EVERY == 0 or done == self._batches:
                progress(f"QAT epoch {self.epoch + 1}/{self.epochs}: {self._last}", 0.1 + 0.7 * self.step / self.total)
        self.epoch += 1

    def _take(self, index: Any) -> tuple[float, int | None]:
        """One step: the loss before it, and how many predictions were right."""
        outputs = self._forward(tuple(tensor[index] for tensor in self._inputs))
        missed = self._aim.of(outputs, index)
        value = float(missed.detach())
        self._require_finite(math.isfinite(value), value)
        self._optimizer.zero_grad()
        missed.backward()
        self._optimizer.step()
        self._schedule.step()
        self.step += 1
        return value, self._aim.right(outputs.detach(), index)

    def _forward(self, batch: tuple[Any, ...]) -> Any:
        try:
            return forward.first(self._prepared(*batch))
        except Exception as error:  # whatever the user's forward raises in train mode
            if forward.out_of_memory(error):
                raise
            raise BuildError(
                f"the fake-quantized network failed in train mode on a batch of {len(batch[0])} "
                f"({forward.reason(error)}); BatchNorm needs more than one value a channel: raise batch_size"
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
        if not finite:
            raise BuildError(
                f"QAT diverged: the loss is {value} in epoch {min(self.epoch + 1, self.epochs)}; lower learning_rate "
                f"(it is {self._rate:g})"
            )

    def state(self) -> dict[str, Any]:
        """All that the next epoch depends on."""
        import torch

        return {
            "epoch": self.epoch,
            "step": self.step,
            "last": self._last,
            "network": self._prepared.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "schedule": self._schedule.state_dict(),
            "order": self._order.get_state(),
            "random": torch.get_rng_state(),
        }

    def resume(self, state: dict[str, Any] | None) -> None:
        """Goes back to a state; None is the beginning."""
        import torch

        if state is None:
            return
        self.epoch, self.step, self._last = state["epoch"], state["step"], state["last"]
        self._prepared.load_state_dict(state["network"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._schedule.load_state_dict(state["schedule"])
        self._order.set_state(state["order"])
        torch.set_rng_state(state["random"])

    def notes(self) -> tuple[str, ...]:
        """How it was trained and where it ended, as a reader of the record wants it."""
        blind = sorted({site.name for site in sites(self._prepared) if not site.observed})
        trained = (
            f"QAT: Adam, {self._schedule_name} from {self._rate:g}, {self.epochs} x {self._batches} steps, "
            f"last epoch: {self._last}"
        )
        unseen = f"no training example reached {', '.join(blind[:5])}: no range is known there"
        return (trained, unseen) if blind else (trained,)


def batch_count(examples: int, size: int) -> int:
    """The number of nearly equal batches of at most ``size``, none of a single example (BatchNorm cannot train on it)
    unless ``size`` is 1 or there is no other."""
    count = math.ceil(examples / size)
    return max(1, examples // 2) if size > 1 and examples // count < 2 else count


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
