"""Rules of qbench/quant/pytorch/eager/user_stubs.py: stubs of the network's author, and what is float between them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from qbench.errors import BuildError
from qbench.quant.pytorch import torch_ao
from qbench.quant.pytorch.eager import user_stubs


class Stubbed(nn.Module):
    """Two convolutions with activations between stubs."""

    def __init__(self, quant: bool = True, dequant: bool = True) -> None:
        super().__init__()
        self.quant = torch_ao.QuantStub() if quant else nn.Identity()
        self.dequant = torch_ao.DeQuantStub() if dequant else nn.Identity()
        self.a, self.norm, self.act = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.b, self.lstm = nn.Conv2d(4, 2, 1), nn.LSTM(2, 2)

    def forward(self, x: Any) -> Any:
        return self.dequant(self.b(self.act(self.norm(self.a(self.quant(x))))))


X = torch.rand(1, 2, 6, 6)


@pytest.mark.parametrize(
    ("stubs", "said"),
    [
        ({}, None),
        ({"quant": False}, "this network has a DeQuantStub but no QuantStub: put QuantStub and DeQuantStub around"),
        ({"dequant": False}, "this network has a QuantStub but no DeQuantStub: put QuantStub and DeQuantStub around"),
    ],
)
def test_a_network_brings_both_stubs(stubs: dict[str, bool], said: str | None) -> None:
    """Or the message says which is missing, and what to do."""
    if said is None:
        user_stubs._require_both(Stubbed())
        return
    with pytest.raises(BuildError, match=f"^{said}.*or remove all stubs"):
        user_stubs._require_both(Stubbed(**stubs))


@pytest.mark.parametrize(
    ("training", "floats", "fused"),
    [
        (False, frozenset(), (("a", "norm", "act"),)),
        (True, frozenset(), (("a", "norm", "act"),)),
        (False, frozenset({"a"}), (("norm", "act"),)),
        (False, frozenset({"a", "norm"}), ()),
        (False, frozenset({"b"}), (("a", "norm", "act"),)),
    ],
)
def test_layers_are_fused_by_name(training: bool, floats: frozenset[str], fused: Any) -> None:
    """Those that stay float are not; the network is as it was."""
    module = Stubbed().eval()
    assert user_stubs.fused_names(module, (X,), floats, training=training) == fused
    assert type(module.act) is nn.ReLU

    class Decides(Stubbed):
        def forward(self, x: Any) -> Any:
            return super().forward(x if float(x.sum()) > 0 else -x)

    assert user_stubs.fused_names(Decides().eval(), (X,), floats, training=training) == ()


def test_layers_that_stay_float_are_those_that_multiply() -> None:
    """By their own name, or that of a part that they lie in."""
    outer = nn.Sequential(Stubbed(), nn.Linear(2, 2))
    assert user_stubs._heavy_below(outer, {"0": "why"}) == {"0.a", "0.b"}
    assert user_stubs._heavy_below(outer, {"0.act": "why", "1": "why"}) == {"1"}
    assert user_stubs._heavy_below(outer, {}) == frozenset()


def test_a_float_layer_in_a_region_is_dequantized_for() -> None:
    """And what it gives is quantized again; only layers that got int8 are inside."""
    module = Stubbed()
    layer = module.b
    user_stubs._as_island(module, "b")
    kinds = [type(part) for part in module.b]
    assert kinds == [torch_ao.DeQuantStub, nn.Conv2d, torch_ao.QuantStub]
    assert module.b[1] is layer
    assert layer.qconfig is None
    inside: set[str] = set()
    int8 = torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)
    user_stubs._note_int8(inside, "first")(None, (X, int8))
    assert inside == set()
    user_stubs._note_int8(inside, "second")(None, (int8,))
    assert inside == {"second"}


def test_what_the_author_or_the_recipe_keeps_float_has_no_quantization() -> None:
    """With all below it; others have that of their kind, fused ones that of their first part."""
    module = Stubbed().eval()
    module.b.qconfig = None
    asked: list[Any] = []

    def of(part: Any, ends: Any) -> Any:
        assert ends is None
        asked.append(type(part))
        return type(part).__name__

    torch_ao.fuse_modules(module, ["a", "norm", "act"], inplace=True)
    user_stubs._configure(module, of, frozenset())
    assert module.b.qconfig is None
    assert module.lstm.qconfig is None
    assert module.quant.qconfig == "QuantStub"
    assert {part.qconfig for part in module.a.modules()} == {"Conv2d"}
    assert module.qconfig == "Stubbed"
    plain = Stubbed().eval()
    user_stubs._configure(plain, of, frozenset({"a", "act"}))
    assert (plain.a.qconfig, plain.act.qconfig, plain.b.qconfig) == (None, "ReLU", "Conv2d")
    plain.qconfig = None
    user_stubs._configure(plain, of, frozenset())
    assert {part.qconfig for part in plain.modules()} == {None}
