"""qbench.measure.roofline:
multiply-accumulates of a call, and the share of the peak of its precision and its threads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_artifacts import make_artifact

from qbench.machine.peak import Peak
from qbench.measure.roofline import roofline
from qbench.models.base import ModelReference
from qbench.plan.planner import Case, Variant
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.recipe import Recipe
from qbench.record.schema import Latency

PEAK = Peak(
    fp32_flops_per_second=100e9,
    fp32_kernel="k",
    fp32_size=512,
    int8_ops_per_second=400e9,
    int8_kernel="k",
    int8_size=512,
    core=1,
    seconds=1.0,
    versions={},
)


def artifact(macs):
    layer = Layer(name="conv", operator="conv2d", macs=macs, precision="int8")
    return make_artifact(backend="onednn", layers=(layer,) if macs else ())


def case(mode="static", threads=1, batch_size=1):
    reference = ModelReference(name="m", source="python")
    variant = Variant(model=reference, mode=mode, backend="onednn", recipe=Recipe())
    return Case(variant=variant, threads=threads, batch_size=batch_size)


def latency(p50, mean=None):
    return Latency(
        p50_seconds=p50, p50_low=None, p50_high=None, p90_seconds=None, p99_seconds=None, mean_seconds=mean, n=10
    )


@pytest.mark.parametrize(
    ("mode", "threads", "batch_size", "share"),
    [("static", 1, 1, 0.05), ("fp32", 1, 1, 0.2), ("static", 2, 1, 0.025), ("static", 1, 4, 0.2)],
)
def test_the_share_is_of_the_precision_the_threads_and_the_whole_batch(mode, threads, batch_size, share):
    """2 x 10 M multiply-accumulates in 1 ms are 20 G operations a second: 5 % of 400, 20 % of 100."""
    roof = roofline(case(mode, threads, batch_size), artifact(10_000_000), latency(1e-3), PEAK)
    assert roof.macs == 10_000_000 * batch_size
    assert roof.peak_fraction == pytest.approx(share)


@pytest.mark.parametrize(
    ("macs", "measured", "most"),
    [(0, latency(1e-3), PEAK), (10, None, PEAK), (10, latency(None), PEAK), (10, latency(1e-3), None)],
)
def test_what_was_not_measured_is_null(macs, measured, most):
    """Without layers that multiply, without a latency or without a peak there is no share; the count stands."""
    roof = roofline(case(), artifact(macs), measured, most)
    assert (roof.macs, roof.peak_fraction) == (macs, None)


@pytest.mark.parametrize(
    ("canary", "calm", "shared"),
    [(5.7e-6, 5.6e-6, False), (9e-6, 5.6e-6, True), (None, 5.6e-6, None), (9e-6, None, None)],
)
def test_a_peak_that_was_measured_on_a_shared_core_is_said_to_be(canary, calm, shared):
    """The canary that was read with the peak took clearly more than it does on this core alone: the peak is too low."""
    roof = roofline(case(), artifact(10), latency(1e-3), replace(PEAK, canary_seconds=canary), calm)
    assert roof.peak_shared is shared
