"""A user's network called as every stage calls one: examples along axis 0, no constants, one output, float32.

    inputs: {state: {axis: 1}, sr: {constant: 16000}}
    output: logits

A module gets a forward of its own class that does the rest, so its layers keep their names; a TorchScript or ONNX
file becomes another file. From there on no stage knows of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.errors import ModelError, first_names
from qbench.models import adapt_onnx
from qbench.models.base import InputForm, ModelReference, Network, require_known_port

if TYPE_CHECKING:
    from torch import nn

SHOWN = 12  # names in a message


def adapt_module(module: nn.Module, reference: ModelReference) -> str | None:
    """Changes a network's forward and its precision in place; a note where its weights had another. ``ModelError``
    where it has no such input, or float32 does not hold its weights."""
    note = to_float32(module, reference.name)
    if reference.adapted:
        kind = type(module)
        forward = _forward(kind.forward, reference)
        # A class of its own: an attribute of the instance would be lost in a copy, and a wrapper renames every layer.
        module.__class__ = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return note


def file_of(
    network: Network, reference: ModelReference, example: Sequence[Any] = ()
) -> Callable[[Path], str | None] | None:
    """What writes the file that takes a network's place, and returns a note if a person must know more; None where it
    can stay as it is. ``example``: an array of one example for each input."""
    if network.kind == "onnx":
        assert network.path is not None  # an ONNX network is its file
        return adapt_onnx.file_of(network.path, reference, example)
    if network.kind == "torchscript" and (reference.adapted or _other_precision(network.module)):

        def write(file: Path) -> None:
            _scripted(network.module, reference).save(str(file))

        return write
    return None


def code_digest() -> str:
    """The sha256 of what decides an adapted file."""
    from qbench.quant.onnx import graph

    files = [Path(__file__), Path(adapt_onnx.__file__), *sorted(Path(graph.__file__).parent.glob("*.py"))]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def to_float32(module: nn.Module, name: str) -> str | None:
    """Holds float16, bfloat16 and float64 weights in float32 where that is exact, and says so; else ``ModelError``."""
    precisions = _other_precision(module)
    if not precisions:
        return None
    kinds = ", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in precisions.values()}))
    bad = [key for key, tensor in precisions.items() if not bool((tensor.float().to(tensor.dtype) == tensor).all())]
    if bad:
        raise ModelError(
            f"{name}: its weights are {kinds}, and float32 does not hold the values of {len(bad)} of {len(precisions)} "
            f"of them ({', '.join(bad[:3])}); qbench runs float32: call .float() on the network to round them"
        )
    module.float()
    return f"{name}: its {kinds} weights are held in float32, which is exact; it computes in float32"


def _other_precision(module: nn.Module) -> dict[str, Any]:
    """Its floating weights and buffers that are no float32, by name."""
    import torch

    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {name: tensor for name, tensor in tensors if tensor.is_floating_point() and tensor.dtype != torch.float32}


def _forward(inner: Callable[..., Any], reference: ModelReference) -> Callable[..., Any]:
    """A forward whose parameters are those of ``inner`` but the constants; what traces or inspects it sees names."""
    parameters = list(inspect.signature(inner).parameters.values())[1:]
    names = [
        parameter.name
        for parameter in parameters
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    fixed = [name for name, form in reference.inputs.items() if form.constant is not None and name.isidentifier()]
    require_known_port(reference.name, "input", reference.inputs, [*names, *(fixed if takes_any else ())])
    space: dict[str, Any] = {"_inner": inner, "_output": _output, "_wanted": (reference.output, reference.output_axis)}
    heads, arguments = ["self"], ["self"]
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        form = reference.inputs.get(parameter.name, InputForm())
        argument = parameter.name
        if form.constant is not None:
            argument = f"_constant_{parameter.name}"
            space[argument] = _value(form.constant)
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in reference.inputs:
            continue  # keeps its default; an array is given by position
        else:
            default = "" if parameter.default is parameter.empty else f"=_default_{parameter.name}"
            space[f"_default_{parameter.name}"] = parameter.default
            heads.append(f"{parameter.name}{default}")
            argument += _moved(form.axis)
        arguments.append(argument if parameter.kind is parameter.POSITIONAL_ONLY else f"{parameter.name}={argument}")
    for name in [extra for extra in reference.inputs if extra not in names]:
        arguments.append(f"{name}=_constant_{name}")  # taken by its **kwargs
        space[f"_constant_{name}"] = _value(reference.inputs[name].constant)
    text = f"def forward({', '.join(heads)}):\n    return _output(_inner({', '.join(arguments)}), *_wanted)\n"
    exec(compile(text, "<the network's forward, adapted>", "exec"), space)
    forward: Callable[..., Any] = space["forward"]
    return forward


def _moved(axis: int) -> str:
    """The code that moves axis 0 to ``axis``: neighbours change places, which every flow of torch.ao knows."""
    steps = "".join(f".transpose({step}, {step + 1})" for step in range(axis))
    return f"{steps}.contiguous()" if axis else ""


def _value(constant: Any) -> Any:
    """What a network gets: a number as it stands, lists as a tensor."""
    import torch

    return torch.tensor(constant) if isinstance(constant, list) else constant


def _output(result: Any, key: str | int | None, axis: int) -> Any:
    """The output that counts, its examples along axis 0."""
    output = result if key is None else _chosen(result, key)
    if axis:
        output = output[0] if isinstance(output, tuple | list) else output
        for step in range(axis, 0, -1):
            output = output.transpose(step - 1, step)
    return output


def _chosen(result: Any, key: str | int) -> Any:
    outputs = outputs_of(result)
    if isinstance(key, int) and isinstance(result, tuple | list) and key < len(result):
        return result[key]
    if key in outputs:
        return outputs[str(key)]
    if advice := describe_dicts(result):
        raise ModelError(f"the network has no output {key!r}; it returns {advice}")
    there = first_names(outputs, SHOWN) if outputs else f"{len(result)} without names, from 0" if _many(result) else ""
    has = f"it returns {there}" if there else f"it returns one {type(result).__name__}; remove `output`"
    raise ModelError(f"the network has no output {key!r}; {has}")


def describe_dicts(result: Any) -> str | None:
    """That a network returns a dict for each example, as detectors do, and what to return in its place; else None."""
    items = list(result) if _many(result) else []
    names = outputs_of(items[0]) if items else {}
    if not names or any(outputs_of(item).keys() != names.keys() for item in items):
        return None
    value = f"d[{next(iter(names))!r}]"
    return (
        f"a {type(result).__name__} of {len(items)} dicts ({first_names(names, SHOWN)}), one for each example, and "
        "what is judged is one tensor with a row for each: return that from its forward, every example's part cut or "
        "filled up to one length, as "
        f"`torch.stack([torch.cat([{value}, {value}.new_zeros(100, *{value}.shape[1:])])[:100] for d in detections])`, "
        "or the scores from which detections are chosen"
    )


def _many(result: Any) -> bool:
    return isinstance(result, tuple | list)


def outputs_of(result: Any) -> Mapping[str, Any]:
    """The outputs of a network that have names: of a dict, a dataclass or a named tuple; else none."""
    if isinstance(result, Mapping):
        return {str(key): value for key, value in result.items()}
    if hasattr(result, "_asdict"):
        return dict(result._asdict())
    if dataclasses.is_dataclass(result):
        return {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    return {}


def _scripted(module: Any, reference: ModelReference) -> Any:
    """A TorchScript module around the user's: what its schema calls an int or a float gets a plain number."""
    import torch

    to_float32(module, reference.name)
    arguments = module.forward.schema.arguments[1:]
    require_known_port(reference.name, "input", reference.inputs, [argument.name for argument in arguments])
    outer = torch.nn.Module()
    outer.network = module
    heads, inputs = ["self"], []
    for argument in arguments:
        form = reference.inputs.get(argument.name, InputForm())
        if form.constant is None and argument.has_default_value() and argument.name not in reference.inputs:
            continue  # a default of any type, which this text could not spell
        if form.constant is None:
            heads.append(f"{argument.name}: {argument.type.annotation_str}")
            inputs.append(f"{argument.name}={argument.name}{_moved(form.axis)}")
        else:
            is_tensor = isinstance(form.constant, list) or argument.type.annotation_str == "Tensor"
            if is_tensor:
                outer.register_buffer(f"constant_{argument.name}", torch.tensor(form.constant))
            inputs.append(f"{argument.name}={f'self.constant_{argument.name}' if is_tensor else repr(form.constant)}")
    scripted = torch.jit.script(outer)
    back = "".join(f".transpose({step - 1}, {step})" for step in range(reference.output_axis, 0, -1))
    scripted.define(
        f"def forward({', '.join(heads)}):\n"
        f"    return self.network({', '.join(inputs)}){_script_output(module, reference)}{back}\n"
    )
    return scripted.eval()


def _script_output(module: Any, reference: ModelReference) -> str:
    """The code that takes one output, by what the schema says that there is."""
    returned = module.forward.schema.returns[0].type
    kind, key = returned.kind(), reference.output
    if key is None:
        return "[0]" if kind in ("TupleType", "ListType") and reference.output_axis else ""
    if kind == "DictType":
        return f"[{key!r}]"
    if isinstance(key, str) and kind == "TupleType":
        names: Iterable[str] = getattr(returned, "field_names", lambda: ())() or ()
        require_known_port(reference.name, "output", [key], list(names))
        return f".{key}"
    if isinstance(key, int) and kind in ("TupleType", "ListType"):
        return f"[{key}]"
    raise ModelError(f"{reference.name}: the network returns one {returned.annotation_str}; remove `output`")
