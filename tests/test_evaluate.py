"""Predictions of every example, proven in a fresh process, and scores with their paired change."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qbench import cache, evaluate, inputs, registry
from qbench.build import Artifact, outputs_digest
from qbench.errors import EvaluateError
from qbench.process import Limits
from qbench.quant.input_range import InputRange
from qbench.quant.recipe import Recipe

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
    found = evaluate.scored(TOP1, ours, base, 10)
    assert (found.value, found.delta.value) == (pytest.approx(4 / 6), 0.0)
    assert (found.flips.harmful, found.flips.beneficial) == (1, 1)
    assert found.agreement == pytest.approx(4 / 6)
    assert found.low < found.value < found.high
    assert found.delta.low < 0 < found.delta.high


def test_the_baseline_itself_has_no_delta():
    """fp32 is not compared with itself."""
    found = evaluate.scored(TOP1, predictions([1, 2], [1, 3]), None, 10)
    assert (found.delta, found.agreement, found.flips) == (None, None, None)


def test_a_metric_that_is_no_mean_uses_the_paired_bootstrap():
    """F1 has no per-example values: its delta's interval resamples examples of both arms together."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 300)
    base = predictions(np.where(rng.random(300) < 0.9, labels, 0), labels)
    found = evaluate.scored(F1, predictions(np.where(rng.random(300) < 0.7, labels, 0), labels), base, 10)
    assert found.delta.value == pytest.approx(found.value - F1.value(base["outputs"], labels))
    assert found.delta.low < found.delta.value < found.delta.high < 0


def test_nan_outputs_are_an_error():
    """A score of NaN outputs would be a number without meaning."""
    broken = predictions([1, 2], [1, 2])
    broken["outputs"][0, 0] = np.nan
    with pytest.raises(EvaluateError, match="NaN"):
        evaluate.scored(TOP1, broken, None, 10)


def test_missing_labels_are_an_error():
    """Without labels there is no accuracy."""
    with pytest.raises(EvaluateError, match="labels"):
        evaluate.scored(TOP1, {"outputs": np.eye(3, dtype=np.float32)}, None, None)


@pytest.fixture
def data(tmp_path):
    request = inputs.DataRequest(
        loader="digits",
        value=None,
        options={},
        base=Path(),
        calibrate_split="train",
        calibrate_samples=8,
        calibrate_seed=0,
        evaluate_split="test",
        evaluate_samples=70,
        evaluate_seed=0,
        train=False,
    )
    return inputs.prepare_data(request, cache.open_cache(tmp_path / "cache"), progress=lambda *_: None)


def artifact(tmp_path, data, *, fixed_batch=None, mode="static"):
    file = tmp_path / "model.json"
    file.write_text('{"seconds": 0.0, "mode": "static"}')
    backend = registry.load("backend", "fake")
    return Artifact(
        mode=mode,
        backend="fake",
        file=file,
        format="fake",
        key="k",
        sha256="s",
        size_bytes=1,
        layers=(),
        recipe=Recipe(),
        fixed_batch=fixed_batch,
        expected=outputs_digest(backend, file, data, fixed_batch or 1),
        fresh=True,
    )


@pytest.mark.parametrize(("fixed", "size"), [(None, 64), (None, 7), (16, 16), (1, 1)])
def test_every_example_is_predicted_once_whatever_the_batch(tmp_path, data, fixed, size):
    """70 examples, in order, also where only whole batches of 16 are taken."""
    out = tmp_path / "p.npz"
    evaluate.predict_here(artifact(tmp_path, data, fixed_batch=fixed), data, size, out, progress=lambda *_: None)
    found = evaluate.load_predictions(out)
    whole = tmp_path / "whole.npz"
    evaluate.predict_here(artifact(tmp_path, data), data, 70, whole, progress=lambda *_: None)
    np.testing.assert_allclose(found["outputs"], evaluate.load_predictions(whole)["outputs"], atol=0.051)
    assert len(found["outputs"]) == len(found["labels"]) == len(found["ids"]) == 70


def test_an_artifact_that_gives_other_outputs_than_where_it_was_built_is_refused(tmp_path, data):
    """The proof of bit-equality is repeated in the evaluating process."""
    wrong = replace(artifact(tmp_path, data), expected=hashlib.sha256(b"other").hexdigest())
    with pytest.raises(EvaluateError, match="reloaded in a fresh process"):
        evaluate.predict(wrong, data, 1, tmp_path / "p.npz", limits=Limits(seconds=60), progress=lambda *_: None)


def test_a_static_artifact_tells_how_the_inputs_fit_it(tmp_path, data):
    """The share of clipped values over every example once, beside what was seen in calibration and evaluation."""
    ranged = replace(artifact(tmp_path, data), input_ranges=(InputRange(low=-0.9, high=1.0, step=0.01),))
    out = tmp_path / "p.npz"
    evaluate.predict_here(ranged, data, 16, out, progress=lambda *_: None)
    (fit,) = evaluate.input_fits(evaluate.load_predictions(out))
    (seen,), (calibrated,) = data.evaluation(0, 70), data.calibration()
    assert fit.clipped == pytest.approx(np.mean((seen < -0.905) | (seen > 1.005)))
    assert 0 < fit.clipped < 1
    assert (fit.low, fit.high, fit.evaluated.greatest) == (-0.9, 1.0, seen.max())
    assert fit.calibrated.mean == pytest.approx(calibrated.mean(dtype=np.float64))
    found = evaluate.score("top1", out, None, 10, limits=Limits(seconds=60), progress=lambda *_: None)
    assert found.inputs == (fit,)


def test_whole_batches_count_no_example_twice(tmp_path, data):
    """A model of one fixed batch size sees its last examples again; the statistics do not."""
    found = []
    for fixed in (None, 16):
        out = tmp_path / f"{fixed}.npz"
        evaluate.predict_here(artifact(tmp_path, data, fixed_batch=fixed), data, 16, out, progress=lambda *_: None)
        found.append(evaluate.input_fits(evaluate.load_predictions(out))[0].evaluated)
    assert found[0] == found[1]


@pytest.mark.parametrize("mode", ["fp32", "dynamic"])
def test_what_has_no_fixed_ranges_tells_nothing_of_them(tmp_path, data, mode):
    """Null, not 0: these clip nothing that was fixed before."""
    out = tmp_path / "p.npz"
    evaluate.predict_here(artifact(tmp_path, data, mode=mode), data, 16, out, progress=lambda *_: None)
    assert evaluate.input_fits(evaluate.load_predictions(out)) is None


def test_a_static_artifact_without_a_known_range_has_no_share(tmp_path, data):
    """The data is told, the share is null."""
    out = tmp_path / "p.npz"
    evaluate.predict_here(artifact(tmp_path, data), data, 16, out, progress=lambda *_: None)
    (fit,) = evaluate.input_fits(evaluate.load_predictions(out))
    assert (fit.low, fit.high, fit.clipped) == (None, None, None)
