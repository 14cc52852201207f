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
        (lambda m, x: functional.hardtanh_(x, -3), (-3, 1)),
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


class Convolved(Network):
    """The function between convolutions."""

    def __init__(self, run: Any) -> None:
        super().__init__(run)
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1)

    def forward(self, x: Any) -> Any:
        """By the function, which gets the first one's output."""
        return self.second(self.run(self, self.first(x)))


X = 9 * torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(1))


def prepare(run: Any, engine: str) -> Any:
    """The network as FX prepares it, with the default of an engine."""
    with torch_ao.known_warnings():
        return torch_ao.prepare_fx(Convolved(run).eval(), torch_ao.get_default_qconfig_mapping(engine), (X,))


@pytest.mark.parametrize(
    ("run", "engine", "folded", "left"),
    [
        (lambda m, x: m.six(x), "qnnpack", 1, 0),
        (lambda m, x: x.clamp(0, 4), "qnnpack", 1, 0),
        (lambda m, x: m.six(x), "fbgemm", 1, 1),  # levels above 127 are not of its range, which then ends nowhere
        (lambda m, x: m.tanh(x), "qnnpack", 1, 1),  # zero is no end of it
        (lambda m, x: m.six(x) + x, "qnnpack", 0, 1),  # another reads what was not clamped
        (lambda m, x: m.elu(x), "qnnpack", 0, 0),
    ],
)
def test_a_clamp_is_pulled_in_front_of_the_observer_of_its_only_input(
    run: Any, engine: str, folded: int, left: int
) -> None:
    """And goes where the range will end as it does; either way what comes behind it is the same."""
    prepared, apart = prepare(run, engine), prepare(run, engine)
    assert clamp_fusion.fold(prepared) == folded
    clipped = [part for part in prepared.modules() if isinstance(part, clamp_fusion.ClippedObserver)]
    assert len(clipped) == folded
    assert prepared.code.count("self.clipped_") == folded  # the code that runs, too
    assert sum(clamp_fusion._bounds(node, prepared) is not None for node in prepared.graph.nodes) == left
    with torch.no_grad():
        torch.testing.assert_close(prepared(X), Convolved(run)(X))
    names = frozenset(node.name for node in apart.graph.nodes if clamp_fusion.watching(node, apart) is not None)
    assert clamp_fusion.fold(apart, names) == 0
    assert clamp_fusion.drop(prepared) == 0


def test_a_clamp_goes_where_the_range_of_its_input_ends_as_it_does() -> None:
    """As seen in calibration; one beyond the clamp's would not saturate where that does."""
    for scale, count in ((4 / 255, 1), (4 / 255 * (1 + 1e-7), 1), (3 / 255, 1), (5 / 255, 0)):
        prepared = prepare(lambda m, x: x.clamp(0, 4), "qnnpack")
        source = next(node for node in prepared.graph.nodes if clamp_fusion._bounds(node, prepared)).args[0]
        clipped = clamp_fusion.ClippedObserver(torch_ao.MinMaxObserver, 0.0, 4.0)
        clipped.calculate_qparams = lambda scale=scale: (torch.tensor(scale).double(), torch.tensor(0))  # type: ignore[method-assign]
        prepared.add_submodule("clipped", clipped)
        source.target = "clipped"
        assert clamp_fusion.drop(prepared) == count
        assert any(clamp_fusion._bounds(node, prepared) for node in prepared.graph.nodes) == (count == 0)


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
        layer.exchange(packed_layers.with_levels(-levels, like), layer.bias)
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
