"""Quantization-aware training: a normal training loop around a fake-quantized model, for any flow."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qbench.errors import BuildError
from qbench.process.threads import one_torch_thread
from qbench.progress.callback import Progress
from qbench.quant import layer_selection, model_call, training_code
from qbench.quant.flow import Converted, QuantizeJob, Shared
from qbench.quant.pytorch import checkpoint, distillation, loss
from qbench.quant.pytorch.fake_quant_sites import WEIGHT, learned_scales, sites
from qbench.quant.pytorch.own_training import OwnTraining, TrainingBatches
from qbench.quant.pytorch.trainer import BATCH_SIZE, QatTrainer
from qbench.quant.recipe import Recipe

# The range of an activation is a moving average over this share of the steps, at most 100 (torch's own constant).
AVERAGED = 0.05
EXAMPLES = 16  # whose values show what is a mask: enough for some to be padded


@dataclass(frozen=True, kw_only=True)
class TrainedNetwork:
    """A trained network that is still fake-quantized, its ranges and statistics frozen; of ``loss`` the name."""

    prepared: Any
    loss: str
    notes: tuple[str, ...]


def train(
    flow: Any, job: QuantizeJob, inputs: tuple[Any, ...], labels: Any, *, checkpoints: Path | None = None
) -> Converted:
    """The int8 network after ``recipe.epochs`` of training a copy of the job's; see ``fit``."""
    import torch

    fitted = fit(flow, job, inputs, labels, checkpoints=checkpoints)
    # before conversion, which may take the network apart
    rounded = {scale.name for scale in learned_scales(fitted.prepared) if scale.of == WEIGHT}
    with torch.random.fork_rng(devices=[]):  # conversion makes layers, whose weights begin at random
        converted: Converted = flow.convert_qat(replace(job, module=fitted.prepared))
    conversion, unrounded = converted.conversion, note_unrounded(job.module, rounded, converted)
    notes = (f"trained on {fitted.loss}", *conversion.notes, *fitted.notes, *unrounded)
    return replace(converted, conversion=conversion.with_notes(*notes))


def note_unrounded(module: Any, trained: Set[str], converted: Converted) -> tuple[str, ...]:
    """A note that names the layers of ``module`` that multiply by weights, are int8 in ``converted`` and whose weights
    the training did not round (``trained`` are the others): the flow has no fake-quantize for them."""
    names = [
        f"{name} ({type(part).__name__})"
        for name, part in module.named_modules()
        if isinstance(part, layer_selection.multiplying())
        and not any(rounded == name or rounded.startswith(f"{name}.") for rounded in trained)
        and layer_selection.below(name, dict(converted.conversion.float_reasons)) is None
    ]
    return (f"QAT did not round the weights of {', '.join(names)} in training, only after it",) if names else ()


def fit(
    flow: Any, job: QuantizeJob, inputs: tuple[Any, ...], labels: Any, *, checkpoints: Path | None = None
) -> TrainedNetwork:
    """The fake-quantized network of a flow (``fx``, ``eager``, ``pt2e``) after ``recipe.epochs`` of training; with
    ``fp32_twin`` the network itself after the same training.

    ``inputs`` and ``labels`` are tensors (first axis = example), the job's example is one of them; of several outputs
    the first is trained. By the recipe's optimizer, on the loss that it names or that fits outputs and labels
    (``loss.choose``), of which ``recipe.distill`` is the share that is the distance to the outputs of the fp32 network;
    all of it without labels (None). Seeded, on one thread. Of 1,000 examples and more one in 20, at most 512, is held
    out: not trained on, and predicted after each epoch. ``recipe.train`` is a loop of the user's own in place of all
    that (``own_training``).
    After each epoch the whole state goes into the folder ``checkpoints``; a training that
    finds one there goes on, and ends with the same weights, bit for bit, as one that was never interrupted. With
    ``job.shared`` engines on which the network is prepared alike train it once. ``job.progress`` gets loss and accuracy
    on the training examples, and those of the network in eval mode on what is held out.

    Raises ``BuildError`` for labels that fit no loss, where nothing is fake-quantized or the network is not in train
    mode, for a learning rate that 32-bit numbers cannot hold, where the loss is not finite, and for the checkpoint of
    another training.
    """
    import torch

    recipe = _with_distillation(job.recipe, labelled=labels is not None)
    job = replace(job, recipe=recipe)
    if len(inputs[0]) == 0:
        raise BuildError("QAT needs training examples, and there are none")
    with one_torch_thread(), torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(recipe.seed or 0)
        aim = None if recipe.train is not None else _aim(job, inputs, labels)
        prepared = flow.prepare_qat(job)
        if hasattr(flow, "leave_masks"):
            flow.leave_masks(prepared, tuple(tensor[:EXAMPLES] for tensor in inputs))
        getattr(flow, "require_trainable", require_trainable)(prepared)
        flow.qat_modes(prepared, True)
        trainer = _trainer(prepared, flow, job, inputs, labels, aim)
        if not recipe.framework_default and job.own is None:
            set_averaging(prepared, trainer.total)
        if checkpoints is None and job.shared is None:
            _run_epochs(trainer, None, {}, job.progress)
        else:
            whose = checkpoint.identity(job.module, prepared, flow.__name__, recipe, inputs, labels)
            whose |= training_code.digests(recipe, job.base)
            if job.shared is None:
                _run_epochs(trainer, checkpoints, whose, job.progress)
            else:
                _run_shared(trainer, checkpoints, whose, job.progress, job.shared)
    trainer.finish()
    name = f"the loss of {recipe.train}" if aim is None else aim.name
    return TrainedNetwork(prepared=prepared, loss=name, notes=trainer.notes())


