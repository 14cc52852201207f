"""A network as torch.export sees it: the graph with a free batch axis, its layers by name, and its train mode.

torch.export writes train or eval mode into the graph (the flags of BatchNorm and dropout nodes), so ``.train()`` of an
exported module changes nothing. torchao's own switch rewrites those nodes by pattern and resets eps, momentum and
dropout's share to their defaults (its TODO); here the flags alone are set.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from qbench.errors import BuildError, ModeImpossible, out_of_memory, reraise
from qbench.quant import model_call
from qbench.quant.layer_selection import below

_TRAINING, _MOMENTUM, _EPS = 5, 6, 7  # places among the arguments of aten.batch_norm
_DROPOUT_TRAINING = 2  # the same of aten.dropout and its relatives
_COUNTER = "num_batches_tracked"
_FROZEN = "qbench_batch_norm_frozen"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """An ExportedProgram; ``fixed_batch`` is the only batch size that it takes (None: any)."""

    program: Any
    fixed_batch: int | None

    def module(self) -> Any:
        """The graph as a module to call; batches of one are let through, though export says "at least 2" of any free
        axis (its way to keep sizes of 0 and 1 from being special)."""
        graph_module = self.program.module(check_guards=False)
        _separate_counters(graph_module)
        return graph_module


def export(module: Any, example: tuple[Any, ...], *, any_batch: bool = True) -> Exported:
    """The export of a module in the mode that it is in; ``example`` is a batch of 1. The batch axis is free where
    ``any_batch`` and the network allow it, else it is 1. Raises ``BuildError`` where torch.export cannot trace it."""
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        raise BuildError("torch.export does not take TorchScript; give the model's Python source")
    pair = tuple(torch.cat([tensor, tensor]) for tensor in example)
    free = tuple({0: torch.export.Dim("batch", min=1)} for _ in pair)
    with known_warnings(), _stacks_of_calls(module), _masks_as_given():
        try:
            if any_batch:
                return Exported(program=torch.export.export(module, pair, dynamic_shapes=free), fixed_batch=None)
        except Exception as error:  # whatever the user's forward raises on stand-ins; then tried for one
            if out_of_memory(error):
                raise
        # As above.
        with reraise(
            ModeImpossible,
            lambda error: (
                f"torch.export cannot trace this network ({model_call.reason(error)}): most often its control flow "
                "depends on values; rewrite that part with tensor operations (torch.where), or use another backend"
            ),
        ):
            return Exported(program=torch.export.export(module, example), fixed_batch=1)


@contextmanager
def _masks_as_given() -> Iterator[None]:
    """TransformerEncoder and TransformerDecoder compare the mask that they are given with a causal one, to take another
    kernel for that: control flow by values, which export refuses. Without the comparison they use the mask."""
    from torch.nn.modules import transformer

    compare = transformer._detect_is_causal_mask
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = compare


@contextmanager
def _stacks_of_calls(module: Any) -> Iterator[None]:
    """Export takes the ``nn_module_stack`` of a GraphModule's nodes for the truth. Of a graph that was rewritten after
    tracing it names the module that a node called before: without it, export looks at the call itself."""
    nodes = [node for node in module.graph.nodes if node.op == "call_module"] if hasattr(module, "graph") else []
    stacks = [(node, node.meta.pop("nn_module_stack")) for node in nodes if "nn_module_stack" in node.meta]
    try:
        yield
    finally:
        for node, stack in stacks:
            node.meta["nn_module_stack"] = stack


def layer_name(node: Any) -> str | None:
    """The name of the submodule that a node of an exported graph comes from; None where there is none."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path.removeprefix("L['self']").lstrip(".") for path, _ in stack.values()]
    return next((path for path in reversed(paths) if path), None)


