"""Predictions of every example, proven in a fresh process."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qbench import cache, evaluate, inputs, registry, score
from qbench.build import Artifact, outputs_digest
from qbench.errors import EvaluateError
from qbench.process import Limits
from qbench.quant.input_range import InputRange
from qbench.quant.recipe import Recipe


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
    found = score.score("top1", out, None, 10, limits=Limits(seconds=60), progress=lambda *_: None)
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
