"""Which nodes a name of skip_layers means."""

from __future__ import annotations

import pytest

from qbench.errors import BuildError
from qbench.quant.onnx.node_names import match_nodes

LABELS = {
    "node_conv": "stem.conv",
    "Dense_1/MatMul/MatMulAddFusion": "Dense_1/MatMul/MatMulAddFusion",
    "Dense_10": "Dense_10",
}


@pytest.mark.parametrize(
    ("pattern", "nodes"),
    [
        ("node_conv", ["node_conv"]),
        ("stem.conv", ["node_conv"]),
        ("stem", ["node_conv"]),
        ("Dense_1/MatMul", ["Dense_1/MatMul/MatMulAddFusion"]),
        ("Dense_1", ["Dense_1/MatMul/MatMulAddFusion"]),
        ("*Dense_1*", ["Dense_1/MatMul/MatMulAddFusion", "Dense_10"]),
    ],
)
def test_a_name_means_a_node_or_what_is_below_it(pattern, nodes):
    """By the node's name, the torch module's, the name before the optimizer, or a pattern; never a longer name."""
    assert match_nodes(pattern, LABELS) == nodes


def test_a_name_that_means_nothing_is_told_with_those_that_are_near():
    """Of a graph of hundreds not all of them."""
    with pytest.raises(BuildError, match=r"no layer named Dense_11; did you mean Dense_10\?"):
        match_nodes("Dense_11", LABELS)
    many = {f"node_{number}": f"node_{number}" for number in range(100)}
    with pytest.raises(BuildError, match=r"no layer named x here; there are node_0, .* and 92 more"):
        match_nodes("x", many, " here")
