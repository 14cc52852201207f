"""Prepared graph + config -> the places that are quantized, each of which gets scales."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from qbench.errors import first_names, refuse
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.settings import ActivationParams, Config, TensorConfig, WeightParams

if TYPE_CHECKING:
    from qbench.quant.onnx.graph.layers import FoundLayer

# Operators that may hold one scale for each output channel by default: AMCT quantizes the others as one tensor.
CHANNEL_WISE = ("Conv", "ConvTranspose")
SKIPPED = "skipped by the configuration"


@dataclass(frozen=True, kw_only=True)
class WeightSite:
    """The weight ``tensor`` (an initializer that only this layer reads) of the node ``layer``; ``axis``: its channel
    axis, None for one scale."""

    layer: str
    tensor: str
    axis: int | None
    params: WeightParams


@dataclass(frozen=True, kw_only=True)
class ActivationSite:
    """One activation ``tensor`` and who reads it quantized: ``keys`` (record key -> node name, input position). A
    tensor that several layers read is one site where they want the same ``params``, and is calibrated once."""

    tensor: str
    keys: Mapping[str, tuple[str, int]]
    params: ActivationParams


@dataclass(frozen=True, kw_only=True)
class Sites:
    """Everything that is quantized, in the order of the graph; ``floats``: layer -> why it stays float."""

    weights: tuple[WeightSite, ...]
    activations: tuple[ActivationSite, ...]
    floats: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Scales:
    """Of one layer, or of one tensor (key ``layer:index``, no weight). None and empty: not known yet.
    ``balance``: the factor of each input channel by which the activation was divided and the weight multiplied."""

    scale_d: float | None = None
    offset_d: int | None = None
    scale_w: tuple[float, ...] = ()
    offset_w: tuple[int, ...] = ()
    balance: tuple[float, ...] = ()


Record: TypeAlias = Mapping[str, Scales]


def find(graph: Graph, config: Config, where: str = "configuration") -> Sites:
    """The sites of a prepared graph. Raises ``UsageError`` with everything in the configuration that the graph does
    not have or cannot do, and where nothing is left to quantize; ``where`` stands before each line of it."""
    from qbench.quant.onnx.graph.layers import layers

    by_name = {layer.name: layer for layer in layers(graph)}
    problems = [*_layer_problems(config, by_name, graph), *_tensor_problems(config, graph)]
    enabled = [name for name, layer in config.layers.items() if layer.quant_enable]
    if not problems and not enabled and not config.tensor_quantize:
        problems = ["nothing is left to quantize: every layer is skipped or stays float; enable at least one"]
    refuse(where, problems)
    return Sites(
        weights=tuple(_weights(graph, config, by_name)),
        activations=_activations(graph, config),
        floats=_floats(config, by_name),
    )


def require_documented(graph: Graph, config: Config, where: str) -> None:
    """Raises ``UsageError`` where a file asks for what AMCT documents for other types of layers only."""
    problems = []
    for node in graph.nodes:
        layer = config.layers.get(node.name)
        if layer is None or not layer.quant_enable:
            continue
        if layer.weight is not None and layer.weight.channel_wise and node.op_type not in CHANNEL_WISE:
            words = f"only {' and '.join(CHANNEL_WISE)} take true; a {node.op_type} has one scale"
            problems.append(f"{node.name}.weight_quant_params.channel_wise: {words}")
        if layer.balance is not None and node.op_type == "AveragePool":
            problems.append(f"{node.name}.dmq_balancer_param: a pool has no weight to balance; leave it out")
    refuse(where, problems)


def why_nothing(found_layers: Iterable[FoundLayer], skipped: set[str]) -> str:
    """That every layer is skipped, or why none can be quantized."""
    from qbench.quant.onnx.graph.layers import CONSTANT_CONDITION, OPEN_BRANCH

    if skipped:
        return "nothing is left to quantize: every layer is skipped; leave at least one out of skip_layers"
    reasons = [f"{layer.name}: {layer.reason}" for layer in found_layers if layer.kind != "other" and layer.reason]
    because = f": {first_names(reasons, 3)}" if reasons else "; it has no Conv, Gemm, MatMul or pooling"
    way_out = f"; {CONSTANT_CONDITION}" if any(OPEN_BRANCH in reason for reason in reasons) else ""
    return f"nothing in this model can be quantized{because}{way_out}"


def channel_axis(node: Any) -> int:
    """The axis of the output channels in a layer's weight (of a group's, in a ConvTranspose)."""
    if node.op_type == "Gemm":
        return 0 if attribute(node, "transB", 0) else 1
    return 0 if node.op_type == "Conv" else 1


def unknown(name: str, options: Iterable[str], what: str) -> str:
    """That a name is none of the options, with the nearest ones."""
    names = sorted(options)
    close = difflib.get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"there are: {_few(names)}"
    return f"no {what} named {name!r}; {hint}"


def _few(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f", … ({len(names)} in all)" if len(names) > 8 else "") or "none"


def _layer_problems(config: Config, by_name: Mapping[str, FoundLayer], graph: Graph) -> Iterator[str]:
    nodes = {node.name: node.op_type for node in graph.nodes}
    for name, layer in config.layers.items():
        if name not in nodes:
            yield unknown(name, [layer.name for layer in by_name.values() if layer.reason is None], "layer")
        elif not layer.quant_enable:
            continue
        elif name not in by_name or by_name[name].kind != "layer":
            hint = "; list it under tensor_quantize" if name in by_name else ""
            yield f"{name}: a {nodes[name]} is not quantized as a layer{hint or '; leave it out'}"
        elif (reason := by_name[name].reason) is not None:
            yield f"{name}: cannot be quantized: {reason}; set quant_enable to false"


def _tensor_problems(config: Config, graph: Graph) -> Iterator[str]:
    nodes = {node.name: node for node in graph.nodes}
    places = set()
    for number, tensor in enumerate(config.tensor_quantize):
        where, node = f"tensor_quantize[{number}]", nodes.get(tensor.layer_name)
        if node is None:
            yield f"{where}.layer_name: {unknown(tensor.layer_name, nodes, 'node')}"
            continue
        inputs = list(node.input)
        if tensor.input_index >= len(inputs) or not inputs[tensor.input_index]:
            count = len(inputs)
            yield f"{where}.input_index: {tensor.layer_name} has {count} inputs, from 0 on; got {tensor.input_index}"
        elif graph.constant(inputs[tensor.input_index]) is not None:
            place = f"input {tensor.input_index} of {tensor.layer_name}"
            yield f"{where}: {place} is constant; only activations are calibrated"
        layer = config.layers.get(tensor.layer_name)
        if tensor.input_index == 0 and layer is not None and layer.quant_enable:
            yield f"{where}: input 0 of {tensor.layer_name} is quantized with that layer already; leave the entry out"
        if (tensor.layer_name, tensor.input_index) in places:
            yield f"{where}: input {tensor.input_index} of {tensor.layer_name} stands there twice; keep one"
        places.add((tensor.layer_name, tensor.input_index))


def _weights(graph: Graph, config: Config, by_name: Mapping[str, FoundLayer]) -> Iterator[WeightSite]:
    for node in graph.nodes:
        layer = config.layers.get(node.name)
        if layer is None or not layer.quant_enable or by_name[node.name].operator == "AveragePool":
            continue
        params = layer.weight or WeightParams(channel_wise=node.op_type in CHANNEL_WISE)
        axis = channel_axis(node) if params.channel_wise else None
        yield WeightSite(layer=node.name, tensor=node.input[1], axis=axis, params=params)


def _activations(graph: Graph, config: Config) -> tuple[ActivationSite, ...]:
    """One site for each tensor and each way in which it is quantized."""
    tensors: dict[str, list[TensorConfig]] = {}
    for configured in config.tensor_quantize:
        tensors.setdefault(configured.layer_name, []).append(configured)
    activations: dict[str, list[tuple[ActivationParams, dict[str, tuple[str, int]]]]] = {}
    for node in graph.nodes:
        layer = config.layers.get(node.name)
        places = [(node.name, 0, layer.activation)] if layer is not None and layer.quant_enable else []
        places += [
            (f"{node.name}:{tensor.input_index}", tensor.input_index, tensor.activation)
            for tensor in sorted(tensors.get(node.name, []), key=lambda entry: entry.input_index)
        ]
        for key, position, params in places:
            sites = activations.setdefault(node.input[position], [])
            keys = next((keys for other, keys in sites if other == params), None)
            if keys is None:
                keys = {}
                sites.append((params, keys))
            keys[key] = (node.name, position)
    return tuple(
        ActivationSite(tensor=tensor, keys=keys, params=params)
        for tensor, sites in activations.items()
        for params, keys in sites
    )


def _floats(config: Config, by_name: Mapping[str, FoundLayer]) -> Mapping[str, str]:
    """Why each layer that is of a kind that can be quantized is not."""
    floats = {}
    for name, found_layer in by_name.items():
        layer = config.layers.get(name)
        if found_layer.reason is not None and found_layer.kind != "other":
            floats[name] = found_layer.reason
        elif found_layer.kind == "layer" and layer is None:
            floats[name] = "not in the configuration"
        elif found_layer.kind == "layer" and layer is not None and not layer.quant_enable:
            floats[name] = SKIPPED
    return floats
