"""Rules of qbench/quant/pytorch/eager/fusion_patterns.py: which layers become one, and where a range ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from composed_network import Network
from torch import nn

from qbench.quant.pytorch.eager import fusion_patterns, graph
from qbench.quant.pytorch.eager.fusion_patterns import Clip, find

Run = Callable[[Any, Any], Any]
IMAGE, ROWS, SERIES, VOLUME = (torch.rand(2, 3, *more) for more in ((4, 4), (), (3,), (2, 2, 2)))


def chains(
    run: Run, layers: dict[str, nn.Module], x: Any, *, training: bool = False, clip: Clip | None = None, out: str = ""
) -> list[Any]:
    """The names of the nodes of each chain; with what it ends at and whether that goes, where it ends at something."""
    traced = torch.fx.symbolic_trace(Network(run, **layers).eval())
    names = [node.name for node in traced.graph.nodes]
    matched = find(traced, graph.values(traced, (x,)), training=training, clip=clip, free=lambda node: node.name != out)
    told = [(tuple(names[i] for i in chain.nodes), chain.ends, chain.cut) for chain in matched]
    return [nodes if ends is None else (nodes, ends, cut) for nodes, ends, cut in told]


def conv() -> nn.Module:
    """A small convolution."""
    return nn.Conv2d(3, 3, 1)


def in_a_row(m: Any, x: Any) -> Any:
    """Every layer behind the one before it."""
    for layer in m.children():
        x = layer(x)
    return x


@pytest.mark.parametrize(
    ("layers", "x", "eval_chains", "training_chains"),
    [
        ({"a": conv(), "n": nn.BatchNorm2d(3), "r": nn.ReLU()}, IMAGE, [("a", "n", "r")], [("a", "n", "r")]),
        ({"a": conv(), "r": nn.ReLU()}, IMAGE, [("a", "r")], [("a", "r")]),
        ({"a": conv(), "n": nn.BatchNorm2d(3, track_running_stats=False)}, IMAGE, [], []),
        ({"a": conv(), "t": nn.Tanh(), "r": nn.ReLU()}, IMAGE, [], []),
        ({"a": nn.Conv1d(3, 3, 1), "n": nn.BatchNorm1d(3), "r": nn.ReLU()}, SERIES, [("a", "n", "r")],
         [("a", "n", "r")]),
        ({"a": nn.Conv3d(3, 3, 1), "n": nn.BatchNorm3d(3)}, VOLUME, [("a", "n")], [("a", "n")]),
        ({"a": nn.Linear(3, 3), "n": nn.BatchNorm1d(3), "r": nn.ReLU()}, ROWS, [("a", "n")], [("a", "n")]),
        ({"a": nn.Linear(3, 3), "n": nn.BatchNorm1d(3), "r": nn.ReLU()}, SERIES, [], []),
        ({"a": nn.Linear(3, 3), "r": nn.ReLU()}, ROWS, [("a", "r")], [("a", "r")]),
        ({"a": nn.ConvTranspose2d(3, 3, 1), "n": nn.BatchNorm2d(3), "r": nn.ReLU()}, IMAGE, [("a", "n")], []),
        ({"a": nn.ConvTranspose1d(3, 3, 1), "n": nn.BatchNorm1d(3)}, SERIES, [("a", "n")], []),
        ({"a": nn.ConvTranspose2d(3, 3, 1), "r": nn.ReLU()}, IMAGE, [], []),
        ({"n": nn.BatchNorm2d(3), "r": nn.ReLU()}, IMAGE, [("n", "r")], []),
        ({"n": nn.BatchNorm3d(3), "r": nn.ReLU()}, VOLUME, [("n", "r")], []),
        ({"n": nn.BatchNorm1d(3), "r": nn.ReLU()}, SERIES, [], []),
        ({"a": conv(), "n": nn.BatchNorm2d(3), "b": conv(), "r": nn.ReLU()}, IMAGE, [("a", "n"), ("b", "r")],
         [("a", "n"), ("b", "r")]),
    ],
)  # fmt: skip
def test_layers_that_torch_fuses_are_a_chain(
    layers: dict[str, nn.Module], x: Any, eval_chains: list[Any], training_chains: list[Any]
) -> None:
    """A convolution or Linear, the BatchNorm of its features, and a ReLU where torch has all three in one."""
    assert chains(in_a_row, layers, x) == eval_chains
    assert chains(in_a_row, layers, x, training=True) == training_chains


@pytest.mark.parametrize(
    ("layers", "clip", "expected"),
    [
        ({"a": conv(), "e": nn.ReLU6()}, None, []),
        ({"a": conv(), "e": nn.ReLU6()}, "range", [(("a",), (0.0, 6.0), False)]),
        ({"a": conv(), "e": nn.ReLU6()}, "replace", [(("a", "e"), (0.0, 6.0), True)]),
        ({"a": conv(), "n": nn.BatchNorm2d(3), "e": nn.ReLU6()}, "replace", [(("a", "n", "e"), (0.0, 6.0), True)]),
        ({"a": conv(), "n": nn.BatchNorm2d(3), "e": nn.ReLU6()}, None, [("a", "n")]),
        ({"a": conv(), "e": nn.Hardtanh(0.0, 5.0)}, "replace", [(("a", "e"), (0.0, 5.0), True)]),
        ({"a": conv(), "e": nn.Hardtanh()}, "replace", [(("a",), (-1.0, 1.0), False)]),
        ({"n": nn.BatchNorm2d(3), "e": nn.ReLU6()}, "replace", []),
        ({"a": conv(), "r": nn.ReLU(), "e": nn.ReLU6()}, "replace", [(("a", "r", "e"), (0.0, 6.0), True)]),
        ({"a": conv(), "t": nn.Tanh()}, "replace", []),
    ],
)
def test_a_range_ends_where_the_activation_behind_cuts(
    layers: dict[str, nn.Module], clip: Clip | None, expected: list[Any]
) -> None:
    """Of a layer that multiplies; the activation itself goes where saturation at zero does its work."""
    assert chains(in_a_row, layers, IMAGE, clip=clip) == expected


@pytest.mark.parametrize(
    ("run", "clip", "out", "expected"),
    [
        (lambda m, x: m.r(m.a(m.a(x))), None, "", []),
        (lambda m, x: (m.a(x), m.r(m.a_2(x))), None, "", [("a_2", "r")]),
        (lambda m, x: m.r(y := m.a(x)) + y, None, "", []),
        (lambda m, x: m.r(m.r(m.a(x))), None, "", []),
        (lambda m, x: m.r(m.a(x)), None, "r", []),
        (lambda m, x: m.r(m.a(x)), None, "a", []),
        (lambda m, x: m.e(m.a(x)), "replace", "e", []),
        (lambda m, x: m.e(m.a_2(m.e(m.a(x)))), "replace", "",
         [(("a", "e"), (0.0, 6.0), True), (("a_2", "e_1"), (0.0, 6.0), True)]),
        (lambda m, x: m.r(m.a(x) + x), None, "", [("add", "r")]),
        (lambda m, x: m.r(m.r(x + x) + x), None, "", [("add", "r"), ("add_1", "r_1")]),
        (lambda m, x: m.r(x + 1.0), None, "", []),
        (lambda m, x: m.r(x * x), None, "", []),
        (lambda m, x: m.r(torch.add(x, x, alpha=2)), None, "", [("add", "r")]),
        (lambda m, x: m.r(y := x + x) + y, None, "", []),
        (lambda m, x: m.r(x + x), None, "r", []),
        (lambda m, x: m.r(x + x), None, "add", []),
        (lambda m, x: m.e(x + x), "replace", "", []),
    ],
)  # fmt: skip
def test_only_what_is_used_once_and_free_is_fused(run: Run, clip: Clip | None, out: str, expected: list[Any]) -> None:
    """Of additions the ReLU's module may be shared, since it is not moved, and of a range the activation's."""
    layers = {"a": conv(), "a_2": conv(), "r": nn.ReLU(), "e": nn.ReLU6()}
    assert chains(run, layers, IMAGE, clip=clip, out=out) == expected


def test_what_an_activation_ends_at() -> None:
    """Of no other layer."""
    layers = (nn.ReLU6(), nn.Hardtanh(-2, 3), nn.ReLU(), None)
    assert [fusion_patterns.ends(layer) for layer in layers] == [(0.0, 6.0), (-2.0, 3.0), None, None]
