"""Rules of qbench/quant/onnx/sensitivity.py: how alike two outputs are, and what one layer alone is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from quantized_networks import quantized

from qbench.quant.onnx import sensitivity
from qbench.quant.onnx.settings import ActivationParams, WeightParams
from qbench.quant.onnx.sites import ActivationSite, Scales, Sites, WeightSite


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ([1.0, 2.0], [2.0, 4.0], 1.0),
        ([1.0, 0.0], [0.0, 3.0], 0.5),
        ([1.0, 2.0], [-1.0, -2.0], 0.0),
        ([1.0, 0.0], [1.0, 1.0], 0.5 + 0.5 / math.sqrt(2)),
        ([0.0, 0.0], [0.0, 0.0], 1.0),
        ([0.0, 0.0], [1.0, 0.0], 0.5),
        ([1.0, 0.0], [0.0, 0.0], 0.5),
        ([math.nan, 1.0], [1.0, 1.0], 0.0),
        ([1.0, 1.0], [math.inf, 1.0], 0.0),
    ],
)
def test_outputs_are_alike_by_their_angle(first: list[float], second: list[float], alike: float) -> None:
    """Half of it where there is none, all of it of nothing."""
    assert sensitivity.similarity(np.array([first]), np.array([second])) == pytest.approx(alike)


def test_a_layer_alone_is_its_weight_and_its_input() -> None:
    """Nothing else of the record."""
    sites = Sites(
        weights=tuple(WeightSite(layer=n, tensor=f"{n}.w", axis=0, params=WeightParams()) for n in ("a", "b")),
        activations=(
            ActivationSite(tensor="x", keys={"a": ("a", 0), "b": ("b", 0)}, params=ActivationParams()),
            ActivationSite(tensor="y", keys={"c": ("c", 0)}, params=ActivationParams()),
        ),
        floats={"d": "why"},
    )
    record = {name: Scales(scale_d=1.0) for name in ("a", "b", "c")}
    alone, own = sensitivity.alone(sites, record, "b")
    assert own == {"b": record["b"]}
    assert [site.layer for site in alone.weights] == ["b"]
    assert [(site.tensor, dict(site.keys)) for site in alone.activations] == [("x", {"b": ("b", 0)})]
    assert sensitivity.alone(sites, record, "c")[0].weights == ()


def test_a_layer_disturbs_by_the_mean_over_batches_and_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of floats; where there are none it disturbs nothing."""
    network = quantized("mlp")
    (first, *_) = [site.layer for site in network.sites.weights]
    feeds = [network.feed, network.feed]
    expected = sensitivity.outputs(network.graph, feeds)
    assert len(expected) == 2
    alike = sensitivity.of_layer(network.graph, network.sites, network.record, first, feeds, expected)
    assert 0.99 < alike < 1.0

    def answers(*_: Any) -> list[tuple[Any, ...]]:
        return [(np.float32([1, 0]), np.int64([5])), (np.float32([0, 1]), np.int64([6]))]

    monkeypatch.setattr(sensitivity, "outputs", answers)
    given = [(np.float32([1, 0]), np.int64([9])), (np.float32([1, 0]), np.int64([9]))]
    assert sensitivity.of_layer(network.graph, network.sites, network.record, first, feeds, given) == 0.75
    monkeypatch.setattr(sensitivity, "outputs", lambda *_: [(np.int64([5]),)])
    whole = [(np.int64([9]),)]
    assert sensitivity.of_layer(network.graph, network.sites, network.record, first, feeds, whole) == 1.0
