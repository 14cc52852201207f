"""Rules of quant/artifacts/onnx_problems.py: what contradicts itself in a model that somebody else wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.quant.artifacts import onnx_problems
from qbench.quant.artifacts.onnx_problems import find_problems, find_tensor_problem, quote

FLOAT = TensorProto.FLOAT
HERE = Path("m.onnx")


def model(*nodes: onnx.NodeProto, functions: tuple[onnx.FunctionProto, ...] = ()) -> onnx.ModelProto:
    """A model of these nodes, from x to y."""
    ends = [helper.make_tensor_value_info(name, FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([*nodes] or [relu()], "g", ends[:1], ends[1:])
    return helper.make_model(graph, functions=functions)


def relu(**attributes: Any) -> onnx.NodeProto:
    """The node from x to y."""
    return helper.make_node("Relu", ["x"], ["y"], name="r", **attributes)


def broken() -> onnx.TensorProto:
    """A tensor with a byte too few."""
    return TensorProto(name="t", data_type=TensorProto.INT8, dims=[3], raw_data=b"\0\0")


SAYS = "tensor 't': 2 bytes where its shape [3] of int8 takes 3"


@pytest.mark.parametrize(
    ("kind", "dims", "values", "said"),
    [
        (FLOAT, [2], {"raw_data": bytes(8)}, None),
        (FLOAT, [2], {"raw_data": bytes(9)}, "9 bytes where its shape [2] of float takes 8"),
        (FLOAT, [], {"raw_data": bytes(4)}, None),
        (FLOAT, [0], {"raw_data": b""}, None),
        (FLOAT, [0, -1], {}, "a negative dimension in its shape [0, -1]"),
        (FLOAT, [2**30, 2**30], {}, f"a shape that nothing can hold, [{2**30}, {2**30}]"),
        (FLOAT, [2**30, 2**29], {}, f"0 values where its shape [{2**30}, {2**29}] takes {2**59}"),
        (FLOAT, [1] * 8, {}, f"0 values where its shape {[1] * 8} takes 1"),
        (FLOAT, [1] * 9, {}, f"0 values where its shape {[1] * 8} and 1 more takes 1"),
        (TensorProto.INT4, [3], {"raw_data": bytes(2)}, None),
        (TensorProto.INT4, [3], {"raw_data": bytes(1)}, "1 bytes where its shape [3] of int4 takes 2"),
        (TensorProto.INT4, [3], {"int32_data": [0, 0]}, None),
        (TensorProto.INT4, [3], {"int32_data": [0]}, "1 values where its shape [3] takes 3"),
        (TensorProto.UINT4, [3], {"raw_data": bytes(3)}, "3 bytes where its shape [3] of uint4 takes 2"),
        (TensorProto.FLOAT4E2M1, [5], {"raw_data": bytes(3)}, None),
        (TensorProto.INT2, [5], {"raw_data": bytes(2)}, None),
        (TensorProto.UINT2, [9], {"raw_data": bytes(2)}, "2 bytes where its shape [9] of uint2 takes 3"),
        (TensorProto.FLOAT6E2M3, [3], {"raw_data": bytes(1)}, None),  # how they share bytes is not said
        (TensorProto.FLOAT6E3M2, [3], {"raw_data": bytes(9)}, None),
        (TensorProto.BOOL, [3], {"raw_data": bytes(3)}, None),
        (TensorProto.BOOL, [3], {"int32_data": [0, 0]}, "2 values where its shape [3] takes 3"),
        (TensorProto.FLOAT16, [3], {"int32_data": [0] * 3}, None),
        (TensorProto.COMPLEX64, [2], {"float_data": [0] * 4}, None),
        (TensorProto.COMPLEX64, [2], {"float_data": [0] * 2}, "2 values where its shape [2] takes 4"),
        (TensorProto.STRING, [2], {"string_data": [b"a", b"b"]}, None),
        (TensorProto.STRING, [2], {"string_data": [b"a"]}, "1 values where its shape [2] takes 2"),
        (TensorProto.STRING, [2], {"raw_data": b"ab"}, "0 values where its shape [2] takes 2"),
        (TensorProto.STRING, [1], {"data_location": TensorProto.EXTERNAL}, "text cannot lie in another file"),
        (FLOAT, [1], {"data_location": TensorProto.EXTERNAL}, None),
        (TensorProto.UNDEFINED, [1], {}, "an unknown data type (0)"),
    ],
)
def test_a_tensor_holds_what_its_type_and_shape_take(
    kind: int, dims: list[int], values: dict[str, Any], said: str | None
) -> None:
    """In bytes, in a field of its type, several to a number where they have fewer than 8 bits; or in another file."""
    assert find_tensor_problem(TensorProto(name="t", data_type=kind, dims=dims, **values)) == said


def in_a_branch() -> onnx.ModelProto:
    inner = helper.make_graph([helper.make_node("Constant", [], ["c"], value=broken())], "inner", [], [])
    return model(helper.make_node("If", ["x"], ["y"], then_branch=inner))


def in_a_list_of_graphs() -> onnx.ModelProto:
    return model(relu(bodies=[helper.make_graph([], "inner", [], [], [broken()])]))


def in_a_list_of_tensors() -> onnx.ModelProto:
    return model(relu(tensors=[numpy_helper.from_array(np.ones(1), "fine"), broken()]))


def as_a_default_of_a_function() -> onnx.ModelProto:
    function = helper.make_function(
        "mine", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    function.attribute_proto.append(helper.make_attribute("default", broken()))
    return model(functions=(function,))


def sparse(values: onnx.TensorProto, dims: list[int]) -> onnx.SparseTensorProto:
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "indices")
    return onnx.SparseTensorProto(values=values, indices=indices, dims=dims)


def as_a_sparse_value() -> onnx.ModelProto:
    damaged = model()
    damaged.graph.sparse_initializer.append(sparse(broken(), [3]))
    return damaged


def as_a_sparse_attribute() -> onnx.ModelProto:
    return model(relu(value=sparse(broken(), [3])))


def as_sparse_attributes() -> onnx.ModelProto:
    return model(relu(values=[sparse(broken(), [3])]))


@pytest.mark.parametrize(
    "make",
    [
        in_a_branch,
        in_a_list_of_graphs,
        in_a_list_of_tensors,
        as_a_default_of_a_function,
        as_a_sparse_value,
        as_a_sparse_attribute,
        as_sparse_attributes,
    ],
)
def test_a_tensor_is_found_wherever_it_lies(make: Callable[[], onnx.ModelProto]) -> None:
    """In graphs of nodes, in attributes, in functions, and in what is sparse."""
    assert list(find_problems(make(), HERE)) == [SAYS]


@pytest.mark.parametrize(
    ("dims", "is_refused"), [([2**28], True), ([2**28 - 1], False), ([2**14, 2**14], True), ([-1], True), ([0], False)]
)
def test_a_sparse_tensor_is_bounded_since_it_is_made_dense(dims: list[int], is_refused: bool) -> None:
    """Below 2**28 elements."""
    damaged = model()
    value = numpy_helper.from_array(np.ones(1, np.float32), "s")
    damaged.graph.sparse_initializer.append(sparse(value, dims))
    assert list(find_problems(damaged, HERE)) == [f"tensor 's': a sparse tensor of the shape {dims}"] * is_refused


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"group": 1}, []),
        ({"group": 0}, ["node 'r': group [0]: at least 1 is needed"]),
        ({"strides": [2, 0]}, ["node 'r': strides [2, 0]: at least 1 is needed"]),
        ({"pads": [0, 0]}, []),
        ({"axis": 0}, []),
        ({"strides": "SAME"}, []),
    ],
)
def test_a_number_that_a_runtime_divides_by_is_at_least_one(attributes: dict[str, Any], said: list[str]) -> None:
    """Alone or in a list; other attributes may be 0."""
    assert list(find_problems(model(relu(**attributes)), HERE)) == said


@pytest.mark.parametrize(
    ("operator", "count", "is_refused"),
    [
        *(("Loop", count, False) for count in ("one", "", "x", "numbers", "two")),
        *(("Loop", count, True) for count in ("none", "value", "value_ints")),
        *(("Sum", count, False) for count in ("none", "value")),
    ],
)
@pytest.mark.parametrize("is_inner", [False, True])
def test_a_loop_has_a_count(operator: str, count: str, is_refused: bool, is_inner: bool) -> None:
    """Where it is a constant, of the graph or of the one around it; ONNX Runtime reads it without asking for one."""
    node = helper.make_node(operator, [count, "true", "x"], ["y"], name="n")
    if is_inner:
        node = helper.make_node("If", ["true"], ["y"], then_branch=helper.make_graph([node], "branch", [], []))
    nothing = numpy_helper.from_array(np.zeros(0, np.int64))
    constants = [
        helper.make_node("Constant", [], ["value"], value=nothing),
        helper.make_node("Constant", [], ["value_ints"]),
        helper.make_node("Constant", [], ["numbers"], value_ints=[3]),
    ]
    constants[1].attribute.append(onnx.AttributeProto(name="value_ints", type=onnx.AttributeProto.INTS))
    loop = model(*constants, node)
    values = {"one": np.array(1), "none": np.zeros(0, np.int64), "true": np.array([True]), "two": np.ones(2, np.int64)}
    loop.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())
    said = [f"node 'n': its count '{count}' is empty: one number is needed"] * is_refused
    assert list(find_problems(loop, HERE)) == said


def test_a_node_gives_something() -> None:
    """Under its name, or its operator where it has none."""
    nothing = [helper.make_node("Relu", ["x"], ["", ""], name=name) for name in ("n", "")]
    some = helper.make_node("Relu", ["x"], ["", "y"])
    assert list(find_problems(model(*nothing, some), HERE)) == [
        "node 'n': it gives nothing",
        "node 'Relu': it gives nothing",
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda kind: helper.make_tensor_type_proto(kind, [1]),
        lambda kind: helper.make_sparse_tensor_type_proto(kind, [1]),
        lambda kind: helper.make_sequence_type_proto(helper.make_tensor_type_proto(kind, [1])),
        lambda kind: helper.make_optional_type_proto(helper.make_tensor_type_proto(kind, [1])),
        lambda kind: helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(kind, [1])),
    ],
)
def test_types_are_known_however_deep_they_lie(make: Callable[[int], onnx.TypeProto]) -> None:
    """In sequences, optional values and maps, of inputs, outputs and values; one that is left out is none."""
    for kind, said in ((99, ["an unknown data type (99)"]), (0, []), (FLOAT, [])):
        for field in ("input", "output", "value_info"):
            damaged = model()
            getattr(damaged.graph, field).append(onnx.ValueInfoProto(name="v", type=make(kind)))
            assert list(find_problems(damaged, HERE)) == [f"{field} 'v': {words}" for words in said]


def external(**entries: str) -> onnx.ModelProto:
    """A model with two float32 values that lie elsewhere."""
    tensor = TensorProto(name="t", data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    damaged = model()
    damaged.graph.initializer.append(tensor)
    return damaged


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"location": "w.bin", "length": "8"}, None),
        ({"location": "w.bin", "offset": "8"}, None),
        ({"location": "w.bin", "offset": "8", "length": "8"}, None),
        ({"location": "./in//w.bin", "length": "8"}, None),
        ({"location": "in\\w.bin", "length": "8"}, None),
        ({"location": "w.bin"}, "8 bytes are wanted, w.bin has 16 and gives 16 from 0 on"),
        ({"location": "w.bin", "offset": "9", "length": "8"}, "8 bytes are wanted, w.bin has 16 and gives 8 from 9 on"),
        ({"location": "w.bin", "length": "0"}, "8 bytes are wanted, w.bin has 16 and gives 0 from 0 on"),
        ({"location": "w.bin", "length": "7"}, "8 bytes are wanted, w.bin has 16 and gives 7 from 0 on"),
        ({"location": "w.bin", "length": "1" * 20}, "an offset or a length that is no number"),
        ({"location": "w.bin", "offset": "-1"}, "an offset or a length that is no number"),
        ({"location": "w.bin", "offset": "\u0663"}, "an offset or a length that is no number"),
        ({"location": "C:w.bin"}, "its values lie at 'C:w.bin'; only a file in the model's own folder is read"),
        ({"location": "\\w.bin"}, "its values lie at '\\\\w.bin'; only a file in the model's own folder is read"),
        ({"location": "w\0.bin"}, "its values lie at 'w\\x00.bin'; only a file in the model's own folder is read"),
        ({}, "its values lie at ''; only a file in the model's own folder is read"),
        ({"location": "."}, "its values lie in ., which must stand beside the model"),
        ({"location": ":w"}, "its values lie in :w, which must stand beside the model"),
    ],
)
def test_values_elsewhere_lie_in_the_models_folder_and_are_as_many_as_are_wanted(
    entries: dict[str, str], said: str | None, tmp_path: Path
) -> None:
    """From the offset on, as many bytes as the length says or as there are, within the file."""
    (tmp_path / "in").mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(16))
    (tmp_path / "in" / "w.bin").write_bytes(bytes(8))
    expected = [] if said is None else [f"tensor 't': {said}"]
    assert list(find_problems(external(**entries), tmp_path / "m.onnx")) == expected


@pytest.mark.parametrize(("memory", "is_refused"), [(3 * 2**30 - 1, True), (3 * 2**30, False)])
def test_weights_elsewhere_fit_into_memory_together(
    memory: int, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of 1.5 GB take 3; the file is a hole that takes no place on the disk."""
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(3 * 2**29)
    damaged = external(location="w.bin")
    damaged.graph.initializer[0].dims[:] = [3 * 2**27]
    damaged.graph.initializer.append(damaged.graph.initializer[0])
    monkeypatch.setattr(onnx_problems.psutil, "virtual_memory", lambda: SimpleNamespace(total=memory))
    said = list(find_problems(damaged, tmp_path / "m.onnx"))
    assert said == ["its weights take 3.0 GB, this machine has 3.0 GB of memory"] * is_refused


