"""Rules of qbench/record/stored_run.py: how the suite's metric is shown."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from qbench import registry
from qbench.datasets.preprocessing import Preprocessing
from qbench.record.schema import Accuracy, Record, read_case_id
from qbench.record.stored_run import BOUNDS, ExamplesInfo, MetricInfo, RunInfo, StoredRun, SuiteInfo
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


def test_examples_are_prepared_as_the_data_set_prepares_them_where_a_run_says_nothing() -> None:
    """An older run lacks the keys that came later, and what they stood for then is what data sets do by themselves."""
    told = asdict(ExamplesInfo(types=("float32",), shapes=((3, 8, 8),)))
    assert {key: told[key] for key in asdict(Preprocessing())} == asdict(Preprocessing())


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_no_example_lies_beyond_the_bounds_of_its_metric(name: str) -> None:
    """The best that an example can be, and the worst of a metric that has one, are the bounds themselves, in the sense
    in which more is better."""
    metric = registry.load("metric", name)
    info = MetricInfo(name=name, percent=metric.percent, higher_is_better=metric.higher_is_better)
    low, high = info.bounds
    fp32 = np.random.default_rng(0).standard_normal((30, 4))
    perfect, opposite, zeros = (info.sign * metric.per_example(outputs, fp32) for outputs in (fp32, -fp32, 0 * fp32))
    assert perfect.tolist() == [high] * 30
    assert low is None or min(*opposite, *zeros) <= low
    assert low is None or low in (opposite[0], zeros[0])


@pytest.mark.parametrize(("higher_is_better", "lowest"), [(True, 0.0), (False, None)])
def test_a_share_of_which_more_is_better_is_at_least_0(higher_is_better: bool, lowest: float | None) -> None:
    """Nothing bounds it from above for sure: an example of a macro score may count more than once."""
    assert MetricInfo(name="top1", higher_is_better=higher_is_better).bounds == (lowest, None)


def test_a_score_against_fp32_is_shown_whole() -> None:
    """Where fp32 scores ``perfect`` by itself, the change from it is the whole distance; else it is shown as a change,
    and a metric of which less is better has the sign -1."""
    change = Interval(value=-60.0, low=-62.0, high=-58.0)
    sqnr = MetricInfo(name="sqnr", percent=False, against="fp32", own_unit="dB", perfect=100.0)
    assert sqnr.show_against_fp32(change) == "40 [38, 42] dB"
    assert replace(sqnr, perfect=None).show_against_fp32(change) == sqnr.show_change(change)
    agreement = MetricInfo(name="top1_agreement", against="fp32", perfect=1.0)
    assert agreement.show_against_fp32(Interval(value=-0.5)) == "50.0 %"
    assert agreement.show_change(Interval(value=-1.0)) == "-100.0 points"
    assert (sqnr.sign, replace(sqnr, higher_is_better=False).sign) == (1.0, -1.0)


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