def foreign_class(node: Any) -> str | None:
    """The class whose forward makes the call of a node, where it is not one of torch.nn's."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    kind = stack[-1][1] if stack else "torch.nn.modules."
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return None if name.startswith("torch.nn.modules.") else name.rpartition(".")[2]


def set_training(graph_module: Any, training: bool) -> None:
    """Train or eval mode of the BatchNorm and dropout nodes; BatchNorm that was frozen stays in eval mode."""
    batch_norm = training and not graph_module.meta.get(_FROZEN, False)
    for node in graph_module.graph.nodes:
        if is_operator(node, "batch_norm"):
            _replace(node, {_TRAINING: batch_norm})
        elif is_operator(node, "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
            _replace(node, {_DROPOUT_TRAINING: training})
    graph_module.recompile()


def freeze_batch_norm(graph_module: Any) -> None:
    """BatchNorm uses its running statistics from here on, and leaves them as they are."""
    graph_module.meta[_FROZEN] = True
    set_training(graph_module, True)


def _separate_counters(graph_module: Any) -> None:
    """Lets each call of a shared BatchNorm count its batch in the buffer itself; of a chain of counts, one reading the
    last one's result, torchao takes each for a second output of its BatchNorm, and refuses the network."""
    for node in graph_module.graph.nodes:
        chained = is_operator(node, "add_") and is_operator(node.args[0], "add_")
        if chained and _attribute(node.args[0], 0).endswith(_COUNTER):
            _replace(node, {0: node.args[0].args[0]})
    graph_module.recompile()


def batch_norm_constants(module: Any) -> dict[str, tuple[float, float]]:
    """Name of the running variance -> (eps, momentum) of every BatchNorm of a module."""

    from qbench.torch_private import BatchNorm

    return {
        f"{name}.running_var": (part.eps, 0.1 if part.momentum is None else part.momentum)
        for name, part in module.named_modules()
        if isinstance(part, BatchNorm) and part.running_var is not None
    }


def set_batch_norm_constants(graph_module: Any, constants: Mapping[str, tuple[float, float]]) -> None:
    """Writes eps and momentum into BatchNorm nodes, and eps where QAT adds it to a running variance (``var + eps``).

    torchao's QAT patterns carry the defaults of ``F.batch_norm`` (eps 1e-5, momentum 0.1) whatever the network has.
    """
    for node in graph_module.graph.nodes:
        if is_operator(node, "batch_norm") and _attribute(node, 4) in constants:
            eps, momentum = constants[_attribute(node, 4)]
            _replace(node, {_MOMENTUM: momentum, _EPS: eps})
        elif is_operator(node, "add") and _attribute(node, 0) in constants and isinstance(node.args[1], float):
            _replace(node, {1: constants[_attribute(node, 0)][0]})
    graph_module.recompile()


def separate_batch_norm(graph_module: Any) -> None:
    """Takes BatchNorm out of each convolution that torchao's QAT fused it with though nothing there is fake-quantized
    (1-D, 3-D and transposed convolutions, and skipped ones): ``conv(x, w * s) / s + b`` becomes ``conv(x, w, b)``."""
    for norm, added, convolution in _fused_batch_norms(graph_module):
        product = convolution.args[1]
        if not is_operator(product, "mul"):
            continue
        bias = None if added is None else added.args[1].args[0]
        convolution.args = (convolution.args[0], product.args[0], bias, *convolution.args[3:])
        norm.replace_input_with(norm.args[0], convolution)
    graph_module.graph.eliminate_dead_code(is_impure_node=_changes_state)
    graph_module.recompile()


