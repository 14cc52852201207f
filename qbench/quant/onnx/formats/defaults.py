"""Prepared graph + rules -> the configuration that names every layer and every tensor."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from qbench.errors import UsageError
from qbench.quant.onnx import needed_inputs
from qbench.quant.onnx.formats.rules import BATCH_SIZE, EXAMPLES, Rules
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import Config, LayerConfig, TensorConfig
from qbench.quant.onnx.sites import CHANNEL_WISE, unknown, why_nothing

if TYPE_CHECKING:
    from qbench.quant.onnx.graph.layers import FoundLayer


def default(graph: Graph, rules: Rules | None = None) -> Config:
    """See ``config.default``."""
    from qbench.quant.onnx.graph.layers import layers

    rules = rules or Rules()
    found_layers = tuple(layers(graph))
    skipped = _skipped(rules, found_layers, graph)
    configured = {
        layer.name: _layer(rules, layer, layer.name not in skipped) for layer in found_layers if _can_be(layer)
    }
    enabled = {name for name, layer in configured.items() if layer.quant_enable}
    if not enabled and not rules.tensor_quantize:
        raise UsageError(why_nothing(found_layers, skipped))
    return Config(
        batch_num=rules.batch_num or math.ceil(EXAMPLES / (fixed_batch(graph) or BATCH_SIZE)),
        activation_offset=rules.activation_offset,
        do_fusion=rules.do_fusion,
        skip_fusion_layers=rules.skip_fusion_layers,
        layers=configured,
        tensor_quantize=tuple(
            _tensors(graph, rules, enabled, skipped, {layer.name: layer.kind for layer in found_layers})
        ),
        balance=rules.balance,
        fp16_scales=rules.fp16_scales,
        bias_correction=rules.bias_correction,
    )


def fixed_batch(graph: Graph) -> int | None:
    """The batch size that the model's first input demands; None where it takes any, or has no batch axis."""
    sizes = [
        value.type.tensor_type.shape.dim[0].dim_value
        for value in graph.model.graph.input
        if value.name in graph.inputs and value.type.tensor_type.shape.dim
    ]
    return sizes[0] or None if sizes else None


def _can_be(layer: FoundLayer) -> bool:
    return layer.kind == "layer" and layer.reason is None


def _layer(rules: Rules, layer: FoundLayer, enable: bool) -> LayerConfig:
    weight = balance = None
    if layer.operator != "AveragePool":
        weight = rules.weight(layer.name, layer.operator, channel_wise=layer.operator in CHANNEL_WISE)
        if rules.file is not None and layer.operator not in CHANNEL_WISE:
            weight = replace(weight, channel_wise=False)  # AMCT's common_config means the others
        balance = rules.exponent(layer.name, layer.operator)
    activation = rules.activation(layer.name, layer.operator)
    return LayerConfig(quant_enable=enable, activation=activation, weight=weight, balance=balance)


def _skipped(rules: Rules, every_layer: tuple[FoundLayer, ...], graph: Graph) -> set[str]:
    """The names that the rules skip; every name in the rules must be one of the graph's."""
    can = {layer.name: layer.operator for layer in every_layer if _can_be(layer)}
    names, problems = set[str](), list(_repeated(rules.skip_layers, "skip_layers"))
    reasons = {layer.name: layer.reason for layer in every_layer if layer.reason is not None}
    types = {node.name: node.op_type for node in graph.nodes}
    for name in rules.skip_layers:
        matching = {name} & can.keys() or set(fnmatch.filter(can, name))
        names |= matching
        if matching:
            continue
        if name in types:
            why = f"stays float anyway ({reasons[name]})" if name in reasons else "is not quantized as a layer"
            problems.append(f"skip_layers: {name!r} ({types[name]}) {why}; leave it out")
        else:
            problems.append(f"skip_layers: {unknown(name, can, 'layer')}")
    operators = set(can.values())
    problems += [
        f"skip_layer_types: {unknown(kind, operators, 'type')}"
        for kind in rules.skip_layer_types
        if kind not in operators
    ]
    problems += [f"layers: {unknown(name, can, 'layer')}" for name in rules.layers if name not in can]
    problems += _rule_problems(rules, {layer.name: layer.operator for layer in every_layer})
    if problems:
        raise UsageError("\n".join(f"{rules.file}: {what}" if rules.file else what for what in problems))
    return names | {name for name, operator in can.items() if operator in rules.skip_layer_types}


def _rule_problems(rules: Rules, operators: dict[str, str]) -> Iterator[str]:
    """Types that are never quantized, and what AMCT documents for some types only."""
    from qbench.quant.onnx.graph.layers import LAYERS

    for kind in rules.types:
        if kind not in LAYERS:
            yield f"layer_type: {unknown(kind, LAYERS, 'type')}"
    places = [(f"layer {name!r}", operators.get(name, ""), rule) for name, rule in rules.layers.items()]
    for what, kind, rule in [*places, *((f"layer_type {kind!r}", kind, rule) for kind, rule in rules.types.items())]:
        if rule.balance is not None and kind == "AveragePool":
            yield f"{what}: dmq_balancer: a pool has no weight to balance; leave it out"
        wise = rule.weight is not None and rule.weight.channel_wise
        if rules.file is not None and wise and kind in LAYERS and kind not in CHANNEL_WISE:
            yield f"{what}: channel_wise: only {' and '.join(CHANNEL_WISE)} take true; a {kind} has one scale"


def _repeated(names: tuple[str, ...], where: str) -> Iterator[str]:
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"{where}: {name!r} stands there {names.count(name)} times; name it once"


def _tensors(
    graph: Graph, rules: Rules, enabled: set[str], skipped: set[str], kinds: dict[str, str]
) -> Iterator[TensorConfig]:
    """The inputs to quantize beside those of the layers: those that are needed, and what the rules name."""
    requested = {(tensor.layer_name, tensor.input_index): tensor for tensor in rules.tensor_quantize}
    nodes = {node.name: node.op_type for node in graph.nodes}
    places = tuple(needed_inputs.find(graph, kinds, enabled, skipped, requested))
    for name, index in places:
        rule = requested.get((name, index))
        own = rule.activation if rule else None
        params = own.params(rules.activation_offset) if own else rules.activation(name, nodes[name])
        yield TensorConfig(layer_name=name, input_index=index, activation=params)
    yield from (
        TensorConfig(layer_name=tensor.layer_name, input_index=tensor.input_index)
        for place, tensor in requested.items()
        if place not in places
    )
