"""Rules of qbench/quant/pytorch/eager/verify.py: when an int8 operator is off, and whose fault a refusal is."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from qbench.errors import BuildError
from qbench.quant.pytorch.eager import verify

SCALE = 0.1


def quantized(*values: float) -> Any:
    """An int8 tensor of these values, in steps of 0.1."""
    return torch.quantize_per_tensor(torch.tensor(values), SCALE, 128, torch.quint8)


def meaning(least: float = 25.0, **ends: Any) -> verify._Meaning:
    """Of an operator that gives its input."""
    return verify._Meaning(of=lambda x: x, least=least, **ends)


@pytest.mark.parametrize(
    ("actual", "expected", "least", "told"),
    [
        ((1.0, 2.0), (1.0, 2.0), 25.0, None),
        ((1.0, 2.0), (1.1, 2.0), 25.0, None),  # a step
        ((1.0, 2.0), (1.104, 2.0), 25.0, None),  # and a twentieth
        ((1.0, 2.0), (1.2, 2.0), 25.0, "21.3 dB"),
        ((1.0, 2.0), (1.2, 2.0), 21.34, "21.3 dB"),
        ((1.0, 2.0), (1.2, 2.0), 21.33, None),
        ((1.0, 2.0), (3.0, 2.0), 3.0, None),  # 13 to 4
        ((1.0, 2.0), (3.0, 2.0), 6.0, "5.1 dB"),
        ((1.0, 0.0), (0.0, 0.0), 25.0, "-297.0 dB"),  # no signal at all
        ((1.0, 2.0), (math.nan, 2.0), 25.0, None),
        ((1.0, 2.0), (math.inf, 2.0), 25.0, None),
    ],
)
def test_an_operator_is_off_by_more_than_a_step_and_more_than_its_noise(
    actual: tuple[float, ...], expected: tuple[float, ...], least: float, told: str | None
) -> None:
    """What is no number in fp32 tells nothing."""
    words = verify._wrong(quantized(*actual), torch.tensor(expected), meaning(least))
    expected_words = f"its int8 kernel on this engine gives wrong values ({told} on its own)"
    assert words == (None if told is None else expected_words)


def test_what_an_activation_cuts_off_does_not_count() -> None:
    """On either side, and in both; a float result is right."""
    assert verify._wrong(quantized(9.0, -5.0), torch.tensor([6.5, -1.0]), meaning(ends=(0.0, 6.0))) is None
    assert verify._wrong(quantized(5.0, 0.0), torch.tensor([6.5, -1.0]), meaning(ends=(0.0, 6.0))) is not None
    assert verify._wrong(torch.tensor([1.0]), torch.tensor([9.0]), meaning()) is None


def test_how_much_noise_operators_may_have() -> None:
    """Those that multiply and accumulate may saturate."""
    assert (verify._LEAST_LIGHT, verify._LEAST_HEAVY) == (25.0, 3.0)


def test_int8_arguments_become_floats() -> None:
    """Wherever they stand; others stay."""
    plain = torch.tensor([3])
    floats = verify._floats((quantized(1.0), [quantized(2.0), plain], {"a": quantized(3.0)}, 4, None))
    assert not any(value.is_quantized for value in (floats[0], floats[1][0], floats[2]["a"]))
    assert (float(floats[0]), float(floats[1][0]), float(floats[2]["a"])) == pytest.approx((1, 2, 3))
    assert floats[1][1] is plain
    assert floats[3:] == (4, None)


class Two(nn.Module):
    """Two layers and a function between them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.ReLU(), nn.Sigmoid()

    def forward(self, x: Any) -> Any:
        return self.b(torch.neg(self.a(x)))


def traced() -> tuple[Any, dict[Any, int]]:
    """Its graph, and the positions of its nodes."""
    graph_module = torch.fx.symbolic_trace(Two())
    return graph_module, {node: i for i, node in enumerate(graph_module.graph.nodes)}


def test_each_layer_is_tried_alone() -> None:
    """Those that refuse have their reason; functions are none, and where no layer refuses the cause is raised."""
    graph_module, serves = traced()

    def refuse(part: Any) -> None:
        if isinstance(part, nn.Sigmoid):
            raise ValueError("no kernel")

    reasons = verify._refusing(graph_module, serves, refuse, RuntimeError("all"))
    assert list(reasons) == [3]
    assert reasons[3].startswith("torch cannot run it in int8: ValueError: no kernel")
    assert verify._refusing(graph_module, serves, lambda part: None, None) == {}
    with pytest.raises(RuntimeError, match="^all$"):
        verify._refusing(graph_module, serves, lambda part: None, RuntimeError("all"))

    def full(part: Any) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        verify._refusing(graph_module, serves, full, None)


def test_a_network_that_stops_where_nothing_is_left_to_refuse_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same positions twice would be tried for ever."""
    graph_module = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
    monkeypatch.setattr(verify, "_failed", lambda *_: {7: "no kernel"})
    with pytest.raises(BuildError, match="^eager mode cannot run this network in int8: no kernel$"):
        verify.prove(
            graph_module, (torch.ones(1, 2),), lambda *_: None, lambda node: False, training=False, clip=None,
            floats={7: "skipped"},
        )  # fmt: skip


def test_what_is_refused_is_left_out_of_the_next_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until nothing is left in int8."""
    graph_module = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    tried = []

    def failed(traced: Any, chosen: Any, *_: Any) -> dict[int, str]:
        tried.append(sorted(chosen.int8))
        return {min(chosen.int8): "no kernel"}

    monkeypatch.setattr(verify, "_failed", failed)
    floats = {9: "skipped"}
    proven = verify.prove(
        graph_module, (torch.ones(1, 2),), lambda *_: None, lambda node: False, training=False, clip=None,
        floats=floats,
    )  # fmt: skip
    assert tried == [[1, 2], [2]]
    assert not proven.plan.int8
    assert proven.refused == {9: "skipped", 1: "no kernel", 2: "no kernel"}
    assert floats == {9: "skipped"}
    assert [value.shape for value in proven.values] == [(1, 2)] * 4
