"""Rules of qbench/quant/pytorch/int8_padding.py: which nodes of a graph pad with zeros, and how far."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from qbench.quant.pytorch import int8_padding, torch_ao
from qbench.quant.pytorch.int8_padding import zeros_of


class Net(nn.Module):
    """Runs a padding, layer or function."""

    def __init__(self, pad: Any) -> None:
        super().__init__()
        self.pad = pad

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded: torch.Tensor = self.pad(x)
        return padded


def find(pad: Any) -> Any:
    """What is told of the node of a traced padding."""
    traced = torch.fx.symbolic_trace(Net(pad))
    node = next(node for node in traced.graph.nodes if node.op in ("call_module", "call_function"))
    return zeros_of(node, traced)


@pytest.mark.parametrize(
    ("pad", "zeros"),
    [
        (nn.ZeroPad2d((1, 2, 3, 4)), ((3, 4), (1, 2))),
        (nn.ReflectionPad2d(1), None),
        (nn.ReLU(), None),
        (lambda x: functional.pad(x, (1, 2, 3, 4)), ((3, 4), (1, 2))),
        (lambda x: functional.pad(x, pad=(1, 2)), ((0, 0), (1, 2))),
        (lambda x: functional.pad(x, (1, 2), "constant", 0), ((0, 0), (1, 2))),
        (lambda x: functional.pad(x, (1, 2), mode="constant", value=0.0), ((0, 0), (1, 2))),
        (lambda x: functional.pad(x, (1, 2), value=1.0), None),
        (lambda x: functional.pad(x, (1, 2), "constant", 1), None),
        (lambda x: functional.pad(x, (1, 2), "reflect"), None),
        (lambda x: functional.pad(x, (1, 2), mode="reflect"), None),
        (lambda x: functional.relu(x), None),
    ],
)
def test_only_zeros_are_told(pad: Any, zeros: Any) -> None:
    """Of layers and of functions, however they are called."""
    assert find(pad) == zeros


def test_what_is_no_node_pads_nothing() -> None:
    """An argument may be a number."""
    assert zeros_of(3, nn.Identity()) is None
    assert zeros_of(None, nn.Identity()) is None


class Between(nn.Module):
    """A padding between two convolutions, or with something beside it."""

    def __init__(self, pad: Any, beside: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.pad, self.second, self.beside = nn.Conv2d(1, 2, 1), pad, nn.Conv2d(2, 2, 3), beside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        padded = self.pad(x)
        return self.second(padded) + (padded.mean() if self.beside else 0)


IMAGES = torch.rand(4, 1, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("pad", "shared"),
    [
        (nn.ZeroPad2d(1), True),
        (lambda x: functional.pad(x, (1, 1, 1, 1)), True),
        (nn.ReflectionPad2d(1), False),
        (lambda x: functional.pad(x, (1, 1, 1, 1), value=2.0), False),
    ],
)
@pytest.mark.usefixtures("engine_put_back")
def test_a_padding_with_zeros_works_on_int8(pad: Any, shared: bool) -> None:
    """Between two places of one observer; the answer stays."""
    engine = next(name for name in torch_ao.ENGINES if name in torch.backends.quantized.supported_engines)
    torch_ao.set_engine(engine)
    with torch_ao.known_warnings():
        mapping = torch_ao.get_default_qconfig_mapping(engine)
        prepared = torch_ao.prepare_fx(Between(pad).eval(), mapping, (IMAGES,))
        assert int8_padding.shared(prepared) == ()
        assert int8_padding.share(prepared) == shared
        assert prepared.code.count("self.padded_0(") == shared
        names = int8_padding.shared(prepared)
        assert len(names) == shared
        with torch.no_grad():
            prepared(IMAGES)
            int8 = torch_ao.convert_fx(prepared)
            before = int8(IMAGES)
        assert int8_padding.lower(int8, ()) == 0
        calls = str(int8.code).count(".dequantize()")
        assert int8_padding.lower(int8, names) == shared
        assert str(int8.code).count(".dequantize()") == calls - shared
        with torch.no_grad():
            assert torch.equal(int8(IMAGES), before)


@pytest.mark.usefixtures("engine_put_back")
def test_a_padding_that_others_read_keeps_its_own_scale() -> None:
    """What is not observed behind it reads floats."""
    engine = next(name for name in torch_ao.ENGINES if name in torch.backends.quantized.supported_engines)
    torch_ao.set_engine(engine)
    with torch_ao.known_warnings():
        mapping = torch_ao.get_default_qconfig_mapping(engine)
        prepared = torch_ao.prepare_fx(Between(nn.ZeroPad2d(1), beside=True).eval(), mapping, (IMAGES,))
        pads = [node for node in prepared.graph.nodes if node.name == "pad"]
        behind = [int8_padding.watching(user, prepared) is not None for user in pads[0].users]
        assert int8_padding.share(prepared) == all(behind)
