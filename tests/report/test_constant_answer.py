"""Rules of qbench/report/run_warnings.py: an fp32 of a single answer, and where that is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_records import FP32, accuracy, fp32, info, int8
from made_runs import run_folder

from qbench import registry
from qbench.evaluate import one_output as score
from qbench.record.schema import Record
from qbench.report.build import build_report
from qbench.report.run_warnings import warn_of_constant_answer

LABELS = np.arange(40) % 4


def scored(chosen: np.ndarray, labels: np.ndarray | None = LABELS, metric: str = "top1") -> int | None:
    """The class that the record holds as the only one."""
    actual = {"outputs": np.eye(4, dtype=np.float32)[chosen]}
    if labels is not None:
        actual["labels"] = labels
    return score.score_predictions(registry.load("metric", metric), actual, None, None).only_answer


@pytest.mark.parametrize(("metric", "labels"), [("top1", LABELS), ("f1", LABELS), ("top1_agreement", None)])
def test_a_single_answer_is_recorded(metric: str, labels: np.ndarray | None) -> None:
    """With labels and without; two answers are none."""
    assert scored(np.full(40, 3), labels, metric) == 3
    assert scored(np.array([3] * 39 + [0]), labels, metric) is None


def test_numbers_and_a_single_example_are_no_answers() -> None:
    """Two numbers an example are no classes, and one example has one answer."""
    assert scored(np.array([1]), np.array([1])) is None
    outputs = np.stack([np.ones(40), np.zeros(40)], axis=1)
    accuracy = score.score_predictions(
        registry.load("metric", "mae"), {"outputs": outputs, "labels": outputs + 0.5}, None, None
    )
    assert accuracy.only_answer is None


def constant() -> Record:
    """An fp32 that answers class 7 on everything."""
    record = fp32()
    assert record.accuracy is not None
    return replace(record, accuracy=replace(record.accuracy, only_answer=7))


def test_each_model_is_warned_of_once_and_int8_alone_never() -> None:
    """What agrees with a constant proves nothing; an int8 that answers one class shows in its score."""
    other = constant()
    again = replace(other, case=replace(other.case, id="net/fp32/onnxruntime/t1/b1", backend="onnxruntime"))
    (message,) = warn_of_constant_answer([other, again, int8()])
    assert message.startswith("net: fp32 answers class 7 on all 1,000 examples, so agreement with it")
    assert warn_of_constant_answer([fp32(), int8(accuracy=replace(accuracy(), only_answer=7))]) == ()


def test_the_warning_stands_in_the_runs_text_and_on_top_of_the_report(tmp_path: Path) -> None:
    """Before any figure: text, summary and page."""
    records = [constant(), int8()]
    assert warn_of_constant_answer(records)[0].startswith("net: fp32 answers class 7 on all")
    folder = run_folder(tmp_path / "run", records, info((FP32,)))
    page = build_report(folder)
    for file in (page, folder / "summary.md"):
        assert "fp32 answers class 7 on all 1,000 examples" in file.read_text(encoding="utf-8")
