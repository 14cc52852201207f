"""Rules of qbench/compare/calibration_seeds.py:
how much the draw of the calibration examples matters, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_records import CASE, FP32, accuracy, fp32, info, int8
from made_runs import run_folder

from qbench import suite
from qbench.compare import calibration_seeds
from qbench.gating import gate
from qbench.gating import text as gate_text
from qbench.gating.rules import judge_records
from qbench.record import jsonl
from qbench.record.schema import CalibrationSeeds, Record
from qbench.record.stored_run import MetricInfo, read_run
from qbench.report.build import build_report
from qbench.stats.interval_type import Interval

TOP1 = MetricInfo(name="top1")
SUITE = "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\ngate: {accuracy: {margin: 1.0}}\n"


def drawn(*values: float | None, predictions: tuple[str | None, ...] = ()) -> Record:
    """An int8 case of 1,000 examples without a flip, whose further seeds scored ``values``."""
    plain = accuracy()
    calibration_seeds = CalibrationSeeds(
        seeds=tuple(range(len(values) + 1)),
        values=(plain.value, *values),
        predictions=predictions,
        reasons=tuple(None if value is not None else "no memory" for value in (0.0, *values)),
    )
    return int8(accuracy=replace(plain, calibration=calibration_seeds))


def of(record: Record) -> calibration_seeds.SeedSpread | None:
    """The seed spread of a record at a margin of one point."""
    return calibration_seeds.measure_spread(record, fp32(), TOP1, 1.0)


def test_one_seed_has_no_spread() -> None:
    """A case that was calibrated once says nothing of it, nor does one whose further seeds all failed."""
    assert of(int8()) is None
    assert of(drawn()) is None
    assert calibration_seeds.measure_spread(drawn(0.9), fp32(), TOP1, None) == calibration_seeds.SeedSpread(
        seeds=(0, 1), values=(0.97, 0.9), worst=1
    )


def test_the_worst_seed_is_found_and_judged() -> None:
    """Spread is best minus worst; the worst is tested on the shipped one's interval, moved to where it is."""
    network = of(drawn(0.972, 0.941))
    assert network is not None
    assert network.test is not None
    assert (network.worst, network.spread) == (2, pytest.approx(0.031))
    assert network.test.outcome == "FAIL"
    assert network.test.delta.value == pytest.approx(0.941 - 0.97)
    assert calibration_seeds.describe_change(network, TOP1) == "top1 -2.9 [-3.3, -2.5] points"


def test_a_change_without_limits_stays_without_them_where_it_is_moved() -> None:
    """What is not known of the shipped one's interval is not known of the worst seed's either: it is undecided."""
    record = drawn(0.941)
    assert record.accuracy is not None
    assert record.accuracy.delta is not None
    spread = of(replace(record, accuracy=replace(record.accuracy, delta=Interval(value=0.0))))
    assert spread is not None
    assert spread.test is not None
    assert (spread.test.outcome, spread.test.delta) == ("INCONCLUSIVE", Interval(value=pytest.approx(0.941 - 0.97)))


def test_where_less_is_better_the_greatest_is_the_worst() -> None:
    """An error's worst seed is the one with the most of it."""
    mae = MetricInfo(name="mae", percent=False, higher_is_better=False)
    summary = calibration_seeds.measure_spread(drawn(0.99, 0.95), fp32(), mae, None)
    assert summary is not None
    assert (summary.worst, summary.test) == (1, None)


def test_a_seed_without_a_score_is_told_and_not_counted() -> None:
    """A variant that could not be built with one subset has a reason, never the value 0."""
    network = of(drawn(None, 0.968))
    assert network is not None
    assert (network.seeds, dict(network.failed), network.worst) == ((0, 2), {1: "no memory"}, 2)


def test_seeds_of_which_none_has_a_score_have_no_spread() -> None:
    """And one that was not scored has a reason, also where a record does not tell it."""
    record = drawn(None, 0.968)
    assert record.accuracy is not None
    for values, failed in (((None, None, None), None), ((0.97, None, 0.968), {1: "not scored"})):
        seeds = CalibrationSeeds(seeds=(0, 1, 2), values=values)
        spread = of(replace(record, accuracy=replace(record.accuracy, calibration=seeds)))
        assert (None if spread is None else dict(spread.failed)) == failed


