"""Rules of qbench/models/quantized_module.py: what is quantized is never called fp32, on any way in."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from networks import perceptron, residual_cnn
from torch import nn

from qbench.errors import ModelError
from qbench.models.base import ModelReference
from qbench.models.quantized_module import describe_own_qconfig, why_not_float
from qbench.network import _load, _require_float


def trace(module: nn.Module, *, frozen: bool = False) -> torch.jit.ScriptModule:
    """The module as TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(module, (torch.rand(1, 1, 8, 8),))
        return torch.jit.freeze(traced) if frozen else traced


class Dynamic(nn.Module):
    """A layer with dynamic int8 sums."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.ao.nn.quantized.dynamic.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.flatten(1))


class Pretending(nn.Module):
    """Fake quantization, as training with it leaves behind."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x.flatten(1), 0.1, 0, 0, 255)


@pytest.mark.parametrize("module", [perceptron(), residual_cnn()], ids=["perceptron", "residual"])
def test_a_float_network_is_none_of_it(module: nn.Module) -> None:
    """As a module, traced, and frozen."""
    forms = (module.eval(), trace(module), trace(module, frozen=True))
    assert [why_not_float(form) for form in forms] == [None] * 3


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(
    ("module", "operator"), [(Dynamic, "quantized::linear_dynamic"), (Pretending, "aten::fake_quant")]
)
def test_a_torchscript_file_with_int8_operators_is_told_by_them(
    module: type[nn.Module], operator: str, frozen: bool, tmp_path: Path
) -> None:
    """Also inside submodules; the message says what to give in its place."""
    traced = trace(module().eval(), frozen=frozen)
    assert f"already quantized ({operator}" in str(why_not_float(traced))
    file = tmp_path / "int8.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced.save(str(file))
    network, _ = _load(ModelReference(name="mine", source="torchscript", path=file), None)
    with pytest.raises(ModelError, match=r"mine: already quantized \(.*give the float network .* as source"):
        _require_float(network, "mine")


def test_a_module_is_told_by_its_layers() -> None:
    """By name and type; a layer that is to be quantized later is float."""
    assert why_not_float(Dynamic()) == "already quantized (head: Linear, head._packed_params: LinearPackedParams)"


def test_a_qconfig_of_the_author_is_told_of() -> None:
    """No recipe reads it, so nobody may believe that it was used."""
    module = perceptron()
    assert describe_own_qconfig(module) is None
    module.qconfig = object()
    assert str(describe_own_qconfig(module)).startswith("the qconfig that the code gives the network is not used")
