"""Layers of a user's own class that are a plain layer at heart, and the plain layers that take their places."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from qbench.quant import model_call
from qbench.quant.canonical import equivalence, padding
from qbench.quant.canonical.layer_signature import Form, NotPlain, supported_kinds, watch_layer
from qbench.quant.canonical.rewrite import Rewrite


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """The ``rewrites`` that were made; a line for each layer that was ``kept``; the names of those that are
    ``padded``: ``Sequential(padding, conv)`` now."""

    rewrites: list[Rewrite] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    padded: list[str] = field(default_factory=list)


def replace(module: Any, example: tuple[Any, ...], *, training: bool) -> Replaced:
    """Puts a plain layer in the place of each layer of another class that does just what the plain one does.

    Asymmetric padding becomes ``Sequential(padding, layer)``. For ``training`` the layer must do the same in train
    mode, with weights that are its own. Changes ``module``.
    """
    replaced = Replaced()
    for name, inputs in _inputs(module, example).items():
        if any(name.startswith(f"{rewrite.name}.") for rewrite in replaced.rewrites):
            continue  # it was part of a layer that is gone
        layer = module.get_submodule(name)
        try:
            form, note = _form(layer, inputs, training=training)
            new = build_layer(form, training=layer.training)
            _require_equal(layer, new, inputs)
        except NotPlain as reason:
            if isinstance(layer, supported_kinds()):
                replaced.kept.append(f"{name}: {type(layer).__name__} kept, {reason}")
            continue
        _put(module, layer, new)
        _note(replaced, name, f"{type(layer).__name__} replaced by {form.kind.__name__}{note}", form)
    return replaced


def number_paddings(module: Any) -> Replaced:
    """Writes the padding of convolutions in numbers where it is a word, and puts what a convolution in int8 cannot do
    before it: a padding that is not the same on both sides, or not of zeros. Changes ``module``."""
    replaced = Replaced()
    for name, layer in list(module.named_modules()):
        if not name or not padding.convolves(layer) or layer._forward_hooks or layer._forward_pre_hooks:
            continue
        word, mode = layer.padding, layer.padding_mode
        if not isinstance(word, str) and mode == "zeros":
            continue
        pairs = padding.of_argument(word, layer.kernel_size, layer.dilation)
        apart = any(map(any, pairs)) and not (mode == "zeros" and padding.symmetric(pairs))
        if apart:
            pair = _pair(padding.make_pad_layer(pairs, mode), layer)
            _put(module, layer, pair)
            replaced.padded.append(name)
        padding.set_padding(layer, tuple((0, 0) for _ in pairs) if apart else pairs)
        layer.padding_mode = "zeros"
        what = (
            f"padding '{word if mode == 'zeros' else mode}' {'put before its' if apart else 'written in numbers in a'}"
        )
        replaced.rewrites.append(Rewrite(what=f"{what} {type(layer).__name__}", name=name))
    return replaced


def _put(module: Any, layer: Any, new: Any) -> None:
    """``new`` wherever the layer is."""
    for path in [path for path, part in module.named_modules(remove_duplicate=False) if part is layer]:
        module.set_submodule(path, new)


def _pair(before: Any, layer: Any) -> Any:
    """``Sequential(padding, conv)`` in the layer's mode."""
    from torch import nn

    return nn.Sequential(OrderedDict(padding=before, conv=layer)).train(layer.training)


def _note(replaced: Replaced, name: str, what: str, form: Form) -> None:
    replaced.rewrites.append(Rewrite(what=what, name=name))
    kind = form.kind.__name__
    if not padding.symmetric(form.pairs):
        replaced.padded.append(name)
        replaced.rewrites.append(Rewrite(what=f"asymmetric zero padding put before its {kind}", name=name))
    elif form.padded:
        replaced.rewrites.append(Rewrite(what=f"zero padding folded into its {kind}", name=name))


def _inputs(module: Any, example: tuple[Any, ...]) -> dict[str, list[Any]]:
    """The layers that may be plain at heart, by name, each with an input of each shape that it is called with (None:
    it is called with something else than one tensor)."""
    import torch

    calls_of: dict[str, dict[Any, Any]] = {}
    hooks = []
    for name, part in module.named_modules():
        if name and _candidate(part):
            calls = calls_of.setdefault(name, {})

            def note(_: Any, args: Any, kwargs: Any, calls: dict[Any, Any] = calls) -> None:
                single = len(args) == 1 and not kwargs and isinstance(args[0], torch.Tensor)
                shape = tuple(args[0].shape) if single else None
                if shape not in calls:
                    calls[shape] = args[0].detach().clone() if single else None

            hooks.append(part.register_forward_pre_hook(note, with_kwargs=True))
    if hooks:
        with model_call.hooked(hooks), torch.no_grad():
            module(*example)
    return {name: list(calls.values()) for name, calls in calls_of.items()}


