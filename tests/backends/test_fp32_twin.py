"""Rules of qbench/backends/fp32_twin.py: a trained network, built as any fp32, sharing what may be shared."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from networks import residual_cnn

from qbench import registry
from qbench.backends import fp32_twin
from qbench.backends.base import BuildJob
from qbench.models.base import Network
from qbench.quant import canonical
from qbench.quant.pytorch import checkpoint, qat
from qbench.quant.pytorch import fp32_twin as twin_flow
from qbench.quant.recipe import Recipe

RECIPE = Recipe(name="twin", epochs=1, learning_rate=1e-2, batch_size=16, seed=0)


class Shared:
    """The files that builds share, by what decides them; counts what was made."""

    def __init__(self, folder):
        self.folder, self.files, self.made = folder, {}, []

    def __call__(self, parts, make):
        key = repr(sorted((name, str(value)) for name, value in parts.items()))
        if key not in self.files:
            self.files[key] = self.folder / f"{len(self.files)}.bin"
            self.made.append(parts["what"])
            make(self.files[key])
        return self.files[key]


@pytest.fixture
def shared(tmp_path):
    (tmp_path / "shared").mkdir()
    return Shared(tmp_path / "shared")


def job(folder, shared, recipe=RECIPE):
    folder.mkdir(exist_ok=True)
    inputs = (np.random.default_rng(0).random((64, 1, 8, 8), dtype=np.float32),)
    return BuildJob(
        network=Network(kind="torch", module=residual_cnn()),
        mode="fp32",
        recipe=recipe,
        calibration=inputs,
        training=(inputs, np.arange(64) % 10) if recipe.trains else None,
        folder=folder,
        shared=shared,
    )


def test_what_is_built_is_a_plain_fp32_of_other_weights(tmp_path, shared):
    """The job that is left trains nothing more; the network gives other outputs than the one it was trained from."""
    before = job(tmp_path, shared)
    after, note = fp32_twin.trained(before)
    assert (after.recipe, after.training, after.mode) == (Recipe(), None, "fp32")
    assert note.startswith("trained on cross_entropy; fp32 twin: Adam, cosine from 0.01, 1 x 4 steps")
    example = torch.from_numpy(before.example[0])
    with torch.no_grad():
        assert not torch.allclose(after.network.module(example), before.network.module(example))
    assert not after.network.module.training


def test_runtimes_share_the_training_but_not_the_files_of_other_weights(tmp_path, shared):
    """Trained once for torch and ONNX Runtime, which answer alike; its exported file is not the plain network's."""
    outputs = []
    for name in ("torch", "onnxruntime"):
        backend = registry.load("backend", name)
        built, _ = fp32_twin.trained(job(tmp_path / name, shared))
        file = built.folder / backend.build(built).file
        runner = backend.load(file, threads=1)
        with runner.context():
            outputs.append(runner.outputs(runner(runner.prepare(built.probes))))
    assert shared.made == ["trained network", "fp32 ONNX file"]
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-3, atol=1e-4)
    registry.load("backend", "onnxruntime").build(job(tmp_path / "plain", shared, Recipe()))
    assert shared.made == ["trained network", "fp32 ONNX file", "fp32 ONNX file"]


@pytest.mark.parametrize("canonicalize", [True, False])
def test_a_network_is_rewritten_for_its_training_where_the_recipe_says_so(tmp_path, monkeypatch, canonicalize):
    """On one example, which the training starts with as well; without builds beside it nothing is shared."""
    asked, steps = [], []
    rewritten = SimpleNamespace(module="rewritten")

    def canonicalize_network(module, example, *, training):
        asked.append((len(example[0]), training))
        return rewritten

    def fit(flow, job, inputs, labels, *, checkpoints):
        asked.append((flow is twin_flow, job.module, len(job.example[0]), len(inputs[0]), len(labels), checkpoints))
        return SimpleNamespace(prepared="trained", loss="cross_entropy", notes=("a note", "another"))

    monkeypatch.setattr(canonical, "canonicalize", canonicalize_network)
    monkeypatch.setattr(qat, "fit", fit)
    monkeypatch.setattr(checkpoint, "weights_digest", lambda module: "digest")
    before = replace(
        job(tmp_path, None, replace(RECIPE, canonicalize=canonicalize)),
        checkpoints=tmp_path / "c",
        progress=lambda *step: steps.append(step),
    )
    after, note = fp32_twin.trained(before)
    module = "rewritten" if canonicalize else before.network.module
    assert asked == [(1, True)] * canonicalize + [(True, module, 1, 64, 64, tmp_path / "c")]
    assert steps == [("canonicalize", 0.05)] * canonicalize
    assert (after.network.module, after.recipe) == ("trained", Recipe(canonicalize=canonicalize))
    assert (after.training, after.checkpoints, after.shared) == (None, None, None)
    assert note == "trained on cross_entropy; a note; another"
