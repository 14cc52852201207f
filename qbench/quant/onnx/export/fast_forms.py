"""An fp32 file in the form that a runtime has faster kernels for, as qbench's int8 files are."""

from __future__ import annotations

from pathlib import Path

from qbench.quant.onnx.export import flat_norms, flat_softmax
from qbench.quant.onnx.graph import names
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.prepare import infer_shapes

_FORMS = {"onnxruntime": (flat_softmax.KINDS, flat_softmax.flatten), "openvino": (flat_norms.KINDS, flat_norms.flatten)}


def arrange(file: Path, runtime: str) -> None:
    """Writes an ONNX file again where it has operators that a runtime is known to run faster in another form. No value
    changes by it; else int8 would be called faster than fp32 by what is none of it."""
    if runtime not in _FORMS:  # that of a plug-in
        return
    kinds, flatten = _FORMS[runtime]
    graph = Graph.load(file, valid=False)
    if all(node.op_type not in kinds for node in graph.nodes):
        return
    names.give(graph)
    infer_shapes(graph)
    if flatten(graph):
        graph.save(file)
