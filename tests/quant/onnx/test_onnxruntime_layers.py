"""What an event of ONNX Runtime's profile tells of an operator where the graph it wrote has no such node."""

from __future__ import annotations

from onnx import helper

from qbench.quant.onnx import onnxruntime_layers

EVENT = {
    "op_name": "Gemm",
    "input_type_shape": [{"float": [1, 8]}, {"float": [8, 4]}],
    "output_type_shape": [{"float": [1, 4]}],
}


def test_a_node_that_the_written_graph_lacks_is_told_by_its_event() -> None:
    """The runtime renames nodes as it likes: without one the shapes of the event count, in their order."""
    shapes = onnxruntime_layers._Shapes(helper.make_graph([], "g", [], []))
    call = onnxruntime_layers._call(EVENT, None, shapes)
    assert (call.operator, call.inputs, call.outputs, call.attributes) == ("Gemm", ((1, 8), (8, 4)), ((1, 4),), {})


def test_an_absent_input_has_no_shape_and_those_behind_it_keep_theirs() -> None:
    """The event leaves absent inputs out; taken in order, a bias would be a weight."""
    node = helper.make_node("Gemm", ["x", "", "c"], ["y"], transB=1)
    shapes = onnxruntime_layers._Shapes(helper.make_graph([node], "g", [], []))
    call = onnxruntime_layers._call(EVENT, node, shapes)
    assert (call.inputs, call.attributes) == (((1, 8), None, (8, 4)), {"transB": 1})
