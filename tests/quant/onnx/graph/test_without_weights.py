"""Rules of qbench/quant/onnx/graph/without_weights.py: a copy without large weights, and the way back."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qbench.quant.onnx.graph import without_weights
from qbench.quant.onnx.graph.graph import Graph


def network(name: str = "net") -> Graph:
    """Weights of 1024 and of 1025 elements, and one of those among the inputs."""
    sizes = {"small": (32, 32), "large": (25, 41), "listed": (1025,)}
    tensors = [numpy_helper.from_array(np.ones(shape, np.float32), key) for key, shape in sizes.items()]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
        helper.make_tensor_value_info("listed", TensorProto.FLOAT, [1025]),
    ]
    nodes = [helper.make_node("Add", ["x", key], [f"y_{key}"], name=key) for key in sizes]
    outputs = [helper.make_tensor_value_info(f"y_{key}", TensorProto.FLOAT, shape) for key, shape in sizes.items()]
    between = [helper.make_tensor_value_info("told", TensorProto.FLOAT, [2])]
    graph = helper.make_graph(nodes, name, inputs, outputs, tensors, value_info=between)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 3)]
    return Graph(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def test_weights_of_more_than_1024_elements_are_inputs() -> None:
    """Of their type and shape, each once; all else is there."""
    whole = network()
    bare = without_weights.skeleton(whole)
    assert without_weights.SMALL == 1024
    assert [tensor.name for tensor in bare.graph.initializer] == ["small"]
    assert [value.name for value in bare.graph.input] == ["x", "listed", "large"]
    large = bare.graph.input[2].type.tensor_type
    assert (large.elem_type, [dim.dim_value for dim in large.shape.dim]) == (TensorProto.FLOAT, [25, 41])
    assert (bare.ir_version, [(entry.domain, entry.version) for entry in bare.opset_import]) == (
        9, [("", 17), ("own", 3)]
    )  # fmt: skip
    for field in ("node", "output", "value_info"):
        assert list(getattr(bare.graph, field)) == list(getattr(whole.model.graph, field))
    assert bare.graph.name == "net"
    assert without_weights.skeleton(network("")).graph.name == "graph"
    onnx.checker.check_model(bare)


def test_a_changed_copy_is_put_back() -> None:
    """Its nodes, opset, shapes and small weights; inputs, outputs and large weights stay as they were."""
    graph = network()
    bare = without_weights.skeleton(graph)
    del bare.graph.node[1:]
    bare.graph.node[0].name = "renamed"
    del bare.graph.initializer[:]
    bare.graph.initializer.append(numpy_helper.from_array(np.zeros(2, np.float32), "new"))
    del bare.graph.value_info[:]
    del bare.opset_import[:]
    bare.opset_import.append(helper.make_opsetid("", 20))
    without_weights.put_back(graph, bare)
    assert [node.name for node in graph.nodes] == ["renamed"]
    assert graph.node("renamed").op_type == "Add"
    assert graph.opset == 20
    assert sorted(graph.constants) == ["large", "listed", "new"]
    assert graph.inputs == ("x",)
    assert len(graph.model.graph.input) == 2
    assert len(graph.outputs) == 3
    assert not graph.model.graph.value_info
