"""A network tried on real examples before anything is built: does it take this data, and if not, what is wrong?"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import ModelError, out_of_memory
from qbench.models import adapt
from qbench.models.base import Network
from qbench.process.threads import set_torch
from qbench.quant import model_call
from qbench.quant.artifacts import onnx_file
from qbench.quant.onnx import onnxruntime_session

Array = NDArray[Any]
Inputs = tuple[Array, ...]


class Misfit(ModelError):
    """The network does not take these inputs; the text is why."""


@dataclass(frozen=True, kw_only=True)
class NetworkInput:
    """An input of a network: ``type`` is numpy's name of what it takes, None where the network does not tell."""

    name: str
    type: str | None = None
    optional: bool = False


def try_outputs(network: Network, inputs: Inputs) -> Array:
    """The first output for a few examples; raises ``Misfit`` where the network does not take them, ``ModelError``
    where it returns something else than one row per example."""
    expected = inputs_of(network)
    if expected is not None:
        _require_count(expected, inputs)
        _require_types(expected, inputs)
    try:
        return _of_onnx(network, inputs) if network.kind == "onnx" else _of_torch(network, inputs)
    except ModelError:
        raise
    except Exception as error:  # a user's forward, torch and ONNX Runtime raise all kinds
        if out_of_memory(error):
            raise
        raise Misfit(f"{model_call.reason(error)}{_describe_call(network, inputs)}") from error


def try_all_outputs(network: Network, inputs: Inputs) -> tuple[Array, ...]:
    """All outputs for a few examples, of a network that ``try_outputs`` has tried."""
    if network.kind == "onnx":
        assert network.path is not None  # an ONNX network is its file
        batch = onnx_file.fixed_batch(network.path) or 1
        rows = [
            onnxruntime_session.run_all(
                network.path, tuple(np.repeat(array[i : i + 1], batch, axis=0) for array in inputs)
            )
            for i in range(len(inputs[0]))
        ]
        return tuple(np.concatenate([output[:1] for output in column]) for column in zip(*rows, strict=True))
    return tuple(output.numpy() for _, output in adapt.list_paths(_call(network, inputs)))


def _describe_call(network: Network, inputs: Inputs) -> str:
    """``; it was called as forward(tokens: int64[2, 16])``."""
    if network.kind == "onnx":
        return ""
    names = [f"{port.name}: " for port in inputs_of(network) or ()]
    given = [f"{names[i] if i < len(names) else ''}{array.dtype}{list(array.shape)}" for i, array in enumerate(inputs)]
    return (
        f"; it was called as forward({', '.join(given)}); `inputs:` beside the model's name says which of its inputs "
        "the arrays are, as in `inputs: {tokens: {axis: 0}, cache: {constant: null}}`"
    )


def find_first_output(network: Network, inputs: Inputs) -> str | None:
    """What ``output`` calls the first tensor with a row for each example, the outermost first, where a network of
    torch's returns a dict, a dataclass, or a tuple with one in it; None where it returns a tensor, tuples of these or a
    dict for each example, or does not take the inputs."""
    if network.kind != "torch":
        return None
    try:
        result = _call(network, inputs)
    except Exception as error:  # what is wrong with the call is told by ``try_outputs``
        if out_of_memory(error):
            raise
        return None
    if adapt.describe_dicts(result) or _is_plain(result):
        return None
    return next(iter(_list_usable(result, len(inputs[0]))), None)


def _list_usable(result: Any, batch: int) -> list[str]:
    """The paths of the tensors with a row for each example, of the outermost first."""
    usable = [path for path, output in adapt.list_paths(result) if output.shape[:1] == (batch,)]
    return sorted(usable, key=lambda path: path.count("."))


