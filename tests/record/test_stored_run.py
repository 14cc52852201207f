"""Rules of qbench/record/stored_run.py: how the suite's metric is shown."""

from __future__ import annotations

import pytest

from qbench.record.stored_run import ExamplesInfo, MetricInfo
from qbench.stats.interval_type import Interval

CHANGE = Interval(value=-0.002, low=-0.01, high=0.005)


@pytest.mark.parametrize(
    ("metric", "change", "shown"),
    [
        (MetricInfo(name="top1"), CHANGE, "-0.2 [-1.0, +0.5] points"),
        (MetricInfo(name="top1"), Interval(value=0.0), "0.0 points"),
        (MetricInfo(name="mae", percent=False, own_unit="px"), CHANGE, "-0.002 [-0.010, +0.005] px"),
        (MetricInfo(name="loss", percent=False), CHANGE, "-0.002 [-0.010, +0.005]"),
    ],
)
def test_a_change_has_its_sign_its_limits_and_the_unit_of_differences(
    metric: MetricInfo, change: Interval, shown: str
) -> None:
    """The same wherever it stands; points for shares, else the metric's own unit, where it has one."""
    assert metric.show_change(change) == shown


@pytest.mark.parametrize(("axis", "fits"), [(-4, True), (-5, False), (3, True), (4, False), (1, True)])
def test_the_axis_of_the_channels_lies_within_a_batch(axis: int, fits: bool) -> None:
    """Of examples of three axes a batch has four; counted from either side."""
    facts = {"types": ("float32",), "shapes": ((3, 8, 8),), "mean": (0.1, 0.2, 0.3), "channel_axis": axis}
    if fits:
        assert ExamplesInfo(**facts).channel_axis == axis  # type: ignore[arg-type]
    else:
        with pytest.raises(ValueError, match="channel_axis lies outside"):
            ExamplesInfo(**facts)  # type: ignore[arg-type]
