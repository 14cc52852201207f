"""PT2E with XNNPACK's quantizer: what is observed where, and the axis of a weight's channels."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("executorch")

import numpy as np
import torch
from torch import nn

from qbench.quant.artifacts import torch_export
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import pt2e, pt2e_xnnpack
from qbench.quant.pytorch.qconfig import QNNPACK_SMALLEST
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


def configure(recipe, *, training, dynamic=False):
    """What is observed, without what executorch warns of as it is imported."""
    with torch_export.known_warnings():
        return pt2e_xnnpack._config(recipe, training=training, dynamic=dynamic)


def quantize(module, recipe=RECIPE):
    return pt2e.static(QuantizeJob(module.eval(), "executorch", recipe, (X[:1],)), lambda: iter([(X,)])).module


def list_scales(graph_module):
    return [node.args[1] for node in graph_module.graph.nodes if ".quantize_per_tensor.default" in str(node.target)]


def sqnr(module, quantized):
    with torch.no_grad():
        fp32, int8 = module(X), quantized(X)
    return 20 * float(torch.log10(fp32.norm() / (fp32 - int8).norm()))


def test_nothing_but_the_network_is_exported_where_nothing_is_trained(monkeypatch):
    """BatchNorm is folded by then; patterns of BatchNorm in training take longer to export than a small network."""
    export, exported = torch.export.export, []

    def told(module, *args, **options):
        exported.append(type(module).__name__)
        return export(module, *args, **options)

    monkeypatch.setattr(torch.export, "export", told)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.ConvTranspose2d(4, 2, 2))
    quantized = quantize(module)
    assert exported == ["Sequential"]
    assert not [node for node in quantized.graph.nodes if "batch_norm" in str(node.target)]
    assert sqnr(module, quantized) > 25


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


@pytest.mark.parametrize(
    ("per_channel", "training", "observer"),
    [
        (None, False, "PerChannelMinMaxObserver"),
        (True, False, "PerChannelMinMaxObserver"),
        (False, False, "MinMaxObserver"),
        (None, True, "PerChannelFakeQuantize"),
        (False, True, "FusedMovingAvgObsFakeQuantize"),
    ],
)
def test_weights_are_watched_as_the_recipe_says(per_channel, training, observer):
    """By channel unless it says otherwise; no scale is smaller than a bias can follow."""
    watched = pt2e_xnnpack._weight(Recipe(flow="pt2e", per_channel=per_channel), training).p
    assert watched.func.__name__ == observer
    assert watched.keywords["eps"] == QNNPACK_SMALLEST
    moving = {"PerChannelFakeQuantize": "MovingAveragePerChannel", "FusedMovingAvgObsFakeQuantize": "MovingAverage"}
    assert not training or watched.keywords["observer"].__name__ == f"{moving[observer]}MinMaxObserver"


@pytest.mark.parametrize("symmetric", [None, True])
@pytest.mark.parametrize("training", [False, True])
def test_activations_have_the_scheme_and_calibrator_of_the_recipe(symmetric, training):
    """In and out alike; those of a dynamic quantization, and of the framework's own recipe, are XNNPACK's."""
    recipe = Recipe(flow="pt2e", calibrator="minmax", symmetric=symmetric)
    config = configure(recipe, training=training)
    assert config.input_activation == config.output_activation
    assert config.input_activation.qscheme is (torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine)
    assert config.weight.qscheme is torch.per_channel_symmetric
    plain = configure(replace(recipe, framework_default=True), training=training)
    assert plain.input_activation.observer_or_fake_quant_ctr != config.input_activation.observer_or_fake_quant_ctr
    dynamic = configure(recipe, training=False, dynamic=True)
    assert dynamic.input_activation.is_dynamic
    assert dynamic.weight.observer_or_fake_quant_ctr.p.keywords["eps"] == QNNPACK_SMALLEST
    coarse = configure(replace(recipe, per_channel=False), training=training)
    assert coarse.weight.qscheme is torch.per_tensor_symmetric


def test_why_an_operator_is_float_and_for_which_cpus_the_rest_is():
    """It has no form, or there was no pattern."""
    assert pt2e_xnnpack.explain_float(None, "conv3d").endswith("conv3d")
    assert "no pattern" not in pt2e_xnnpack.explain_float(None, "conv3d")
    assert pt2e_xnnpack.explain_float(None, "conv2d") == "XNNPACKQuantizer matched no pattern around this conv2d"