def chain(*counts: int) -> onnx.ModelProto:
    """Functions of which each calls the next so many times, and the last one so many operators; called twice."""
    functions = []
    for number, count in enumerate(counts):
        is_last = number == len(counts) - 1
        called, domain = ("Relu", "") if is_last else (f"F{number + 1}", "mine")
        nodes = [helper.make_node(called, ["a"], ["b"], domain=domain) for _ in range(count)]
        functions.append(helper.make_function("mine", f"F{number}", ["a"], ["b"], nodes, [helper.make_opsetid("", 17)]))
    calls = [helper.make_node("F0", ["x"], ["y"], domain="mine") for _ in range(2)]
    return model(*calls, functions=tuple(functions))


@pytest.mark.parametrize(("most", "is_refused"), [(39, True), (40, False)])
def test_functions_unfold_to_a_number_of_nodes(most: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice two calls of two of five operators are 40; a network without functions may be as large as it is."""
    monkeypatch.setattr(onnx_problems, "_EXPANDED", most)
    assert list(find_problems(chain(2, 2, 5), HERE)) == ["its functions unfold to 40 nodes"] * is_refused
    assert list(find_problems(model(*[relu()] * 41), HERE)) == []


def test_a_function_that_calls_itself_over_another_is_named() -> None:
    """The first by name of those that never end; they are then not counted."""
    damaged = chain(1, 1)
    damaged.functions[1].node[0].op_type, damaged.functions[1].node[0].domain = "F0", "mine"
    assert list(find_problems(damaged, HERE)) == ["function 'F0' calls itself"]


def test_long_names_are_cut() -> None:
    """Beyond 60 characters, to 58 with the ellipsis."""
    assert quote("n" * 60) == repr("n" * 60)
    assert quote("n" * 61) == repr("n" * 57 + "…")
