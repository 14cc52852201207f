"""Weights of few bits for ONNX Runtime: what lies in the file is what its kernel multiplies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from qbench.errors import BuildError, ModeImpossible
from qbench.quant.onnx import onnxruntime_layers, onnxruntime_session, weight_only
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.recipe import Recipe


def dequantize(levels: Any, scales: Any, zeros: Any, inputs: int) -> Any:
    """The weight (inputs, outputs) that blocks of levels stand for."""
    values = (levels.astype(np.float64) - zeros[..., None]) * scales[..., None]
    return values.reshape(len(levels), -1)[:, :inputs].T


def write(file: Path, nodes: list[Any], shape: tuple[int, ...], **weights: Any) -> Path:
    """A network from ``x`` to ``y``."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    return file


@given(
    st.integers(1, 70),
    st.integers(1, 5),
    st.sampled_from([4, 8]),
    st.sampled_from([16, 32, 64]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_a_weight_is_kept_to_half_a_step(
    inputs: int, outputs: int, bits: int, block: int, symmetric: bool, seed: int
) -> None:
    """In every block, the last one too, which may not be full; a symmetric one may lose a whole step at its short side.
    Zero stays zero."""
    weight = np.random.default_rng(seed).normal(size=(inputs, outputs)).astype(np.float32)
    weight[::7] = 0
    levels, scales, zeros = weight_only.quantize_blocks(weight, bits=bits, block=block, symmetric=symmetric)
    assert levels.shape == (outputs, -(-inputs // block), block)
    assert levels.max() < 2**bits
    back = dequantize(levels, scales, zeros, inputs)
    step = np.repeat(np.abs(scales), block, axis=1)[:, :inputs].T
    assert (np.abs(back - weight) <= step * (1.001 if symmetric else 0.501 + 0.5)).all()
    assert (back[::7] == 0).all()


def test_a_block_of_zeros_has_a_scale() -> None:
    """No division by zero, and zeros again."""
    levels, scales, zeros = weight_only.quantize_blocks(
        np.zeros((20, 2), np.float32), bits=4, block=16, symmetric=False
    )
    assert (scales > 0).all()
    assert not dequantize(levels, scales, zeros, 20).any()


@pytest.mark.parametrize(("group", "inputs", "block"), [(32, 100, 32), (None, 100, 128), ("channel", 100, 128)])
def test_a_group_is_a_block(group: Any, inputs: int, block: int) -> None:
    """By default 128; channel is the least power of two that holds all inputs, and no less than the kernels take."""
    assert weight_only.choose_block(group, inputs) == block
    assert weight_only.choose_block("channel", 3) == 16
    assert weight_only.choose_block("channel", 128) == 128


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("inputs", "group"), [(96, 32), (100, 32), (40, 16), (70, "channel")])
def test_the_runtime_multiplies_what_lies_in_the_file(
    tmp_path: Path, bits: int, symmetric: bool, inputs: int, group: Any
) -> None:
    """With arithmetic fp32 to float's rounding, whatever bits, groups (an odd number of them, too) and zero points; a
    MatMul and a Gemm with its bias alike."""
    rng = np.random.default_rng(0)
    first, second, bias = rng.normal(size=(inputs, 24)), rng.normal(size=(8, 24)), rng.normal(size=8)
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["h"], name="one"),
        helper.make_node("Gemm", ["h", "second", "bias"], ["y"], name="two", transB=1),
    ]
    source = write(tmp_path / "source.onnx", nodes, (5, inputs), first=first, second=second, bias=bias)
    recipe = Recipe(bits=bits, group=group, symmetric=symmetric, arithmetic="fp32")
    assert weight_only.quantize_file(source, tmp_path / "few.onnx", recipe) == {}
    x = rng.normal(size=(5, inputs)).astype(np.float32)
    ours = onnxruntime_session.run(tmp_path / "few.onnx", (x,))
    expected: Any = x.astype(np.float64)
    for weight in (first, second.T):
        block = weight_only.choose_block(group, len(weight))
        parts = weight_only.quantize_blocks(weight.astype(np.float32), bits=bits, block=block, symmetric=symmetric)
        expected = expected @ dequantize(*parts, len(weight))
    assert np.allclose(ours, expected + bias, rtol=1e-4, atol=1e-4)
    layers = [call.layer for call in onnxruntime_layers.executed(tmp_path / "few.onnx", (x[:1],))]
    assert [(layer.weight_bits, layer.precision) for layer in layers] == [(bits, "fp32")] * 2


def test_int8_arithmetic_is_seen_in_the_answers(tmp_path: Path) -> None:
    """Bytes of the activations answer otherwise than floats do, by about a 250th; coverage tells them apart."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(128, 64))
    source = write(tmp_path / "s.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"], name="m")], (4, 128), w=weight)
    x = rng.normal(size=(4, 128)).astype(np.float32)
    answers, precisions = [], []
    for arithmetic in ("fp32", "int8"):
        file = tmp_path / f"{arithmetic}.onnx"
        weight_only.quantize_file(source, file, Recipe(bits=8, group=32, arithmetic=arithmetic))
        answers.append(onnxruntime_session.run(file, (x,)))
        (call,) = onnxruntime_layers.executed(file, (x[:1],))
        precisions.append(call.layer.precision)
    error = np.abs(answers[0] - answers[1]).max() / np.abs(answers[0]).max()
    assert 1e-4 < error < 2e-2
    assert precisions == ["fp32", "int8"]


def test_what_is_skipped_or_no_product_with_a_constant_keeps_its_floats(tmp_path: Path) -> None:
    """By name or pattern, with the reason; a product of two activations, and a Gemm that scales, are left alone."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="first"),
        helper.make_node("MatMul", ["h", "b"], ["k"], name="second"),
        helper.make_node("Transpose", ["k"], ["t"], name="turned"),
        helper.make_node("MatMul", ["k", "t"], ["s"], name="scores"),
        helper.make_node("Gemm", ["s", "c"], ["y"], name="scaled", alpha=0.5),
    ]
    shapes = {"a": (16, 16), "b": (16, 16), "c": (4, 4)}
    weights = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    source = write(tmp_path / "source.onnx", nodes, (4, 16), **weights)
    floats = weight_only.quantize_file(source, tmp_path / "few.onnx", Recipe(bits=8, group=16, skip_layers=("sec*",)))
    kinds = {node.name: node.op_type for node in onnx.load(tmp_path / "few.onnx").graph.node}
    assert floats == {"second": "the recipe skips it"}
    assert (kinds["first"], kinds["second"], kinds["scores"]) == ("MatMulNBits", "MatMul", "MatMul")
    assert kinds["scaled"] == "Gemm"
    with pytest.raises(BuildError, match="no layer named nothing"):
        weight_only.quantize_file(source, tmp_path / "x.onnx", Recipe(skip_layers=("nothing",)))


