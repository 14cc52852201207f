"""Rules of qbench/suite/accuracy.py: the metric that judges, and the loss that it allows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_records import failed, fp32, int8

from qbench.errors import SuiteError
from qbench.suite import parse
from qbench.suite.accuracy import AccuracyGate

SMALL = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"


def gate(text: str) -> AccuracyGate:
    """The rules of accuracy of a suite."""
    return parse(f"{SMALL}gate: {{accuracy: {text}}}\n").gate.accuracy


@pytest.mark.parametrize(("least", "margin"), [("100", 0.0), ("99.5", 0.5), ("0", 100.0), ("-1", 101.0)])
def test_a_least_score_is_a_margin_below_what_fp32_has(least: str, margin: float) -> None:
    """From that score itself downwards; it is the floor but where an override gives a margin in its place."""
    accuracy = gate(f"{{metric: top1_agreement, at_least: {least}}}")
    assert (accuracy.margin, accuracy.floor) == (margin, float(least))
    assert accuracy.allowed_regression is None
    assert accuracy.model_copy(update={"margin": margin + 1}).floor is None
    assert gate("{margin: 2}").floor is None


def test_a_least_score_without_an_end_is_refused_once() -> None:
    """It is no number; nothing is said of the margin that would follow from it."""
    with pytest.raises(SuiteError) as raised:
        gate("{metric: top1_agreement, at_least: -.inf}")
    (problem,) = raised.value.problems
    assert "gate.accuracy.at_least: expected a finite number" in str(problem)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{python: 'a.py:f', prcent: true}", "prcent: unknown key 'prcent'; did you mean 'percent'?"),
        ("{percent: maybe, pyton: 'a.py:f'}", "pyton: unknown key 'pyton'; did you mean 'python'?"),
        ("{percent: true}", "python: required, but not given"),
    ],
)
def test_of_a_score_of_your_own_an_unknown_key_is_said_first(text: str, told: str) -> None:
    """It may be the one that is missing, misspelt."""
    with pytest.raises(SuiteError) as raised:
        gate(f"{{margin: 1, metric: {text}}}")
    (problem,) = raised.value.problems
    assert told in str(problem)


@pytest.mark.parametrize(
    ("text", "judges", "known"),
    [
        ("{}", ("top1", "top1_agreement"), {"top1": "top1", "top1_agreement": "top1_agreement", "sqnr": "sqnr"}),
        (
            "{margin: 2}",
            ("top1", "top1_agreement"),
            {"top1": "top1", "top1_agreement": "top1_agreement", "sqnr": "top1"},
        ),
        ("{metric: top5}", ("top5", "top5"), {"top5": "top5", "top1_agreement": "top5", "sqnr": "top5"}),
    ],
)
def test_a_metric_is_the_suites_or_what_the_data_allows(
    text: str, judges: tuple[str, str], known: dict[str, str]
) -> None:
    """With labels and without; once cases are scored, what scored them, where the suite leaves that open."""
    accuracy = gate(text)
    assert tuple(accuracy.choose_metric(base=Path(), labelled=each).name for each in (True, False)) == judges
    record = int8()
    assert record.accuracy is not None
    for metric, expected in known.items():
        scored = replace(record, accuracy=replace(record.accuracy, metric=metric))
        assert accuracy.recall_metric([failed(), scored], Path()).name == expected
    assert accuracy.recall_metric([failed()], Path()).name == judges[0]
    assert accuracy.recall_metric([fp32(), scored], Path()).name == judges[0]
