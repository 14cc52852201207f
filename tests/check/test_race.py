"""How many processes race, and what their medians say together."""

from __future__ import annotations

import pytest

from qbench.check import race
from qbench.check.race import Lap


@pytest.mark.parametrize(
    ("processes", "seconds", "more"),
    [(0, 0.0, True), (2, 600.0, True), (3, 14.0, True), (3, 16.0, False), (4, 14.0, True), (5, 0.0, False)],
)
def test_a_race_of_a_large_file_ends_after_the_fewest_processes(processes, seconds, more):
    """Five where there is time; never fewer than three, whose limits are wider."""
    assert race.goes_on(processes, seconds) is more


def test_the_limits_are_those_of_the_processes():
    """Of the logarithms of their medians; more processes that agree are narrower."""
    laps = [Lap(ratio=ratio, sqnr_db=20.0, broken=False) for ratio in (0.5, 0.52, 0.48)]
    three, more = race.combine(laps, "onnxruntime", "fp32"), race.combine([*laps, *laps], "onnxruntime", "fp32")
    assert three.ratio == pytest.approx((0.5 * 0.52 * 0.48) ** (1 / 3))
    assert three.low < more.low < more.ratio < more.high < three.high
    assert (three.processes, more.processes) == (3, 6)