def test_a_network_of_convolutions_alone_has_none_of_it(tmp_path: Path) -> None:
    """And the message says what else there is."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], name="conv")]
    source = write(tmp_path / "source.onnx", nodes, (1, 3, 8, 8), w=np.ones((4, 3, 3, 3)))
    with pytest.raises(ModeImpossible, match="matrix products whose weight is a constant"):
        weight_only.quantize_file(source, tmp_path / "few.onnx", Recipe(bits=4))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("width", "group"), [(64, 32), (50, 16), (70, "channel")])
def test_a_table_gives_its_rows_as_they_lie_in_the_file(
    tmp_path: Path, bits: int, symmetric: bool, width: int, group: Any
) -> None:
    """The runtime looks up what blocks of levels stand for; the product behind it is one of few bits."""
    rng = np.random.default_rng(0)
    table, head = rng.normal(size=(200, width)).astype(np.float32), rng.normal(size=(width, 5))
    nodes = [
        helper.make_node("Cast", ["x"], ["ids"], name="cast", to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="embedding"),
        helper.make_node("MatMul", ["rows", "head"], ["y"], name="head"),
    ]
    source = write(tmp_path / "source.onnx", nodes, (2, 3), table=table, head=head)
    recipe = Recipe(bits=bits, group=group, symmetric=symmetric, arithmetic="fp32")
    weight_only.quantize_file(source, tmp_path / "few.onnx", recipe)
    kinds = [node.op_type for node in onnx.load(tmp_path / "few.onnx").graph.node]
    assert kinds == ["Cast", "GatherBlockQuantized", "MatMulNBits"]
    x = rng.integers(0, 200, size=(2, 3)).astype(np.float32)
    expected = []
    for weight in (table.T, head.astype(np.float32)):
        block = weight_only.choose_block(group, len(weight))
        parts = weight_only.quantize_blocks(weight, bits=bits, block=block, symmetric=symmetric)
        expected.append(dequantize(*parts, len(weight)))
    ours = onnxruntime_session.run(tmp_path / "few.onnx", (x,))
    assert np.allclose(ours, expected[0].T[x.astype(int)] @ expected[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "bits", "axis"), [((20, 16), 8, 0), ((1000, 8), 8, 0), ((1000, 17), 4, 0), ((1000, 16), 8, 1)]
)
def test_a_table_that_gains_nothing_or_does_not_fit_stays(tmp_path: Path, shape: Any, bits: int, axis: int) -> None:
    """Small ones, rows narrower than a block or of an odd number of half bytes, and columns that are looked up."""
    rng = np.random.default_rng(0)
    width = shape[1] if axis == 0 else shape[0]
    nodes = [
        helper.make_node("Cast", ["x"], ["ids"], name="cast", to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="embedding", axis=axis),
        helper.make_node("Reshape", ["rows", "shape"], ["flat"], name="flat"),
        helper.make_node("MatMul", ["flat", "head"], ["y"], name="head"),
    ]
    source = write(tmp_path / "s.onnx", nodes, (4,), table=rng.normal(size=shape), head=rng.normal(size=(width, 5)))
    model = onnx.load(source)
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, width]), "shape"))
    onnx.save(model, source)
    weight_only.quantize_file(source, tmp_path / "few.onnx", Recipe(bits=bits, group=16))
    kinds = [node.op_type for node in onnx.load(tmp_path / "few.onnx").graph.node]
    assert ("Gather" in kinds, "GatherBlockQuantized" in kinds) == (True, False)


@pytest.mark.parametrize(
    ("symmetric", "levels", "scale", "zero"),
    [(True, [[0, 8, 12, 8]], 2.0, 8), (False, [[0, 10, 15, 10]], 24 / 15, 10)],
)
def test_four_bits_of_a_block(symmetric: bool, levels: Any, scale: float, zero: int) -> None:
    """-16, 0 and 8: the largest gets the lowest level, or the whole range all of them; what fills the block is 0."""
    weight = np.float32([[-16], [0], [8]])
    actual, scales, zeros = weight_only.quantize_blocks(weight, bits=4, block=4, symmetric=symmetric)
    assert actual[0].tolist() == levels
    assert scales.tolist() == [[pytest.approx(scale)]]
    assert zeros.tolist() == [[zero]]
    assert (scales.dtype, zeros.dtype, actual.dtype) == (np.float32, np.uint8, np.uint8)


def test_positive_values_use_all_levels() -> None:
    """Zero is the lowest one; a symmetric scale is then negative."""
    weight = np.float32([[1], [15]])
    levels, scales, zeros = weight_only.quantize_blocks(weight, bits=4, block=2, symmetric=False)
    assert (levels.tolist(), scales.tolist(), zeros.tolist()) == ([[[1, 15]]], [[1.0]], [[0]])
    levels, scales, zeros = weight_only.quantize_blocks(weight, bits=8, block=2, symmetric=True)
    assert (levels.tolist(), scales.tolist(), zeros.tolist()) == ([[[119, 0]]], [[-15 / 128]], [[128]])


def test_half_bytes_lie_two_in_one() -> None:
    """The first one below; an odd row is filled up, bytes stay as they are."""
    levels = np.uint8([[1, 2, 3, 15]])
    assert weight_only.pack(levels, 4).tolist() == [[0x21, 0xF3]]
    assert weight_only.pack(levels, 8) is levels
    odd = np.uint8([[1, 2, 3], [4, 5, 6]])
    assert weight_only.pack_rows(odd, 4).tolist() == [[0x21, 3], [0x54, 6]]
    assert weight_only.pack_rows(odd, 8).tolist() == odd.tolist()
    assert weight_only.pack_rows(levels, 4).tolist() == [[0x21, 0xF3]]


def attributes(node: Any) -> dict[str, Any]:
    """Of a node, by name."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


