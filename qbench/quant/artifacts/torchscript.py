"""TorchScript artifacts: trace, freeze, save, reload, prove; and what really ran, read from the loaded file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from qbench.errors import BuildError, out_of_memory
from qbench.modes import Precision
from qbench.quant import model_call
from qbench.quant.artifacts import coverage, onednn_log, tracing
from qbench.quant.artifacts.coverage import Layer

# Freezing folds BatchNorm into convolutions: other roundings, and in a dynamic model other activation scales.
FREEZE_TOLERANCE = 1e-2
_SETTLING_CALLS = 3  # in which TorchScript's interpreter looks at types and shapes, then optimizes
HALF_TOLERANCE = 5e-2  # of floats of 16 bits: bf16 has 8 bits of precision, and every layer rounds


def save(
    module: Any,
    probes: tuple[Any, ...],
    file: Path,
    examples: Iterable[tuple[Any, ...]] | None = None,
    *,
    tolerance: float = FREEZE_TOLERANCE,
) -> str | None:
    """Traces (on the first probe), freezes and saves a module; ``probes``: one tensor per input, first axis = example.

    Raises ``BuildError`` unless, on every probe, the reloaded file gives bit-equal outputs to what was saved, and
    those are the module's own within ``tolerance`` of the largest output. Where a trace freezes a decision on
    values, the module is compiled instead, which keeps it. Where it cannot be, ``examples`` (each a batch of 1, read
    only then; None: the probes) must show no difference either. The returned note says which.
    """
    import torch

    several = [tuple(tensor[i : i + 1] for tensor in probes) for i in range(len(probes[0]))]
    traced = tracing.trace(module, several[0])
    compiled = tracing.script_decisions(module, traced)
    if compiled is None:
        note = tracing.require_harmless(module, traced, several if examples is None else examples)
    else:
        note = f"torch.jit.script keeps {tracing.name_decisions(traced.decisions)}"
    with torch.inference_mode(), tracing.known_warnings():
        script = traced.script if compiled is None else compiled
        if hasattr(script, "training"):  # a frozen module has lost the attribute
            script = torch.jit.freeze(script.eval())
        # Through memory: the name of the file would otherwise be part of its bytes.
        buffer = io.BytesIO()
        torch.jit.save(script, buffer)
        file.write_bytes(buffer.getvalue())
        original, saved, loaded = (
            torch.cat([model_call.first(part(*example)) for example in several])
            for part in (module, script, load(file))
        )
    if not torch.equal(saved, loaded):
        model_call.require_repeatable(module, script, example=several[0])
        worst = float((saved - loaded).abs().max())
        raise BuildError(f"the saved artifact differs from what was converted (largest difference {worst:g})")
    worst, largest = float((original - saved).abs().max()), float(original.abs().max())
    if not worst <= tolerance * max(1.0, largest):
        model_call.require_repeatable(module, script, example=several[0])
        raise BuildError(
            f"the traced artifact differs from the module it came from (largest difference {worst:g} at outputs up "
            f"to {largest:g}): does its forward depend on values, or on what earlier calls left behind?"
        )
    return note


def load(file: Path) -> Any:
    """The ScriptModule of a file, ready to call."""
    import torch

    with tracing.known_warnings():
        return torch.jit.load(str(file))


def watch_products(file: Path, example: tuple[Any, ...]) -> tuple[onednn_log.Product, ...]:
    """What oneDNN says that it ran in one call of a file, once its interpreter has settled."""
    import torch

    script = load(file)
    with torch.inference_mode():
        for _ in range(_SETTLING_CALLS):
            script(*example)
        return onednn_log.watch(lambda: script(*example))


def find_layers(module: Any, example: tuple[Any, ...]) -> tuple[Layer, ...]:
    """The operators that multiply and accumulate in one call of a module, in the order in which they ran.

    Read by watching the dispatcher, so it is what really runs: quantized operators carry their packed weights.
    Names are the submodules' where the module has them, else operator and position.
    """
    import torch

    from qbench.quant.operator_mode import OperatorMode

    executed: list[Layer] = []
    stack: list[str] = []

    class Products(OperatorMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            # Inference mode hands on a matmul or an einsum as it stands: its products are found in what it is made of.
            # On int8 tensors no operator of aten multiplies, and torch's Python decompositions refuse their type.
            named = kwargs or {}
            whole = function.namespace != "aten" or _name(function) in _WHOLE or _takes_int8(args, named)
            if not whole:
                with self:
                    result = function.decompose(*args, **named)
                if result is not NotImplemented:
                    return result
            result = function(*args, **named)
            layer = _multiply_accumulates(function, args, named, result)
            if layer is not None:
                macs, int8 = layer
                operator = f"{function.namespace}::{_name(function)}"
                name = stack[-1] if stack and stack[-1] else f"{operator}#{len(executed)}"
                precision = "int8" if int8 else _precision_of(args, named)
                executed.append(Layer(name=name, operator=operator, macs=macs, precision=precision))
            return result

    hooks = [] if isinstance(module, torch.jit.ScriptModule) else _name_hooks(module, stack)
    with model_call.hooked(hooks), model_call.plain_attention(), torch.inference_mode(), Products():
        module(*example)
    return tuple(executed)


def count_layers(module: Any, example: tuple[Any, ...]) -> tuple[tuple[Layer, ...], str | None]:
    """What ``find_layers`` gives of a module that runs, and None; where an operator fails only since it is watched,
    nothing and the reason. Raises ``BuildError`` where the weights of an operator cannot be read back."""
    try:
        return find_layers(module, example), None
    except BuildError:
        raise
    except Exception as error:  # whatever an operator raises on the dispatcher's way around it
        if out_of_memory(error):
            raise
        return (), f"its operators cannot be watched ({model_call.reason(error)})"


def _precision_of(args: Any, kwargs: Any) -> Precision:
    """The format of the floats among an operator's arguments, fp32 where they have several."""
    import torch

    from qbench.torch_private import pytree

    leaves = pytree.tree_leaves((args, kwargs))
    types = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()}
    names: dict[Any, Precision] = {torch.bfloat16: "bf16", torch.float16: "fp16"}
    return names.get(types.pop(), "fp32") if len(types) == 1 else "fp32"


