"""Rules of qbench/quant/pytorch/fake_quant_sites.py: which places are quantized, and what was learned there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from qbench.quant.pytorch import fake_quant_sites
from qbench.quant.pytorch.fake_quant_sites import ACTIVATION, WEIGHT, LearnedScale, Site

pytestmark = pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")


def fake(*, values: Any = (-1.0, 3.0), enabled: int = 1, per_channel: bool = False) -> Any:
    """torch's fake quantization to bytes that has seen this range (empty: nothing)."""
    import torch.ao.quantization as ao

    observer = ao.MovingAveragePerChannelMinMaxObserver if per_channel else ao.MovingAverageMinMaxObserver
    kept = {"dtype": torch.qint8, "ch_axis": 0} if per_channel else {"dtype": torch.quint8}
    part = ao.FakeQuantize.with_args(observer=observer, quant_min=-8 if per_channel else 0, quant_max=7, **kept)()
    if values:
        part.activation_post_process(torch.tensor(values))
    part.fake_quant_enabled[0] = enabled
    return part


class Layer(nn.Linear):
    """A layer with what QAT puts into it."""

    def __init__(self, weight: Any = None, output: Any = None) -> None:
        super().__init__(2, 2)
        if weight is not None:
            self.weight_fake_quant = weight
        if output is not None:
            self.activation_post_process = output


class Clips(nn.Module):
    """Holds what it clamps for, as ``ClippedObserver`` does."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)


class Network(nn.Module):
    """Quantizes in a layer, and in its own graph the output of a layer, of a sum and of a weight times a factor."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(Layer(weight=fake(per_channel=True, values=[[-1.0, 0.5], [0.0, 2.0]])))
        self.behind, self.of_sum, self.of_weight = fake(), Clips(fake(values=(0.0, 7.0))), fake(enabled=0)
        self.other = nn.Linear(2, 2)
        self.factor = nn.Parameter(torch.ones(2, 2))

    def forward(self, x: Any) -> Any:
        y = self.of_sum(self.behind(self.block(x)) + 1)
        return y @ self.of_weight(self.other.weight * 2) + self.factor


def traced(module: nn.Module) -> Any:
    """Its graph, in which layers and fake quantization are calls of modules."""

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, m: Any, qualified_name: str) -> bool:
            return not isinstance(m, Network | nn.Sequential)

    return torch.fx.GraphModule(module, Tracer().trace(module))


def test_places_are_those_in_layers_and_then_those_of_graphs() -> None:
    """Each by the name of the layer, of the operation, or of the weight's layer; below a network by its name there."""
    graph = traced(Network())
    expected = [("block.0", WEIGHT), ("block.0", ACTIVATION), ("add", ACTIVATION), ("other", WEIGHT)]
    assert [(site.name, site.of) for site in fake_quant_sites.sites(graph)] == expected
    below = fake_quant_sites.sites(nn.ModuleDict({"inner": graph}))
    assert [(site.name, site.of) for site in below] == [(f"inner.{name}", of) for name, of in expected]
    alone = fake_quant_sites.sites(nn.ModuleDict({"a": Layer(output=fake()), "b": Layer(output=nn.Identity())}))
    assert [(site.name, site.of) for site in alone] == [("a", ACTIVATION)]
    assert fake_quant_sites.sites(nn.Sequential(nn.Linear(1, 1))) == ()


def test_what_was_learned_is_told_for_places_that_round_and_have_seen_values() -> None:
    """One number for all, or one for each channel along its axis; integers between the ends of its type."""
    learned = fake_quant_sites.learned_scales(traced(Network()))
    assert [(each.name, each.of) for each in learned] == [
        ("block.0", WEIGHT),
        ("block.0", ACTIVATION),
        ("add", ACTIVATION),
    ]
    weight, output, total = learned
    assert (weight.axis, weight.low, weight.high, weight.dtype) == (0, -8, 7, "int8")
    assert (len(weight.scale), len(weight.zero_point)) == (2, 2)
    assert output == LearnedScale(name="block.0", of=ACTIVATION, scale=output.scale, zero_point=(2,), axis=None, low=0,
                                  high=7, dtype="uint8")  # fmt: skip
    assert (output.scale, total.scale) == (pytest.approx((4 / 7,)), pytest.approx((1.0,)))


@pytest.mark.parametrize(
    ("values", "observed"), [((), False), ((1.0, 2.0), True), (None, False)], ids=["nothing", "values", "infinite ends"]
)
def test_a_place_without_a_value_has_no_range(values: Any, observed: bool) -> None:
    """The ends of an observer that has seen nothing are none, or infinite the wrong way round."""
    site = Site(name="a", of=ACTIVATION, module=fake(values=values or ()))
    if values is None:
        site.observer.min_val, site.observer.max_val = (
            torch.tensor([1.0, float("inf")]),
            torch.tensor([1.0, -float("inf")]),
        )
    assert site.observed is observed
    equal = Site(name="a", of=ACTIVATION, module=fake(values=(2.0, 2.0)))
    assert equal.observed
    fixed = Site(name="a", of=ACTIVATION, module=nn.Identity())
    assert fixed.observed
    assert fixed.observer is None


def test_a_place_rounds_where_all_of_it_does() -> None:
    """Else it only observes."""
    assert [Site(name="a", of=WEIGHT, module=fake(enabled=on)).enabled for on in (0, 1)] == [False, True]