@pytest.mark.parametrize(
    ("recipe", "bits", "block", "level", "inputs"),
    [
        (Recipe(), 8, 128, 4, 4),
        (Recipe(bits=4, group=32, arithmetic="fp32", symmetric=True), 4, 32, 1, 3),
        (Recipe(symmetric=False), 8, 128, 4, 4),
    ],
)
def test_what_a_recipe_leaves_open(
    recipe: Recipe, bits: int, block: int, level: int, inputs: int, tmp_path: Path
) -> None:
    """Eight bits in blocks of 128 with zero points, multiplied in int8."""
    source = write(
        tmp_path / "s.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"], name="m")], (4, 64), w=np.ones((64, 8))
    )
    weight_only.quantize_file(source, tmp_path / "few.onnx", recipe)
    model = onnx.load(tmp_path / "few.onnx")
    (node,) = model.graph.node
    assert (node.op_type, node.domain, node.name, node.output[0]) == ("MatMulNBits", "com.microsoft", "m", "y")
    assert attributes(node) == {"K": 64, "N": 8, "bits": bits, "block_size": block, "accuracy_level": level}
    assert len(node.input) == inputs
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17), ("com.microsoft", 1)]
    weight_only._import_domain(model)
    assert len(model.opset_import) == 2


@pytest.mark.parametrize(
    ("kind", "options", "shape", "few"),
    [
        ("MatMul", {}, (16, 3), True),
        ("MatMul", {}, (2, 16, 3), False),
        ("Gemm", {}, (16, 3), True),
        ("Gemm", {"transB": 1}, (3, 16), True),
        ("Gemm", {"transA": 0, "alpha": 1.0, "beta": 1.0}, (16, 3), True),
        ("Gemm", {"transA": 1}, (16, 3), False),
        ("Gemm", {"alpha": 2.0}, (16, 3), False),
        ("Gemm", {"beta": 0.5}, (16, 3), False),
        ("MatMul", {"domain": "own"}, (16, 3), False),
        ("Add", {}, (16, 3), False),
    ],
)
def test_which_products_have_a_weight(kind: str, options: Any, shape: tuple[int, ...], few: bool) -> None:
    """A matrix of floats that is constant; nothing is scaled or turned beside it."""
    node = helper.make_node(kind, ["x", "w"], ["y"], name="m", **options)
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for array, wanted in ((value, few), (value.astype(np.float64), False)):
        body = helper.make_graph(
            [node], "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(array, "w")],
        )  # fmt: skip
        weight = weight_only._find_weight(Graph(helper.make_model(body)), node)
        assert (weight is not None) == wanted
        if weight is not None:
            assert np.array_equal(weight, array.T if options.get("transB") else array)
    assert weight_only._find_weight(Graph(helper.make_model(body)), helper.make_node(kind, ["x"], ["y"])) is None


