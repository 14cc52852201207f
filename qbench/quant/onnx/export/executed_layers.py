"""What ONNX Runtime makes of a deploy model on this machine: which of the quantized layers it runs in float.

Read from the graph that the runtime writes once it has optimized the model, never from what was planned. A layer that
would run in float is left float as a whole: its weight would be dequantized at every inference, which is slower than
float (a convolution 5x5 of 32 channels: 9.4 ms, in fp32 5.4, in int8 1.8) and no more exact.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qbench.quant.onnx import needed_inputs
from qbench.quant.onnx.export import (
    deploy_onnxruntime,
    flat_softmax,
    fused_activations,
    global_pool,
    keep_float,
    prevent_fusion,
    upsampling,
)
from qbench.quant.onnx.export.deploy_onnxruntime import Form
from qbench.quant.onnx.export.narrow_weights import Fitted
from qbench.quant.onnx.graph import output_ends
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Sites

_NO_KERNEL = ("ConvTranspose",)  # ONNX Runtime 1.31 has no kernel on bytes for it on a CPU
# Operators that ONNX Runtime runs on bytes, or that keep values: they may need what a float layer gives as bytes.
ON_BYTES = (
    "Add", "Mul", "Concat", "MaxPool", "AveragePool", "GlobalAveragePool", "ReduceMean", "LeakyRelu", "Sigmoid",
    "Softmax", "Resize", "Split", *deploy_onnxruntime.KEEP_VALUES,
)  # fmt: skip
Place = tuple[str, int]  # a node and the position of one of its inputs
_ROUNDS = 6  # how often what is set apart or left float may make something else float
_AT_THE_END = "ONNX Runtime would round the outputs of the network to 8 bits, for too little work to gain by it"
_PRODUCTS = ("Gemm", "MatMul")  # their kernels give floats from bytes


@dataclass(frozen=True, kw_only=True)
class Settled:
    """A deploy model and the sites that it holds in int8; ``floats``: layer that was to be int8 -> why the runtime runs
    it in float."""

    graph: Graph
    sites: Sites
    floats: Mapping[str, str] = field(default_factory=dict)


def settled(
    graph: Graph,
    sites: Sites,
    fitted: Fitted,
    left_float: Mapping[str, str] = MappingProxyType({}),
    *,
    way_out: str = "",
) -> Settled:
    """The deploy model of a prepared graph in which exactly that is quantized which this machine's ONNX Runtime runs in
    int8, but for the layers ``left_float`` (with the reason). A form that another kind of CPU executes is written as
    planned. ``way_out``: what to say where a reader that is not quantized makes a layer float.

    Raises ``BuildError`` for a model that does not load, and as ``deploy`` does.
    """
    floats = dict(left_float)
    sites = without(graph, sites, floats) if floats else sites
    deployed, apart = _deployed(graph, sites, fitted, ()), set[str]()
    for _ in range(_ROUNDS if runs_here(fitted.form) else 0):
        new = {name: why for name, why in _floats(graph, deployed, sites, way_out) if name not in floats}
        weighted = {site.layer for site in sites.weights} & new.keys()
        joined = {name for name in weighted - apart if graph.node(name).op_type in _PRODUCTS}
        floats |= {name: why for name, why in new.items() if name not in joined}
        if not weighted:
            break
        sites = without(graph, sites, weighted - joined) if weighted - joined else sites
        apart = (apart - weighted) | joined
        deployed = _deployed(graph, sites, fitted, apart)
    prevent_fusion.keep_apart(deployed)
    return Settled(graph=deployed, sites=replace(sites, floats={**sites.floats, **floats}), floats=floats)


def _deployed(graph: Graph, sites: Sites, fitted: Fitted, apart: Collection[str]) -> Graph:
    """The deploy model with everything planned in it, layers written as those that have kernels; ``apart``: products
    that the runtime would join with what reads them."""
    deployed = deploy_onnxruntime.deploy(graph, sites, fitted.record, form=fitted.form, rewrite=global_pool.as_pools)
    upsampling.as_convolutions(deployed)
    keep_float.keep_float(deployed)
    keep_float.set_apart(deployed, apart)
    fused_activations.fuse_activations(deployed)
    flat_softmax.flatten(deployed)
    return deployed


def runs_here(form: Form) -> bool:
    """Whether this machine executes a form in int8: signed activations are those of ARM, unsigned ones of x86."""
    return (form == "S8S8") == (deploy_onnxruntime.form_for() == "S8S8")


def without(graph: Graph, sites: Sites, layers: Collection[str]) -> Sites:
    """Sites without some layers with weights, nor what is quantized for these alone: their inputs, unless the kernel
    that gives them gives bytes, and what float operators read behind them."""
    behind = {tensor for name in layers for tensor in _gives(graph, graph.node(name))}
    weights = tuple(site for site in sites.weights if site.layer not in layers)
    quantized = {place for site in sites.activations for place in site.keys.values() if place[0] not in layers}
    convolutions = {site.layer for site in weights if graph.node(site.layer).op_type == "Conv"}
    activations = []
    for site in sites.activations:
        keys = dict(site.keys)
        if not _given_as_bytes(graph, site.tensor, convolutions, quantized):
            keys = {key: place for key, place in keys.items() if place not in {(name, 0) for name in layers}}
        if site.tensor in behind:
            keys = {key: place for key, place in keys.items() if _needs_bytes(graph, key, place[0])}
        if keys:
            activations.append(replace(site, keys=keys))
    return replace(sites, weights=weights, activations=tuple(activations))


def _given_as_bytes(graph: Graph, tensor: str, convolutions: Collection[str], quantized: Collection[Place]) -> bool:
    """Whether a tensor comes from a convolution on bytes, or from an operator all of whose inputs are quantized."""
    maker = graph.maker(tensor)
    while maker is not None and maker.op_type in ("Relu", "Clip"):
        maker = graph.maker(maker.input[0])
    if maker is None or maker.name in convolutions:
        return maker is not None
    data_inputs = [i for i, name in enumerate(maker.input) if name and graph.constant(name) is None]
    return maker.op_type in ON_BYTES and bool(data_inputs) and all((maker.name, i) in quantized for i in data_inputs)


def without_outputs(graph: Graph, sites: Sites) -> Sites:
    """Sites without those of what the graph gives to its caller."""
    activations = []
    for site in sites.activations:
        keys = {key: place for key, place in site.keys.items() if not output_ends.is_caller(graph.node(place[0]))}
        if keys:
            activations.append(replace(site, keys=keys))
    return replace(sites, activations=tuple(activations))


def outputs_quantized(graph: Graph, sites: Sites) -> str:
    """In words, which outputs of the graph are quantized; empty for none."""
    nodes = (graph.node(name) for site in sites.activations for name, _ in site.keys.values())
    names = dict.fromkeys(node.output[0] for node in nodes if output_ends.is_caller(node))
    return f"output{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


def _gives(graph: Graph, node: Any) -> Iterator[str]:
    """What a layer gives, and the same behind a Relu or Clip."""
    yield node.output[0]
    for reader, position in graph.readers(node.output[0]):
        if position == 0 and reader.op_type in ("Relu", "Clip"):
            yield reader.output[0]


def _needs_bytes(graph: Graph, key: str, name: str) -> bool:
    return key == name or graph.node(name).op_type in ON_BYTES


def _floats(graph: Graph, deploy: Graph, sites: Sites, way_out: str) -> Iterator[tuple[str, str]]:
    """The layers of the sites that the runtime runs in float, and why."""
    from qbench.quant.onnx import onnxruntime_layers

    optimized = _optimized(deploy)
    kinds: dict[str, set[str]] = {}
    for node in optimized.nodes:
        kinds.setdefault(onnxruntime_layers.own_name(node.name), set()).add(node.op_type)
    weighted = {site.layer for site in sites.weights}
    inputs = {key for site in sites.activations for key, (name, _) in site.keys.items() if key == name}
    there = {node.name for node in deploy.nodes}  # without what leads to no output
    ends = needed_inputs.find_small_ends(graph, weighted)
    for name in sorted((weighted | inputs) & there):
        node = deploy.node(name)
        on_bytes = _weight_is_read(optimized, deploy, node) if name in weighted else None
        if on_bytes is None:
            on_bytes = any(_on_bytes(kind) for kind in kinds.get(name, ()))
        if not on_bytes:
            yield name, _AT_THE_END if name in ends else _reason(graph, graph.node(name), way_out)


def _weight_is_read(optimized: Graph, deploy: Graph, node: Any) -> bool | None:
    """Whether an operator reads a layer's bytes as they are; None where the runtime has made other constants of it."""
    maker = deploy.maker(node.input[1])
    readers = [] if maker is None else [reader for reader, _ in optimized.readers(maker.input[0])]
    return any(reader.op_type != "DequantizeLinear" for reader in readers) if readers else None


