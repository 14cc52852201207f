"""Quantized networks for the tests of what is written: prepared graph, sites, a record of plain minima and maxima."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx_networks import NETWORKS, random_inputs, save

from qbench.quant.uniform.files import config as config_file
from qbench.quant.uniform.files.record import Record, Scales
from qbench.quant.uniform.files.rules import Rules
from qbench.quant.uniform.graph.graph import Graph
from qbench.quant.uniform.graph.prepare import prepare
from qbench.quant.uniform.qparams import asymmetric, symmetric
from qbench.quant.uniform.sites import Sites, find
from qbench.quant.uniform.weights import weights

Array = NDArray[Any]
Feed = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """What the writers of models are given, and an input that was not calibrated on."""

    graph: Graph
    sites: Sites
    record: Record
    feed: Feed


@functools.cache
def quantized(name: str, *, offset: bool = True) -> Quantized:
    """A network of ``onnx_networks`` by name; ``offset``: asymmetric activations."""
    return of(NETWORKS[name](), offset=offset, batch=1 if name in ("half", "old_style") else 4)


def of(model: onnx.ModelProto, *, offset: bool = True, batch: int = 4, **rules: Any) -> Quantized:
    """Quantized with the default configuration."""
    with tempfile.TemporaryDirectory() as folder:
        graph = prepare(save(model, Path(folder)))
    sites = find(graph, config_file.default(graph, Rules(activation_offset=offset, **rules)))
    feeds = [dict(zip(graph.inputs, random_inputs(model, batch, seed), strict=True)) for seed in range(4)]
    return Quantized(graph=graph, sites=sites, record=recorded(graph, sites, feeds[:3], offset=offset), feed=feeds[3])


def recorded(graph: Graph, sites: Sites, feeds: list[Feed], *, offset: bool) -> Record:
    """Scales from the smallest and largest value of each tensor, weights by their absolute maximum."""
    names = list(dict.fromkeys(site.tensor for site in sites.activations))
    seen = [values(graph, feed, *names) for feed in feeds]
    ends = {
        name: (min(one[i].min() for one in seen), max(one[i].max() for one in seen)) for i, name in enumerate(names)
    }
    made = {}
    for site in sites.activations:
        params = (asymmetric if offset else symmetric)(*map(float, ends[site.tensor]))
        made |= {key: Scales(scale_d=params.scale, offset_d=params.offset) for key in site.keys}
    for site in sites.weights:
        scales = weights.arq(graph.constant(site.tensor), site.axis)
        held = made.get(site.layer, Scales())
        made[site.layer] = Scales(scale_d=held.scale_d, offset_d=held.offset_d, scale_w=scales)
    return made


def values(graph: Graph, feed: Feed, *names: str) -> list[Array]:
    """Tensors of a graph by ONNX Runtime, not optimized."""
    shown = graph.copy()
    have = {one.name for one in (*shown.model.graph.output, *shown.model.graph.input)}
    for name in names:
        if name not in have:
            value = onnx.ValueInfoProto(name=name)
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
            shown.model.graph.output.append(value)
    wanted = [name for name in names if name not in feed]
    if not wanted:  # which a session takes for all
        return [feed[name] for name in names]
    found = dict(zip(wanted, run(shown, feed, optimized=False, names=wanted), strict=True))
    return [feed[name] if name in feed else found[name] for name in names]


def run(
    graph: Graph, feed: Feed, *, optimized: bool = True, names: list[str] | None = None, **entries: str
) -> list[Array]:
    """The outputs of a graph by ONNX Runtime; ``entries``: of the session's configuration, dots as underscores."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    for name, value in entries.items():
        options.add_session_config_entry(name.replace("_", "."), value)
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(graph.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(names, dict(feed)))


def executed(graph: Graph) -> list[Any]:
    """The nodes that ONNX Runtime makes of a graph."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        onnxruntime.InferenceSession(graph.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(onnx.load(options.optimized_model_filepath).graph.node)
