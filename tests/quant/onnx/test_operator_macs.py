"""Multiply-accumulates of ONNX operators: from the equation, from the shapes, or not known."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from qbench.quant.artifacts import coverage
from qbench.quant.onnx import onnxruntime_layers
from qbench.quant.onnx.operator_macs import RULES, UNCOUNTED, Call, Product, count_einsum, products


@pytest.mark.parametrize(
    ("equation", "shapes", "macs"),
    [
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)], 2 * 3 * 4 * 6 * 5),
        ("b h i j , b h j d -> b h i d", [(2, 3, 4, 6), (2, 3, 6, 5)], 2 * 3 * 4 * 6 * 5),
        ("...ij,...jk->...ik", [(7, 2, 3), (7, 3, 4)], 7 * 2 * 3 * 4),
        ("...ij,jk", [(7, 8, 2, 3), (3, 4)], 7 * 8 * 2 * 3 * 4),  # broadcast, and no result is named
        ("ij,jk", [(2, 3), (3, 4)], 2 * 3 * 4),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], 2 * 3 * 4 + 2 * 4 * 5),  # from left to right
        ("bij,bjk->b", [(2, 3, 4), (2, 4, 5)], 2 * 4),  # i and k are summed before anything is multiplied
        ("i,i->", [(9,), (9,)], 9),
        ("ij->ji", [(2, 3)], 0),  # a transposition
        ("ij->i", [(2, 3)], 0),  # a sum
        ("ij,ij->ij", [(2, 3), (2, 3)], 0),  # element by element, as Mul
        ("i,j->ij", [(2,), (3,)], 0),
        ("bij,bjk->bik", [(1, 2, 3), (8, 3, 4)], 8 * 2 * 3 * 4),  # an axis of 1 is stretched
        ("bij,bjk->bik", [(8, 2, 3), (1, 3, 4)], 8 * 2 * 3 * 4),
        ("...i,...i->i", [(7, 2), (7, 2)], 7 * 2),  # over what the ellipsis stands for
        ("...ij,...jk->...ik", [(7, 8, 2, 3), (8, 3, 4)], 7 * 8 * 2 * 3 * 4),  # which ends at the same place
        ("...i,...i->...i", [(7, 2), (7, 2)], 0),
        ("...i,...i", [(7, 2), (7, 2)], 7 * 2),  # a label that occurs twice is summed over, an ellipsis not
    ],
)
def test_an_einsum_counts_by_its_equation(equation, shapes, macs):
    """The product of all sizes of a contracted pair; what is only moved, summed or scaled counts nothing."""
    assert count_einsum(equation, shapes) == macs


@given(st.permutations("bhijd"), st.permutations("bhijd"), st.lists(st.integers(1, 5), min_size=5, max_size=5))
def test_the_order_of_axes_changes_no_count(first, second, sizes):
    """A transposed operand is multiplied as often."""
    size = dict(zip("bhijd", sizes, strict=True))
    summed = [label for label in first if label != "j"]
    other = [label for label in second if label != "i"]
    shapes = [tuple(size[label] for label in labels) for labels in (summed, other)]
    equation = f"{''.join(summed)},{''.join(other)}->bhij"
    assert count_einsum(equation, shapes) == math.prod(sizes)


@pytest.mark.parametrize(("equation", "shapes"), [("ij,jk->ik", [(2, 3)]), ("ijk->i", [(2, 3)])])
def test_an_equation_that_does_not_fit_is_no_count(equation, shapes):
    """It raises, so that no wrong number is told."""
    with pytest.raises(ValueError, match="the (equation has 2 operands|term ijk does not name 2 axes)"):
        count_einsum(equation, shapes)


def call(operator, inputs, *outputs, **attributes):
    return Call(operator=operator, inputs=tuple(inputs), outputs=outputs, attributes=attributes)


def expect(macs, *, int8=False, weight_bits=None):
    return (Product(macs=macs, int8=int8, weight_bits=weight_bits),)


CASES = {
    "conv": (call("Conv", [(1, 4, 8, 8), (6, 2, 3, 3)], (1, 6, 8, 8), group=2), expect(6 * 64 * 18)),
    "fused conv": (call("FusedConv", [(1, 4, 8, 8), (6, 4, 3, 3)], (1, 6, 8, 8)), expect(6 * 64 * 36)),
    "transposed": (call("ConvTranspose", [(1, 4, 8, 8), (4, 6, 2, 2)], (1, 6, 16, 16)), expect(4 * 64 * 24)),
    "deformed": (call("DeformConv", [(1, 4, 8, 8), (6, 4, 3, 3)], (1, 6, 8, 8)), expect(6 * 64 * 36)),
    "one axis": (call("Conv", [(1, 4, 8), (6, 4, 3)], (1, 6, 8)), expect(6 * 8 * 12)),
    "no kernel": (call("Conv", [(1, 4), (6, 4)], (1, 6)), expect(None)),
    "quantized, a weight without a kernel": (
        call("QLinearConv", [(1, 4, 8, 8), (), (), (6,)], (1, 6, 8, 8)),
        expect(None, int8=True),
    ),
    "integer": (call("ConvInteger", [(1, 4, 8, 8), (6, 4, 3, 3)], (1, 6, 8, 8)), expect(6 * 64 * 36, int8=True)),
    "quantized": (
        call("QLinearConv", [(1, 4, 8, 8), (), (), (6, 4, 3, 3)], (1, 6, 8, 8)),
        expect(6 * 64 * 36, int8=True),
    ),
    "gemm": (call("Gemm", [(5, 3), (5, 7)], (3, 7), transA=1), expect(3 * 7 * 5)),
    "fused gemm": (call("FusedGemm", [(3, 5), (7, 5)], (3, 7), transB=1), expect(3 * 7 * 5)),
    "product": (call("MatMul", [(2, 3, 5), (5, 7)], (2, 3, 7)), expect(2 * 3 * 7 * 5)),
    "fused product": (call("FusedMatMul", [(4, 2, 5), (2, 5, 7)], (2, 4, 7), transBatchA=1), expect(2 * 4 * 7 * 5)),
    "both": (call("FusedMatMul", [(5, 2, 4), (2, 5, 7)], (2, 4, 7), transBatchA=1, transA=1), expect(2 * 4 * 7 * 5)),
    "dynamic": (call("DynamicQuantizeMatMul", [(2, 5), (5, 7)], (2, 7)), expect(2 * 7 * 5, int8=True)),
    "4 bits": (call("MatMulNBits", [(2, 64)], (2, 7), K=64, N=7, bits=4), expect(2 * 7 * 64, weight_bits=4)),
    "4 bits in int8": (
        call("MatMulNBits", [(2, 64)], (2, 7), K=64, N=7, accuracy_level=4),
        expect(2 * 7 * 64, int8=True, weight_bits=4),
    ),
    "4 bits in halves": (
        call("MatMulNBits", [(2, 64)], (2, 7), K=64, N=7, accuracy_level=3),
        expect(2 * 7 * 64, weight_bits=4),
    ),
    "8 bits": (call("MatMulNBits", [(2, 64)], (2, 7), K=64, N=7, bits=8), expect(2 * 7 * 64, weight_bits=8)),
    "lstm": (call("LSTM", [(9, 2, 5)], (9, 1, 2, 6), hidden_size=6), expect(9 * 2 * 4 * 6 * 11)),
    "gru": (
        call("GRU", [(9, 2, 5)], (9, 2, 2, 6), hidden_size=6, direction="bidirectional"),
        expect(2 * 9 * 2 * 3 * 6 * 11),
    ),
    "backwards": (
        call("GRU", [(9, 2, 5)], (9, 1, 2, 6), hidden_size=6, direction="reverse"),
        expect(9 * 2 * 3 * 6 * 11),
    ),
    "rnn, its last state only": (call("RNN", [(9, 2, 5)], (1, 2, 6), hidden_size=6), expect(9 * 2 * 6 * 11)),
    "int8 lstm": (
        call("DynamicQuantizeLSTM", [(9, 2, 5)], (9, 1, 2, 6), hidden_size=6),
        expect(9 * 2 * 4 * 6 * 11, int8=True),
    ),
    "attention": (
        call("Attention", [(2, 4, 6, 8), (2, 4, 7, 8), (2, 4, 7, 9)], (2, 4, 6, 9)),
        expect(2 * 4 * 6 * 7 * (8 + 9)),
    ),
    "attention, heads packed, with a past": (
        call("Attention", [(2, 6, 32), (2, 7, 32), (2, 7, 32), None, (2, 4, 3, 8)], (2, 6, 32), q_num_heads=4),
        expect(2 * 6 * 10 * 64),
    ),
    "attention of ONNX Runtime": (
        call("Attention", [(2, 6, 32), (32, 96), (96,)], (2, 6, 32), num_heads=4),
        (
            Product(macs=2 * 6 * 32 * 96, int8=False, name="projection"),
            Product(macs=2 * 6 * 6 * 64, int8=False, name="attention"),
        ),
    ),
    "its int8 form": (
        call("QAttention", [(2, 6, 32), (32, 96), (96,), (), ()], (2, 6, 32), num_heads=4),
        (
            Product(macs=2 * 6 * 32 * 96, int8=True, name="projection"),
            Product(macs=2 * 6 * 6 * 64, int8=False, name="attention"),
        ),
    ),
    "with a past, and values of another size": (
        call("Attention", [(2, 6, 32), (32, 104), (104,), None, (2, 2, 4, 3, 8)], (2, 6, 40), num_heads=4),
        (
            Product(macs=2 * 6 * 32 * 104, int8=False, name="projection"),
            Product(macs=2 * 6 * 9 * (32 + 40), int8=False, name="attention"),
        ),
    ),
    "its int8 form, with a past": (
        call("QAttention", [(2, 6, 32), (32, 96), *[()] * 6, (2, 2, 4, 3, 8)], (2, 6, 32), num_heads=4),
        (
            Product(macs=2 * 6 * 32 * 96, int8=True, name="projection"),
            Product(macs=2 * 6 * 9 * 64, int8=False, name="attention"),
        ),
    ),
    "heads with a past": (
        call("MultiHeadAttention", [(2, 6, 32), (2, 7, 32), (2, 7, 40), *[None] * 3, (2, 4, 3, 8)], (2, 6, 40)),
        expect(2 * 6 * 10 * 72),
    ),
    "keys and values packed": (
        call("MultiHeadAttention", [(2, 6, 32), (2, 7, 4, 2, 8)], (2, 6, 32)),
        expect(2 * 6 * 7 * 64),
    ),
    "heads: no keys": (call("GroupQueryAttention", [(2, 6, 32)], (2, 6, 32)), expect(None)),
    "heads": (call("MultiHeadAttention", [(2, 6, 32), (2, 7, 32), (2, 7, 40)], (2, 6, 40)), expect(2 * 6 * 7 * 72)),
    "heads apart": (
        call("MultiHeadAttention", [(2, 6, 32), (2, 4, 7, 8), (2, 4, 7, 8)], (2, 6, 32)),
        expect(2 * 6 * 7 * 64),
    ),
    "heads packed": (call("MultiHeadAttention", [(2, 6, 4, 3, 8)], (2, 6, 32)), expect(2 * 6 * 6 * 64)),
    "heads grouped": (
        call("GroupQueryAttention", [(2, 6, 32), (2, 6, 16), (2, 6, 16)], (2, 6, 32), (2, 2, 9, 8)),
        expect(2 * 2 * 6 * 32 * 9),
    ),
    "an einsum that only moves": (call("Einsum", [(2, 3)], (3, 2), equation="ij->ji"), ()),
    "no product": (call("Mul", [(2, 3), (2, 3)], (2, 3)), ()),
    "a weight that is not told": (call("Conv", [(1, 4, 8, 8), None], (1, 6, 8, 8)), expect(None)),
    "experts": (call("MoE", [(2, 3)], (2, 3)), expect(None)),
}  # fmt: skip


@pytest.mark.parametrize(("layer_call", "expected"), CASES.values(), ids=CASES)
def test_operators_are_counted_by_their_definition(layer_call, expected):
    """Each kind of convolution, product, recurrent layer and attention; None where shapes do not tell."""
    assert products(layer_call) == expected


@pytest.mark.parametrize("operator", sorted(UNCOUNTED | RULES.keys()))
def test_an_operator_that_multiplies_is_never_nothing(operator):
    """Where nothing is known of one but its name, how much it does is not known: never none at all."""
    assert [product.macs for product in products(call(operator, []))] == [None]


def saved(file, nodes, weights, *, opset=17, functions=()):
    """A network from x (n, 16, 64) to y, in ONNX's and ONNX Runtime's operators."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", TensorProto.FLOAT, ["n", 16, 64])],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid(name, number) for name, number in {"": opset, "com.microsoft": 1, "own": 1}.items()]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=list(functions)), str(file))
    return file