def _on_bytes(kind: str) -> bool:
    return kind.startswith(("QLinear", "QGemm")) or "Integer" in kind


def _reason(graph: Graph, node: Any, way_out: str) -> str:
    if node.op_type in _NO_KERNEL:
        return f"ONNX Runtime has no int8 kernel for {node.op_type}"
    if graph.is_output(node.output[0]):
        return "ONNX Runtime runs it in float: what the graph gives is not quantized"
    readers = {reader.name for tensor in _gives(graph, node) for reader, _ in graph.readers(tensor)}
    names = ", ".join(sorted(name for name in readers if graph.node(name).op_type not in ("Relu", "Clip"))[:3])
    return f"ONNX Runtime runs it in float: what {names} reads of it is not quantized{way_out}"


def _optimized(deploy: Graph) -> Graph:
    """The graph that ONNX Runtime executes."""
    from qbench.quant.onnx import onnxruntime_session

    with tempfile.TemporaryDirectory() as folder:
        file, optimized = Path(folder) / "deploy.onnx", Path(folder) / "optimized.onnx"
        deploy.save(file)
        options = onnxruntime_session.session_options(1)
        options.optimized_model_filepath = str(optimized)
        onnxruntime_session.open_session(file, options=options)
        return Graph.load(optimized, valid=False)  # the runtime has operators of its own
