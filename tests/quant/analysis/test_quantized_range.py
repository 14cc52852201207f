"""The values that an artifact can represent at its inputs, read from the artifact of each runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from qbench.quant.analysis import quantized_range
from qbench.quant.analysis.quantized_range import InputRange
from qbench.quant.artifacts import torchscript
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import fx, torch_ao
from qbench.quant.recipe import Recipe

RECIPE = Recipe(flow="fx", calibrator="minmax", per_channel=True, symmetric=False, reduce_range=False)


MIDDLE = np.uint8(128)


class Two(nn.Module):
    """One input padded into a convolution, the other scaled in float."""

    def __init__(self):
        super().__init__()
        self.pad, self.conv = nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 4, 3)

    def forward(self, x, y):
        return self.conv(self.pad(x)) - y.exp()


def test_the_range_is_that_of_the_levels():
    """Section A: [(qmin - zero_point) scale, (qmax - zero_point) scale]."""
    ends = quantized_range.range_of_levels(0.1, 10, 0, 255)
    assert (ends.low, ends.high, ends.step) == (-1.0, pytest.approx(24.5), 0.1)


def test_a_torchscript_file_tells_the_range_that_it_was_calibrated_on(tmp_path):
    """Values from -2 to 6 in 255 steps, seen through the padding; the input that no quantizer reads has no range."""
    torch_ao.set_engine("onednn")
    x, y = torch.rand(4, 3, 6, 6) * 8 - 2, torch.randn(4, 4, 5, 5)
    x[0, 0, 0, 0], x[0, 0, 0, 1] = -2.0, 6.0
    network = fx.static(QuantizeJob(Two().eval(), "onednn", RECIPE, (x[:1], y[:1])), lambda: iter([(x, y)]))
    torchscript.save(network.module, (x, y), tmp_path / "m.pt")
    loaded = torchscript.load(tmp_path / "m.pt")
    actual, none = quantized_range.range_of_module(loaded, (x[:1], y[:1]))
    assert none is None
    assert actual.step == pytest.approx(8 / 255)
    assert (actual.low, actual.high) == (pytest.approx(-2, abs=actual.step), pytest.approx(6, abs=actual.step))


def test_a_module_that_quantizes_nothing_has_no_range():
    """fp32, and what is quantized behind a floating-point operator."""

    def late(x):
        return torch.quantize_per_tensor(x * 2, 0.1, 0, torch.quint8).dequantize()

    class Late(nn.Module):
        def forward(self, x):
            return late(x)

    with torch_ao.known_warnings():
        assert quantized_range.range_of_module(Late(), (torch.rand(1, 4),)) == (None,)


def test_pt2e_limits_are_those_of_its_own_quantize():
    """``quantized_decomposed.quantize_per_tensor`` carries its integers: 7 bits are a half of the range."""
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  # registers the operators

    class Quantizes(nn.Module):
        def forward(self, x):
            quantize = torch.ops.quantized_decomposed.quantize_per_tensor.default
            return quantize(x.reshape(-1), 0.5, 20, 0, 127, torch.uint8).float()

    (actual,) = quantized_range.range_of_module(Quantizes(), (torch.rand(1, 4),))
    assert actual == InputRange(low=-10.0, high=53.5, step=0.5)


def onnx_file(path, *, zero=MIDDLE, steps=(0.5,), behind="Transpose"):
    """x -> an operator -> QuantizeLinear -> DequantizeLinear, and z, which nothing quantizes."""
    tensors = [numpy_helper.from_array(np.float32(steps if len(steps) > 1 else steps[0]), "s")]
    tensors.append(numpy_helper.from_array(np.full(len(steps), zero) if len(steps) > 1 else np.asarray(zero), "z0"))
    axis = {"axis": 1} if len(steps) > 1 else {}
    nodes = [
        helper.make_node(behind, ["x"], ["t"]),
        helper.make_node("QuantizeLinear", ["t", "s", "z0"], ["q"], **axis),
        helper.make_node("DequantizeLinear", ["q", "s", "z0"], ["d"], **axis),
        helper.make_node("Add", ["d", "z"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "xzy"]
    graph = helper.make_graph(nodes, "g", values[:2], values[2:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    return path


@pytest.mark.parametrize(
    ("zero", "low", "high"), [(np.uint8(128), -64.0, 63.5), (np.int8(-28), -50.0, 77.5), (np.uint8(0), 0.0, 127.5)]
)
def test_an_onnx_file_tells_its_range_by_the_quantize_behind_its_input(tmp_path, zero, low, high):
    """The type of the zero point says which integers there are; a transposed input is the same values."""
    range_of_onnx = quantized_range.range_of_onnx(onnx_file(tmp_path / "m.onnx", zero=zero))
    assert range_of_onnx == (InputRange(low=low, high=high, step=0.5), None)


@pytest.mark.parametrize("changes", [{"behind": "Exp"}, {"steps": (0.5, 0.25)}])
def test_an_onnx_file_that_has_no_one_range_tells_none(tmp_path, changes):
    """Another operator changes values first; a range per channel is not one range."""
    assert quantized_range.range_of_onnx(onnx_file(tmp_path / "m.onnx", **changes)) == (None, None)


def test_an_input_with_two_quantizers_has_the_narrower_range():
    """A value is clipped if one of them clips it."""
    wide, narrow = InputRange(low=-4, high=1, step=0.1), InputRange(low=-1, high=2, step=0.2)
    assert quantized_range.narrowest([wide, narrow]) == InputRange(low=-1, high=1, step=0.2)


def read_onnx(tmp_path, body, head="float[1,1,4,4] x", held="float s = {0.5}, uint8 z = {128}"):
    """The ranges of the inputs of a file in onnx's text form, whose scale is a half and whose zero is in the middle."""
    text = f'<ir_version: 8, opset_import: ["" : 18]> g ({head}) => (uint8[a] y) <{held}> {{ {body} }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    return [
        None if each is None else (each.low, each.high) for each in quantized_range.range_of_onnx(tmp_path / "m.onnx")
    ]


