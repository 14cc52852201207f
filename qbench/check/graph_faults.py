"""What is wrong in an ONNX file by what stands in it, whatever runs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.check.finding import Finding
from qbench.errors import first_names

Array = NDArray[Any]
# A part of a concatenation that uses fewer of the 256 levels than this is left next to nothing: a score beside
# coordinates of 640 pixels has 0.4 of them.
FEW_LEVELS = 16.0
_MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Flatten", "Slice", "Split", "Relu", "Clip")
_SMALLEST = float(np.finfo(np.float32).tiny)


def find_faults(model: Any) -> Iterator[Finding]:
    """The faults of a file that holds int8, weights taken in."""
    graph = _Graph(model)
    yield from _check_scales(graph)
    yield from _check_joined_ranges(graph)
    yield from _check_what_is_quantized(graph)


class _Graph:
    def __init__(self, model: Any) -> None:
        from onnx import numpy_helper

        self.nodes = list(model.graph.node)
        self.constants: dict[str, Array] = {
            tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer
        }
        for node in self.nodes:
            values = [attribute.t for attribute in node.attribute if attribute.name == "value"]
            if node.op_type == "Constant" and values:
                self.constants[node.output[0]] = numpy_helper.to_array(values[0])
        self.makers = {name: node for node in self.nodes for name in node.output}
        self.readers: dict[str, list[Any]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def list_scales(self) -> Iterator[tuple[str, Array]]:
        """(what it is of, the scales) of each constant scale, once."""
        seen: set[str] = set()
        for node in self.nodes:
            places: tuple[int, ...] = ()
            if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
                places = (1,)
            elif node.op_type.startswith("QLinear") and node.op_type != "QLinearConcat":
                places = tuple(place for place in (1, 4, 6) if place < len(node.input))
            for place in places:
                name = node.input[place]
                value = self.constants.get(name)
                if name not in seen and value is not None and np.issubdtype(value.dtype, np.floating):
                    seen.add(name)
                    yield node.input[0] if places == (1,) else (node.name or node.output[0]), value


def _check_scales(graph: _Graph) -> Iterator[Finding]:
    """Scales that are no positive number, or so small that their CPU cost is another."""
    bad: dict[str, list[str]] = {"zero": [], "nan": [], "negative": [], "denormal": []}
    for owner, values in graph.list_scales():
        scales = np.asarray(values, np.float32).reshape(-1)
        if not np.isfinite(scales).all():
            bad["nan"].append(owner)
        elif (scales == 0).any():
            bad["zero"].append(owner)
        elif (scales < 0).any():
            bad["negative"].append(owner)
        elif (scales < _SMALLEST).any():
            bad["denormal"].append(owner)
    texts = {
        "zero": "a scale is 0, so that a value divided by it is infinite",
        "nan": "a scale is no finite number",
        "negative": "a scale is below 0, which runtimes take in different ways",
        "denormal": "a scale is a denormal number, which CPUs that flush them take for 0",
    }
    for kind, owners in bad.items():
        if owners:
            yield Finding(
                severity="warning" if kind == "denormal" else "fault",
                code=f"scale-{kind}",
                text=f"{texts[kind]}: {first_names(owners, 3)}",
                advice="quantize again; a tensor that was 0 on all calibration data has no range: give it more data",
                layers=tuple(owners),
            )


def _check_joined_ranges(graph: _Graph) -> Iterator[Finding]:
    """Concatenations whose result has one scale though its parts have much smaller ranges."""
    for node in graph.nodes:
        joined, parts = _list_parts(graph, node)
        if joined is None:
            continue
        levels_of = {name: scale * 256 / joined for name, scale in parts if scale is not None}
        small = [(name, levels) for name, levels in levels_of.items() if levels < FEW_LEVELS]
        if small:
            name, levels = min(small, key=lambda entry: entry[1])
            yield Finding(
                severity="fault",
                code="joined-range",
                text=f"{node.name or node.output[0]} joins tensors of very different ranges under one scale: of 256 "
                f"levels {name} gets {levels:.2g}",
                advice="keep the concatenation and what follows it in float (nodes_to_exclude of ONNX Runtime's tool; "
                "qbench's own quantizer does): boxes beside scores, as in a detector's head, lose the scores",
                layers=(node.name or node.output[0],),
            )


def _list_parts(graph: _Graph, node: Any) -> tuple[float | None, list[tuple[str, float | None]]]:
    """The one scale of what a node joins, and the scale that each part had before; None where there is none."""
    if node.op_type == "Concat":
        return _scale_behind(graph, node.output[0]), [(name, _scale_before(graph, name)) for name in node.input]
    if node.op_type == "QLinearConcat":  # its scale and zero point, then each part with its own
        parts = zip(node.input[2::3], node.input[3::3], strict=False)
        return _one_scale(graph, node.input[0]), [(name, _one_scale(graph, scale)) for name, scale in parts]
    return None, []


def _scale_behind(graph: _Graph, tensor: str) -> float | None:
    """The one scale with which a tensor is quantized."""
    for _ in range(8):
        readers = graph.readers.get(tensor, [])
        quantizers = [node for node in readers if node.op_type == "QuantizeLinear"]
        if quantizers:
            return _one_scale(graph, quantizers[0].input[1])
        if len(readers) != 1 or readers[0].op_type not in _MOVES:
            return None
        tensor = readers[0].output[0]
    return None


def _scale_before(graph: _Graph, tensor: str) -> float | None:
    """The one scale that a tensor had before, as its own."""
    for _ in range(8):
        maker = graph.makers.get(tensor)
        if maker is None:
            return None
        if maker.op_type == "DequantizeLinear":
            return _one_scale(graph, maker.input[1])
        if maker.op_type == "Sigmoid":
            return 1 / 255
        if maker.op_type not in _MOVES or not maker.input:
            return None
        tensor = maker.input[0]
    return None


def _one_scale(graph: _Graph, name: str) -> float | None:
    value = graph.constants.get(name)
    return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None


def _check_what_is_quantized(graph: _Graph) -> Iterator[Finding]:
    """Files of which only tables, or only weights, are in int8."""
    weights = [node for node in graph.nodes if node.op_type == "DequantizeLinear" and node.input[0] in graph.constants]
    integers = [node for node in graph.nodes if node.op_type.startswith("QLinear") or "Integer" in node.op_type]
    activations = [node for node in graph.nodes if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear")]
    tables = [
        node
        for node in graph.nodes
        if node.op_type == "Gather" and graph.constants.get(node.input[0], np.zeros(0)).dtype in (np.int8, np.uint8)
    ]
    if integers or activations:
        return
    if tables and not weights:
        yield Finding(
            severity="fault",
            code="tables-only",
            text=f"only {len(tables)} lookup table(s) are in int8, and no product is: the file is smaller, not faster",
            advice="quantize the matrix products too: op_types_to_quantize must name MatMul and Gemm",
        )
    elif weights:
        yield Finding(
            severity="fault",
            code="weights-only",
            text=f"{len(weights)} weights are stored in int8 and become floats before they are multiplied: no "
            "activation is quantized, so that all arithmetic is float",
            advice="quantize activations too (static with calibration data, or dynamic); for smaller files alone "
            "weight_only with MatMulNBits multiplies them without that step",
        )