def list_outputs(network: Network, inputs: Inputs, counted: str | int | None = None) -> tuple[str, ...]:
    """The tensors that a network returns, as ``output`` in a suite names them: names, else positions from 0, of nested
    ones with a point between. First what ``counted`` names, where it does: the order in which the adapted network
    returns them."""
    if network.kind == "onnx":
        assert network.path is not None  # an ONNX network is its file
        names = list(onnx_file.output_names(network.path))
    else:
        names = [path or "0" for path, _ in adapt.list_paths(_call(network, inputs))]
    chosen = str(counted)
    if chosen not in names and chosen.isdecimal() and int(chosen) < len(names):
        chosen = names[int(chosen)]
    first = [name for name in names if counted is not None and (name == chosen or name.startswith(f"{chosen}."))]
    return (*first, *(name for name in names if name not in first))


def find_hint(network: Network, raw: Inputs) -> str:
    """What to write in the suite where the network takes the examples once they stay whole numbers, or images once
    their channels stand on the other side; else nothing."""
    if advice := _turned(network, raw):
        return advice
    if not any(array.dtype.kind in "iu" for array in raw):
        return ""
    names = ", ".join(sorted({str(array.dtype) for array in raw}))
    option = "write `to_float: false` beside the data set, as in dataset: {npz: data.npz, to_float: false}"
    if _takes(network, raw):
        return f"; it takes the examples as they are ({names}): {option}"
    whole = tuple(array.astype(np.int64) if array.dtype.kind in "iu" else array for array in raw)
    if _takes(network, whole):
        return f"; it takes the examples ({names}) as int64: save them as int64, and {option}"
    return ""


def _turned(network: Network, raw: Inputs) -> str:
    if not any(array.ndim == 4 for array in raw):
        return ""
    ways = {
        (0, 3, 1, 2): "its images have their channels last, the network takes them first: write `stored_layout: nhwc` "
        "beside the data set, as in dataset: {npz: data.npz, stored_layout: nhwc}",
        (0, 2, 3, 1): "its images have their channels first, the network takes them last: save them as (n, height, "
        "width, channels), or write `layout: nhwc` beside an image folder",
    }
    for axes, words in ways.items():
        transposed = tuple(array.transpose(axes) if array.ndim == 4 else array for array in raw)
        if _takes(network, tuple(array.astype(np.float32) for array in transposed)):
            return f"; {words}"
    return ""


def inputs_of(network: Network) -> tuple[NetworkInput, ...] | None:
    """The inputs of a network in order; None where any number goes, or it does not tell."""
    if network.kind == "onnx" and network.path is not None:
        return tuple(NetworkInput(name=name, type=kind) for name, kind in onnx_file.input_types(network.path).items())
    if network.kind == "torchscript":
        arguments = network.module.forward.schema.arguments[1:]  # the first is self
        return tuple(NetworkInput(name=argument.name, optional=argument.has_default_value()) for argument in arguments)
    return _parameters(network.module.forward)


def _parameters(function: Any) -> tuple[NetworkInput, ...] | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return tuple(
        NetworkInput(name=parameter.name, optional=parameter.default is not parameter.empty)
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    )


def _require_count(expected: Sequence[NetworkInput], inputs: Inputs) -> None:
    least = sum(not port.optional for port in expected)
    if least <= len(inputs) <= len(expected):
        return
    names = ", ".join(f"{port.name} (optional)" if port.optional else port.name for port in expected)
    gives = f"{len(inputs)} array{'s' * (len(inputs) != 1)}"
    raise Misfit(
        f"it has {len(expected)} input{'s' * (len(expected) != 1)} ({names}), but the data gives {gives}; give one "
        "array per input, in this order: test_inputs_0, test_inputs_1 in an .npz, a tuple of arrays from a function; "
        "what is the same in every call is `inputs: {its name: {constant: 1}}` beside the model's name"
    )


def _require_types(expected: Sequence[NetworkInput], inputs: Inputs) -> None:
    wrong = [
        f"its input '{port.name}' takes {port.type}, the data gives {array.dtype}"
        for port, array in zip(expected, inputs, strict=False)
        if port.type is not None and port.type != str(array.dtype)
    ]
    if wrong:
        raise Misfit("; ".join(wrong))


def _takes(network: Network, inputs: Inputs) -> bool:
    try:
        try_outputs(network, inputs)
    except ModelError:
        return False
    return True


