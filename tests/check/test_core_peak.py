"""The share of the core's peak that a call reaches: every product at the peak of the format in which it ran."""

from __future__ import annotations

from dataclasses import replace

import pytest
from short_measurements import PEAK

from qbench.check import core_peak
from qbench.check.finding import RuntimeCheck
from qbench.errors import CaseError
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile

FLOAT = Layer(name="a", operator="Conv", macs=1_000_000)
INT8 = replace(FLOAT, name="b", precision="int8")


def share(*layers, batch=1, peak=PEAK, seconds=1e-3):
    profile = None if seconds is None else CallProfile(nodes=(), call_seconds=seconds, watched_seconds=seconds)
    check = RuntimeCheck(runtime="onnxruntime", version="1", layers=layers, profile=profile)
    return core_peak.add_share(check, batch, peak).peak_share


def test_each_product_counts_at_the_peak_of_its_format():
    """Twice its multiply-accumulates over what the core does a second, of all examples of a call."""
    fp32, int8 = 2e6 / PEAK.fp32_flops_per_second, 2e6 / PEAK.int8_ops_per_second
    assert share(FLOAT) == pytest.approx(fp32 / 1e-3)
    assert share(FLOAT, INT8) == pytest.approx((fp32 + int8) / 1e-3)
    assert share(INT8, batch=4) == pytest.approx(4 * int8 / 1e-3)


@pytest.mark.parametrize(
    "layers",
    [
        (),
        (replace(FLOAT, macs=None),),
        (replace(FLOAT, precision="bf16"),),
        (replace(FLOAT, weight_bits=4),),
    ],
)
def test_what_is_not_known_has_no_share(layers):
    """A product that cannot be counted, a format whose peak was not measured, weights of few bits; no layers at all."""
    assert share(*layers, peak=replace(PEAK, bf16_flops_per_second=None)) is None


def test_a_peak_that_is_not_known_yet_has_a_minute(monkeypatch):
    """And is that of one core."""
    asked = []
    monkeypatch.setattr(core_peak, "measure_peak", lambda *_, limits: asked.append(limits.seconds) or PEAK)
    assert core_peak.find_peak() == PEAK
    assert asked == [60.0]


def test_without_a_peak_there_is_none(monkeypatch):
    """Where no kernel runs, and where the call was not timed."""

    def fail(*_, **__):
        raise CaseError("no kernel runs here")

    monkeypatch.setattr(core_peak, "measure_peak", fail)
    assert core_peak.find_peak() is None
    assert share(FLOAT, peak=None) is None
    assert share(FLOAT, seconds=None) is None
