"""Rules of qbench/compare/training_gain.py: whose the gain of a QAT case is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_records import accuracy, fp32, int8

from qbench.compare.training_gain import describe_training_gains, find_training_gain
from qbench.record.schema import Record, TwinChange
from qbench.record.stored_run import MetricInfo
from qbench.stats import intervals
from qbench.stats.interval_type import Interval

TOP1 = MetricInfo(name="top1")
QAT, TWIN = "net/qat/onednn/t1/b1", "net/fp32@twin/torch/t1/b1"


def qat(harmful: int, beneficial: int, case: str = QAT, **changes: Any) -> Record:
    """A QAT case of 1,000 examples with these flips against its fp32."""
    return int8(case, accuracy=replace(accuracy(harmful=harmful, beneficial=beneficial, right=800), **changes))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (qat(8, 60), True),
        (qat(0, 4), False),
        (qat(0, 5), True),
        (qat(60, 8), False),
        (qat(0, 0), False),
        (int8(accuracy=accuracy(beneficial=20)), False),
        (int8(QAT, accuracy=None), False),
        (qat(8, 60, delta=None), False),
        (replace(qat(8, 60), status="failed"), False),
        (fp32(), False),
    ],
)
def test_only_qat_beyond_chance_has_a_gain(record: Record, expected: bool) -> None:
    """McNemar's mid-p below 5 % in favour of QAT: 4 examples gained and none lost are 6 %, 5 are 3 %."""
    assert (find_training_gain(record, TOP1) is not None) is expected


@pytest.mark.parametrize(
    ("higher_is_better", "low", "expected"),
    [(True, 0.01, True), (True, 0.0, False), (True, None, False), (False, 0.01, False)],
)
def test_without_flips_the_limits_decide(higher_is_better: bool, low: float | None, expected: bool) -> None:
    """Of a metric that is no share of right answers: the whole interval lies on the better side."""
    metric = MetricInfo(name="mae", percent=False, higher_is_better=higher_is_better)
    delta = Interval(value=0.02, low=low, high=0.03)
    record = int8(QAT, accuracy=replace(accuracy(), metric="mae", value=0.1234, delta=delta, flips=None))
    assert (find_training_gain(record, metric) is not None) is expected


def test_without_a_twin_the_gain_is_said_to_be_the_trainings() -> None:
    """The reader is told why, and how to get the fair reference; engines of one training share the sentence."""
    assert describe_training_gains([qat(8, 60)], TOP1) == (
        "qat · onednn (+5.2 points): the gain over fp32 is the training's, not int8's: fp32 was trained less; set "
        "quantize.qat.fp32_twin: true for the fair reference",
    )
    (both,) = describe_training_gains([qat(8, 60), qat(8, 59, "net/qat/x86/t1/b1"), fp32()], TOP1)
    assert both.startswith("qat · onednn (+5.2 points), qat · x86 (+5.1 points): the gain over fp32")
    assert describe_training_gains([qat(4, 4)], TOP1) == ()


def test_a_gain_of_a_metric_without_a_unit_is_a_number() -> None:
    """With its sign, and nothing behind it."""
    delta = Interval(value=0.02, low=0.01, high=0.03)
    record = int8(QAT, accuracy=replace(accuracy(), metric="r2", value=0.1234, delta=delta, flips=None))
    (text,) = describe_training_gains([record], MetricInfo(name="r2", percent=False))
    assert text.startswith("qat · onednn (+0.020): the gain over fp32")


def test_with_a_twin_int8s_own_change_is_told() -> None:
    """Against the network of the same training the gain is gone, and the reader sees both."""
    twin = TwinChange(baseline=TWIN, delta=intervals.paired_proportions(3, 5, 1000))
    record = qat(8, 60, twin=twin)
    gain = find_training_gain(record, TOP1)
    assert gain is not None
    assert (gain.twin, gain.int8_change) == (TWIN, twin.delta)
    unknown = find_training_gain(qat(8, 60, twin=TwinChange(baseline=TWIN, delta=None)), TOP1)
    assert unknown is not None
    assert (unknown.twin, unknown.int8_change) == (None, None)
    (text,) = describe_training_gains([record], TOP1)
    assert text.startswith("qat · onednn: of +5.2 points over fp32, int8's own change, against the fp32 twin of the")
    assert text.endswith("same training, is -0.2 [-0.9, +0.4] points")
