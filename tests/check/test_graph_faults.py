"""Rules of qbench/check/graph_faults.py: what is wrong in a file by what stands in it, each fault where it is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from people_files import node, write

from qbench.check.graph_faults import find_faults

DENORMAL = float(np.finfo(np.float32).tiny) / 2


def find(tmp_path: Any, nodes: list, constants: dict) -> list:
    """The faults of a file of these nodes."""
    return list(find_faults(onnx.load(str(write(tmp_path / "m.onnx", nodes, constants)))))


@pytest.mark.parametrize(
    ("scale", "code", "severity"),
    [
        (0.0, "scale-zero", "fault"),
        ([0.5, 0.0], "scale-zero", "fault"),
        (float("nan"), "scale-nan", "fault"),
        ([float("inf"), 0.0], "scale-nan", "fault"),
        (-0.1, "scale-negative", "fault"),
        (DENORMAL, "scale-denormal", "warning"),
        (DENORMAL * 2, None, None),
        (0.5, None, None),
    ],
)
def test_a_scale_is_a_positive_number(tmp_path: Any, scale: Any, code: str | None, severity: str | None) -> None:
    """Of every channel; the tensor that it is of is named once."""
    constants = {"s": np.array(scale, np.float32), "z": np.zeros(np.shape(scale), np.uint8)}
    nodes = [node("QuantizeLinear", ["x", "s", "z"], "q"), node("DequantizeLinear", ["q", "s", "z"], "y")]
    faults = find(tmp_path, nodes, constants)
    assert [(fault.code, fault.severity) for fault in faults] == ([] if code is None else [(code, severity)])
    assert [fault.layers for fault in faults] == [("x",)] * len(faults)


def test_three_tensors_without_a_scale_are_named(tmp_path: Any) -> None:
    """And how many more there are; all of them are concerned."""
    constants = {"z": np.uint8(0)} | {f"s{name}": np.float32(0) for name in "abcd"}
    nodes = [node("QuantizeLinear", [name, f"s{name}", "z"], f"{name}_q") for name in "abcd"]
    (fault,) = [fault for fault in find(tmp_path, nodes, constants) if fault.code == "scale-zero"]
    assert fault.text.endswith(": a, b, c and 1 more")
    assert fault.layers == ("a", "b", "c", "d")


@pytest.mark.parametrize("place", [1, 4, 6])
def test_scales_of_operators_on_bytes_are_looked_at(tmp_path: Any, place: int) -> None:
    """Of what it reads, of its weight and of what it gives; the operator is named. Zero points are no scales."""
    names = ["x", "s1", "z", "w", "s4", "z", "s6", "z"]
    constants = {"w": np.ones((2, 2), np.int8), "z": np.uint8(0)}
    constants |= {f"s{each}": np.float32(0 if each == place else 1) for each in (1, 4, 6)}
    (fault,) = find(tmp_path, [node("QLinearMatMul", names, "y")], constants)
    assert (fault.code, fault.layers) == ("scale-zero", ("y",))


def test_a_scale_that_is_a_constant_node_is_one(tmp_path: Any) -> None:
    """As tools of torch write them; one that is computed is not known."""
    value = onnx.numpy_helper.from_array(np.float32(0))
    constant = onnx.helper.make_node("Constant", [], ["s"], value=value)
    quantize = [node("QuantizeLinear", ["x", "s", "z"], "q"), node("DequantizeLinear", ["q", "s", "z"], "y")]
    assert [fault.code for fault in find(tmp_path, [constant, *quantize], {"z": np.uint8(0)})] == ["scale-zero"]
    assert find(tmp_path, [node("Abs", ["x"], "s"), *quantize], {"z": np.uint8(0)}) == []
    plain = onnx.helper.make_node("Constant", [], ["s"], value_float=0.0)  # written in a form that holds no array
    assert find(tmp_path, [plain, *quantize], {"z": np.uint8(0)}) == []


@pytest.mark.parametrize("names", [["x", "s", "z", "s", "z"], ["x", "s", "z", "v", "s", "z"], ["x", "s"]])
def test_zero_points_are_no_scales(tmp_path: Any, names: list[str]) -> None:
    """Nor is what an operator of fewer inputs does not have."""
    constants = {"s": np.float32(0.1), "z": np.uint8(0)}
    assert find(tmp_path, [node("QLinearLeakyRelu", names, "y")], constants) == []


def join(small: float, *, moves: tuple[str, ...] = (), large: float = 1.0) -> tuple[list, dict]:
    """Two tensors of these scales that are joined and quantized by the larger one's."""
    constants = {"s": np.float32(small), "l": np.float32(large), "z": np.uint8(0)}
    nodes = []
    for name, scale in (("a", "s"), ("b", "l")):
        nodes += [
            node("QuantizeLinear", ["x", scale, "z"], f"{name}_q"),
            node("DequantizeLinear", [f"{name}_q", scale, "z"], f"{name}_d"),
        ]
    part = "a_d"
    for number, kind in enumerate(moves):
        nodes.append(node(kind, [part], f"a_{number}"))
        part = f"a_{number}"
    nodes.append(node("Concat", [part, "b_d"], "both", axis=0))
    tensor = "both"
    for number, kind in enumerate(moves):
        nodes.append(node(kind, [tensor], f"both_{number}"))
        tensor = f"both_{number}"
    return [*nodes, node("QuantizeLinear", [tensor, "l", "z"], "q"), node("DequantizeLinear", ["q", "l", "z"], "y")], (
        constants
    )