def weight(*shape, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) / 8).astype(np.float32)


EXAMPLE = (weight(1, 16, 64),)


def macs(file, *, optimized=False):
    return {layer.operator: layer.macs for layer in onnxruntime_layers.layers(file, EXAMPLE, optimized=optimized)}


@pytest.mark.parametrize("optimized", [False, True])
def test_contrib_operators_are_counted_where_they_run(tmp_path, optimized):
    """Attention, MultiHeadAttention and MatMulNBits as ONNX Runtime executes them: weights that a kernel has packed are
    no longer told and come from the graph."""
    packed = np.random.default_rng(0).integers(0, 255, (64, 2, 16)).astype(np.uint8)
    weights = {"w": weight(64, 192), "b": weight(192), "packed": packed, "scales": weight(128)}
    nodes = [
        helper.make_node("Attention", ["x", "w", "b"], ["a"], domain="com.microsoft", num_heads=4, name="attention"),
        helper.make_node("MultiHeadAttention", ["a", "a", "a"], ["m"], domain="com.microsoft", num_heads=4, name="m"),
        helper.make_node("MatMulNBits", ["m", "packed", "scales"], ["y"], domain="com.microsoft", K=64, N=64, bits=4,
                         block_size=32, name="low"),
    ]  # fmt: skip
    actual = {
        layer.name: layer.macs
        for layer in onnxruntime_layers.layers(saved(tmp_path / "m.onnx", nodes, weights), EXAMPLE, optimized=optimized)
    }
    attended = 16 * 16 * 128
    assert actual == {
        "attention (projection)": 16 * 64 * 192, "attention (attention)": attended, "m": attended, "low": 16 * 64 * 64,
    }  # fmt: skip


