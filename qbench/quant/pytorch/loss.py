"""The loss that fits a network's outputs and a data set's labels, so that QAT trains on what they mean.

Beside the loss of the labels stands the distance to another network's outputs, for distillation (Hinton, Vinyals and
Dean 2015, arXiv:1503.02531, at temperature 1, since the int8 network is to give the fp32 network's own probabilities).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench import user_code
from qbench.errors import BuildError
from qbench.quant import model_call, training_code

CLASSES = "cross_entropy"
BINARY = "binary_cross_entropy_with_logits"
NUMBERS = "mse_loss"
NO_CLASS = -1  # of a place that does not count
# What a recipe calls the losses of quantities -> torch's function.
NUMBER_LOSSES = {"mse": NUMBERS, "l1": "l1_loss", "smooth_l1": "smooth_l1_loss", "huber": "huber_loss"}


@dataclass(frozen=True, kw_only=True)
class Loss:
    """``of(outputs, targets)`` is torch's loss of that ``name``, the mean over a batch; ``targets`` are the labels in
    the type and shape that it takes, first axis = example (None where only a teacher is followed).

    ``distance(outputs, teacher)`` is how far the outputs are from another network's, 0 where they say the same: the
    Kullback-Leibler divergence of the probabilities, or the mean squared error of quantities.
    ``right(outputs, targets)`` counts right predictions; None where there is no right and wrong. ``whole``: ``of``
    takes all that the network returns, and not its first output alone.
    """

    name: str
    targets: Any
    of: Callable[[Any, Any], Any]
    distance: Callable[[Any, Any], Any]
    right: Callable[[Any, Any], int] | None = None
    whole: bool = False


def choose(outputs: Any, labels: Any) -> Loss:
    """The loss for the first output of a few examples and for all labels, both tensors.

    - class numbers (whole, shape (n,)) and outputs (n, classes): cross-entropy;
    - a class for each place of (n, classes, …), or the token that follows each position (``datasets.windows``)
      and outputs (n, length, vocabulary), -1 where none counts: cross-entropy of those that count;
    - labels 0 and 1 (whole) and one output per example, (n, 1) or (n,): binary cross-entropy of the logit;
    - float labels and as many outputs per example: mean squared error.

    Raises ``BuildError`` for anything else, with what to change.
    """
    _require_trainable(outputs)
    chosen = _floats(outputs, labels) if labels.is_floating_point() else _whole(outputs, labels)
    if chosen is None:
        raise BuildError(
            f"QAT cannot train: {_type(labels)} labels of shape {_shape(labels)} and outputs of shape "
            f"{_shape(outputs)} fit no loss; expected class numbers (n,) with outputs (n, classes), a class for each "
            "place of (n, classes, …), labels 0 and 1 with one output per example, or float labels with as many "
            "outputs; or set distill: 1, which follows the fp32 network and needs no labels"
        )
    return chosen


def named(name: str, outputs: Any, labels: Any) -> Loss:
    """The loss that a recipe names, for the first output of a few examples and for all labels; raises ``BuildError``
    where the two do not fit it."""
    from torch.nn import functional

    _require_trainable(outputs)
    if name == CLASSES:
        chosen = None if labels.is_floating_point() else _classes(outputs, labels)
        wants = "whole class numbers (n,) with outputs (n, classes), or one for each place of (n, classes, …)"
    elif labels[0].numel() != outputs[0].numel():
        chosen, wants = None, "as many labels as outputs for each example"
    elif name == "binary_cross_entropy":
        between = bool(((labels >= 0) & (labels <= 1)).all())
        chosen, wants = (
            _binary(labels.to(outputs.dtype)) if between else None,
            "labels from 0 to 1, one for each output",
        )
    else:
        of = getattr(functional, NUMBER_LOSSES[name])
        targets = labels.to(outputs.dtype)
        return Loss(
            name=name,
            targets=targets,
            of=lambda outputs, wanted: of(outputs.reshape(wanted.shape), wanted),
            distance=_squares,
        )
    if chosen is None:
        raise BuildError(
            f"QAT cannot train on the loss {name}: it takes {wants}, and these are {_type(labels)} labels of shape "
            f"{_shape(labels)} and outputs of shape {_shape(outputs)}; name another loss, or leave the key out"
        )
    return chosen


def _classes(outputs: Any, labels: Any) -> Loss | None:
    """Cross-entropy, also of a class for each place (segmentation)."""
    if outputs.dim() <= 2:
        return _whole(outputs, labels) if outputs.dim() == 2 and outputs[0].numel() > 1 else None
    return _each_place(outputs, labels)


def _each_place(outputs: Any, labels: Any) -> Loss | None:
    """Cross-entropy of a class for each place, or of the token that follows each position; of those that count."""
    from torch.nn.functional import cross_entropy

    are_tokens = labels.dim() == 2 and outputs.dim() == 3 and labels.shape[1] == 1 + outputs.shape[1]
    if labels.dim() > 1 and labels.shape[1:] == outputs.shape[2:]:
        are_tokens = False
    elif not are_tokens:
        return None
    targets = labels[:, 1:] if are_tokens else labels
    axis = 2 if are_tokens else 1
    _require_classes(targets, outputs.shape[axis], least=NO_CLASS)
    return Loss(
        name=CLASSES,
        targets=targets.long(),
        of=lambda outputs, targets: cross_entropy(outputs.movedim(axis, 1), targets, ignore_index=NO_CLASS),
        distance=lambda outputs, teacher: _class_divergence(outputs.movedim(axis, 1), teacher.movedim(axis, 1)),
    )


def imitate(outputs: Any) -> Loss:
    """The loss of a training without labels: the mean squared error to the teacher's outputs, whatever their shape."""
    _require_trainable(outputs)
    return Loss(name=NUMBERS, targets=None, of=_squares, distance=_squares)


