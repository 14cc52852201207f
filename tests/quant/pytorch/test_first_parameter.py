"""Code that asks a network for its device, after all of its parameters were packed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qbench.quant.artifacts import torchscript
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import dynamic, eager, first_parameter, torch_ao
from qbench.quant.recipe import Recipe

ENGINE = next(engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines)


@pytest.fixture(autouse=True)
def _engine(engine_put_back):
    torch_ao.set_engine(ENGINE)


class Block(nn.Module):
    """Decides on values, so that FX has no graph of it, and asks for the device of its first parameter."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    @property
    def device(self):
        """As transformers' models have it."""
        return next(parameter.device for parameter in self.parameters())

    def forward(self, x):
        if float(x.abs().max()) > 1e6:
            raise ValueError("too large")
        return self.fc(x.to(self.device))


def network():
    torch.manual_seed(0)
    return nn.Sequential(Block(), nn.Dropout()).eval()


def quantize(mode, module, x):
    recipe = Recipe(calibrator="minmax", reduce_range=True)  # right where sums have 16 bits, too
    job = QuantizeJob(module, ENGINE, recipe, (x[:1],))
    return (dynamic.by_module(job) if mode == "dynamic" else eager.static(job, lambda: iter([(x,)]))).module


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_a_network_that_asks_for_its_device_is_built(mode, tmp_path):
    """Every weight is packed, and the file holds no more than without the question."""
    module, x = network(), torch.randn(16, 8)
    int8 = quantize(mode, module, x)
    assert [name for name, _ in int8.named_parameters()] == [f"0.{first_parameter.NAME}"]
    torchscript.save(int8, (x,), tmp_path / "m.pt")
    loaded = torchscript.load(tmp_path / "m.pt")
    assert list(loaded.parameters()) == []
    with torch.inference_mode():
        assert torch.allclose(loaded(x[:1]), module(x[:1]), atol=0.1)


def test_what_has_a_parameter_left_gets_none():
    """Nor does what never had one, nor a layer that became another class."""
    module = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()).eval()
    int8 = quantize("dynamic", module, torch.randn(16, 8))
    assert {name for name, _ in int8.named_parameters()} == {"1.weight", "1.bias"}
