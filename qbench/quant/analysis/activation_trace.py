"""What one call of a network does: its functions in order, who made which output, and who uses it.

Seen from outside, by forward hooks and a mode that is told of every torch function, so that it works on modules of any
kind: fp32, eager int8 with its operators, and graphs of FX and PT2E, whose operators know the module they come from.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from qbench.errors import BuildError, reraise
from qbench.quant import model_call

# What quantizers fuse into a layer or put behind it, by the name of the function without outer underscores.
_NORM = {"batch_norm", "batch_norm1d", "batch_norm2d", "batch_norm3d", "native_batch_norm_legit_no_training"}
_ACTIVATION = {"relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max", "clip", "leaky_relu", "tanh"}
_UNCHANGED = {"dropout", "dropout1d", "dropout2d", "dropout3d", "contiguous"}
_QUANTIZE = {"quantize_per_tensor", "quantize_per_channel"}
_DEQUANTIZE = {"dequantize", "dequantize_per_tensor", "dequantize_per_channel"}
_FOLLOWED = _NORM | _ACTIVATION | _UNCHANGED | _QUANTIZE | _DEQUANTIZE

Call: TypeAlias = tuple[str, int]  # a module's name, and which of its calls
Place: TypeAlias = tuple[str, str, int]  # ("module", name, call), or ("operator", key of its scope, which in it)
Wanted: TypeAlias = Mapping[Place, tuple[Call, int]]  # where to start, for which layer, how many functions further


@dataclass(frozen=True, kw_only=True)
class TraceStep:
    """One function that ran and gave tensors; ``readable``: its output stands for real values by itself."""

    name: str
    inputs: frozenset[int]
    readable: bool


class ActivationTrace:
    """What one call of a network does: the functions in order, which of them made a module's output, and who used it.

    ``ends`` holds for each call of a module where its output is found again and the number of its step. The outputs
    named in ``wanted`` are given to ``capture`` as they appear.
    """

    def __init__(self, where: Wanted | None = None, capture: Callable[[Call, Any], None] | None = None) -> None:
        from torch.utils.weak import WeakTensorKeyDictionary

        self.steps: list[TraceStep] = []
        self.ends: dict[Call, tuple[Place, int | None]] = {}
        self.scope: tuple[str, str] | None = None  # of a graph's operator: its key, unique for a call, and the module
        self._wanted, self._capture = where or {}, capture
        self._makers: Any = WeakTensorKeyDictionary()
        self._followed: Any = WeakTensorKeyDictionary()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._keys: dict[str, list[str]] = defaultdict(list)
        self._paused = False

    def step(self, function: Any, arguments: Any, result: Any) -> None:
        """A torch function has run."""
        outputs = [] if self._paused else list(flatten_tensors(result))
        if not outputs:
            return
        used = list(flatten_tensors(arguments))
        name = getattr(function, "__name__", str(function)).partition(".")[0].strip("_")
        inputs = frozenset(self._makers[tensor] for tensor in used if tensor in self._makers)
        followed = [self._followed.pop(tensor) for tensor in used if tensor in self._followed]
        self.steps.append(
            TraceStep(name=name, inputs=inputs, readable=outputs[0].is_floating_point() or outputs[0].is_quantized)
        )
        for tensor in outputs:
            self._makers[tensor] = len(self.steps) - 1
        for call, remaining in followed:
            self._follow(outputs[0], call, remaining - 1)
        if self.scope is not None:
            self._operator(self.scope, name, outputs[0])

    def left(self, name: str, output: Any) -> None:
        """A call of a module has ended."""
        call = self._counts["module", name]
        self._counts["module", name] += 1
        tensor = next(flatten_tensors(output), None)
        if tensor is not None:
            place = ("module", name, call)
            self._end(name, call, place, self._makers.get(tensor))
            self._start(place, tensor)

    def step_of(self, call: Call) -> float:
        """The number of the step that made a module's output; infinity for one that was not called."""
        step = self.ends[call][1] if call in self.ends else math.inf
        return -1 if step is None else step

    def calls(self, name: str) -> list[Call]:
        """The calls of a module, in order."""
        return sorted(call for call in self.ends if call[0] == name)

    def chain(self, call: Call) -> list[int]:
        """The steps from a module's output to where its layer is compared; empty for an output that no step made."""
        start = self.ends[call][1]
        if start is None:
            return []
        steps = [start]
        while True:
            following = self._users[steps[-1]]
            if all(self.steps[number].name in _DEQUANTIZE for number in following):
                following = following[:1]  # a graph has one dequantize for each user
            if len(following) != 1 or self.steps[following[0]].name not in _FOLLOWED:
                break
            steps.append(following[0])
        while len(steps) > 1 and not self.steps[steps[-1]].readable:
            steps.pop()
        return steps

    @cached_property
    def _users(self) -> Mapping[int, list[int]]:
        """The steps that use the output of a step; asked for once the network has run."""
        users: dict[int, list[int]] = defaultdict(list)
        for number, step in enumerate(self.steps):
            for used in step.inputs:
                users[used].append(number)
        return users

    def _operator(self, scope: tuple[str, str], name: str, tensor: Any) -> None:
        key, module = scope
        place = ("operator", key, self._counts["operator", key])
        self._counts["operator", key] += 1
        if key not in self._keys[module]:
            self._keys[module].append(key)
        if name not in _QUANTIZE | _DEQUANTIZE:  # the last of a module's operators makes its output
            self._end(module, self._keys[module].index(key), place, len(self.steps) - 1)
        self._start(place, tensor)

    def _end(self, name: str, call: int, place: Place, step: int | None) -> None:
        """What ran last of a module and of those below it made its output: a graph has no calls of modules with modules
        in them. One that is called comes to its own end afterwards."""
        self.ends[name, call] = (place, step)
        while "." in name:
            name = name.rpartition(".")[0]
            self.ends[name, self._counts["module", name]] = (place, step)

    def _start(self, place: Place, tensor: Any) -> None:
        if place in self._wanted:
            self._follow(tensor, *self._wanted[place])

    def _follow(self, tensor: Any, call: Call, remaining: int) -> None:
        if remaining:
            self._followed[tensor] = (call, remaining)
        elif self._capture is not None:
            self._paused = True
            self._capture(call, tensor)
            self._paused = False