@pytest.mark.parametrize(
    ("shape", "bits", "options", "dtype", "few"),
    [
        ((256, 16), 4, {}, np.float32, True),
        ((255, 16), 4, {}, np.float32, False),
        ((300, 15), 8, {}, np.float32, False),
        ((300, 17), 8, {}, np.float32, True),
        ((300, 17), 4, {}, np.float32, False),
        ((256, 16), 8, {"axis": 0}, np.float32, True),
        ((256, 16), 8, {"axis": 1}, np.float32, False),
        ((256, 16), 8, {"domain": "own"}, np.float32, False),
        ((256, 16), 8, {}, np.float64, False),
        ((256, 4, 4), 8, {}, np.float32, False),
    ],
)
def test_which_tables_are_worth_it(shape: tuple[int, ...], bits: int, options: Any, dtype: Any, few: bool) -> None:
    """From 4096 floats on, in rows of a block at least, that fill their bytes."""
    node = helper.make_node("Gather", ["t", "x"], ["y"], name="g", **options)
    body = helper.make_graph(
        [node], "net", [helper.make_tensor_value_info("x", TensorProto.INT64, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.zeros(shape, dtype), "t")],
    )  # fmt: skip
    network = Graph(helper.make_model(body))
    assert (weight_only._find_table(network, node, bits) is not None) == few
    assert weight_only._find_table(network, helper.make_node("Gather", ["x", "x"], ["y"]), bits) is None


