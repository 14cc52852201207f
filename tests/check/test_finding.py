"""Rules of check/finding.py: when a cause is confirmed and a file sound, and what a runtime's nodes tell."""

from __future__ import annotations

import pytest

from qbench.check.finding import CauseTrial, FileCheck, Finding, RuntimeCheck, Severity
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile, NodeTime
from qbench.stats.interval_type import Interval


@pytest.mark.parametrize(
    ("gain", "is_confirmed"),
    [
        (Interval(value=1.02, low=1.001, high=1.1), True),
        (Interval(value=1.019, low=1.001, high=1.1), False),
        (Interval(value=1.5, low=1.0, high=2.0), False),
        (Interval(value=1.5), False),
        (None, False),
    ],
)
def test_a_cause_is_confirmed_where_the_file_is_shown_to_gain_without_it(
    gain: Interval | None, is_confirmed: bool
) -> None:
    """By 2 % at least: less is no reason to change a file."""
    assert CauseTrial(cause="c", title="", text="", gain=gain).confirmed == is_confirmed


@pytest.mark.parametrize(
    ("severities", "is_sound"), [((), True), (("note", "warning"), True), (("warning", "fault", "note"), False)]
)
def test_a_file_is_sound_without_a_fault(severities: tuple[Severity, ...], is_sound: bool) -> None:
    """Whatever warnings and notes there are."""
    findings = tuple(Finding(severity=severity, code="c", text="t") for severity in severities)
    assert FileCheck(file="f", format="onnx", bytes=1, findings=findings).sound == is_sound


def test_the_time_of_a_call_is_that_of_its_kinds_of_work() -> None:
    """In the order in which they come; of a runtime that did not run nothing is known."""
    nodes = [NodeTime(layer=str(number), operator="", kind=kind, seconds=2.0**-number)
             for number, kind in enumerate(("conversion", "int8 product", "conversion"), 1)]  # fmt: skip
    layers = (Layer(name="a", operator="", macs=30, precision="int8"), Layer(name="b", operator="", macs=10))
    ran = RuntimeCheck(
        runtime="r",
        version=None,
        layers=layers,
        profile=CallProfile(nodes=tuple(nodes), call_seconds=1, watched_seconds=2),
    )
    assert (ran.call_seconds, ran.int8_share) == (1, 0.75)
    assert list(ran.seconds.items()) == [("conversion", 0.625), ("int8 product", 0.25)]
    refused = RuntimeCheck(runtime="r", version=None, refused="no")
    assert (refused.call_seconds, refused.seconds, refused.int8_share) == (None, {}, None)
