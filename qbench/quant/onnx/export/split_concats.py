"""A convolution of what a Concat joins, as the sum of two: of what reaches below zero, and of what begins there.

Joined, both have one range, so that bytes have a zero point. OpenVINO's convolutions spend time on that: this one, and
all others that read one of the joined tensors. Apart, each has its own range, nothing is copied, and the second
convolution adds the sums of the first as it runs, if these are bytes (floats are added in a step of their own). A
U-Net, by NNCF's file = 1: 1.10 [1.09, 1.11] -> 0.96 [0.94, 0.98], 51.4 -> 53.4 dB (tests/benchmarks/by_hand.py unet
--rounds 8).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.artifacts import onnx_file
from qbench.quant.onnx import graph_process, onnxruntime_session
from qbench.quant.onnx.export import concat_ranges
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import MOVES, STANDARD
from qbench.quant.onnx.sites import ActivationSite, Record, Scales, Sites
from qbench.quant.scale_rules import amct_qparams

Array = NDArray[Any]
KINDS = ("Concat",)
FIRST = "/signed"  # how the name of the first of two convolutions ends, behind that of the whole
_FROM_ZERO = ("Relu", "Sigmoid", "HardSigmoid", "Softplus", "Softmax")


@dataclass(frozen=True, kw_only=True)
class _Join:
    """A Concat of channels that a convolution alone reads: how many channels each input has, and the positions of those
    that begin at zero."""

    concat: Any
    convolution: Any
    channels: tuple[int, ...]
    from_zero: tuple[int, ...]

    def choose(self, *, signed: bool) -> tuple[int, ...]:
        """The positions of the inputs that reach below zero, or of those that do not."""
        return tuple(i for i in range(len(self.channels)) if (i in self.from_zero) != signed)


@dataclass(frozen=True, kw_only=True)
class _Half:
    """One of the two convolutions: what it reads, of which inputs of the Concat, and by which node these are joined
    (None: there is one only)."""

    name: str
    weight: str
    tensor: str
    positions: tuple[int, ...]
    concat: str | None


@dataclass(frozen=True, kw_only=True)
class _Split:
    """What stands in the place of a join: both convolutions, and the node that adds the ``sums`` of the first to the
    second, which keeps the name."""

    join: _Join
    halves: tuple[_Half, _Half]
    add: str
    sums: str


def split_floats(graph: Graph) -> bool:
    """Puts such convolutions of a float graph in two, in place; whether there were any."""
    joins = list(_find(graph))
    for join in joins:
        _rewrite(graph, join)
    graph.drop_unused()
    return bool(joins)


def split(graph: Graph, sites: Sites, record: Record, calibration: Sequence[Array]) -> tuple[Graph, Sites, Record]:
    """A copy of a prepared graph with such convolutions in two, where all of it is quantized, its sites and its record;
    the steps of weights stay as they are. ``calibration``: examples, an array an input, on which the range of the first
    sums is measured; without any nothing changes."""
    joins = [join for join in _find(graph) if _is_quantized(join, sites, record)]
    if not joins or not len(calibration) or not len(calibration[0]):
        return graph, sites, record
    graph, scales = graph.copy(), dict(record)
    splits = [_rewrite(graph, join) for join in joins]
    graph.drop_unused()
    for each, furthest in zip(splits, _measure(graph, [each.sums for each in splits], calibration), strict=True):
        scales |= _scales_of(each, sites, scales, furthest)
        sites = _sites_of(each, sites)
    return graph, sites, scales


def _find(graph: Graph) -> Iterator[_Join]:
    """Each Concat of channels, some of which begin at zero and some not, that one plain convolution alone reads."""
    for node in graph.nodes:
        if node.op_type != "Concat" or node.domain not in STANDARD or graph.is_output(node.output[0]):
            continue
        readers, channels = graph.readers(node.output[0]), _count_channels(graph, node)
        from_zero = tuple(i for i, tensor in enumerate(node.input) if _begins_at_zero(graph, tensor))
        mixed = 0 < len(from_zero) < len(node.input)
        if mixed and channels and len(readers) == 1 and _is_plain(graph, readers[0][0]):
            yield _Join(concat=node, convolution=readers[0][0], channels=channels, from_zero=from_zero)


def _begins_at_zero(graph: Graph, tensor: str) -> bool:
    """Whether a tensor holds nothing below zero, by the operators that give it."""
    maker = graph.maker(tensor)
    while maker is not None and maker.op_type in (*MOVES, "MaxPool", "AveragePool", "Dropout"):
        maker = graph.maker(maker.input[0])
    return maker is not None and maker.domain in STANDARD and maker.op_type in _FROM_ZERO


def _count_channels(graph: Graph, node: Any) -> tuple[int, ...]:
    """How many channels each input of a Concat of channels has; empty for others, and where that is not known."""
    shapes = [graph.shape(tensor) or () for tensor in node.input]
    if any(len(shape) < 3 or attribute(node, "axis") % len(shape) != 1 for shape in shapes):
        return ()
    channels = tuple(shape[1] for shape in shapes if isinstance(shape[1], int))
    return channels if len(channels) == len(shapes) else ()


def _is_plain(graph: Graph, node: Any) -> bool:
    """Whether a node is a convolution with a constant weight that reads all channels at once."""
    is_convolution = node.op_type == "Conv" and node.domain in STANDARD and attribute(node, "group", 1) == 1
    return is_convolution and graph.constant(node.input[1]) is not None


def _is_quantized(join: _Join, sites: Sites, record: Record) -> bool:
    """Whether a convolution and all that is joined for it are quantized, the activation as it is."""
    places = {place for site in sites.activations for place in site.keys.values()}
    if not all((join.concat.name, i) in places for i in range(len(join.channels))):
        return False
    name = join.convolution.name
    return (name, 0) in places and any(site.layer == name for site in sites.weights) and not record[name].balance


def _rewrite(graph: Graph, join: _Join) -> _Split:
    """Puts two convolutions and their sum in the place of one, in place; nothing reads the Concat any more."""
    import onnx

    name, (output,) = join.convolution.name, join.convolution.output
    names = (graph.fresh(name + FIRST), name)
    halves = _take_half(graph, join, names[0], signed=True), _take_half(graph, join, names[1], signed=False)
    add, sums, others = (graph.fresh(base) for base in (f"{name}/sum", f"{output}_signed", f"{output}_unsigned"))
    with graph.editing() as nodes:
        nodes[:] = [node for node in nodes if node.name != name]
        for half, half_output in zip(halves, (sums, others), strict=True):
            node = type(join.convolution)()
            node.CopyFrom(join.convolution)
            node.name, node.output[0] = half.name, half_output
            node.input[:2] = [half.tensor, half.weight]
            if half_output == others:  # the first has the bias
                del node.input[2:]
            nodes.append(node)
            if half.concat is not None:
                tensors = [join.concat.input[i] for i in half.positions]
                nodes.append(onnx.helper.make_node("Concat", tensors, [half.tensor], name=half.concat, axis=1))
        nodes.append(onnx.helper.make_node("Add", [others, sums], [output], name=add))
    return _Split(join=join, halves=halves, add=add, sums=sums)


def _take_half(graph: Graph, join: _Join, name: str, *, signed: bool) -> _Half:
    """A half of a convolution, with its part of the weight as a constant of its own."""
    positions, starts = join.choose(signed=signed), np.cumsum([0, *join.channels])
    channels = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in positions])
    weight = graph.constant(join.convolution.input[1])
    assert weight is not None  # it is quantized
    kind = "signed" if signed else "unsigned"
    alone = len(positions) == 1
    return _Half(
        name=name,
        weight=graph.add_constant(f"{join.convolution.input[1]}_{kind}", weight[:, channels]),
        tensor=join.concat.input[positions[0]] if alone else graph.fresh(f"{join.concat.output[0]}_{kind}"),
        positions=positions,
        concat=None if alone else graph.fresh(f"{join.concat.name}/{kind}"),
    )


def _scales_of(split: _Split, sites: Sites, record: Record, furthest: float) -> dict[str, Scales]:
    """The scales of both halves and of the first sums, which reach so far from zero."""
    keys = {place: key for site in sites.activations for key, place in site.keys.items()}
    step = amct_qparams(-furthest, furthest, symmetric=True).scale
    scales = {f"{split.add}:1": Scales(scale_d=step, offset_d=0)}
    whole = record[split.join.convolution.name]
    for half in split.halves:
        read = [record[keys[split.join.concat.name, i]] for i in half.positions]
        if half.concat is None:
            scales[half.name] = replace(whole, scale_d=read[0].scale_d, offset_d=read[0].offset_d)
        else:
            common = concat_ranges.widest(read)
            scales[half.name] = replace(whole, scale_d=common.scale, offset_d=common.zero_point)
            scales |= {f"{half.concat}:{i}": each for i, each in enumerate(read)}
    return scales


def _sites_of(split: _Split, sites: Sites) -> Sites:
    """The sites with those of both halves, and of the first sums, in place of those of the join."""
    concat, whole = split.join.concat.name, split.join.convolution.name
    places = {
        (concat, i): (half.name, (half.name, 0)) if half.concat is None else (f"{half.concat}:{n}", (half.concat, n))
        for half in split.halves
        for n, i in enumerate(half.positions)
    }
    activations = []
    for site in sites.activations:
        moved = dict(places[place] for place in site.keys.values() if place in places)
        others = {key: place for key, place in site.keys.items() if place not in places and place != (whole, 0)}
        if moved or others:
            activations.append(replace(site, keys={**others, **moved}))
    (params,) = (site.params for site in sites.activations if (whole, 0) in site.keys.values())
    added = [(split.sums, f"{split.add}:1", (split.add, 1))]
    added += [(half.tensor, half.name, (half.name, 0)) for half in split.halves if half.concat is not None]
    activations += [ActivationSite(tensor=tensor, keys={key: place}, params=params) for tensor, key, place in added]
    (weight,) = (site for site in sites.weights if site.layer == whole)
    weights = [site for site in sites.weights if site is not weight]
    weights += [replace(weight, layer=half.name, tensor=half.weight) for half in split.halves]
    return replace(sites, weights=tuple(weights), activations=tuple(activations))


def _measure(graph: Graph, tensors: Sequence[str], calibration: Sequence[Array]) -> list[float]:
    """How far from zero each tensor reaches, over all examples."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        _give_furthest(graph, tensors).save(file)
        graph_process.release_memory(file)
        session = onnxruntime_session.open_lean(file)
        calls = [session.run(None, feed) for feed in onnx_file.Batches(file, tuple(calibration))]
    return [float(reached) for reached in np.max(calls, axis=0)]


def _give_furthest(graph: Graph, tensors: Sequence[str]) -> Graph:
    """A copy that gives, and computes, the largest absolute value of each tensor alone."""
    import onnx

    model = graph.copy()
    furthest = [model.fresh(f"{tensor}_furthest") for tensor in tensors]
    with model.editing() as nodes:
        for tensor, output in zip(tensors, furthest, strict=True):
            size = model.fresh(f"{tensor}_size")
            nodes.append(onnx.helper.make_node("Abs", [tensor], [size]))
            nodes.append(onnx.helper.make_node("ReduceMax", [size], [output], keepdims=0))
    del model.model.graph.output[:]
    values = [onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, []) for output in furthest]
    model.model.graph.output.extend(values)
    model.reindex()
    model.drop_unused()
    return model
