"""A user's network called as every stage calls one: examples along axis 0, no constants, the output that counts first,
float32. Its other outputs follow: what is timed and shipped is the whole network.

    inputs: {state: {axis: 1}, sr: {constant: 16000}}
    output: logits

A module gets a forward of its own class that does the rest, so its layers keep their names; a TorchScript or ONNX
file becomes another file. From there on no stage knows of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    """A forward that takes the data's arrays by position; what traces or inspects it sees names."""
    call = _Call(list(inspect.signature(inner).parameters.values())[1:], reference)
    heads, arguments = call.write()
    space = {**call.values, "_inner": inner, "_output": _output, "_wanted": (reference.counted, reference.output_axis)}
    text = f"def forward({', '.join(['self', *heads])}):\n"
    text += f"    return _output(_inner({', '.join(['self', *arguments])}), *_wanted)\n"
    exec(compile(text, "<the network's forward, adapted>", "exec"), space)
    forward: Callable[..., Any] = space["forward"]
    return forward


class _Call:
    """How a forward with these parameters is called as a suite's ``inputs`` say: which arrays it takes, in order.

    Parameters come in their order, the constants left out; where ``inputs`` names each that gets an array, in that of
    ``inputs``. Where it names one that has a default, as one that gets an array, the others with a default keep it.
    Names that are no parameters go to its ``**kwargs``, or into a dict where one parameter without a default is left.
    """

    def __init__(self, parameters: Sequence[inspect.Parameter], reference: ModelReference) -> None:
        self.values: dict[str, Any] = {}  # what the text of the call names
        self._inputs, self._reference = reference.inputs, reference
        any_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        self._rest = next((f"*{each.name}" for each in parameters if each.kind is each.VAR_POSITIONAL), None)
        self._parameters = [each for each in parameters if each.kind not in any_kinds]
        names = [each.name for each in self._parameters]
        self._more = [name for name in self._inputs if name not in names and name.isidentifier()]
        needed = [each.name for each in self._parameters if self._needs(each) and each.name not in self._inputs]
        self._holder = needed[0] if self._more and len(needed) == 1 else None
        takes_more = self._holder is not None or any(each.kind is each.VAR_KEYWORD for each in parameters)
        require_known_port(reference.name, "input", self._inputs, [*names, *(self._more if takes_more else ())])
        self._keep_defaults = any(
            not self._needs(each) and each.name in self._inputs and not self._inputs[each.name].is_constant
            for each in self._parameters
        )

    @staticmethod
    def _needs(parameter: inspect.Parameter) -> bool:
        return parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY

    def write(self) -> tuple[list[str], list[str]]:
        """The parameters of the forward that takes arrays, and the arguments of the network's own, as code."""
        heads, arguments = dict[str, str](), list[str]()
        for parameter in self._parameters:
            if parameter.name == self._holder or self._is_left_out(parameter):
                continue
            form = self._inputs.get(parameter.name, InputForm())
            if not form.is_constant:
                default = "" if parameter.default is parameter.empty else f"=_default_{parameter.name}"
                self.values[f"_default_{parameter.name}"] = parameter.default
                heads[parameter.name] = f"{parameter.name}{default}"
            by_position = parameter.kind is parameter.POSITIONAL_ONLY or (
                self._rest is not None and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            )
            value = self._write_value(parameter.name, form)
            arguments.append(value if by_position else f"{parameter.name}={value}")
        if self._rest is not None:
            heads[self._rest] = self._rest
            arguments.append(self._rest)
        more = {name: self._write_value(name, self._inputs[name]) for name in self._more}
        heads |= {name: name for name in self._more if not self._inputs[name].is_constant}
        ordered = self._reference.order_arrays(heads)
        texts = list(heads.values()) if ordered == list(heads) else ordered  # in another order defaults would not stand
        if self._holder is not None:
            items = ", ".join(f"{name!r}: {value}" for name, value in more.items())
            return texts, [f"{self._holder}={{{items}}}", *arguments]
        return texts, [*arguments, *(f"{name}={value}" for name, value in more.items())]

    def _is_left_out(self, parameter: inspect.Parameter) -> bool:
        """Whether it keeps its default: an array is given by position, or others are named."""
        if parameter.name in self._inputs or self._needs(parameter):
            return False
        return parameter.kind is parameter.KEYWORD_ONLY or self._keep_defaults

    def _write_value(self, name: str, form: InputForm) -> str:
        if not form.is_constant:
            return f"{name}{_moved(form.axis)}"
        self.values[f"_constant_{name}"] = _value(form.constant)
        return f"_constant_{name}"