def test_what_is_skipped_is_told_with_what_it_gives(tmp_path: Path) -> None:
    """All layers that a pattern names; a table is left alone, too."""
    nodes = [
        helper.make_node("Cast", ["x"], ["ids"], name="cast", to=TensorProto.INT64),
        helper.make_node("Gather", ["t", "ids"], ["rows"], name="table"),
        helper.make_node("MatMul", ["rows", "w"], ["h"], name="first"),
        helper.make_node("MatMul", ["h", "v"], ["y"], name="second"),
    ]
    weights = {"t": np.ones((300, 16)), "w": np.ones((16, 16)), "v": np.ones((16, 16))}
    source = write(tmp_path / "s.onnx", nodes, (4,), **weights)
    recipe = Recipe(skip_layers=("tab*", "first"))
    reason = "the recipe skips it"
    assert weight_only.find_skipped(source, recipe) == ({"table": reason, "first": reason}, ["rows", "h"])
    assert weight_only.find_skipped(source, Recipe()) == ({}, [])
    assert weight_only.quantize_file(source, tmp_path / "few.onnx", recipe) == {"table": reason, "first": reason}
    kinds = [node.op_type for node in onnx.load(tmp_path / "few.onnx").graph.node]
    assert kinds == ["Cast", "Gather", "MatMul", "MatMulNBits"]


def test_nodes_without_a_name_have_weights_by_their_output(tmp_path: Path) -> None:
    """And a Gemm its bias behind it."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]), helper.make_node("MatMul", ["h", "v"], ["y"], name="second"),
    ]  # fmt: skip
    weights = {"w": np.ones((16, 16)), "b": np.ones(16), "v": np.ones((16, 16))}
    weight_only.quantize_file(write(tmp_path / "s.onnx", nodes, (4, 16), **weights), tmp_path / "few.onnx", Recipe())
    model = onnx.load(tmp_path / "few.onnx")
    assert [node.op_type for node in model.graph.node] == ["MatMulNBits", "Add", "MatMulNBits"]
    assert model.graph.node[1].input[1] == "b"
    names = {tensor.name for tensor in model.graph.initializer}
    assert {"h.weight", "h.scales", "h.zeros", "second.weight", "b"} <= names
    assert not {"w", "v"} & names


def test_the_least_block_that_holds_all_inputs() -> None:
    """A power of two, from 16 on."""
    sizes = {1: 16, 16: 16, 17: 32, 32: 32, 33: 64, 1000: 1024}
    assert {inputs: weight_only.choose_block("channel", inputs) for inputs in sizes} == sizes
