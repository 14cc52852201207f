"""Scores of predictions: the value with its interval, and the paired change against fp32."""

from __future__ import annotations

import numpy as np
import pytest

from qbench import registry, score
from qbench.errors import EvaluateError

TOP1 = registry.load("metric", "top1")
F1 = registry.load("metric", "f1")


def predictions(classes, labels):
    outputs = np.eye(10, dtype=np.float32)[classes]
    return {"outputs": outputs, "labels": np.asarray(labels)}


def test_delta_flips_and_agreement_are_paired():
    """Harmful: right to wrong; beneficial: wrong to right; agreement counts equal classes, right or not."""
    labels = [0, 1, 2, 3, 4, 5]
    base = predictions([0, 1, 2, 3, 9, 9], labels)  # 4 right
    ours = predictions([0, 1, 2, 9, 4, 9], labels)  # 4 right: one harmful, one beneficial
    found = score.scored(TOP1, ours, base, 10)
    assert (found.value, found.delta.value) == (pytest.approx(4 / 6), 0.0)
    assert (found.flips.harmful, found.flips.beneficial) == (1, 1)
    assert found.agreement == pytest.approx(4 / 6)
    assert found.low < found.value < found.high
    assert found.delta.low < 0 < found.delta.high


def test_the_baseline_itself_has_no_delta():
    """fp32 is not compared with itself."""
    found = score.scored(TOP1, predictions([1, 2], [1, 3]), None, 10)
    assert (found.delta, found.agreement, found.flips) == (None, None, None)


def test_a_metric_that_is_no_mean_uses_the_paired_bootstrap():
    """F1 has no per-example values: its delta's interval resamples examples of both arms together."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 300)
    base = predictions(np.where(rng.random(300) < 0.9, labels, 0), labels)
    found = score.scored(F1, predictions(np.where(rng.random(300) < 0.7, labels, 0), labels), base, 10)
    assert found.delta.value == pytest.approx(found.value - F1.value(base["outputs"], labels))
    assert found.delta.low < found.delta.value < found.delta.high < 0


def test_nan_outputs_are_an_error():
    """A score of NaN outputs would be a number without meaning."""
    broken = predictions([1, 2], [1, 2])
    broken["outputs"][0, 0] = np.nan
    with pytest.raises(EvaluateError, match="NaN"):
        score.scored(TOP1, broken, None, 10)


def test_missing_labels_are_an_error():
    """Without labels there is no accuracy."""
    with pytest.raises(EvaluateError, match="labels"):
        score.scored(TOP1, {"outputs": np.eye(3, dtype=np.float32)}, None, None)