def _fused_batch_norms(graph_module: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(BatchNorm, the addition of the bias before it or None, the convolution) wherever QAT scales its outputs back."""
    for norm in [node for node in graph_module.graph.nodes if is_operator(node, "batch_norm")]:
        added = norm.args[0] if is_operator(norm.args[0], "add") else None
        scaled = norm.args[0] if added is None else added.args[0]
        if is_operator(scaled, "div"):
            yield norm, added, scaled.args[0]


def _changes_state(node: Any) -> bool:
    return bool(node.is_impure()) or is_operator(node, "add_")


def fold_batch_norm(graph_module: Any) -> None:
    """Folds each BatchNorm that QAT fused with a convolution into that convolution, in eval mode.

    QAT computes ``conv(x, fake_quantize(w * s)) / s + b`` before BatchNorm, with s = gamma / sqrt(var + eps); what is
    left is the convolution with the weight w * s and the bias beta + (b - mean) * s. torchao's own folding does the
    same for eps 1e-5 only, and exports 96 patterns to find the places, which takes half a minute.
    """
    graph = graph_module.graph
    for norm, added, convolution in _fused_batch_norms(graph_module):
        fake_quantize = convolution.args[1]
        product = fake_quantize.args[0]
        weight, shape = product.args[0], product.args[1].args[1]
        bias = 0.0 if added is None else _value(graph_module, added.args[1].args[0])
        gamma, beta, mean, variance = (_value(graph_module, norm.args[place]) for place in range(1, 5))
        scale = gamma / (variance + norm.args[_EPS]).sqrt()
        folded_weight = (_value(graph_module, weight) * scale.reshape(shape)).detach()
        folded_bias = (beta + (bias - mean) * scale).detach()
        fake_quantize.args = (_constant(graph_module, fake_quantize, folded_weight, f"_folded_{fake_quantize.name}"),)
        new_bias = _constant(graph_module, convolution, folded_bias, f"_folded_{convolution.name}")
        convolution.args = (*convolution.args[:2], new_bias, *convolution.args[3:])
        norm.replace_all_uses_with(convolution)
    for node in list(graph.nodes):  # an inference graph must not change its own state: the counters of batches
        if is_operator(node, "add_") and _attribute(node, 0).endswith(_COUNTER):
            graph.erase_node(node)
    graph.eliminate_dead_code()
    graph_module.recompile()


def _value(graph_module: Any, node: Any) -> Any:
    """The parameter or buffer that a get_attr node reads."""
    path, _, name = node.target.rpartition(".")
    return getattr(graph_module.get_submodule(path), name)


def separate_weights(graph_module: Any) -> None:
    """Gives each call its own int8 weights and scales, where several read the same: Inductor makes one node of equal
    dequantize nodes, and packs weights for no more than one call, so that all of them would run in float."""
    for source in [node for node in graph_module.graph.nodes if node.op == "get_attr"]:
        readers = [user for user in source.users if "dequantize_per_channel" in str(user.target)]
        for call, reader in enumerate(readers[1:], 2):
            own = _constant(graph_module, reader, _value(graph_module, source).clone(), f"{source.target}_call_{call}")
            reader.replace_input_with(source, own)
    graph_module.recompile()


def _constant(graph_module: Any, before: Any, value: Any, name: str) -> Any:
    """A get_attr node of a new buffer, placed before another node."""
    graph_module.register_buffer(name, value)
    with graph_module.graph.inserting_before(before):
        node = graph_module.graph.get_attr(name)
    fake = next((near.meta["val"] for near in (before, *before.all_input_nodes) if "val" in near.meta), None)
    if fake is not None:
        node.meta["val"] = fake.fake_mode.from_tensor(value, static_shapes=True)
    return node


NO_INT8_FORM = "has no int8 form of"  # what a quantizer's reason says of an operator that no recipe makes int8
_COMPUTING = (
    "conv1d", "conv2d", "linear", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "lstm", "gru",
    "rnn_tanh", "rnn_relu", "matmul", "bmm", "scaled_dot_product_attention",
)  # fmt: skip


def float_reasons(
    module: Any, floats: dict[str, str], explain: Callable[[Any, str], str], *, dynamic: bool
) -> dict[str, str]:
    """Layer of a converted graph -> why it has no dequantized weight before it, from which int8 patterns start.
    ``floats`` are those that the recipe keeps float, with the reason; ``explain``: what a quantizer says of a node and
    its operator."""
    reasons = {}
    for node in module.graph.nodes:
        operator = str(getattr(node.target, "overloadpacket", "")).removeprefix("aten.")
        name = layer_name(node)
        if operator not in _COMPUTING or name is None or _quantized(node):
            continue
        if reason := below(name, floats):
            reasons[name] = reason
        elif dynamic and operator != "linear":
            reasons[name] = "dynamic quantization by PT2E covers Linear layers only"
        else:
            reasons[name] = explain(node, operator)
    return reasons


def _quantized(node: Any) -> bool:
    return all("dequantize" in str(getattr(argument, "target", "")) for argument in node.args[:2])


def is_operator(node: Any, *names: str) -> bool:
    """Whether a node of an exported graph calls one of torch's operators of these names."""
    packet = getattr(node.target, "overloadpacket", None)
    return node.op == "call_function" and str(packet) in {f"aten.{name}" for name in names}


def _attribute(node: Any, place: int) -> str:
    """The name of the parameter or buffer that an argument reads; empty where it is something else."""
    argument: Any = node.args[place] if len(node.args) > place else None
    return str(argument.target) if getattr(argument, "op", None) == "get_attr" else ""


def _replace(node: Any, values: Mapping[int, Any]) -> None:
    node.args = tuple(values.get(place, argument) for place, argument in enumerate(node.args))


@contextmanager
def known_warnings() -> Iterator[None]:
    """What torch and torchao warn of in their own code while they export, quantize and compile; the user's own
    warnings pass."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(torch|torchao|executorch)\b.*")
        warnings.filterwarnings("ignore", module=r"copyreg|contextlib|typing_extensions|importlib\.resources\b.*")
        yield
