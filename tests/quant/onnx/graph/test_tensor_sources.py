"""Rules of qbench/quant/onnx/graph/tensor_sources.py: what the value of a tensor follows from."""

from __future__ import annotations

import onnx
import pytest

from qbench.quant.onnx.graph import tensor_sources
from qbench.quant.onnx.graph.graph import Graph

NET = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[n,2] x, float[2,3] u, bool c, float[2] z) => (float[n,2] y, float[2,2] v) <float[2] w = {1,2}> {
  a = Relu (x)
  s = Shape (a)
  o = ConstantOfShape (s)
  b = Add (o, w)
  k = Size (u)
  y = Add (a, b)
  v = If (c) <
    then_branch = t () => (float[2,2] p) { p = Mul (o, z) },
    else_branch = e () => (float[2,2] q) { q = Identity (b) }
  >
  h = Clip (x, , z)
}
"""


def network() -> Graph:
    """Values, sizes, and a branch that reads what is outside of it."""
    return Graph(onnx.parser.parse_model(NET))


@pytest.mark.parametrize(
    ("of", "behind", "names"),
    [
        (["a"], False, {"a", "x"}),
        (["s"], False, {"s"}),
        (["s"], True, {"s", "a", "x"}),
        (["b"], False, {"b", "o", "s", "w"}),
        (["y"], False, {"y", "a", "x", "b", "o", "s", "w"}),
        (["k"], False, {"k"}),
        (["k", "a"], True, {"k", "u", "a", "x"}),
        (["v"], False, {"v", "c", "o", "s", "z", "b", "w"}),  # what branches read from outside
        (["h"], False, {"h", "x", "z"}),  # an input that is left out is none
        (["x"], False, {"x"}),
        ([], False, set()),
    ],
)
def test_a_tensor_follows_from_what_its_nodes_read(of: list[str], behind: bool, names: set[str]) -> None:
    """Itself included; sizes end it, unless they are asked for."""
    assert tensor_sources.ancestors(network(), of, behind_sizes=behind) == names


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        ("a", ("input x",)),
        ("b", ("the sizes of input x",)),
        ("y", ("input x",)),
        ("k", ()),  # sizes that are fixed are no input
        ("v", ("input c", "input z", "the sizes of input x")),
        ("w", ()),
    ],
)
def test_sources_are_inputs_and_sizes_of_inputs(tensor: str, told: tuple[str, ...]) -> None:
    """In the order of the inputs; those by value first."""
    assert tensor_sources.sources(network(), tensor) == told


def test_sizes_of_an_input_without_a_shape_are_open() -> None:
    """Nothing says that they are fixed."""
    graph = network()
    graph.model.graph.input[1].type.tensor_type.ClearField("shape")
    graph.reindex()
    assert tensor_sources.sources(graph, "k") == ("the sizes of input u",)


def test_what_follows_from_sizes_and_constants_does_not_vary() -> None:
    """What comes from chance does, and what a branch reads or an input decides."""
    assert tensor_sources.find_varying(network()) == {"x", "u", "c", "z", "a", "y", "v", "h"}
    chance = "g (float[1] x) => (float[1] y) {\n r = RandomNormal <shape = [1]> ()\n y = Relu (r)\n}"
    graph = Graph(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{chance}'))
    assert tensor_sources.find_varying(graph) == {"x", "r", "y"}


@pytest.mark.parametrize(
    ("lines", "below"),
    [
        # The filters of a spectrogram, their power, a bank of filters, and what keeps the logarithm finite.
        (
            "c = Conv (x, w)\n p = Mul (c, c)\n r = Reshape (p, s)\n m = MatMul (r, k)\n e = Add (m, small)\n "
            "y = Log (e)",
            {"e", "m", "r", "p", "c", "x"},
        ),
        ("c = Conv (x, w)\n m = Max (c, small)\n a = Relu (x)\n y = Log (m)", {"m", "c", "x"}),
        # log(1 + x), a softmax, an activation, a gate: what is small before it is nothing to the logarithm.
        ("c = Conv (x, w)\n e = Add (c, large)\n y = Log (e)", {"e"}),
        ("c = Conv (x, w)\n e = Softmax (c)\n y = Log (e)", {"e"}),
        ("c = Conv (x, w)\n a = Relu (c)\n d = Conv (a, w)\n y = Log (d)", {"d", "a"}),
        ("c = Conv (x, w)\n g = Sigmoid (c)\n m = Mul (c, g)\n y = Log (m)", {"m"}),
        ("y = Conv (x, w)", set()),
    ],
)
def test_powers_and_sums_of_which_a_logarithm_is_taken_are_found(lines: str, below: set[str]) -> None:
    """Linear layers among them; an activation, a normalization, a product of two tensors and a large sum end it."""
    constants = (
        "<float[1,1,1,1] w = {2}, float[1,1] k = {3}, float small = {0.00001}, float large = {1}, int64[2] s = {4,1}>"
    )
    text = (
        f'<ir_version: 8, opset_import: ["" : 17]>\ng (float[1,1,2,2] x) => (float[n] y) {constants} {{\n {lines}\n}}'
    )
    assert tensor_sources.find_below_logarithms(Graph(onnx.parser.parse_model(text))) == below