@pytest.mark.parametrize(("small", "is_fault"), [(15.9 / 256, True), (16 / 256, False), (0.5, False), (0.001, True)])
@pytest.mark.parametrize("moves", [(), ("Relu", "Identity"), ("Relu",) * 7])
def test_what_is_joined_shares_a_scale(tmp_path: Any, small: float, is_fault: bool, moves: tuple[str, ...]) -> None:
    """A part that gets fewer than 16 of its 256 levels is lost; through what only moves values."""
    faults = find(tmp_path, *join(small, moves=moves))
    assert [fault.code for fault in faults] == ["joined-range"] * is_fault
    if is_fault:
        assert faults[0].text.startswith("both joins tensors of very different ranges under one scale")
        assert f"gets {256 * small:.2g}" in faults[0].text


@pytest.mark.parametrize("moves", [("Abs",), ("Relu",) * 8])
def test_what_is_no_longer_the_same_values_is_not_compared(tmp_path: Any, moves: tuple[str, ...]) -> None:
    """Nor what lies farther away than anybody writes."""
    assert find(tmp_path, *join(0.001, moves=moves)) == []


def test_what_two_nodes_read_has_no_one_scale(tmp_path: Any) -> None:
    """Behind one of them it may have another."""
    nodes, constants = join(0.001, moves=("Relu",))
    assert [fault.code for fault in find(tmp_path, nodes, constants)] == ["joined-range"]
    assert find(tmp_path, [*nodes, node("Identity", ["both"], "other")], constants) == []


def test_a_sigmoid_has_the_range_of_one(tmp_path: Any) -> None:
    """Whatever it reads, in 255 steps: beside coordinates of 640 pixels it has 0.4 levels."""
    constants = {"l": np.float32(2.2994), "z": np.uint8(0)}
    nodes = [
        node("Sigmoid", ["x"], "score"), node("Concat", ["x", "score"], "both", axis=0),
        node("QuantizeLinear", ["both", "l", "z"], "q"), node("DequantizeLinear", ["q", "l", "z"], "y"),
    ]  # fmt: skip
    (fault,) = find(tmp_path, nodes, constants)
    assert "of 256 levels score gets 0.44" in fault.text


@pytest.mark.parametrize(("small", "is_fault"), [(0.001, True), (0.5, False)])
def test_operators_on_bytes_join_as_well(tmp_path: Any, small: float, is_fault: bool) -> None:
    """Each part has a scale of its own."""
    constants = {"s": np.float32(small), "l": np.float32(1), "z": np.uint8(0)}
    names = ["l", "z", "x", "l", "z", "b", "s", "z"]
    faults = find(tmp_path, [node("QLinearConcat", names, "y", axis=0)], constants)
    assert [fault.code for fault in faults] == ["joined-range"] * is_fault
    assert all("levels b gets 0.26" in fault.text for fault in faults)


TABLE = [node("Gather", ["table", "x"], "rows")]
WEIGHT = [node("DequantizeLinear", ["w", "s", "z"], "d"), node("MatMul", ["x", "d"], "y")]
CONSTANTS = {"w": np.ones((2, 2), np.int8), "table": np.ones((2, 2), np.int8), "s": np.float32(1), "z": np.int8(0)}


@pytest.mark.parametrize(
    ("nodes", "codes"),
    [
        (TABLE, ["tables-only"]),
        (WEIGHT, ["weights-only"]),
        ([*TABLE, *WEIGHT], ["weights-only"]),
        ([*WEIGHT, node("QuantizeLinear", ["x", "s", "z"], "q")], []),
        ([*WEIGHT, node("DynamicQuantizeLinear", ["x"], "q")], []),
        ([*TABLE, node("MatMulInteger", ["x", "w"], "p")], []),
        ([*TABLE, node("QLinearAdd", ["x", "s", "z", "x", "s", "z", "s", "z"], "p")], []),
        ([node("Gather", ["floats", "x"], "rows")], []),
        ([node("Gather", ["unknown", "x"], "rows")], []),
    ],
)
def test_what_is_only_stored_in_bytes_is_told(tmp_path: Any, nodes: list, codes: list[str]) -> None:
    """Tables, or weights; where activations are bytes or products are, the file is more than that."""
    constants = {**CONSTANTS, "floats": np.ones((2, 2), np.float32)}
    assert [fault.code for fault in find(tmp_path, nodes, constants)] == codes