def _aim(job: QuantizeJob, inputs: tuple[Any, ...], labels: Any) -> distillation.Aim:
    """What is lowered: the loss that the recipe names, or the one that fits."""
    text, recipe = job.recipe.loss, job.recipe

    def choose(outputs: Any, labels: Any) -> loss.Loss:
        assert text is not None  # it is asked for a loss that is named
        if training_code.is_python(text):
            return loss.load(text, job.base, outputs, labels)
        return loss.named(text, model_call.first(outputs), labels)

    size = recipe.batch_size or BATCH_SIZE
    return distillation.aim(job.module, recipe.distill or 0.0, inputs, labels, size, choose if text else None)


def _trainer(
    prepared: Any, flow: Any, job: QuantizeJob, inputs: tuple[Any, ...], labels: Any, aim: distillation.Aim | None
) -> QatTrainer | OwnTraining:
    if aim is not None:
        return QatTrainer(prepared, flow, job.recipe, inputs, aim)
    return OwnTraining(prepared, flow, job.recipe, TrainingBatches(inputs, labels, job.recipe), job.base)


def _with_distillation(recipe: Recipe, *, labelled: bool) -> Recipe:
    """The recipe with the share of distillation: of its own, else none where there are labels and all where not."""
    if recipe.train is not None:
        return recipe
    if not labelled and recipe.loss is not None:
        raise BuildError(
            f"QAT with the loss {recipe.loss} needs labelled training examples, and this data set's calibration split "
            "has none; leave loss out: training then follows the fp32 network's outputs"
        )
    if not labelled and recipe.distill is not None and recipe.distill < 1:
        raise BuildError(
            f"QAT with distill: {recipe.distill:g} needs labelled training examples, and this data set's calibration "
            "split has none; leave distill out, or set it to 1.0: training then follows the fp32 network's outputs"
        )
    return recipe if recipe.distill is not None else replace(recipe, distill=0.0 if labelled else 1.0)


def _run_epochs(
    trainer: QatTrainer | OwnTraining, checkpoints: Path | None, whose: Mapping[str, str], progress: Progress
) -> None:
    """All epochs that are left, each followed by a checkpoint."""
    if checkpoints is not None:
        trainer.resume(checkpoint.load(checkpoints, whose))
    while trainer.epoch < trainer.epochs:
        trainer.run_epoch(progress)
        if checkpoints is not None:
            checkpoint.save(checkpoints, whose, trainer.state())


def _run_shared(
    trainer: QatTrainer | OwnTraining,
    checkpoints: Path | None,
    whose: Mapping[str, str],
    progress: Progress,
    shared: Shared,
) -> None:
    """The training at its end: run here, or as another engine ran it. A run that is killed may go on in the build of
    another engine, so its checkpoints lie beside those of the builds, under the name of the training."""
    name = hashlib.sha256(repr(sorted(whose.items())).encode()).hexdigest()
    folder = None if checkpoints is None else checkpoints.parent / name

    def make(file: Path) -> None:
        _run_epochs(trainer, folder, whose, progress)
        checkpoint.write(file, whose, trainer.state())

    file = shared({"what": "trained network", **whose}, make)
    if trainer.epoch < trainer.epochs:
        trainer.resume(checkpoint.read(file, whose))
    if trainer.epoch < trainer.epochs:
        raise BuildError(f"{file} holds no trained network; `qbench clean` and run again")
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


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


def set_averaging(prepared: Any, steps: int) -> None:
    """Lets ranges keep up with a training of that many steps.

    The range of a weight is that of the weight as it is (Jacob et al. 2018, arXiv:1712.05877, section 3.1); torch's
    default averages it, too, over about 100 steps, and a weight that grows out of the average gets no gradient.
    """
    for site in sites(prepared):
        if hasattr(site.observer, "averaging_constant"):
            site.observer.averaging_constant = 1.0 if site.of == WEIGHT else min(0.3, max(0.01, 1 / (AVERAGED * steps)))
