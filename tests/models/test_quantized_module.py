"""Rules of qbench/models/quantized_module.py: what is quantized is never called fp32, on any way in."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from networks import perceptron, residual_cnn
from torch import nn

from qbench.errors import ModelError
from qbench.models.base import ModelReference, Network
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
    with pytest.raises(ModelError, match=r"give the float network .* as source, and this file beside it: `int8: int8"):
        _require_float(network, ModelReference(name="mine"))


def test_a_module_is_told_by_its_layers() -> None:
    """By name and type; a layer that is to be quantized later is float."""
    assert why_not_float(Dynamic()) == "already quantized (head: Linear, head._packed_params: LinearPackedParams)"


class Wrapped(nn.Module):
    """An int8 TorchScript network as a layer of a module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = trace(Dynamic().eval())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_a_module_is_told_by_what_a_layer_of_torchscript_runs() -> None:
    """Its class is not among the quantized ones."""
    assert str(why_not_float(Wrapped())).startswith("already quantized (inner: quantized::linear_dynamic")


@pytest.mark.parametrize("module", [Pretending, Dynamic, Wrapped])
def test_a_module_is_told_by_what_it_calls(module: type[nn.Module]) -> None:
    """Functions that quantize stand in no layer: they show in a call. The error says whose network it is."""
    example = (torch.rand(1, 1, 8, 8),)
    assert "already quantized" in str(why_not_float(module().eval(), example))
    network = Network(kind="torch", module=module().eval())
    with pytest.raises(ModelError, match=r"mine: already quantized \(.*and qbench builds the int8 variants$"):
        _require_float(network, ModelReference(name="mine"), (example[0].numpy(),))


@pytest.mark.parametrize("module", [perceptron(), residual_cnn()], ids=["perceptron", "residual"])
def test_a_call_of_a_float_module_quantizes_nothing(module: nn.Module) -> None:
    """Also where the example does not fit: that is told elsewhere."""
    assert why_not_float(module.eval(), (torch.rand(1, 1, 8, 8),)) is None
    assert why_not_float(module.eval(), (torch.rand(1, 7),)) is None


def test_an_exported_program_with_int8_is_told() -> None:
    """What `torch.export.load(file).module()` gives, by the operators of its graph."""
    example = (torch.rand(1, 1, 8, 8),)
    exported = torch.export.export(Pretending().eval(), example).module()
    assert "fake_quant" in str(why_not_float(exported))
    assert why_not_float(torch.export.export(perceptron().eval(), example).module()) is None


def test_fake_quantization_of_a_network_prepared_for_training_is_told_in_torchscript() -> None:
    """Its operator observes and quantizes at once, and has a name of its own."""

    class Prepared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fake = torch.ao.quantization.FusedMovingAvgObsFakeQuantize()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fake(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(Prepared().eval(), (torch.rand(1, 1, 8, 8),))
    assert "fused_moving_avg_obs_fake_quant" in str(why_not_float(traced))


def test_a_qconfig_of_the_author_is_told_of() -> None:
    """No recipe reads it, so nobody may believe that it was used."""
    module = perceptron()
    assert describe_own_qconfig(module) is None
    module.qconfig = object()
    assert str(describe_own_qconfig(module)).startswith(
        "the qconfig that the code gives the network is used by `recipe: {qconfig: own}` alone"
    )


def test_the_first_three_are_named() -> None:
    """Of layers that are quantized, or have a qconfig; and how many more there are."""
    layers = nn.Sequential(*(torch.ao.nn.quantized.dynamic.Linear(2, 2) for _ in range(2)))
    names = "0: Linear, 0._packed_params: LinearPackedParams, 1: Linear and 1 more"
    assert why_not_float(layers) == f"already quantized ({names})"
    plain = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
    for part in plain:
        part.qconfig = object()
    assert "that the code gives 0, 1, 2 and 1 more is used by" in str(describe_own_qconfig(plain))
