"""The operator set of a graph: scales per channel need 13."""

from __future__ import annotations

from qbench.errors import ModelError, reraise
from qbench.quant import model_call
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import STANDARD
from qbench.quant.onnx.graph.without_weights import put_back, skeleton

LEAST = 13
TYPES_IR = 10  # int4 and the float8 types, whatever the opset
LEAST_IR = 7  # the file format that belongs to it; initializers need not be inputs from 4 on


def fit_format(graph: Graph) -> None:
    """Writes down the oldest file format that has the graph's opsets, at least ``LEAST_IR``: onnx's builders stamp
    their newest, which a runtime of the same age may not take."""
    import onnx

    version = onnx.helper.find_min_ir_version_for(list(graph.model.opset_import), ignore_unknown=True)
    graph.model.ir_version = max(min(graph.model.ir_version, max(version, TYPES_IR)), LEAST_IR)


def raise_to_least(graph: Graph, where: object) -> None:
    """Brings a graph to opset 13, where it is older, by onnx's converter; raises ``ModelError`` where that cannot."""
    import onnx

    if not any(imported.domain in STANDARD for imported in graph.model.opset_import):  # operators of other domains only
        graph.model.opset_import.append(onnx.helper.make_opsetid("", LEAST))
    if graph.opset >= LEAST:
        return
    # The converter's own exceptions share no base.
    with reraise(
        ModelError,
        lambda error: (
            f"{where}: quantization needs opset {LEAST}, this model has {graph.opset} and onnx cannot convert it "
            f"({model_call.reason(error)}); export it with opset {LEAST} or newer"
        ),
    ):
        converted = onnx.version_converter.convert_version(skeleton(graph), LEAST)
    put_back(graph, converted)