def _candidate(part: Any) -> bool:
    """A layer with weights of its own whose class torch's quantizers do not know."""

    from qbench.torch_private import BatchNorm

    if type(part).__module__.partition(".")[0] in ("torch", "torchao"):
        return False
    alone = not any(True for child in part.children() for _ in child.parameters())
    weighty = "weight" in part._parameters or "weight" in part._buffers
    return isinstance(part, (*supported_kinds(), BatchNorm)) or (alone and weighty)


def _form(layer: Any, inputs: list[Any], *, training: bool) -> tuple[Form, str]:
    """The one form of all calls, and a note where it holds for inputs of the size seen only."""
    import torch

    if not inputs:
        raise NotPlain("it was not called on the example")
    if any(tensor is None for tensor in inputs):
        raise NotPlain("it is called with something else than one tensor")
    if layer._forward_hooks or layer._forward_pre_hooks:
        raise NotPlain("it has hooks")
    first = inputs[0]
    forms = [
        watch_layer(layer, input_tensor, training=training) for input_tensor in (*inputs, torch.cat([first, first]))
    ]
    if training:
        forms.append(_trained(layer, first))
    if not all(form.same_as(forms[0]) for form in forms):
        raise NotPlain("its calls differ")
    if _same_for_any_size(layer, first, forms[0], training=training):
        return forms[0], ""
    return forms[0], f" (padding as for {'x'.join(map(str, first.shape[2:]))} inputs)"


def _trained(layer: Any, tensor: Any) -> Form:
    """The form in train mode."""
    layer.train()
    try:
        return watch_layer(layer, tensor, training=True)
    finally:
        layer.eval()


def _same_for_any_size(layer: Any, tensor: Any, form: Form, *, training: bool) -> bool:
    import torch

    if not form.pairs:
        return True
    for more in (1, 2):
        shape = [*tensor.shape[:2], *(size + more for size in tensor.shape[2:])]
        try:
            form_of_size = watch_layer(layer, torch.ones(shape, dtype=tensor.dtype), training=training)
        except NotPlain:
            return False
        if not form.same_as(form_of_size):
            return False
    return True


def build_layer(form: Form, *, training: bool) -> Any:
    """The plain layer (behind its padding, where that is asymmetric) in train or eval mode, with the same tensors where
    they are parameters."""
    from torch import nn

    plain = _of_norm(form) if "running_mean" in form.tensors else _of_weights(form)
    for name, tensor in form.tensors.items():
        if tensor is None:
            continue
        if name.startswith("running"):
            getattr(plain, name).copy_(tensor)
        else:
            setattr(plain, name, tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor.detach().clone()))
    plain.train(training)
    return plain if padding.symmetric(form.pairs) else _pair(padding.make_pad_layer(form.pairs), plain)


def _of_norm(form: Form) -> Any:
    mean = form.tensors["running_mean"]
    return form.kind(len(mean), eps=form.numbers["eps"], affine=form.tensors["weight"] is not None, dtype=mean.dtype)


def _of_weights(form: Form) -> Any:
    from torch import nn

    weight = form.tensors["weight"]
    arguments = dict(form.numbers)
    first, second = weight.shape[0], weight.shape[1] * arguments.get("groups", 1)
    if weight.dim() > 2:
        arguments["kernel_size"] = tuple(weight.shape[2:])
    if form.pairs and padding.symmetric(form.pairs):
        arguments["padding"] = tuple(before for before, _ in form.pairs)
    # The weight of a transposed convolution is (inputs, outputs / groups, ...), of all others the other way round.
    inputs, outputs = (first, second) if "output_padding" in arguments else (second, first)
    return nn.utils.skip_init(form.kind, inputs, outputs, bias=form.tensors["bias"] is not None, **arguments)


def _require_equal(layer: Any, new: Any, inputs: list[Any]) -> None:
    import torch

    with torch.no_grad():
        for tensor in inputs:
            if not equivalence.measure_difference(layer(tensor), new(tensor)).none:
                raise NotPlain("the plain layer gives other outputs")