def _require_trainable(outputs: Any) -> None:
    if not outputs.is_floating_point():
        raise BuildError(f"QAT needs outputs with a gradient, these are {_type(outputs)}: does forward end in argmax?")
    if outputs.dim() == 0:
        raise BuildError("QAT cannot train: the network gives one number for a whole batch, not one row per example")


def _whole(outputs: Any, labels: Any) -> Loss | None:
    from torch.nn.functional import cross_entropy

    if labels.dim() != 1:
        return _each_place(outputs, labels)
    low, high = int(labels.min()), int(labels.max())
    if outputs[0].numel() == 1:
        if low < 0 or high > 1:
            raise BuildError(
                f"QAT cannot train: whole labels from {low} to {high} with one output per example; give one output per "
                "class, or float labels where they are quantities"
            )
        return _binary(labels.to(outputs.dtype))
    if outputs.dim() != 2:
        return None
    _require_classes(labels, outputs.shape[1])
    return Loss(
        name=CLASSES,
        targets=labels.long(),
        of=cross_entropy,
        distance=_class_divergence,
        right=lambda outputs, targets: int((outputs.argmax(dim=1) == targets).sum()),
    )


def _require_classes(labels: Any, classes: int, least: int = 0) -> None:
    low, high = int(labels.min()), int(labels.max())
    if low < least or high >= classes:
        raise BuildError(
            f"QAT cannot train: labels from {low} to {high}, but the network has {classes} outputs; classes are "
            f"numbered 0 to {classes - 1}"
        )


def _binary(targets: Any) -> Loss:
    from torch.nn.functional import binary_cross_entropy_with_logits

    return Loss(
        name=BINARY,
        targets=targets,
        of=lambda outputs, right: binary_cross_entropy_with_logits(outputs.reshape(right.shape), right),
        distance=_binary_divergence,
        right=lambda outputs, right: int(((outputs.reshape(right.shape) > 0) == (right > 0.5)).sum()),
    )


def _floats(outputs: Any, labels: Any) -> Loss | None:
    if labels[0].numel() != outputs[0].numel():
        return None
    return Loss(name=NUMBERS, targets=labels.to(outputs.dtype), of=_squares, distance=_squares)


def _squares(outputs: Any, targets: Any) -> Any:
    from torch.nn.functional import mse_loss

    return mse_loss(outputs.reshape(targets.shape), targets)


def _class_divergence(outputs: Any, teacher: Any) -> Any:
    """Kullback-Leibler divergence of softmax(found) from softmax(teacher), in nats, mean over the batch."""
    from torch.nn.functional import kl_div, log_softmax

    return kl_div(log_softmax(outputs, dim=1), log_softmax(teacher, dim=1), reduction="batchmean", log_target=True)


def _binary_divergence(outputs: Any, teacher: Any) -> Any:
    """The same of one logit per example: cross-entropy with the teacher's probability, less that probability's own."""
    from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

    probabilities = teacher.sigmoid()
    return cross_entropy(outputs.reshape(teacher.shape), probabilities) - cross_entropy(teacher, probabilities)


def _type(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _shape(tensor: Any) -> str:
    return f"({', '.join(['n', *map(str, tensor.shape[1:])])}{',' if tensor.dim() == 1 else ''})"


def load(text: str, base: Path | None, outputs: Any, labels: Any) -> Loss:
    """The user's own loss ``fn(outputs, labels)``, which returns one number, the mean over the batch, as a tensor; for
    what the network returns for a few examples, and for all labels. What is right, and how far two
    outputs are from each other, is as ``choose`` has it where the first output fits the labels."""
    import torch

    function, file = training_code.load(text, base)
    first = model_call.first(outputs)
    try:
        fitting = choose(first, labels)
    except BuildError:
        fitting = imitate(first)

    def call(outputs: Any, labels: Any) -> Any:
        value = user_code.call(function, outputs, labels, path=file, error=BuildError)
        if not isinstance(value, torch.Tensor):
            returned = "nothing (is a `return` missing?)" if value is None else f"a {type(value).__name__}"
            raise BuildError(f"the loss {text} returned {returned}; expected one number as a tensor, with its gradient")
        if value.numel() != 1:
            shape = ", ".join(map(str, value.shape))
            raise BuildError(
                f"the loss {text} returned a tensor of shape ({shape}); expected one number: take its mean()"
            )
        if torch.is_grad_enabled() and not value.requires_grad:
            raise BuildError(
                f"the loss {text} returned a number without a gradient; compute it from the outputs by torch, without "
                "item(), detach() or numpy()"
            )
        return value.reshape(())

    return Loss(name=text, targets=labels, of=call, distance=fitting.distance, right=fitting.right, whole=True)
