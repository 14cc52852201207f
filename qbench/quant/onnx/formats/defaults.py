"""Prepared graph + rules -> the configuration that names every layer and every tensor."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from qbench.errors import UsageError, first_names
from qbench.quant.onnx.formats.rules import BATCH_SIZE, EXAMPLES, Rules
from qbench.quant.onnx.formats.settings import Config, LayerConfig, TensorConfig
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.sites import CHANNEL_WISE, unknown

if TYPE_CHECKING:
    from qbench.quant.onnx.graph.layers import FoundLayer

# Layers whose int8 kernels in ONNX Runtime give int8 only; Gemm and MatMul give float from int8 inputs as well.
GIVE_INT8 = ("Conv", "ConvTranspose", "AveragePool")
FOLDED = ("Relu", "Clip")  # become part of the range of the layer before them
NO_VALUES = ("Shape", "Size")  # read the shape, not the values
VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity")  # give the same values
# A convolution at the end of the graph with a smaller share of the multiply-accumulates gains nothing measurable in
# int8 (U-Net, 0.3 %: 1.02 [0.99, 1.04] of the time), while its output quantized costs up to 2 dB (47.7 to 45.5).
LEAST_SHARE = 0.02


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
        raise UsageError(_nothing(found_layers, skipped))
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


def _nothing(found_layers: Iterable[FoundLayer], skipped: set[str]) -> str:
    from qbench.quant.onnx.graph.layers import CONSTANT_CONDITION, OPEN_BRANCH

    if skipped:
        return "nothing is left to quantize: every layer is skipped; leave at least one out of skip_layers"
    reasons = [f"{layer.name}: {layer.reason}" for layer in found_layers if layer.kind != "other" and layer.reason]
    because = f": {first_names(reasons, 3)}" if reasons else "; it has no Conv, Gemm, MatMul or pooling"
    way_out = f"; {CONSTANT_CONDITION}" if any(OPEN_BRANCH in reason for reason in reasons) else ""
    return f"nothing in this model can be quantized{because}{way_out}"


def _tensors(
    graph: Graph, rules: Rules, enabled: set[str], skipped: set[str], kinds: dict[str, str]
) -> Iterator[TensorConfig]:
    """The inputs to quantize beside those of the layers: where a layer that can only give int8 is read by a node
    that is not itself quantized there, and what the rules name."""
    requested = {(tensor.layer_name, tensor.input_index): tensor for tensor in rules.tensor_quantize}
    places: set[tuple[str, int]] = set()
    small = _small_ends(graph, enabled)
    for node in graph.nodes:
        for index, _ in enumerate(node.input):
            if (node.name, index) in requested:
                places.add((node.name, index))
        gives = node.name in enabled and node.op_type in GIVE_INT8 and node.name not in small
        joins = not gives and _joins(node, kinds, places)
        for tensor in node.output[:1] if gives or joins else ():
            readers = list(_readers(graph, tensor, enabled))
            if joins and readers and all(name in skipped and position == 0 for name, position in readers):
                continue  # a MaxPool or an Add can give floats, so what a skipped layer reads is not rounded
            places.update(readers)
    for node in graph.nodes:
        for index, _ in enumerate(node.input):
            if (node.name, index) in places:
                rule = requested.get((node.name, index))
                own = rule.activation if rule else None
                params = own.params(rules.activation_offset) if own else rules.activation(node.name, node.op_type)
                yield TensorConfig(layer_name=node.name, input_index=index, activation=params)
    yield from (
        TensorConfig(layer_name=tensor.layer_name, input_index=tensor.input_index)
        for place, tensor in requested.items()
        if place not in places
    )


def _joins(node: Any, kinds: dict[str, str], places: set[tuple[str, int]]) -> bool:
    """Whether a MaxPool or an Add computes in int8, all that it reads being quantized."""
    if kinds.get(node.name) != "tensor":
        return False
    return all((node.name, index) in places for index, name in enumerate(node.input) if name)


def _readers(graph: Graph, tensor: str, enabled: set[str]) -> Iterator[tuple[str, int]]:
    """Who reads a tensor, or it behind a Relu or Clip that alone reads it, without quantizing it as a layer."""
    while not graph.is_output(tensor):
        readers = graph.readers(tensor)
        if len(readers) != 1 or readers[0][0].op_type not in FOLDED or readers[0][1] != 0:
            break
        tensor = readers[0][0].output[0]
    for node, position in graph.readers(tensor):
        if position < 0 or node.op_type in NO_VALUES or (position == 0 and node.name in enabled):
            continue
        yield node.name, position


def _small_ends(graph: Graph, enabled: set[str]) -> set[str]:
    """The convolutions that give only what the caller reads, where all of them together hold next to none of the
    multiply-accumulates: they stay float on a runtime that needs their outputs quantized."""
    work = {node.name: _multiply_accumulates(graph, node) for node in graph.nodes if node.name in enabled}
    ends = {name for name in work if graph.node(name).op_type == "Conv" and _for_caller(graph, graph.node(name))}
    if any(count is None for count in work.values()):
        return set()
    counts = {name: count or 0 for name, count in work.items()}
    return ends if sum(counts[name] for name in ends) < LEAST_SHARE * sum(counts.values()) else set()


def _for_caller(graph: Graph, node: Any) -> bool:
    """Whether only the caller reads what a node gives, as it is or clipped or in another shape."""
    pending, visited = [node], set[str]()
    while pending:
        tensor = pending.pop().output[0]
        readers = graph.readers(tensor)
        if graph.is_output(tensor) == bool(readers):  # read by nobody, or by the caller and others
            return False
        if any(position < 0 or reader.op_type not in (*VIEWS, *FOLDED) for reader, position in readers):
            return False
        pending += [reader for reader, _ in readers if reader.name not in visited]
        visited.update(reader.name for reader, _ in readers)
    return True


def _multiply_accumulates(graph: Graph, node: Any) -> int | None:
    """Those of a layer for one example, up to a factor that all layers share; None where shapes are not known."""
    shape, weight = graph.shape(node.output[0]), graph.shape(node.input[1]) if len(node.input) > 1 else ()
    if node.op_type == "AveragePool":
        return 0
    if not shape or not weight or not all(isinstance(size, int) for size in shape[1:]):
        return None
    window = weight[1:] if node.op_type == "Conv" else weight[:1]
    if node.op_type == "Gemm" and attribute(node, "transB", 0):
        window = weight[1:]
    return math.prod(int(size or 0) for size in (*shape[1:], *window))