def find_proven(
    reference: Sequence[Layer], half: Any, example: tuple[Any, ...], ran: Sequence[onednn_log.Product]
) -> tuple[tuple[Layer, ...], str | None]:
    """The reference's layers, each marked with what a network in floats of 16 bits ran for it, as oneDNN's log of its
    artifact proves it; and why not, as ``count_layers``."""
    layers, uncounted = count_layers(half, example)
    return coverage.align_layers(reference, onednn_log.keep_proven(layers, ran)), uncounted


def _takes_int8(args: Any, kwargs: Any) -> bool:
    """Whether a tensor among the arguments is one of torch's quantized ones."""
    import torch

    from qbench.torch_private import pytree

    return any(isinstance(leaf, torch.Tensor) and leaf.is_quantized for leaf in pytree.tree_leaves((args, kwargs)))


def _name_hooks(module: Any, stack: list[str]) -> list[Any]:
    hooks = []
    for name, part in module.named_modules():
        hooks.append(part.register_forward_pre_hook(lambda *_, name=name: stack.append(name)))
        hooks.append(part.register_forward_hook(lambda *_: stack.pop() and None))
    return hooks


def _multiply_accumulates(function: Any, args: Any, kwargs: Any, result: Any) -> tuple[int, bool] | None:
    """(multiply-accumulates, in int8?) of one operator call; None for one that has none."""
    name = _name(function)
    if function.namespace == "quantized":
        return _quantized(name, args, result)
    if function.namespace != "aten":
        return None
    if name in ("quantized_lstm", "quantized_gru"):
        return _quantized_recurrent(name, args)
    if name in _RECURRENT:
        positions = args[0].numel() // args[0].shape[-1]
        weights = args[2] if function._overloadname == "input" else args[3]  # else of packed sequences
        return positions * sum(weight.numel() for weight in weights if weight.dim() == 2), False
    if name == "linear":
        return result.numel() * int(args[1].shape[-1]), False
    if name in _CONVOLUTIONS:
        transposed = "transpose" in name or (name in ("convolution", "_convolution") and bool(args[6]))
        elements = args[0].numel() if transposed else result.numel()
        return elements * args[1][0].numel(), False
    if name in _ATTENTION:
        query, key, value = args[:3]  # (…, length, width): every query with every key, whatever a mask hides
        return query.numel() // query.shape[-1] * key.shape[-2] * (key.shape[-1] + value.shape[-1]), False
    if name == "bilinear":
        return result.numel() * args[2][0].numel(), False
    if name in ("mv", "dot", "vdot"):
        return args[0].numel(), False
    return _counted_by_torch(function, args, kwargs, result)


