"""An fp32 file in the form that a runtime has faster kernels for, as qbench's int8 files are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from qbench.quant.artifacts import onnx_outline
from qbench.quant.onnx.export import flat_norms, flat_softmax, split_concats
from qbench.quant.onnx.graph import names
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.prepare import infer_shapes

# Runtime -> the operators that a form begins with, and what brings a graph into it and tells whether it changed any.
_FORMS: Mapping[str, tuple[tuple[tuple[str, ...], Callable[[Graph], object]], ...]] = {
    "onnxruntime": ((flat_softmax.KINDS, flat_softmax.flatten),),
    "openvino": ((flat_norms.KINDS, flat_norms.flatten), (split_concats.KINDS, split_concats.split_floats)),
}


def arrange(source: Path, runtime: str) -> Path:
    """The file, or another beside it where it has operators that a runtime is known to run faster in another form. No
    value changes by it; else int8 would be called faster than fp32 by what is none of it."""
    kinds = {node.op_type for node in onnx_outline.read_outline(source).graph.node}
    forms = [bring for begin, bring in _FORMS.get(runtime, ()) if kinds.intersection(begin)]  # that of a plug-in: none
    if not forms:
        return source
    graph = Graph.load(source, valid=False)
    names.give(graph)
    infer_shapes(graph)
    changed = [bring(graph) for bring in forms]
    if not any(changed):
        return source
    arranged = source.with_name(f"arranged.{source.name}")
    graph.save(arranged)
    return arranged
