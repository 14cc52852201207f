"""From a network that torch trained with fake quantization to ONNX: its fp32 graph, and the scales it has learned."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import BuildError
from qbench.quant.onnx import export_torch
from qbench.quant.onnx.graph import output_ends
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.settings import ActivationParams, WeightParams
from qbench.quant.onnx.sites import ActivationSite, Scales, Sites, WeightSite
from qbench.quant.onnx.static import Scaled

Array = NDArray[Any]
# The engine whose observers use all 8 bits of activations and weights per channel, as ONNX kernels do.
ENGINE = "onednn"
# Largest difference of the exported graph from torch, as a share of the largest output: values that lie between two
# levels go to one side or the other, and each that does is a whole level, here and in the layers behind it.
ROUNDING = 0.25
_LAYERS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
_UNSIGNED = 128  # what lies between a uint8 zero point and an offset of int8


def write(fitted: Any, example: tuple[Any, ...], file: Path) -> None:
    """Writes what a fake-quantized FX network (``qat.Fitted.prepared``) has learned; the network is copied.

    torch writes it as float operators between quantize and dequantize nodes, BatchNorm folded. Raises ``BuildError``
    where torch cannot convert or export it, or its outputs then differ.
    """
    from qbench.quant.pytorch import clamp_fusion, torch_ao

    prepared = copy.deepcopy(fitted).eval()
    clamp_fusion.drop(prepared)
    with torch_ao.known_warnings():
        reference = torch_ao._convert_to_reference_decomposed_fx(prepared)
    export_torch.export(reference, example, file, tolerance=ROUNDING)


def learned(graph: Graph) -> Scaled:
    """A graph without its quantize and dequantize nodes, and what these said; ``graph`` is changed in place.

    Raises ``BuildError`` where it quantizes to something else than uint8 activations and symmetric int8 weights, or
    nothing.
    """
    learning = _Learning(graph)
    for node in graph.nodes:
        if node.op_type == "DequantizeLinear":
            learning.take(node)
    return learning.finish()


class _Learning:
    """Takes pairs of quantize and dequantize nodes out of a graph and keeps what they said."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._weights: list[WeightSite] = []
        self._activations: dict[tuple[str, float, int], ActivationSite] = {}
        self._record: dict[str, Scales] = {}
        self._instead: dict[str, str] = {}  # the output of a node that goes -> what its readers get for it

    def take(self, node: Any) -> None:
        """Reads one dequantize node; whoever reads it then reads what was quantized."""
        source = self._source(node)
        scale, zero = self._constant(node, 1), self._constant(node, 2)
        if self._graph.constant(source) is None:
            if zero.dtype != np.uint8 or scale.size != 1:
                raise BuildError(f"{node.name}: expected one uint8 scale for an activation, got {zero.dtype}")
            self._activation(node, source, float(scale.item()), int(zero.item()) - _UNSIGNED)
        elif zero.dtype == np.uint8 and scale.size == 1:  # a parameter that torch quantized as it does activations
            self._instead[node.output[0]] = source
        elif zero.dtype != np.int8 or zero.any():
            raise BuildError(f"{node.name}: expected symmetric int8 weights, got {zero.dtype}")
        else:
            self._weight(node, source, scale, attribute(node, "axis", 1) if scale.ndim else None)

    def _source(self, node: Any) -> str:
        """What the quantize node in front (behind a Clip, where torch writes the levels) reads."""
        before = self._graph.maker(node.input[0])
        if before is not None and before.op_type == "Clip":
            before = self._graph.maker(before.input[0])
        if before is None or before.op_type != "QuantizeLinear":
            raise BuildError(f"{node.name}: nothing is quantized in front of it")
        return str(before.input[0])

    def _constant(self, node: Any, position: int) -> Array:
        value = self._graph.constant(node.input[position])
        if value is None:
            raise BuildError(f"{node.name}: its scale is not a constant")
        return value

    def _activation(self, node: Any, source: str, scale: float, offset: int) -> None:
        self._instead[node.output[0]] = source
        keys = {}
        for reader, position in self._graph.readers(node.output[0]):
            if reader.op_type != "QuantizeLinear":  # quantized again, on another scale: that is a place of its own
                key = reader.name if position == 0 and reader.op_type in _LAYERS else f"{reader.name}:{position}"
                keys[key] = (reader.name, position)
                self._record[key] = replace(self._record.get(key, Scales()), scale_d=scale, offset_d=offset)
        place = (source, scale, offset)
        if self._graph.is_output(node.output[0]) and output_ends.from_layer(self._graph, source):
            caller = f"{output_ends.CALLER}{node.output[0]}"
            keys[f"{caller}:0"] = (caller, 0)
            self._record[f"{caller}:0"] = Scales(scale_d=scale, offset_d=offset)
        if place in self._activations:
            keys = {**self._activations[place].keys, **keys}
        if keys:
            params = ActivationParams(algorithm="minmax")
            self._activations[place] = ActivationSite(tensor=source, keys=keys, params=params)

    def _weight(self, node: Any, source: str, scale: Array, axis: int | None) -> None:
        """Of a weight that is transposed on its way to its layer, the transposed one is the weight."""
        (reader, _), *others = self._graph.readers(node.output[0])
        if reader.op_type == "Transpose" and not others:
            order = list(attribute(reader, "perm"))
            value = np.asarray(self._graph.constant(source))
            source = self._graph.add_constant(f"{source}_transposed", value.transpose(order))
            axis = None if axis is None else order.index(axis)
            node = reader
        self._instead[node.output[0]] = source
        scales = tuple(map(float, np.atleast_1d(scale)))
        for layer, _ in self._graph.readers(node.output[0]):
            params = WeightParams(channel_wise=axis is not None)
            self._weights.append(WeightSite(layer=layer.name, tensor=source, axis=axis, params=params))
            known = self._record.get(layer.name, Scales())
            self._record[layer.name] = replace(known, scale_w=scales, offset_w=(0,) * len(scales))

    def finish(self) -> Scaled:
        """The graph without the nodes that were taken out."""
        if not self._weights:
            raise BuildError("no weight of the trained network is quantized; leave it a layer that can be")
        outputs = [name for name in self._graph.outputs if name in self._instead]
        with self._graph.editing() as nodes:
            for node in nodes:
                node.input[:] = [self._resolved(name) for name in node.input]
            nodes[:] = [node for node in nodes if not set(node.output) & set(outputs)]
            nodes += [_identity(self._resolved(name), name) for name in outputs]
        self._graph.drop_unused()
        # What was quantized twice in a row (a Dropout, an in-place ReLU) is quantized once, as it was read.
        activations = (replace(site, tensor=self._resolved(site.tensor)) for site in self._activations.values())
        sites = Sites(weights=tuple(self._weights), activations=tuple(activations))
        return Scaled(graph=self._graph, sites=sites, record=self._record)

    def _resolved(self, name: str) -> str:
        while name in self._instead:
            name = self._instead[name]
        return name


def _identity(source: str, name: str) -> Any:
    import onnx

    return onnx.helper.make_node("Identity", [source], [name], name=f"{output_ends.CALLER}{name}")