def _moved(axis: int) -> str:
    """The code that moves axis 0 to ``axis``: neighbours change places, which every flow of torch.ao knows."""
    steps = "".join(f".transpose({step}, {step + 1})" for step in range(axis))
    return f"{steps}.contiguous()" if axis else ""


def _value(constant: Any) -> Any:
    """What a network gets: a number as it stands, lists as a tensor."""
    import torch

    return torch.tensor(constant) if isinstance(constant, list) else constant


def _output(result: Any, key: str | int | None, axis: int) -> Any:
    """The output that counts, its examples along axis 0; first of a tuple where there are others."""
    if key is None and not axis:
        return result
    outputs = _leaves(result)
    counted, *parts = _leaves(result if key is None else _chosen(result, key))
    others = parts + [output for output in outputs if all(output is not part for part in (counted, *parts))]
    for step in range(axis, 0, -1):
        counted = counted.transpose(step - 1, step)
    return (counted, *others) if others else counted


def _leaves(result: Any) -> list[Any]:
    """The tensors of what a network returned, or what stands for them while it is traced; without what no deployed
    file holds (None, numbers, caches)."""
    parts = list(outputs_of(result).values()) or (list(result) if _many(result) else [])
    if parts:
        return [leaf for part in parts for leaf in _leaves(part)]
    return [result] if hasattr(result, "transpose") else []


def _chosen(result: Any, key: str | int) -> Any:
    """The output of that name or position; ``logits.0`` is the first of those called ``logits``."""
    outputs = outputs_of(result)
    if _many(result) and key not in outputs and str(key).isdecimal():
        key = int(key)
    if isinstance(key, int) and isinstance(result, tuple | list) and key < len(result):
        return result[key]
    if key in outputs:
        return outputs[str(key)]
    first, _, rest = str(key).partition(".")
    if rest:
        return _chosen(_chosen(result, _as_key(first)), _as_key(rest))
    if advice := describe_dicts(result):
        raise ModelError(f"the network has no output {key!r}; it returns {advice}")
    there = first_names(outputs, SHOWN) if outputs else f"{len(result)} without names, from 0" if _many(result) else ""
    has = f"it returns {there}" if there else f"it returns one {type(result).__name__}; remove `output`"
    raise ModelError(f"the network has no output {key!r}; {has}")


def _as_key(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def list_paths(result: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors of what a network returned, however deep, each with what ``output`` calls it."""
    import torch

    if isinstance(result, torch.Tensor):
        yield before.removesuffix("."), result
        return
    named = outputs_of(result)
    parts: Mapping[Any, Any] = named or dict[Any, Any](enumerate(result if _many(result) else ()))
    for key, part in parts.items():
        yield from list_paths(part, f"{before}{key}.")


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
    if isinstance(result, tuple) and hasattr(result, "_asdict"):
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
    heads, inputs = dict[str, str](), list[str]()
    for argument in arguments:
        form = reference.inputs.get(argument.name, InputForm())
        if not form.is_constant and argument.has_default_value() and argument.name not in reference.inputs:
            continue  # a default of any type, which this text could not spell
        if not form.is_constant:
            heads[argument.name] = f"{argument.name}: {argument.type.annotation_str}"
            inputs.append(f"{argument.name}={argument.name}{_moved(form.axis)}")
        else:
            is_tensor = isinstance(form.constant, list) or argument.type.annotation_str == "Tensor"
            if is_tensor:
                outer.register_buffer(f"constant_{argument.name}", torch.tensor(form.constant))
            inputs.append(f"{argument.name}={f'self.constant_{argument.name}' if is_tensor else repr(form.constant)}")
    scripted = torch.jit.script(outer)
    back = "".join(f".transpose({step - 1}, {step})" for step in range(reference.output_axis, 0, -1))
    counted, others = _script_output(module, reference), _list_script_others(module, reference)
    outputs = [f"result{counted}{back}", *(f"result[{position}]" for position in others)]
    scripted.define(
        f"def forward({', '.join(['self', *(heads[name] for name in reference.order_arrays(heads))])}):\n"
        f"    result = self.network({', '.join(inputs)})\n"
        f"    return {', '.join(outputs)}\n"
    )
    return scripted.eval()


def _list_script_others(module: Any, reference: ModelReference) -> list[int]:
    """The positions of the tensors behind the output that counts; only of a tuple the schema says what there is."""
    returned = module.forward.schema.returns[0].type
    if returned.kind() != "TupleType" or not (reference.output is not None or reference.output_axis):
        return []
    names = list(getattr(returned, "field_names", lambda: None)() or ())
    key = 0 if reference.output is None else reference.output
    counted = names.index(key) if isinstance(key, str) else key
    kinds = [element.kind() for element in returned.elements()]
    return [position for position, kind in enumerate(kinds) if kind == "TensorType" and position != counted]


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