def test_predictions_that_are_not_stored_are_not_asked_for() -> None:
    """Nor is anything where there is no fp32; then the shipped one's interval decides, if it has one."""

    def read(record: Record, base: Record) -> None:
        raise AssertionError("read")

    named = drawn(0.941, predictions=("a.npz", "b.npz"))
    for record, base in ((drawn(0.941), fp32()), (named, None)):
        spread = calibration_seeds.measure_spread(record, base, TOP1, 1.0, read)
        assert spread is not None
        assert spread.test is not None
    assert named.accuracy is not None
    bare = of(replace(named, accuracy=replace(named.accuracy, delta=None)))
    assert bare is not None
    assert bare.test is None
    assert calibration_seeds.describe_change(bare, TOP1) == ""
    assert spread.test is not None
    assert calibration_seeds.find_warning(CASE, None, spread, TOP1) is None
    assert calibration_seeds.find_warning(CASE, spread.test, bare, TOP1) is None
    passed = of(drawn(0.97))
    assert passed is not None
    assert passed.test is not None
    assert (passed.test.outcome, spread.test.outcome) == ("PASS", "FAIL")
    assert calibration_seeds.find_warning(CASE, passed.test, bare, TOP1) is None
    assert calibration_seeds.find_warning(CASE, spread.test, spread, TOP1) is None


@pytest.mark.parametrize(("values", "warned"), [((0.972, 0.969), False), ((0.962,), True), ((0.941,), True)])
def test_a_pass_that_another_draw_would_not_give_is_a_warning(values: tuple[float, ...], warned: bool) -> None:
    """Only where the shipped one passes and the worst would not; it says which seed, how far, and what to do."""
    record = drawn(*values)
    actual, own = of(record), calibration_seeds.measure_spread(drawn(0.97), fp32(), TOP1, 1.0)
    assert actual is not None
    assert own is not None
    warning = calibration_seeds.find_warning(CASE, own.test, actual, TOP1)
    assert (warning is not None) == warned
    if warning is not None:
        assert "PASS with the calibration examples of seed 0" in warning
        assert "raise data.calibrate.samples" in warning


def run_of_seeds(folder: Path) -> Path:
    """A run of 1,000 examples that no flip touches, whose second seed loses 40 of them."""
    labels = np.arange(1000) % 10
    right = np.eye(10, dtype=np.float32)[labels]
    worse = right.copy()
    worse[:40] = np.eye(10, dtype=np.float32)[(labels[:40] + 1) % 10]
    run_folder(folder, [], replace(info((FP32, CASE)), suite=replace(info().suite, text=SUITE)))
    (folder / "predictions").mkdir()
    for name, outputs in (("fp32", right), ("seed0", right), ("seed1", worse)):
        np.savez(folder / "predictions" / f"{name}.npz", outputs=outputs, labels=labels)
    names = ("predictions/seed0.npz", "predictions/seed1.npz")
    contender = replace(drawn(0.96 * 0.97, predictions=names), predictions=names[0])
    jsonl.write(folder / "records.jsonl", [replace(fp32(), predictions="predictions/fp32.npz"), contender])
    return folder


def test_stored_predictions_of_the_worst_seed_decide(tmp_path: Path) -> None:
    """Where each seed's predictions are kept, the worst is tested by its own flips; report, table and gate tell it."""
    folder = run_of_seeds(tmp_path / "run")
    page = build_report(folder).read_text(encoding="utf-8")
    summary = (folder / "summary.md").read_text(encoding="utf-8")
    message = "PASS with the calibration examples of seed 0, FAIL with those of seed 1 (top1 -4.0 [-5.2, -3.0] points)"
    assert message in summary
    assert message.replace("-", "\N{MINUS SIGN}") in page
    assert "Spread over calibration seeds" in page
    run = read_run(folder)
    parsed = suite.parse(SUITE, file="suites/demo.yaml")
    verdicts = judge_records(run.records, run.info, parsed.gate, place=parsed.place, pairs=run.pairs)
    text = gate_text.text(gate.Gated(suite="demo", folder=folder, baseline=None, verdicts=verdicts))
    assert "worst of 2 calibration seeds top1 -4.0 [-5.2, -3.0] points, FAIL" in text