def _name(function: Any) -> str:
    """An operator's name without its namespace and overload."""
    return str(function.overloadpacket).partition(".")[2]


_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_ATTENTION = ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu")
_CONVOLUTIONS = {
    "convolution", "_convolution", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "mkldnn_convolution",
}  # fmt: skip
# Operators that are counted as they stand, though they are made of others.
_WHOLE = {"linear", "bilinear", "quantized_lstm", "quantized_gru", *_RECURRENT, *_ATTENTION, *_CONVOLUTIONS}


def _quantized(name: str, args: Any, result: Any) -> tuple[int, bool] | None:
    """Operators of the ``quantized`` namespace: the weight's shape is inside the packed parameters."""
    weight = unpack_weight(name, args[1]) if len(args) > 1 else None
    if weight is None:
        return None
    if name.startswith("linear"):
        return result.numel() * int(weight.shape[-1]), True
    elements = args[0].numel() if "transpose" in name else result.numel()
    return elements * weight[0].numel(), True


def unpack_weight(name: str, packed: Any) -> Any:
    """The weight that an operator of the ``quantized`` namespace holds in its packed parameters; None for one without.
    Raises ``BuildError`` where it cannot be read back."""
    import torch

    base = next((kind for kind in ("linear", *_PACKED_CONVOLUTIONS) if name.startswith(kind)), None)
    if base is None or "fp16" in name or name.endswith(("_prepack", "_unpack")):
        return None
    try:
        return getattr(torch.ops.quantized, f"{base}_unpack")(packed)[0]
    except RuntimeError as error:  # qnnpack's 3-D convolutions
        raise BuildError(
            f"the weights of {name} cannot be read back ({model_call.reason(error)}), so no file can hold it; "
            "name the layer in quantize.*.skip_layers, or use another engine"
        ) from error


_PACKED_CONVOLUTIONS = (
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "conv1d", "conv2d", "conv3d"
)  # fmt: skip


def _quantized_recurrent(name: str, args: Any) -> tuple[int, bool]:
    """Gates x hidden x (input + hidden) for each position, layer and direction; the weights may be fp16 in place of
    int8, which the packed ones tell."""
    gates = 4 if name == "quantized_lstm" else 3
    state = args[1][0] if isinstance(args[1], list | tuple) else args[1]
    hidden = int(state.shape[-1])
    layer_count, bidirectional = int(args[4]), bool(args[7])
    directions = 2 if bidirectional else 1
    positions, width = args[0].numel() // args[0].shape[-1], int(args[0].shape[-1])
    macs = 0
    for layer in range(layer_count):
        inputs = width if layer == 0 else hidden * directions
        macs += directions * gates * hidden * (inputs + hidden)
    return positions * macs, not any(cell.__getstate__()[0][0] == "quantized_fp16" for cell in args[2])


def _counted_by_torch(function: Any, args: Any, kwargs: Any, result: Any) -> tuple[int, bool] | None:
    """torch's own flop counter for what is left (mm, bmm, attention); a flop is half a multiply-accumulate."""
    from torch.utils.flop_counter import flop_registry

    count = flop_registry.get(function.overloadpacket)
    if count is None:
        return None
    return int(count(*args, **kwargs, out_val=result)) // 2, False
