"""Rules of qbench/quant/pytorch/clamp_fusion.py and packed_layers.py: which nodes clamp, and what an engine packs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from qbench.quant.pytorch import clamp_fusion, packed_layers, torch_ao
from qbench.quant.pytorch.packed_layers import LayerKernel


class Network(nn.Module):
    """A forward given as a function."""

    def __init__(self, run: Any) -> None:
        super().__init__()
        self.relu, self.six, self.tanh, self.elu = nn.ReLU(), nn.ReLU6(), nn.Hardtanh(-2.0, 3.0), nn.ELU()
        self.run = run

    def forward(self, x: Any) -> Any:
        """By the function."""
        return self.run(self, x)


@pytest.mark.parametrize(
    ("run", "bounds"),
    [
        (lambda m, x: m.relu(x), (0, math.inf)),
        (lambda m, x: m.six(x), (0, 6)),
        (lambda m, x: m.tanh(x), (-2, 3)),
        (lambda m, x: m.elu(x), None),
        (lambda m, x: functional.relu(x), (0, math.inf)),
        (lambda m, x: x.relu_(), (0, math.inf)),
        (lambda m, x: functional.relu6(x), (0, 6)),
        (lambda m, x: functional.hardtanh(x), (-1, 1)),
        (lambda m, x: functional.hardtanh(x, -3), (-3, 1)),
        (lambda m, x: functional.hardtanh_(x, max_val=2), (-1, 2)),
        (lambda m, x: x.clamp(0, 4), (0, 4)),
        (lambda m, x: torch.clamp(x, max=4), (-math.inf, 4)),
        (lambda m, x: x.clamp(min=-1), (-1, math.inf)),
        (lambda m, x: x.clamp(1, 1), None),
        (lambda m, x: x.clamp(2, 1), None),
        (lambda m, x: x.clamp(torch.zeros(1), 4), None),
        (lambda m, x: x.clamp(0, torch.ones(1)), None),
        (lambda m, x: x.sigmoid(), None),
    ],
)
def test_a_node_that_clamps_tells_its_bounds(run: Any, bounds: tuple[float, float] | None) -> None:
    """As they stand in a call, by position or by name, or by default; bounds that are no numbers in order are none."""
    traced = torch.fx.symbolic_trace(Network(run))
    told = [clamp_fusion._bounds(node, traced) for node in traced.graph.nodes]
    assert [each for each in told if each is not None] == ([] if bounds is None else [bounds])


@pytest.mark.parametrize(
    ("run", "count"),
    [(lambda m, x: m.six(m.relu(x)).clamp(0, 3), 2), (lambda m, x: m.relu(x), 0), (lambda m, x: m.elu(x), 0)],
)
def test_clamps_of_both_ends_get_their_input_in_plain_memory(run: Any, count: int) -> None:
    """Each of them; where the framework's default keeps them, a note says how many."""
    traced = torch.fx.symbolic_trace(Network(run))
    note = clamp_fusion.shuffled_note(traced)
    assert (note is None) == (count == 0)
    assert note is None or f"keeps {count} of them" in note
    assert clamp_fusion.make_contiguous(traced) == count
    assert [node.target for node in traced.graph.nodes if node.op == "call_method" and node.target == "contiguous"] == (
        ["contiguous"] * count
    )
    x = torch.randn(2, 3)
    assert torch.equal(traced(x), Network(run)(x))


def test_an_observer_behind_a_clamp_sees_what_is_left() -> None:
    """And passes that on; it has the inner one's levels, scale and zero point."""
    clipped = clamp_fusion.ClippedObserver(
        lambda: torch_ao.MinMaxObserver(dtype=torch.quint8, quant_min=0, quant_max=127), 0.0, 6.0
    )
    assert clipped(torch.tensor([-5.0, 3.0, 12.7])).tolist() == [0.0, 3.0, 6.0]
    assert (clipped.inner.min_val, clipped.inner.max_val) == (0.0, 6.0)
    assert (clipped.quant_min, clipped.quant_max, clipped.dtype) == (0, 127, torch.quint8)
    assert clipped.calculate_qparams() == clipped.inner.calculate_qparams()


KERNELS = [
    (LayerKernel(kind="linear"), (5, 8), (3, 8)),
    (LayerKernel(kind="conv", dimensions=2, stride=(2, 1), padding=(1, 0), dilation=(1, 2), output_padding=(0, 0),
                 groups=2), (6, 2, 3, 2), (1, 4, 7, 6)),
    (LayerKernel(kind="conv_transpose", dimensions=2, stride=(2, 2), padding=(1, 0), dilation=(1, 1),
                 output_padding=(1, 0), groups=2), (4, 3, 3, 2), (1, 4, 4, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "weight", "shape"), KERNELS)
@pytest.mark.parametrize("per_channel", [True, False])
def test_an_engine_computes_what_exact_integers_do(
    kernel: LayerKernel, weight: tuple[int, ...], shape: tuple[int, ...], per_channel: bool
) -> None:
    """Packed, read back, called, and packed again with other weights; channels are those of its input and output."""
    torch.manual_seed(0)
    before = torch.backends.quantized.engine
    torch_ao.set_engine("qnnpack")
    try:
        levels = torch.randint(-3, 4, weight, dtype=torch.int8)
        count = weight[1] if kernel.kind == "conv_transpose" else weight[0]
        is_split = per_channel and kernel.kind != "conv_transpose"
        scales, zeros = torch.full((count,), 0.5), torch.zeros(count, dtype=torch.int64)
        like = (
            torch.quantize_per_channel(torch.zeros(weight), scales, zeros, 0, torch.qint8)
            if is_split
            else torch.quantize_per_tensor(torch.zeros(weight), 0.5, 0, torch.qint8)
        )
        quantized = packed_layers.with_levels(levels, like)
        axis, scale = packed_layers.scales(quantized)
        assert (axis, scale.tolist()) == (0, [0.5] * (count if is_split else 1))
        assert packed_layers.zero_points(quantized).tolist() == [0] * (count if is_split else 1)
        x = torch.randint(0, 4, shape).float()
        expected = kernel.exact(x, levels.float()) * 0.5
        assert kernel.channels_out(levels) == expected.shape[-1 if kernel.kind == "linear" else 1]
        assert kernel.channels_in(levels) == shape[-1 if kernel.kind == "linear" else 1]
        packed = kernel.pack(quantized, torch.zeros(kernel.channels_out(levels)))
        given = torch.quantize_per_tensor(x, 1.0, 0, torch.quint8)
        result = kernel.call(packed, given, 0.5, 128)
        torch.testing.assert_close(result.dequantize(), expected)
        holder = nn.Module()
        holder.kept = packed
        (layer,) = packed_layers.layers(nn.ModuleDict({"part": holder}))
        assert (layer.name, layer.kernel, layer.attribute) == ("part.kept", kernel, "kept")
        layer.exchange(packed_layers.with_levels(-levels, like))
        assert torch.equal(layer.weight.int_repr(), -levels)
        doubled = packed_layers.with_levels(levels, like, scale * 2)
        torch.testing.assert_close(packed_layers.scales(doubled)[1], scale * 2)
    finally:
        torch.backends.quantized.engine = before


def test_a_weight_in_the_midst_of_zeros_keeps_its_values() -> None:
    """At its place in the larger kernel."""
    weight = torch.ones(2, 1, 2, 2)
    rim = packed_layers.among_zeros(weight, 4, 1, 2)
    assert rim.shape == (2, 1, 4, 4)
    assert torch.equal(rim[:, :, 1:3, 2:4], weight)
    assert rim.sum() == weight.sum()
