"""Zero padding before an int8 depthwise convolution: a rim of zeros around its kernel, the same integers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from qbench.quant.artifacts import coverage, torchscript
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import eager, exact_integers, fx, padded_depthwise, torch_ao
from qbench.quant.recipe import Recipe

RECIPE = Recipe(calibrator="minmax", per_channel=True, symmetric=False, reduce_range=True)
CHANNELS = 16


class Padded(nn.Module):
    """A pad, then a depthwise convolution, then one that is not."""

    def __init__(self, pad=(0, 1, 0, 1), kernel=3, stride=2, own=0, groups=CHANNELS, act=True):
        super().__init__()
        self.first = nn.Conv2d(4, CHANNELS, 1)
        self.pad = nn.ZeroPad2d(pad)
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, kernel, stride=stride, padding=own, groups=groups)
        self.act, self.last = nn.ReLU() if act else nn.Identity(), nn.Conv2d(CHANNELS, 3, 1)

    def forward(self, x):
        return self.last(self.act(self.conv(self.pad(self.first(x)))))


def images(side, n=4):
    return torch.randn(n, 4, side, side, generator=torch.Generator().manual_seed(side))


def int8(model, engine="fbgemm", side=16, flow=fx, recipe=RECIPE):
    torch_ao.set_engine(engine)
    x = images(side)
    return flow.static(QuantizeJob(model, engine, recipe, (x[:1],)), lambda: iter([(x,)]))


@pytest.fixture
def left_alone(monkeypatch):
    """Calling it leaves padding as it was."""
    return lambda: monkeypatch.setattr(padded_depthwise, "WIDEST", {})


def model(**changes):
    torch.manual_seed(0)
    return Padded(**changes).eval()


@pytest.mark.parametrize(
    ("flow", "engine"), [(fx, "fbgemm"), (fx, "x86"), (fx, "onednn"), (fx, "qnnpack"), (eager, "fbgemm")]
)
@pytest.mark.parametrize(
    ("changes", "kernel"), [({"act": False}, 5), ({"pad": (1, 2, 1, 2), "kernel": 5}, 7), ({"pad": (0, 1, 1, 1)}, 5)]
)
def test_the_integers_are_those_of_the_padded_one_at_any_size(flow, engine, changes, kernel, left_alone):
    """Bit for bit, at the size of the example and at even and odd ones beside it; qnnpack is slow from 7 x 7 on."""
    network = int8(model(**changes), engine, flow=flow).module
    left_alone()
    before = int8(model(**changes), engine, flow=flow).module
    widths = [part.kernel_size for name, part in network.named_modules() if name.rpartition(".")[2] == "conv"]
    expected = changes.get("kernel") if (engine, kernel) == ("qnnpack", 7) else kernel
    assert widths == [(expected, expected)]
    with torch.inference_mode():
        for side in (16, 17, 19, 22):
            assert torch.equal(network(images(side)), before(images(side)))


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(*[st.integers(0, 4)] * 4), st.sampled_from([(3, 3), (5, 5), (3, 5)]), st.integers(1, 3), st.integers(6, 9)
)
def test_a_kernel_is_only_widened_where_nothing_changes(zeros, kernel, stride, side):
    """In floating point, over all paddings: the plan's wider kernel, cut, gives the old outputs wherever it is made."""
    pairs = (zeros[:2], zeros[2:])
    wide = padded_depthwise._wide(pairs, kernel, 11)
    if wide is None:
        assert any(sum(pair) > size - 1 for pair, size in zip(pairs, kernel, strict=True))
        return
    x, weight = torch.randn(1, 2, side, side + 1), torch.randn(2, 1, *kernel)
    rim = torch.zeros(2, 1, wide.side, wide.side)
    top, left = wide.starts
    rim[:, :, top : top + kernel[0], left : left + kernel[1]] = weight
    plain = nn.functional.conv2d(nn.functional.pad(x, (*pairs[1], *pairs[0])), weight, stride=stride, groups=2)
    actual = nn.functional.conv2d(x, rim, stride=stride, padding=wide.side // 2, groups=2)
    cut = padded_depthwise._Cut(pairs, kernel, (stride, stride))
    torch.testing.assert_close(cut(actual, x), plain)


@pytest.mark.parametrize(
    "changes",
    [
        {"groups": 1},  # a wider kernel would cost more than the padding
        {"pad": (0, 1, 0, 1), "kernel": 5, "own": 3},  # more zeros than a kernel can reach over
        {"pad": (0, 3, 0, 3), "kernel": 9},  # no engine has such kernels
        {"pad": (0, 0, 0, 0), "kernel": 3, "stride": 1},  # the outputs would be fewer
    ],
)
def test_what_gains_nothing_stays_as_it_is(changes):
    """Dense convolutions, kernels too wide, outputs of another size."""
    network = int8(model(**changes)).module
    assert not any(isinstance(part, padded_depthwise._Cut) for part in network.modules())


def test_the_frameworks_default_is_left_alone():
    """`recipe: framework-default` shows what torch does."""
    converted = int8(model(), recipe=Recipe(framework_default=True, canonicalize=False, clip_ranges=False))
    assert not any(isinstance(part, padded_depthwise._Cut) for part in converted.module.modules())
    assert any("slow path" in note for note in converted.conversion.notes)


def test_no_slow_path_is_left_to_report():
    """fbgemm computes the wider kernel by its depthwise code, so that there is nothing to warn of."""
    converted = int8(model())
    assert exact_integers.slow_convolutions(converted.module, "fbgemm") == []
    assert not any("slow path" in note for note in converted.conversion.notes)


@pytest.mark.parametrize(("kernel", "slow"), [(3, False), (5, False), (7, False), (9, True)])
def test_fbgemm_is_slow_from_nine_on(kernel, slow):
    """Where fbgemm has no depthwise kernel, the record names the layer."""
    converted = int8(model(pad=(0, 0, 0, 0), kernel=kernel, stride=1, own=kernel // 2), side=18)
    assert bool(exact_integers.slow_convolutions(converted.module, "fbgemm")) == slow


def test_coverage_counts_the_multiplications_of_the_network_not_the_rim(tmp_path):
    """The file's 5 x 5 kernel stands for the network's 3 x 3."""
    network, x = model(), images(16)[:1]
    result = int8(network).module
    torchscript.save(result, (x,), tmp_path / "m.pt")
    reference = torchscript.find_layers(network, (x,))
    layers = torchscript.find_layers(torchscript.load(tmp_path / "m.pt"), (x,))
    assert (
        coverage.compute_int8_share(coverage.align_layers(reference, layers)) < 1
    )  # the control: counted with the rim, it matches no layer
    own = padded_depthwise.without_rims(layers, result, (x,))
    assert [entry.macs for entry in own] == [entry.macs for entry in reference]
    assert coverage.compute_int8_share(coverage.align_layers(reference, own)) == 1
