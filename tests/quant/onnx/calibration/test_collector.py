"""Rules of qbench/quant/onnx/calibration/collector.py: who sees which values, and what is told of them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from qbench.errors import BuildError
from qbench.machine import fingerprint
from qbench.quant.onnx.calibration.collector import Collector
from qbench.quant.onnx.settings import ActivationParams
from qbench.quant.onnx.sites import ActivationSite, Sites
from qbench.quant.scale_rules import QParams


def site(tensor: str, *keys: str, **params: Any) -> ActivationSite:
    """An activation that these nodes read."""
    return ActivationSite(
        tensor=tensor, keys={key: (key, 0) for key in keys}, params=ActivationParams(algorithm="minmax", **params)
    )


def collector(*sites: ActivationSite, threads: int = 1) -> Collector:
    """One for these activations."""
    return Collector(Sites(weights=(), activations=sites), threads=threads)


def row(*values: float) -> Any:
    return np.float32([values])


def test_each_site_has_a_calibrator_with_its_parameters() -> None:
    """Two of one tensor, too, which is looked at by both and then given away."""
    both = site("a", "one"), site("a", "two", "three", asymmetric=False)
    with collector(*both, site("b", "four")) as content:
        assert content.tensors == ("a", "b")
        values = {"a": row(-1, 3), "b": row(0, 2)}
        content.add(1, values)
        assert values == {}
        content.add(2, {"a": row(-2, 0), "b": row(0, 1)})
        params = content.qparams()
    assert set(params) == {"one", "two", "three", "four"}
    assert params["one"].scale == pytest.approx(5 / 255)
    assert params["two"] == params["three"] == QParams(scale=float(np.float32(3 / 127)), zero_point=0)
    assert (params["four"].scale, params["four"].zero_point) == (pytest.approx(2 / 255), -128)


def test_options_are_those_of_the_calibrator() -> None:
    """As the configuration has them."""
    cut = ActivationParams(algorithm="percentile", options={"percentile": 60.0})
    half = ActivationSite(tensor="a", keys={"k": ("k", 0)}, params=cut)
    with collector(half) as content:
        content.add(1, {"a": np.linspace(0, 1, 1000, dtype=np.float32)[None]})
        assert content.qparams()["k"].scale == pytest.approx(0.8 / 255, rel=0.01)


def test_the_first_layer_with_no_numbers_is_named() -> None:
    """With its tensor and batch, in the order of the graph, before the next batch; then nothing is left of it."""
    with collector(site("a", "first"), site("b", "second", "third")) as content:
        content.add(1, {"a": row(1), "b": row(np.nan, np.nan)})
        with pytest.raises(BuildError, match="^second: its input b in batch 1: 2 values are NaN or inf; check the"):
            content.add(2, {"a": row(1), "b": row(1)})
        content.wait()
        content.add(7, {"a": row(np.inf), "b": row(np.nan)})
        with pytest.raises(BuildError, match="^first: its input a in batch 7: 1 value is NaN"):
            content.qparams()


def test_an_activation_that_nothing_reached_has_no_range() -> None:
    """The layer and its tensor are named."""
    with collector(site("a", "layer")) as content:
        content.add(1, {"a": np.empty((0, 3), np.float32)})
        with pytest.raises(BuildError, match="^layer: its input a: no value was seen$"):
            content.qparams()


@pytest.mark.parametrize(
    ("values", "reach"),
    [((0.0, 0.0), 0.0), ((0.0, -1e-6), 1e-6), ((3.03e-5, 0.0), 3.03e-5), ((4e-5, 0.0), None), ((0.0, 255.0), None)],
)
def test_what_is_quantized_to_zeros_is_told(values: tuple[float, ...], reach: float | None) -> None:
    """With how far it reaches; a range that has a scale of one by its size is none of them."""
    with collector(site("a", "layer", "other")) as content:
        content.add(1, {"a": row(*values)})
        silent = content.silent(content.qparams())
    assert silent == ({} if reach is None else {"layer": pytest.approx(reach)})


@pytest.mark.parametrize(("threads", "most"), [(3, 3), (0, None)])
def test_its_threads_are_as_many_as_are_asked_for(threads: int, most: int | None) -> None:
    """Or a thread for each core that may be used; they end with it."""
    content = collector(site("a", "layer"), threads=threads)
    pool: Any = content._pool
    assert pool._max_workers == (most or len(fingerprint.allowed_cores()))
    with content:
        content.add(1, {"a": row(1)})
        content.wait()
        assert any(thread.name.startswith("calibrator") for thread in threading.enumerate())
    assert pool._shutdown
    with pytest.raises(RuntimeError, match="after shutdown"):
        content.add(2, {"a": row(1)})
