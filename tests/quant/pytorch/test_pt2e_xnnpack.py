"""PT2E with XNNPACK's quantizer: what is observed where, and the axis of a weight's channels."""

from __future__ import annotations

import pytest

pytest.importorskip("executorch")

import numpy as np
import torch
from torch import nn

from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import pt2e
from qbench.quant.recipe import Recipe

RECIPE = Recipe(flow="pt2e", calibrator="minmax", per_channel=True, symmetric=False)
X = torch.from_numpy(np.random.default_rng(0).normal(size=(16, 3, 8, 8)).astype(np.float32))


class Clamped(nn.Module):
    """A convolution of large outputs behind a clamp, and another one."""

    def __init__(self, clamp):
        super().__init__()
        self.first, self.clamp, self.second = nn.Conv2d(3, 8, 3), clamp, nn.Conv2d(8, 4, 3)
        with torch.no_grad():
            self.first.weight.mul_(100)

    def forward(self, x):
        return self.second(self.clamp(self.first(x)))


def quantize(module, recipe=RECIPE):
    return pt2e.static(QuantizeJob(module.eval(), "executorch", recipe, (X[:1],)), lambda: iter([(X,)])).module


def list_scales(graph_module):
    return [node.args[1] for node in graph_module.graph.nodes if ".quantize_per_tensor.default" in str(node.target)]


def sqnr(module, quantized):
    with torch.no_grad():
        fp32, int8 = module(X), quantized(X)
    return 20 * float(torch.log10(fp32.norm() / (fp32 - int8).norm()))


@pytest.mark.parametrize("clamp", [nn.ReLU6(), nn.ReLU6(inplace=True), nn.Hardtanh(-2, 2)], ids=str)
def test_a_clamp_is_observed_behind_and_not_before(clamp):
    """Its 256 levels are those of what it lets pass. XNNPACK's own configuration observes what is cut off next."""
    torch.manual_seed(0)
    module = Clamped(clamp)
    own, theirs = quantize(module), quantize(module, Recipe(flow="pt2e", framework_default=True))
    span = 6 if isinstance(clamp, nn.ReLU6) else 4
    _, *inner, _ = list_scales(own)  # without input and output
    assert inner
    assert inner == pytest.approx([span / 255] * len(inner), rel=0.01)
    assert max(list_scales(theirs)[1:-1]) > 10 * span / 255
    assert sqnr(module, own) > sqnr(module, theirs) + 5


def test_a_clamp_behind_what_others_read_too_changes_nothing():
    """What is before it is needed as it is."""

    class Branch(Clamped):
        def forward(self, x):
            x = self.first(x)
            return self.second(self.clamp(x)) + self.second(x)

    torch.manual_seed(0)
    module = Branch(nn.ReLU6())
    assert sqnr(module, quantize(module)) > 30


@pytest.mark.parametrize("training", [False, True])
def test_transposed_convolutions_have_scales_of_output_channels(training):
    """On the second axis of their weight; XNNPACK takes no other."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ConvTranspose2d(5, 7, 2))
    if training:
        job = QuantizeJob(module, "executorch", RECIPE, (X[:1],))
        prepared = pt2e.prepare_qat(job)
        prepared(X)
        int8 = pt2e.convert_qat(QuantizeJob(prepared, "executorch", RECIPE, (X[:1],))).module
    else:
        int8 = quantize(module)
    weights = [node for node in int8.graph.nodes if "dequantize_per_channel" in str(node.target)]
    axes = {len(getattr(int8, str(node.args[1].target))): node.args[3] for node in weights}
    assert axes == {5: 0, 7: 1}


def test_a_channel_of_zeros_keeps_its_bias():
    """A bias is an int32 of the scale: with torch's smallest, 1.2e-7, it would overflow."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3))
    with torch.no_grad():
        module[0].weight[0] = 0
        module[0].bias[0] = 3.0
    int8 = quantize(module)
    scales = [getattr(int8, str(n.args[1].target)) for n in int8.graph.nodes if "per_channel" in str(n.target)]
    assert float(scales[0].min()) == 2.0**-18
    with torch.no_grad():
        assert torch.allclose(int8(X)[:, 0], torch.tensor(3.0), atol=0.05)
