"""Rules of qbench/bisect/score_answers.py: what a metric says of each example of a file of answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from qbench.bisect.score_answers import describe_metric, score_here
from qbench.errors import EvaluateError
from qbench.evaluate.score import ONE_OUTPUT, Outputs
from qbench.metrics.spec import MetricSpec
from qbench.metrics.user_metric import UserFunction

RNG = np.random.default_rng(0)
OUTPUTS = RNG.standard_normal((40, 10)).astype(np.float32)
LABELS = np.where(np.arange(40) % 4 == 0, (OUTPUTS.argmax(axis=1) + 1) % 10, OUTPUTS.argmax(axis=1))


def write(file: Path, **arrays: np.ndarray) -> Path:
    """A file of answers."""
    np.savez(file, **arrays)
    return file


def score(name: str, file: Path, fp32: Path | None = None, spec: MetricSpec | None = None) -> tuple[np.ndarray, bool]:
    """As the child does, of one output."""
    (scores,) = score_all(spec or MetricSpec(name=name), file, fp32).values()
    return scores


def score_all(
    spec: MetricSpec, file: Path, fp32: Path | None = None, outputs: Outputs = ONE_OUTPUT
) -> Mapping[str, tuple[np.ndarray, bool]]:
    """As the child does."""
    return score_here(spec, file, fp32, 10, outputs, progress=lambda text, share: None)


def test_right_or_wrong_by_example(tmp_path: Path) -> None:
    """Of the labels."""
    values, whole = score("top1", write(tmp_path / "a.npz", outputs=OUTPUTS, labels=LABELS))
    assert not whole
    assert values.tolist() == (OUTPUTS.argmax(axis=1) == LABELS).astype(float).tolist()


def test_facts_where_no_example_has_a_score(tmp_path: Path) -> None:
    """F1 is made from them by the parent."""
    values, whole = score("f1", write(tmp_path / "a.npz", outputs=OUTPUTS, labels=LABELS))
    assert whole
    assert len(values) == 40


def test_distance_from_fp32(tmp_path: Path) -> None:
    """Answers of the fp32 are what the outputs are held against."""
    fp32 = write(tmp_path / "fp32.npz", outputs=OUTPUTS)
    values, whole = score("cosine", write(tmp_path / "a.npz", outputs=OUTPUTS + 1), fp32)
    assert not whole
    assert values.max() < 1


def test_each_output_is_scored_as_the_gate_scores_it(tmp_path: Path) -> None:
    """Against fp32's, where the suite names none; labels are of the first alone."""
    boxes = RNG.standard_normal((40, 3, 4)).astype(np.float32)
    file = write(tmp_path / "a.npz", **{"outputs": OUTPUTS, "outputs.1": -boxes}, labels=LABELS)
    fp32 = write(tmp_path / "fp32.npz", **{"outputs": OUTPUTS, "outputs.1": boxes})
    names = ("logits", "boxes")
    told: list[tuple[str, float]] = []
    scores = score_here(
        MetricSpec(name="cosine"), file, fp32, 10, Outputs(names=names), progress=lambda *step: told.append(step)
    )
    assert told == [("score", 0.9)]
    assert {name: values.mean() for name, (values, _) in scores.items()} == pytest.approx({"logits": 1, "boxes": -1})
    assert list(score_all(MetricSpec(name="top1"), file, fp32, Outputs(names=names))) == [""]
    assert list(score_all(MetricSpec(name="cosine"), file, fp32, Outputs(names=names, all_judged=False))) == [""]


def test_a_score_of_the_users_is_given_all_outputs_by_name(tmp_path: Path) -> None:
    """As one, where the suite names none."""
    (tmp_path / "mine.py").write_text(
        "def distance(outputs, reference):\n    return abs(outputs['boxes'] - reference['boxes']).max(1)\n"
    )
    function = UserFunction(
        file=tmp_path / "mine.py", attribute="distance", percent=False, higher_is_better=False, against="fp32", unit=""
    )
    boxes = np.zeros((40, 2), np.float32)
    file = write(tmp_path / "a.npz", **{"outputs": OUTPUTS, "outputs.1": boxes + 3})
    fp32 = write(tmp_path / "fp32.npz", **{"outputs": OUTPUTS, "outputs.1": boxes})
    outputs = Outputs(names=("logits", "boxes"))
    ((values, whole),) = score_all(MetricSpec(name="distance", function=function), file, fp32, outputs).values()
    assert (set(values), whole) == ({3.0}, False)


def test_what_a_postprocess_made_is_judged(tmp_path: Path) -> None:
    """Where there is some, not the outputs."""
    answers = np.eye(10, dtype=np.float32)[LABELS]
    values, _ = score("top1", write(tmp_path / "a.npz", outputs=OUTPUTS, answers=answers, labels=LABELS))
    assert values.all()


def test_a_metric_that_says_nothing_of_examples_cannot_judge(tmp_path: Path) -> None:
    """And one that does not fit says why."""
    (tmp_path / "mine.py").write_text(
        "def total(outputs, labels):\n    return float((outputs.argmax(1) == labels).mean())\n"
    )
    function = UserFunction(
        file=tmp_path / "mine.py", attribute="total", percent=True, higher_is_better=True, against="labels", unit=""
    )
    file = write(tmp_path / "a.npz", outputs=OUTPUTS, labels=LABELS)
    with pytest.raises(EvaluateError, match="says nothing of single examples"):
        score("", file, spec=MetricSpec(name="total", function=function))
    with pytest.raises(EvaluateError):
        score("top1", write(tmp_path / "b.npz", outputs=OUTPUTS * np.nan, labels=LABELS))


def test_how_a_metric_is_shown() -> None:
    """As runs show it."""
    assert (describe_metric(MetricSpec(name="top1")).unit, describe_metric(MetricSpec(name="mae")).sign) == (
        "points",
        -1.0,
    )
