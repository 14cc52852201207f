"""Which outputs of a network are finite, what observers have met (where they go: test_fx, test_pt2e)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from qbench.quant.pytorch import drop_observers

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("outputs", "finite"),
    [
        (torch.ones(2), True),
        ((torch.ones(2), None), True),
        ({"logits": torch.ones(2), "loss": None, "name": "x"}, True),
        ((None, {"mask": torch.tensor([0.0, -INF])}), False),
        ((torch.ones(2), torch.tensor([NAN])), False),
        ((torch.tensor([3]), torch.tensor([True])), True),
        (None, True),
    ],
)
def test_every_tensor_of_the_outputs_counts_and_nothing_else(outputs: object, finite: bool) -> None:
    """Networks give tuples and dicts with None among them where an output is switched off."""
    assert drop_observers.finite(outputs) is finite


@pytest.mark.parametrize(
    ("low", "high", "met"),
    [
        ([-INF], [1.0], True),
        ([0.0], [INF], True),
        ([INF], [-INF], False),
        ([0.0], [1.0], False),
        ([-INF], [NAN], False),
        ([0.0, INF], [1.0, -INF], False),
        ([], [], False),
    ],
)
def test_an_observer_has_met_infinity_where_its_range_ends_there(
    low: list[float], high: list[float], met: bool
) -> None:
    """One that has met nothing begins at the wrong infinities, and NaN says nothing of where values end."""
    ends = SimpleNamespace(min_val=torch.tensor(low), max_val=torch.tensor(high))
    assert drop_observers.met_infinity(ends) is met
    assert drop_observers.met_infinity(SimpleNamespace(inner=ends)) is met
    assert not drop_observers.met_infinity(SimpleNamespace())
