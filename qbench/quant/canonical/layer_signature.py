"""What one call of a layer does, told by the torch functions that it runs: a plain layer, or something else."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qbench.errors import reraise
from qbench.quant import model_call
from qbench.quant.canonical import function_trace, padding

_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_LINEAR = ("input", "weight", "bias")
_MULTIPLY, _ADD = ("mul", "__mul__", "__rmul__"), ("add", "__add__", "__radd__")
_PRODUCT = ("matmul", "__matmul__", "mm")
_NORM = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")


@dataclass(frozen=True, kw_only=True)
class Form:
    """A plain layer: its class, its tensors by name, its numbers, and the zeros around its input."""

    kind: Any
    tensors: Mapping[str, Any]
    numbers: Mapping[str, Any] = field(default_factory=dict)
    pairs: padding.Pairs = ()
    padded: bool = False  # by a call of its own, not by the convolution's argument

    def same_as(self, other: Form) -> bool:
        """Whether both are one layer, whatever their tensors hold."""
        return (self.kind, self.numbers, self.pairs) == (other.kind, other.numbers, other.pairs)


class NotPlain(Exception):
    """The layer does something else; the text says what."""


def watch_layer(layer: Any, tensor: Any, *, training: bool) -> Form:
    """The plain form of ``layer(tensor)``.

    Raises ``NotPlain`` unless the call runs zero padding (or nothing) and then one convolution, linear or BatchNorm
    function, a product by a matrix and a bias, or one scale and shift per channel, asks of its input nothing but shape
    and type, and returns what came of that. For ``training`` the weights must be the layer's own tensors; else its
    forward may compute them.
    """
    import torch

    # The user's forward can raise anything.
    with (
        reraise(
            NotPlain,
            lambda error: f"it raises {model_call.reason(error)}",
        ),
        torch.no_grad(),
    ):
        calls, result = function_trace.trace_calls(lambda: layer(tensor))
    chain = _chain(layer, tensor, calls)
    if not chain or result is not chain[-1].result:
        raise NotPlain("its forward returns something else than a plain layer's result")
    pads = [pad for pad in map(_zero_pad, chain[:-1]) if pad is not None]
    last = chain[-1]
    if len(pads) == len(chain) - 1 and last.function in _functions():
        form = _of_layer(layer, last, pads)
    elif chain[0].name in _MULTIPLY and not training:
        form = _of_scaling(chain, tensor)
    elif chain[0].name in _PRODUCT:
        form = _of_product(layer, chain, tensor)
    else:
        raise NotPlain(f"its forward also calls {_foreign(chain)}")
    tensors = {id(array) for array in (*layer.parameters(recurse=False), *layer.buffers(recurse=False))}
    if training and not {id(array) for array in form.tensors.values() if array is not None} <= tensors:
        raise NotPlain("its forward computes its weights, which training must go on changing")
    return form


def _chain(layer: Any, tensor: Any, calls: tuple[function_trace.TracedCall, ...]) -> list[function_trace.TracedCall]:
    """The calls from the input on, each of which takes the result of the one before; raises ``NotPlain`` where a call
    stands aside, or where the layer uses tensors that are neither its own nor made of its own."""
    parameters = {id(parameter) for parameter in (*layer.parameters(), *layer.buffers())}
    chain: list[function_trace.TracedCall] = []
    touched, at = {id(tensor)}, tensor
    for call in calls:
        takes = {id(argument) for argument in call.takes()}
        if not takes & touched:
            if not takes <= parameters:
                raise NotPlain(f"its forward calls {call.name} with tensors that are not its own")
            parameters.update(id(part) for part in function_trace.flatten_tensors(call.result))
            continue
        if not takes - touched <= parameters or takes & touched != {id(at)}:
            raise NotPlain(f"its forward also calls {call.name if id(at) in takes else _foreign(chain)}")
        if call.result is at and call.name in ("contiguous", "to", "float", "type_as"):
            continue  # there was nothing to be done
        chain.append(call)
        at = call.result
        touched.add(id(at))
    return chain


def _foreign(chain: list[function_trace.TracedCall]) -> str:
    """The first call that belongs to no plain layer."""
    foreign = [call for call in chain if _zero_pad(call) is None and call.function not in _functions()]
    return (foreign or chain)[0].name


def _zero_pad(call: function_trace.TracedCall) -> Any:
    """The list of an ``F.pad`` with zeros, else None."""
    from torch.nn import functional

    if call.function is not functional.pad:
        return None
    arguments = dict(zip(("input", "pad", "mode", "value"), call.args, strict=False)) | dict(call.kwargs)
    zeros = arguments.get("mode", "constant") == "constant" and (arguments.get("value") or 0) == 0
    return arguments["pad"] if zeros else None


def _of_layer(layer: Any, call: function_trace.TracedCall, pads: list[Any]) -> Form:
    kind, names = _functions()[call.function]
    arguments = dict(zip(names, call.args, strict=False)) | dict(call.kwargs)
    expected = next((plain for plain in supported_kinds() if isinstance(layer, plain)), kind)
    if names is not _NORM and expected is not kind:
        raise NotPlain(f"its forward calls {call.name}")
    if names is not _CONVOLUTION and pads:
        raise NotPlain("its forward also calls pad")
    if names is _NORM:
        return _of_norm(arguments)
    return of_arguments(kind, arguments, pads)


def of_arguments(kind: Any, args: Mapping[str, Any], pads: list[Any]) -> Form:
    """The form of a convolution or linear function called with these arguments (by name) behind so many ``F.pad``
    lists; raises ``NotPlain`` where no layer does that."""
    weight, names = args["weight"], names_of(kind)
    tensors = {"weight": weight, "bias": args.get("bias")}
    if weight.dim() < 2:
        raise NotPlain("its weight has no axis of outputs and inputs")
    if names is _LINEAR:
        return Form(kind=kind, tensors=tensors)
    spatial = weight.dim() - 2
    numbers: dict[str, Any] = {name: padding.per_axis(args.get(name, 1), spatial) for name in ("stride", "dilation")}
    numbers["groups"] = args.get("groups", 1)
    if names is _TRANSPOSED:
        numbers |= {name: padding.per_axis(args.get(name, 0), spatial) for name in ("padding", "output_padding")}
        return Form(kind=kind, tensors=tensors, numbers=numbers)
    pairs = padding.of_argument(args.get("padding", 0), tuple(weight.shape[2:]), numbers["dilation"])
    for pad in pads:
        more = padding.of_pad(pad, spatial)
        if more is None:
            raise NotPlain("its padding cuts, or is not of the spatial axes")
        pairs = padding.add_pads(pairs, more)
    return Form(kind=kind, tensors=tensors, numbers=numbers, pairs=pairs, padded=bool(pads))


def find_function(called: Any) -> tuple[Any, tuple[str, ...]] | None:
    """The class of the plain layer that a torch function computes and the names of its arguments; None for any other
    function."""
    entry = _functions().get(called)
    return None if entry is None or entry[1] is _NORM else entry


def names_of(kind: Any) -> tuple[str, ...]:
    """The names of the arguments of the function that a class of layer computes."""
    return next(names for layer, names in _functions().values() if layer is kind)


def _of_norm(args: dict[str, Any]) -> Form:
    if args.get("training") or args.get("running_mean") is None or args.get("running_var") is None:
        raise NotPlain("it takes the statistics of the batch")
    names = ("weight", "bias", "running_mean", "running_var")
    return Form(
        kind=_norm_kind(args["input"]),
        tensors={name: args.get(name) for name in names},
        numbers={"eps": args.get("eps", 1e-5)},
    )


def _of_scaling(chain: list[function_trace.TracedCall], tensor: Any) -> Form:
    """A BatchNorm whose statistics do nothing, of a multiplication and an addition by channel (a frozen one)."""
    import torch

    if len(chain) > 2:
        raise NotPlain(f"its forward also calls {chain[2].name}")
    channels = tensor.shape[1] if tensor.dim() > 1 else 0
    factors = {"mul": torch.ones(channels, dtype=tensor.dtype), "add": torch.zeros(channels, dtype=tensor.dtype)}
    for call, names in zip(chain, (_MULTIPLY, _ADD), strict=False):
        others = [
            argument
            for argument in call.args
            if not isinstance(argument, torch.Tensor) or argument.shape != tensor.shape
        ]
        by_channel = len(call.args) == 2 and not call.kwargs and len(others) == 1 and _by_channel(others[0], tensor)
        if call.name not in names or not by_channel:
            raise NotPlain(f"its forward also calls {call.name}")
        factors[names[0]] = others[0].detach().reshape(-1).clone()
    still = {"running_mean": torch.zeros(channels), "running_var": torch.ones(channels)}
    tensors = {"weight": factors["mul"], "bias": factors["add"], **still}
    return Form(kind=_norm_kind(tensor), tensors=tensors, numbers={"eps": 0.0})


def _of_product(layer: Any, chain: list[function_trace.TracedCall], tensor: Any) -> Form:
    """A Linear of a product by its transposed weight, and the addition of its bias."""
    from torch import nn

    product, *rest = chain
    if len(rest) > 1 or any(call.name not in _ADD for call in rest):
        raise NotPlain(f"its forward also calls {rest[-1].name}")
    if product.kwargs or product.args[0] is not tensor or product.args[1].dim() != 2:
        raise NotPlain("its product is none of its input and a matrix")
    weight, bias = product.args[1].T, None
    for call in rest:
        others = [argument for argument in call.args if argument is not product.result]
        if call.kwargs or len(others) != 1 or tuple(getattr(others[0], "shape", ())) != weight.shape[:1]:
            raise NotPlain(f"its forward also calls {call.name}")
        (bias,) = others
    own = [part for part in layer.parameters() if part.data_ptr() == weight.data_ptr()]
    same = [part for part in own if (part.shape, part.stride()) == (weight.shape, weight.stride())]
    return Form(kind=nn.Linear, tensors={"weight": same[0] if same else weight, "bias": bias})


def _by_channel(other: Any, tensor: Any) -> bool:
    """Whether a tensor has one number for each entry of axis 1 of another."""
    shape = tuple(getattr(other, "shape", ()))
    full = (1,) * (tensor.dim() - len(shape)) + shape
    return bool(tensor.dim() > 1) and full == (1, tensor.shape[1]) + (1,) * (tensor.dim() - 2)


def _norm_kind(tensor: Any) -> Any:
    from torch import nn

    if tensor.dim() not in (2, 3, 4, 5):
        raise NotPlain("no BatchNorm takes its input")
    return {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[tensor.dim()]


def supported_kinds() -> tuple[Any, ...]:
    """The classes of plain layers with weights that multiply."""
    return tuple(kind for kind, names in _functions().values() if names is not _NORM)


@functools.cache
def _functions() -> dict[Any, tuple[Any, tuple[str, ...]]]:
    """torch's functions -> the class of the plain layer and the names of the arguments."""
    from torch import nn
    from torch.nn import functional

    from qbench.torch_private import BatchNorm

    return {
        functional.conv1d: (nn.Conv1d, _CONVOLUTION),
        functional.conv2d: (nn.Conv2d, _CONVOLUTION),
        functional.conv3d: (nn.Conv3d, _CONVOLUTION),
        functional.conv_transpose1d: (nn.ConvTranspose1d, _TRANSPOSED),
        functional.conv_transpose2d: (nn.ConvTranspose2d, _TRANSPOSED),
        functional.conv_transpose3d: (nn.ConvTranspose3d, _TRANSPOSED),
        functional.linear: (nn.Linear, _LINEAR),
        functional.batch_norm: (BatchNorm, _NORM),
    }