WHOLE, PADS = (-64.0, 63.5), "pads = Constant <value = int64[8] {0,0,1,1,0,0,1,1}> ()"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = QuantizeLinear (x, s, z)", [WHOLE]),
        ("y = QuantizeLinear (x, s)", [(0.0, 127.5)]),
        ("t = Constant <value = float {0.5}> () y = QuantizeLinear (x, t, z)", [WHOLE]),
        ("t = Constant <value_float: float = 0.5> () y = QuantizeLinear (x, t, z)", [None]),
        (f"{PADS} p = Pad (x, pads) y = QuantizeLinear (p, s, z)", [WHOLE]),
        (f'{PADS} p = Pad <mode: string = "constant"> (x, pads, s) y = QuantizeLinear (p, s, z)', [None]),
        (f"{PADS} v = Constant <value = float {{0}}> () p = Pad (x, pads, v) y = QuantizeLinear (p, s, z)", [WHOLE]),
        (f"{PADS} v = Neg (s) p = Pad (x, pads, v) y = QuantizeLinear (p, s, z)", [None]),
        (f'{PADS} p = Pad <mode: string = "reflect"> (x, pads) y = QuantizeLinear (p, s, z)', [None]),
        ("p = Transpose (x) q = Identity (p) y = QuantizeLinear (q, s, z)", [WHOLE]),
        ("p = Relu (x) y = QuantizeLinear (p, s, z)", [None]),
        ("n = Cast <to: int = 2> (s) y = QuantizeLinear (x, s, n)", [None]),
    ],
)
def test_a_range_is_found_behind_what_hands_values_on(tmp_path, body, expected):
    """Through padding with zeros, too; what is computed as it runs tells no range."""
    assert read_onnx(tmp_path, body) == expected


def test_initializers_that_are_listed_as_inputs_are_none(tmp_path):
    """As files of older formats have it; each input that is one has its place."""
    head = "float[1,1,4,4] x, float s, float[1,1,4,4] w"
    assert read_onnx(tmp_path, "y = QuantizeLinear (x, s, z)", head=head) == [WHOLE, None]


def quantize_per_tensor():
    """Only its name is asked."""


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (quantize_per_tensor, (None, 0.5, 2, 0, 255, torch.uint8), (-1.0, 126.5)),
        (quantize_per_tensor, (None, 0.5, 2, 0, 255), (-1.0, 126.5)),
        (quantize_per_tensor, (None, 0.5, 2, torch.quint8), None),
        (quantize_per_tensor, (None, torch.tensor(0.5), 2, 0, 255, torch.uint8), None),
        (torch.add, (None, 0.5, 2, 0, 255, torch.uint8), None),
        ("_quantize_per_tensor.default", (None, 1, 2, 0, 255, torch.uint8), (-2.0, 253.0)),
    ],
)
def test_integers_have_the_range_of_the_call_that_made_them(function, args, expected):
    """With all numbers in it; a tensor of torch's own kind tells its range itself, but for one by channels."""
    result = quantized_range.range_of_result(function, args, torch.zeros(2))
    assert (None if result is None else (result.low, result.high)) == expected
    whole = torch.quantize_per_tensor(torch.zeros(2), 0.5, 2, torch.quint8)
    told = quantized_range.range_of_result(function, args, whole)
    assert told is not None
    assert (told.low, told.high) == (-1.0, 126.5)
    each = torch.quantize_per_channel(torch.zeros(2), torch.ones(2), torch.zeros(2), 0, torch.qint8)
    assert quantized_range.range_of_result(function, args, each) is None
