"""Rules of qbench/record/stored_run.py: how the suite's metric is shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qbench import registry
from qbench.record.schema import Accuracy, Record, read_case_id
from qbench.record.stored_run import ExamplesInfo, MetricInfo, RunInfo, StoredRun, SuiteInfo
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


def test_the_values_of_a_case_are_those_of_the_output_that_was_judged(tmp_path: Path) -> None:
    """Of its own predictions and of its fp32's, where a network returns several and the worst is another than the
    first."""
    random = np.random.default_rng(0)
    first, second = random.standard_normal((2, 30, 4))
    folder = tmp_path / "run"
    (folder / "predictions").mkdir(parents=True)
    np.savez(folder / "predictions/fp32.npz", **{"outputs": first, "outputs.1": second})
    np.savez(folder / "predictions/int8.npz", **{"outputs": first + 0.01, "outputs.1": second + 0.5})
    key = read_case_id("m/static/onnxruntime/t1/b1")
    base = Record(case=read_case_id("m/fp32/onnxruntime/t1/b1"), status="ok", predictions="predictions/fp32.npz")
    scored = Accuracy(metric="sqnr", value=6.0, low=5.0, high=7.0, n=30, judged=1)
    case = Record(case=key, status="ok", predictions="predictions/int8.npz", accuracy=scored)
    info = RunInfo(suite=SuiteInfo(name="s"), metric=MetricInfo(name="sqnr"))
    run = StoredRun(folder=folder, info=info, records=(base, case))
    sqnr = registry.load("metric", "sqnr")
    values = run.values(case, base)
    assert values is not None
    np.testing.assert_allclose(values, sqnr.per_example(second + 0.5, second))
    new, old = run.pairs(case, base) or (None, None)
    assert old is not None
    assert new is not None
    assert (old == 100.0).all()
    np.testing.assert_allclose(new, values)
    assert run.judged_predictions(case)["outputs"].tolist() == (second + 0.5).tolist()
    assert run.predictions(case)["outputs"].tolist() == (first + 0.01).tolist()
