"""The contract of a backend, on every backend that is registered, with real engines."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from networks import residual_cnn

from qbench import registry
from qbench.backends.base import BuildJob
from qbench.models.base import Network
from qbench.quant.coverage import share
from qbench.quant.recipe import Recipe

NAMES = registry.names("backend")
MODES = ("fp32", "dynamic", "static", "qat")


def images(n=64):
    return (np.random.default_rng(0).random((n, 1, 8, 8), dtype=np.float32),)


@pytest.fixture(autouse=True)
def _engine():
    before = torch.backends.quantized.engine
    yield
    torch.backends.quantized.engine = before


def usable(name):
    backend = registry.load("backend", name)
    if reason := backend.missing():
        pytest.skip(reason)
    return backend


def build(backend, mode, folder, network=None):
    folder.mkdir(exist_ok=True)
    labels = np.arange(64) % 10
    job = BuildJob(
        network=network or Network(kind="torch", module=residual_cnn()),
        mode=mode,
        recipe=backend.resolve(
            mode, Recipe(calibrator="histogram", epochs=1, learning_rate=1e-3, batch_size=32, seed=0)
        ),
        calibration=images(),
        training=(images(), labels) if mode == "qat" else None,
        folder=folder,
    )
    return backend.build(job)


@pytest.mark.parametrize("name", NAMES)
def test_it_names_itself_and_its_runtime(name):
    """The name is the registered one; the runtime is a backend that runs fp32."""
    backend = registry.load("backend", name)
    assert backend.name == name
    assert "fp32" in registry.load("backend", backend.runtime).modes
    assert set(backend.modes) <= set(MODES)
    assert backend.modes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["torch", "torchscript", "onnx"])
def test_every_refusal_is_a_reason_to_act_on(name, kind):
    """why_not is None or a sentence, for every mode and kind of network."""
    backend = registry.load("backend", name)
    for mode in backend.modes:
        reason = backend.why_not(mode=mode, kind=kind)
        assert reason is None or len(reason) > 20


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", MODES)
def test_resolving_a_recipe_twice_changes_nothing(name, mode):
    """A resolved recipe has no open choices left."""
    backend = registry.load("backend", name)
    once = backend.resolve(mode, Recipe(calibrator="histogram"))
    assert backend.resolve(mode, once) == once


@pytest.mark.parametrize("name", NAMES)
def test_every_mode_builds_loads_and_runs(name, tmp_path):
    """Each mode of each backend gives a file that runs, with int8 layers where int8 is claimed and nowhere else,
    and whose outputs stay near fp32."""
    backend = usable(name)
    fp32 = build(registry.load("backend", backend.runtime), "fp32", tmp_path / "fp32")
    fp32_file = tmp_path / "fp32" / fp32.file
    reference = outputs(registry.load("backend", backend.runtime), fp32_file)
    for mode in backend.modes:
        if backend.why_not(mode=mode, kind="torch"):
            continue
        network = Network(kind="onnx", path=fp32_file) if backend.builds_from_baseline and mode != "fp32" else None
        built = build(backend, mode, tmp_path / mode, network)
        file = tmp_path / mode / built.file
        assert file.stat().st_size > 0
        assert (share(built.layers) > 0) == (mode != "fp32")
        found = outputs(backend, file)
        assert found.shape == reference.shape
        if name != "fake" and mode != "qat":
            assert np.abs(found - reference).max() < 0.1


def outputs(backend, file):
    runner = backend.load(file, threads=torch.get_num_threads())
    with runner.context():
        return np.array(runner.outputs(runner(runner.prepare(images()))))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_set_is_read_back(name, tmp_path):
    """observed() tells the number of threads from the runtime, not from what was asked."""
    backend = usable(name)
    runtime = registry.load("backend", backend.runtime)
    built = build(runtime, "fp32", tmp_path / "fp32")
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            runner = runtime.load(tmp_path / "fp32" / built.file, threads=threads)
            assert runner.observed()["threads"] == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", NAMES)
def test_its_module_imports_nothing_heavy(name):
    """A plan asks backends what they can do, so importing them must cost nothing."""
    target = registry.entry("backend", name).target.partition(":")[0]
    code = f"import sys, {target}; print([m for m in ('torch', 'onnxruntime', 'onnx', 'scipy') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
