"""Rules of qbench/quant/pytorch/packed_layers.py: what an engine packed is read, called and packed again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from qbench.quant.pytorch import packed_layers, torch_ao
from qbench.quant.pytorch.packed_layers import LayerKernel

ENGINE = "onednn" if "onednn" in torch.backends.quantized.supported_engines else "qnnpack"
CONV = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.ao.quantization is deprecated")


@pytest.fixture(autouse=True)
def _engine(engine_put_back):
    torch_ao.set_engine(ENGINE)


def quantize(levels: Any, dtype: torch.dtype = torch.qint8, zero_point: int = 0) -> Any:
    """Whole numbers as int8, with a scale of one."""
    return torch.quantize_per_tensor(levels.float(), 1.0, zero_point, dtype)


def draw(*shape: int, low: int = -3, high: int = 4) -> Any:
    """Small whole numbers, always the same."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(0))


KERNELS = [
    (LayerKernel(kind="linear"), (5, 6), (3, 6), (6, 5)),
    (LayerKernel(kind="conv", dimensions=2, **CONV), (4, 3, 3, 3), (2, 6, 9, 9), (6, 4)),
    (LayerKernel(kind="conv", dimensions=1, stride=(2,), padding=(1,), dilation=(1,)), (4, 6, 3), (2, 6, 9), (6, 4)),
    (
        LayerKernel(kind="conv_transpose", dimensions=2, stride=(2, 2), padding=(1, 1), dilation=(1, 1),
                    output_padding=(0, 0), groups=2),
        (4, 2, 3, 3),
        (2, 4, 4, 4),
        (4, 4),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "weight", "x", "channels"), KERNELS, ids=[case[0].kind for case in KERNELS])
def test_an_engine_computes_what_the_exact_form_says(kernel: LayerKernel, weight: Any, x: Any, channels: Any) -> None:
    """With the steps, rims and groups that it was packed with, whole numbers and no bias; channels are those of it."""
    levels, inputs = draw(*weight), draw(*x, low=0, high=5)
    if kernel.kind == "conv_transpose" and ENGINE == "qnnpack":
        pytest.skip("qnnpack has no groups there")
    packed = kernel.pack(quantize(levels), None)
    output = kernel.call(packed, quantize(inputs, torch.quint8), 1.0, 100)
    exact = kernel.exact(inputs.double(), levels.double())
    assert torch.equal(output.dequantize().double(), exact.clamp(-100, 155))
    assert output.q_zero_point() == 100
    assert (kernel.channels_in(levels), kernel.channels_out(levels)) == channels
    assert exact.shape[1] == kernel.channels_out(levels)


def test_a_transposed_kernel_can_reach_further_on_one_side() -> None:
    """By its output padding, which few engines have."""
    kernel = LayerKernel(kind="conv_transpose", dimensions=2, stride=(2, 2), padding=(0, 0), dilation=(1, 1),
                         output_padding=(1, 0))  # fmt: skip
    assert kernel.exact(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2)).shape == (1, 1, 5, 4)


