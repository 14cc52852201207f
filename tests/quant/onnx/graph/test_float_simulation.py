"""Rules of qbench/quant/onnx/graph/float_simulation.py: int8 that is spelled out in standard operators is no fp32."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.quant.onnx.graph.quantized import why_not_float, why_not_int8

FAKE = ["Div s", "Round", "Add o", "Clip low high", "Sub o", "Mul s"]


def model(steps: list[str], **constants: np.ndarray) -> onnx.ModelProto:
    """A chain of nodes, each given as its operator and the constants that it takes beside the tensor."""
    values = {"s": 0.1, "r": 10.0, "t": 0.3, "o": 3.0, "low": -128.0, "high": 127.0}
    tensors = {name: np.array(value, np.float32) for name, value in values.items()} | constants
    nodes = []
    for index, step in enumerate(steps):
        kind, *others = step.split()
        nodes.append(helper.make_node(kind, [f"v{index}", *others], [f"v{index + 1}"], name=f"n{index}"))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value("v0", TensorProto.FLOAT, [4])],
        [value(f"v{len(steps)}", TensorProto.FLOAT, [4])],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    return helper.make_model(graph)


@pytest.mark.parametrize(
    "steps",
    [FAKE, ["Mul r", "Round", "Clip low high", "Mul s"], ["Div s", "Round", "Max low", "Min high", "Mul s"]],
    ids=["AMCT", "by the reciprocal", "Min and Max"],
)
def test_rounding_to_the_steps_of_a_scale_is_quantization(steps: list[str]) -> None:
    """With and without a zero point, by one constant or its reciprocal; the Round is named. In a branch, too.
    As an int8 file it is refused, since nothing of it runs in int8."""
    rounds = next(index for index, step in enumerate(steps) if step == "Round")
    assert why_not_float(model(steps)) == f"already quantized (n{rounds})"
    branch = model(steps).graph
    del branch.input[:]
    outer = model(["Relu"])
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    outer.graph.node.append(choice)
    assert "it simulates int8 in float (n" in str(why_not_int8(model(steps), "m.onnx", "static"))
    assert why_not_float(outer) == f"already quantized (n{rounds}, n{rounds})"


@pytest.mark.parametrize(
    "steps",
    [
        ["Div s", "Round", "Clip low high", "Mul t"],
        ["Div s", "Round", "Mul s"],
        ["Round", "Clip low high", "Mul s"],
        ["Div s", "Clip low high", "Mul s"],
        ["Mul s", "Round", "Clip low high", "Mul s"],
    ],
    ids=["another scale", "no limits", "no scale before", "no rounding", "not undone"],
)
def test_other_rounding_is_float(steps: list[str]) -> None:
    """A network may round: only between a scale and its inverse, within limits, that is int8."""
    assert why_not_float(model(steps)) is None


def test_weights_that_are_stored_in_bytes_are_quantized() -> None:
    """Cast to float and scaled: their values are those of int8, whatever computes with them. A table of bytes that is
    not scaled, a vector of them, and unsigned ones (pixels) are none."""

    def cast(dtype: type, shape: tuple[int, ...], then: str) -> onnx.ModelProto:
        cast_model = model([then], w=np.ones(shape, dtype))
        cast_model.graph.node.insert(0, helper.make_node("Cast", ["w"], ["f"], to=TensorProto.FLOAT, name="weights"))
        cast_model.graph.node[1].input[0] = "f"
        return cast_model

    assert why_not_float(cast(np.int8, (4, 4), "Mul s")) == "already quantized (weights)"
    for other in (cast(np.int8, (4, 4), "Relu"), cast(np.int8, (4,), "Mul s"), cast(np.uint8, (4, 4), "Mul s")):
        assert why_not_float(other) is None


ONE, TWO = np.float32([0.1]), np.float32([0.1, 0.2])


@pytest.mark.parametrize(
    ("first", "second", "undone"),
    [
        (TWO, TWO.copy(), True),
        (ONE, ONE.reshape(()), True),
        (ONE, ONE.reshape(1, 1), True),
        (TWO, TWO.reshape(2, 1), False),
        (TWO, TWO[::-1].copy(), False),
        (TWO, ONE, False),
    ],
)
def test_a_scale_is_undone_by_one_of_its_own_form(first: np.ndarray, second: np.ndarray, undone: bool) -> None:
    """One number whatever its shape is; several in the same shape."""
    steps = ["Div a", "Round", "Clip low high", "Mul b"]
    assert (why_not_float(model(steps, a=first, b=second)) is not None) is undone


def test_only_a_cast_makes_floats_of_stored_bytes() -> None:
    """Another operator that reads them, or one that reads nothing, is none."""
    stored = model(["Mul s"], w=np.ones((2, 2), np.int8))
    for kind, inputs in (("Transpose", ["w"]), ("Constant", [])):
        stored.graph.node.insert(0, helper.make_node(kind, inputs, ["f" + kind]))
        stored.graph.node.append(helper.make_node("Mul", ["f" + kind, "s"], ["g" + kind]))
    assert why_not_float(stored) is None
