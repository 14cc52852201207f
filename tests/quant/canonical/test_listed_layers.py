"""Layers in a plain list: what goes by their names is what runs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from qbench.quant.artifacts import tracing
from qbench.quant.canonical import canonicalize
from qbench.quant.canonical.listed_layers import ListedLayers, follow_names
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import eager, torch_ao
from qbench.quant.recipe import Recipe

ENGINE = next(engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines)


@pytest.fixture(autouse=True)
def _engine(engine_put_back):
    torch_ao.set_engine(ENGINE)


class Own(nn.Linear):
    """Another name for a linear layer."""


class Head(nn.Module):
    """As transformers writes heads: a list of layers, each registered by its number."""

    def __init__(self, kind: type = list, first: type = nn.Linear) -> None:
        super().__init__()
        layers = [first(8, 8), nn.ReLU(), nn.Linear(8, 4)]
        for number, layer in enumerate(layers):
            self.add_module(str(number), layer)
        self.layers = kind(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 1e9:
            return x
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_gives_what_goes_by_the_names_now(kind: type) -> None:
    """By number, from behind, as a part of it, in a sum and one after the other; the copied network has its own."""
    head = Head(kind)
    follow_names(head)
    copied = copy.deepcopy(head)
    new = nn.Identity()
    copied.add_module("1", new)
    first, _, last = copied.children()
    expected = [first, new, last]
    assert [*copied.layers] == copied.layers[:] == [*reversed(copied.layers)][::-1] == expected
    assert (copied.layers[1], copied.layers[-2], copied.layers[1:2], len(copied.layers)) == (new, new, [new], 3)
    more = [1]
    assert copied.layers + more == [*expected, 1]
    assert isinstance(head.layers[1], nn.ReLU)
    assert copied.layers.owner is copied


def test_what_has_no_name_stays_as_it_is() -> None:
    """Numbers, modules that nobody registers, and lists without modules."""
    head, stranger = Head(), nn.Linear(2, 2)
    head.layers = [head.layers[0], stranger, None, 3]
    head.sizes, head.strangers = [1, 2], [stranger]
    follow_names(head)
    assert [*head.layers] == [head.get_submodule("0"), stranger, None, 3]
    assert type(head.layers) is ListedLayers
    assert (type(head.sizes), type(head.strangers)) == (list, list)


@pytest.mark.parametrize("flow", [eager.dynamic, lambda job: eager.static(job, lambda: iter([job.example]))])
def test_layers_in_a_list_become_int8(flow) -> None:
    """The float ones ran on, and torch.jit refused their weights as constants."""
    example = (torch.randn(4, 8),)
    module = Head().eval()
    job = QuantizeJob(module, ENGINE, Recipe(per_channel=False, calibrator="minmax"), example)
    converted = flow(job).module
    assert [type(part).__module__.startswith("torch.ao") for part in converted.modules() if hasattr(part, "scale")]
    assert not [part for part in converted.modules() if type(part) is nn.Linear]
    assert "quantized" in str(tracing.trace(converted, example).script.inlined_graph)


def test_canonicalization_reaches_them() -> None:
    """A subclass of a layer in a list is exchanged for the plain class, which then runs."""
    head = Head(first=Own).eval()
    canonical = canonicalize(head, (torch.randn(4, 8),)).module
    assert [type(layer) for layer in canonical.layers] == [nn.Linear, nn.ReLU, nn.Linear]
    assert canonical.layers[0] is canonical.get_submodule("0")
    assert type(head.layers[0]) is Own