@pytest.mark.parametrize("optimized", [False, True])
def test_products_in_branches_loops_and_functions_are_counted(tmp_path, optimized):
    """The branch that ran, a loop's body as often as it ran, a function's body: nodes without names, too."""
    value = helper.make_tensor_value_info
    branch = {
        name: helper.make_graph(
            [helper.make_node("MatMul", ["x", f"w_{name}"], [f"{name}_y"])],
            name,
            [],
            [value(f"{name}_y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(weight(64, width), f"w_{name}")],
        )
        for name, width in (("yes", 64), ("no", 64))
    }
    body = helper.make_graph(
        [helper.make_node("MatMul", ["state", "w"], ["next"]), helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("state", TensorProto.FLOAT, None)],
        [value("on", TensorProto.BOOL, []), value("next", TensorProto.FLOAT, None)],
    )
    squared = helper.make_function(
        "own", "Squared", ["a"], ["s"],
        [helper.make_node("Transpose", ["a"], ["t"], perm=[0, 2, 1]), helper.make_node("MatMul", ["a", "t"], ["s"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["b"], then_branch=branch["yes"], else_branch=branch["no"]),
        helper.make_node("Loop", ["three", "", "b"], ["l"], body=body),
        helper.make_node("Squared", ["l"], ["y"], domain="own"),
    ]
    weights = {"w": weight(64, 64), "zero": np.float32(0), "three": np.int64(3)}
    file = saved(tmp_path / "m.onnx", nodes, weights, functions=[squared])
    actual = [layer.macs for layer in onnxruntime_layers.layers(file, EXAMPLE, optimized=optimized)]
    assert actual == [16 * 64 * 64, 3 * 16 * 64 * 64, 16 * 16 * 64]


def test_an_operator_that_cannot_be_counted_makes_coverage_unknown(tmp_path):
    """A Fourier transform multiplies, its share of the work is not known: no coverage, with the reason; not 100 %."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "last"], ["u"], name="u"),
        helper.make_node("DFT", ["u"], ["f"], axis=2, name="spectrum"),
        helper.make_node("ReduceSum", ["f", "last"], ["r"], keepdims=0, name="r"),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="product"),
    ]
    file = saved(tmp_path / "m.onnx", nodes, {"last": np.int64([3]), "w": weight(64, 64)})
    layers = onnxruntime_layers.layers(file, EXAMPLE)
    assert coverage.compute_int8_share(layers) is None
    assert coverage.explain_unknown(layers) == "how much spectrum (DFT) multiplies cannot be counted"
