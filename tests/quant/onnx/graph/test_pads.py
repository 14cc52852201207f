"""Rules of qbench/quant/onnx/graph/pads.py: which zeros around a convolution's input become its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

from qbench.quant.onnx.graph import pads
from qbench.quant.onnx.graph.graph import Graph, attribute

LARGEST = pads.LARGEST
SIDES = [0, 0, 1, 2, 0, 0, 3, 4]


def make(
    sides: Any = SIDES,
    value: Any = None,
    axes: Any = None,
    *,
    mode: str = "constant",
    own: str = "pads: ints = [1,1,1,1]",
    constant_weight: bool = True,
) -> Graph:
    """Two convolutions behind a Pad each, of which the first is the one that is asked about."""
    padded = [
        "x",
        "sides",
        "value" if value is not None or axes is not None else "",
        "axes" if axes is not None else "",
    ]
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[1,2,9,9] x{"" if constant_weight else ", float[2,2,3,3] w"}) => (float[1,2,h,v] y, float[1,2,i,j] z) {{
      [pad] p = Pad <mode: string = "{mode}"> ({", ".join(padded).rstrip(", ")})
      [conv] y = Conv <{own}> (p, w)
      [plain] q = Pad (x, plain_sides)
      [last] z = Conv (q, w2)
    }}"""
    model = onnx.parser.parse_model(text)
    constants: dict[str, Any] = {
        "plain_sides": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "w2": np.ones((2, 2, 3, 3), np.float32),
    }
    constants |= {} if sides is None else {"sides": np.array(sides)}
    constants |= {"w": constants["w2"]} if constant_weight else {}
    if value is not None or axes is not None:
        constants["value"] = np.array(value or 0, np.float32)
    if axes is not None:
        constants["axes"] = np.array(axes)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    if sides is None:
        model.graph.input.append(onnx.helper.make_tensor_value_info("sides", onnx.TensorProto.INT64, [8]))
    return Graph(model)


def folded(graph: Graph, skip: tuple[str, ...] = ()) -> list[int] | None:
    """The pads of the first convolution where it took the Pad in; the second always does."""
    taken = pads.take_in(graph, skip)
    assert ("last", "plain") in taken
    kept = {node.name: node for node in graph.nodes}
    assert ("pad" in kept) is (("conv", "pad") not in taken)
    assert attribute(kept["last"], "pads", None) == [1, 1, 1, 1]
    return attribute(kept["conv"], "pads", None) if ("conv", "pad") in taken else None


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, [2, 3, 4, 5]),
        ({"own": "group: int = 1"}, [1, 2, 3, 4]),
        ({"value": 0.0}, [2, 3, 4, 5]),
        ({"value": 0.5}, None),
        ({"mode": "reflect"}, None),
        ({"sides": None}, None),
        ({"sides": [1, 2, 3, 4], "axes": [2, 3]}, [2, 3, 4, 5]),
        ({"sides": [1, 2, 3, 4], "axes": [-1, -2]}, [3, 2, 5, 4]),
        ({"sides": [1, 3], "axes": [3]}, [1, 2, 1, 4]),
        ({"sides": [1, 3], "axes": [4]}, None),
        ({"sides": [1, 3], "axes": [-4]}, None),
        ({"sides": [0, 0], "axes": [-4]}, [1, 1, 1, 1]),
        ({"sides": [1, 3], "axes": [-5]}, None),
        ({"sides": [1, 2, 3, 4]}, None),
        ({"sides": [0, 1, 1, 2, 0, 0, 3, 4]}, None),
        ({"sides": [0, 0, 1, 2, 1, 0, 3, 4]}, None),
        ({"sides": [0, 0, -1, 2, 0, 0, 3, 4]}, None),
        ({"sides": [0, 0, LARGEST, 2, 0, 0, 3, 4]}, [LARGEST + 1, 3, 4, 5]),
        ({"sides": [0, 0, LARGEST + 1, 2, 0, 0, 3, 4]}, None),
        ({"own": f"pads: ints = [{LARGEST + 1},1,1,1]"}, None),
        ({"own": "pads: ints = [1,1]"}, None),
        ({"own": 'auto_pad: string = "SAME_UPPER"'}, None),
        ({"own": 'auto_pad: string = "NOTSET"'}, [1, 2, 3, 4]),
        ({"constant_weight": False}, None),
    ],
)  # fmt: skip
def test_zeros_on_spatial_axes_become_the_convolutions_own(keys: dict[str, Any], expected: list[int] | None) -> None:
    """Beside those that it has; anything else, and what nobody knows before it runs, stays a Pad. One that stays keeps
    no other from being taken in."""
    assert folded(make(**keys)) == expected


def test_what_is_to_be_left_stays() -> None:
    """By the name of the convolution or of the Pad."""
    assert folded(make(), ("conv",)) is None
    assert folded(make(), ("pad",)) is None