def flatten_tensors(value: Any) -> Iterator[Any]:
    """The tensors in a value that may hold them in tuples, lists and dicts."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from flatten_tensors(part)
    elif isinstance(value, dict):
        yield from flatten_tensors(list(value.values()))


def run_traced(module: Any, batch: tuple[Any, ...], trace: ActivationTrace, kind: str) -> None:
    """Runs a network once, watched; the hooks are gone afterwards."""
    import torch

    with ExitStack() as stack:
        for name, part in module.named_modules():
            if name and not isinstance(part, torch.jit.ScriptModule):
                hook = part.register_forward_hook(lambda _, __, output, name=name: trace.left(name, output))
                stack.callback(hook.remove)
        stack.enter_context(torch.inference_mode())
        stack.enter_context(_traced_functions(trace))
        # The user's forward can raise anything.
        with reraise(
            BuildError,
            lambda error: (
                f"per-layer numbers: the {kind} network does not run on a calibration batch "
                f"({model_call.reason(error)}); give it inputs as it was built for"
            ),
        ):
            (_interpreter(module, trace) if isinstance(module, torch.fx.GraphModule) else module)(*batch)


def _traced_functions(trace: ActivationTrace) -> Any:
    """A context in which every torch function that user code, a module or a graph calls is told to ``trace``."""
    from torch.overrides import TorchFunctionMode

    class Functions(TorchFunctionMode):  # type: ignore[misc]  # torch is Any to mypy here
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            trace.step(function, (args, kwargs), result)
            return result

    return Functions()


def _interpreter(graph: Any, trace: ActivationTrace) -> Callable[..., Any]:
    """Runs a graph node by node, and tells ``trace`` from which module an operator came."""
    import torch

    class NamedNodes(torch.fx.Interpreter):  # type: ignore[misc]  # torch is Any to mypy here
        def run_node(self, node: Any) -> Any:
            stack = node.meta.get("nn_module_stack") if node.op in ("call_function", "call_method") else None
            if stack:
                key, (name, *_) = list(stack.items())[-1]
                trace.scope = (key, name)
            try:
                return super().run_node(node)
            finally:
                trace.scope = None

    run: Callable[..., Any] = NamedNodes(graph).run
    return run