class Held(nn.Module):
    """Packed parameters as a converted graph holds them for functions, and as layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch_ao.nnq.Linear(6, 5)
        self.conv = torch_ao.nnq.Conv2d(6, 4, 3, **{**CONV, "groups": 2})
        self.held = torch.ops.quantized.linear_prepack(quantize(draw(5, 6)), None)


def test_layers_are_found_as_modules_and_as_parameters() -> None:
    """By the name of the module, or of what holds the parameters; kinds and settings are those that were packed."""
    kernels = {layer.name: layer.kernel for layer in packed_layers.layers(nn.ModuleDict({"a": Held(), "b": nn.ReLU()}))}
    assert kernels == {
        "a.held": LayerKernel(kind="linear"),
        "a.linear": LayerKernel(kind="linear"),
        "a.conv": LayerKernel(kind="conv", dimensions=2, output_padding=(0, 0), **CONV),
    }
    assert [layer.name for layer in packed_layers.layers(torch_ao.nnq.Linear(6, 5))] == [""]
    assert {layer.name for layer in packed_layers.layers(Held())} == {"held", "linear", "conv"}


def test_a_weight_is_exchanged_and_the_bias_stays() -> None:
    """The next call computes with it."""
    module = torch_ao.nnq.Linear(6, 5)
    module.set_weight_bias(quantize(draw(5, 6)), torch.arange(5.0))
    (layer,) = packed_layers.layers(module)
    layer.exchange(quantize(-draw(5, 6)), layer.bias)
    weight, bias = module._weight_bias()
    assert torch.equal(weight.int_repr().long(), -draw(5, 6))
    assert bias.tolist() == [0, 1, 2, 3, 4]


def test_float_weights_are_those_that_converting_rounds() -> None:
    """Of a layer with several parts the first one's; a BatchNorm that training holds inside is multiplied in, another
    attribute of that name is not; a norm's own weights are no matrix."""
    norm = nn.BatchNorm2d(2).eval()
    norm.weight.data, norm.running_var = torch.tensor([2.0, 3.0]), torch.tensor([4.0, 16.0]) - norm.eps
    trained = torch.ao.nn.intrinsic.qat.ConvBn2d(1, 2, 1, qconfig=torch.ao.quantization.get_default_qat_qconfig())
    trained.bn = norm
    plain = nn.Conv2d(1, 2, 1)
    plain.bn = norm
    clamped = torch.ao.nn.intrinsic.qat.ConvReLU2d(1, 2, 1, qconfig=trained.qconfig)
    fused, none = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), nn.Sequential()
    parts = {"qat": trained, "clamped": clamped, "user": plain, "fused": fused, "none": none, "norm": nn.LayerNorm(3)}
    module = nn.ModuleDict(parts)
    weights = packed_layers.float_weights(module)
    assert {name for name in weights if "." not in name} == {"qat", "clamped", "user", "fused"}
    assert torch.allclose(weights["qat"], trained.weight * torch.tensor([1.0, 0.75]).reshape(2, 1, 1, 1))
    assert torch.equal(weights["user"], plain.weight)
    assert torch.equal(weights["clamped"], clamped.weight)
    assert torch.equal(weights["fused"], module["fused"][0].weight)
    assert not any(weight.requires_grad for weight in weights.values())


def test_scales_zero_points_and_levels_are_read_and_written() -> None:
    """One for all has the axis 0; for each channel there is one, along its axis; other scales can be given."""
    values = draw(2, 3).float()
    whole = torch.quantize_per_tensor(values, 0.5, 3, torch.qint8)
    each = torch.quantize_per_channel(values, torch.tensor([0.5, 1.0, 2.0]), torch.tensor([0, 1, 2]), 1, torch.qint8)
    axis, scales = packed_layers.scales(whole)
    assert (axis, scales.tolist(), packed_layers.zero_points(whole).tolist()) == (0, [0.5], [3])
    axis, scales = packed_layers.scales(each)
    assert (axis, scales.tolist(), scales.dtype) == (1, [0.5, 1.0, 2.0], torch.double)
    assert packed_layers.zero_points(each).tolist() == [0, 1, 2]
    levels = torch.full((2, 3), 7, dtype=torch.int8)
    for weight, expected in ((whole, [[2.0] * 3] * 2), (each, [[3.5, 6.0, 10.0]] * 2)):
        written = packed_layers.with_levels(levels, weight)
        assert torch.equal(written.int_repr(), levels)
        assert written.dequantize().tolist() == expected
    assert packed_layers.with_levels(levels, whole, 2.0).dequantize().tolist() == [[8.0] * 3] * 2
    other = packed_layers.with_levels(levels, each, torch.ones(3).double())
    assert other.dequantize().tolist() == [[7.0, 6.0, 5.0]] * 2


def test_a_kernel_stands_in_the_midst_of_zeros() -> None:
    """Where it is put."""
    weight = torch.ones(1, 2, 1, 2)
    rim = packed_layers.among_zeros(weight, 3, 2, 1)
    assert rim.tolist() == [[[[0, 0, 0], [0, 0, 0], [0, 1, 1]]] * 2]