def _of_onnx(network: Network, inputs: Inputs) -> Array:
    """One example at a time, repeated to the batch size that the file demands."""
    assert network.path is not None  # an ONNX network is its file
    batch = onnx_file.fixed_batch(network.path) or 1
    rows = []
    for i in range(len(inputs[0])):
        outputs = onnxruntime_session.run(
            network.path, tuple(np.repeat(array[i : i + 1], batch, axis=0) for array in inputs)
        )
        _require_rows(outputs.shape, batch)
        rows.append(outputs[:1])
    return np.concatenate(rows)


def _call(network: Network, inputs: Inputs) -> Any:
    """What a network of torch's returns."""
    import torch

    set_torch(1)
    with torch.inference_mode():
        return network.module(*(torch.from_numpy(np.array(array)) for array in inputs))


def _of_torch(network: Network, inputs: Inputs) -> Array:
    import torch

    result, batch = _call(network, inputs), len(inputs[0])
    output = model_call.first(result)
    if not isinstance(output, torch.Tensor):
        raise ModelError(f"{_no_tensor(result, batch)}{_describe_heads(network.module, inputs, result)}")
    if odd := next(
        (part for part in (result if isinstance(result, tuple | list) else ()) if not _is_plain(part)), None
    ):
        raise ModelError(
            f"the network returns a {type(result).__name__} with a {type(odd).__name__} in it, which no file that is "
            "deployed can hold; say which of its outputs counts: write `output: 0` beside the model's name"
        )
    _require_rows(tuple(output.shape), batch)
    array: Array = output.numpy()
    return array


def _describe_heads(module: Any, inputs: Inputs, result: Any) -> str:
    """What a detector that gives a dict for each image can return in their place: what its heads give, where it is
    built of a backbone and a head, as torchvision's of one stage are; tried. Else nothing."""
    import torch

    if not adapt.describe_dicts(result) or not all(hasattr(module, part) for part in ("backbone", "head")):
        return ""
    try:
        with torch.inference_mode():
            heads = module.head(list(module.backbone(torch.from_numpy(np.array(inputs[0]))).values()))
    except Exception as error:  # parts of these names that are called in another way
        if out_of_memory(error):
            raise
        return ""
    names = _list_usable(heads, len(inputs[0]))
    if not names:
        return ""
    return (
        f"; `return self.head(list(self.backbone(images).values()))` gives {' and '.join(names)}, before decoding and "
        "suppression, which no engine quantizes: the data set then gives images as its own transform makes them"
    )


def _is_plain(part: Any) -> bool:
    """Whether what a network returned is a tensor, nothing, or tuples of these."""
    import torch

    if isinstance(part, tuple | list):
        return all(map(_is_plain, part))
    return part is None or isinstance(part, torch.Tensor)


def _no_tensor(result: Any, batch: int) -> str:
    """What the network returns in place of a tensor, and what to write: an output that would do, if there is one."""
    if advice := adapt.describe_dicts(result):
        return f"the network returns {advice}"
    named = adapt.outputs_of(result)
    outputs: Mapping[Any, Any] = named
    if not named and isinstance(result, tuple | list):
        outputs = dict(enumerate(result))
    if not outputs:
        return f"the network returns {type(result).__name__}; expected a tensor, or a tuple that starts with one"
    returns = f"the network returns a {type(result).__name__} with {', '.join(map(str, outputs))}"
    if not named:
        returns = f"the network returns a {type(result).__name__} that starts with a {type(result[0]).__name__}"
    if usable := _list_usable(result, batch):
        name = f'"{usable[0]}"' if usable[0].replace(".", "").isdecimal() and "." in usable[0] else usable[0]
        return f"{returns}; say which of them counts: write `output: {name}` beside the model's name"
    return f"{returns}; none is a tensor with a row per example: its forward has to return one"


def _require_rows(shape: tuple[int, ...], batch: int) -> None:
    if not shape or shape[0] != batch:
        raise ModelError(
            f"a batch of {batch} gives an output of shape {list(shape)}: its first axis must be the example; write "
            "`output: {axis: 1}` beside the model's name where it is another one"
        )
