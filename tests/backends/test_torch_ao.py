"""The contract of a backend, on every backend that is registered, with real engines."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from networks import BranchingAsTraced, Head, Loud, LoudAsTraced, NeverAlone, residual_cnn, tokens
from onnx_networks import CONV, PRODUCT, save_conv_and_product

from qbench import registry
from qbench.backends.base import BuildJob
from qbench.backends.int8_coverage import summarize_coverage
from qbench.errors import BuildError
from qbench.machine import fingerprint
from qbench.models.base import Network
from qbench.modes import MODES
from qbench.quant.artifacts.coverage import compute_int8_share
from qbench.quant.recipe import Recipe

NAMES = registry.names("backend")
ONNX_MODES = ("dynamic", "static")
# What test_inductor.py holds to the same contract: each of these compiles C++ for 8 s.
ELSEWHERE = {"inductor": MODES}
RUNTIMES = sorted({registry.load("backend", name).runtime for name in NAMES} - set(ELSEWHERE))


def images(n=64):
    return (np.random.default_rng(0).random((n, 1, 8, 8), dtype=np.float32),)


@pytest.fixture(autouse=True)
def _engine(engine_put_back):
    """Each test leaves it as it was."""


def usable(name):
    backend = registry.load("backend", name)
    if reason := backend.missing():
        pytest.skip(reason)
    return backend


def build(backend, mode, folder, network=None, calibration=None, labels=None):
    folder.mkdir(exist_ok=True)
    inputs = calibration or images()
    labels = np.arange(64) % 10 if labels is None else labels
    job = BuildJob(
        network=network or Network(kind="torch", module=residual_cnn()),
        mode=mode,
        recipe=backend.resolve(
            mode, Recipe(calibrator="histogram", epochs=1, learning_rate=1e-3, batch_size=32, seed=0)
        ),
        calibration=inputs,
        training=(inputs, labels) if mode == "qat" else None,
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


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    """The fp32 artifact of a runtime, built once for all backends that it serves: what was built, and its file."""
    result = {}

    def of(runtime):
        if runtime not in result:
            folder = tmp_path_factory.mktemp("fp32") / runtime
            fp32 = build(registry.load("backend", runtime), "fp32", folder)
            result[runtime] = (fp32, folder / fp32.file)
        return result[runtime]

    return of


@pytest.mark.parametrize("name", NAMES)
def test_every_mode_builds_loads_and_runs(name, baseline, tmp_path):
    """Each mode of each backend gives a file that runs, with layers in int8, or in 16 bits, where that is claimed,
    and whose outputs stay near fp32."""
    backend = usable(name)
    runtime = backend.runtime if backend.runtime in RUNTIMES else "torch"
    fp32, fp32_file = baseline(runtime)
    assert compute_int8_share(fp32.layers) == 0
    reference = outputs(registry.load("backend", runtime), fp32_file)
    for mode in backend.modes:
        if backend.why_not(mode=mode, kind="torch") or mode in (*ELSEWHERE.get(name, ()), "fp32"):
            continue
        # Exporting takes seconds: those who quantize an ONNX file get the one that is there.
        network = Network(kind="onnx", path=fp32_file) if mode in ONNX_MODES and "onnx" in backend.flows else None
        built = build(backend, mode, tmp_path / mode, network)
        file = tmp_path / mode / built.file
        assert file.stat().st_size > 0
        assert summarize_coverage(built, mode).share_of(mode) > 0
        actual = outputs(backend, file)
        assert actual.shape == reference.shape
        if name != "fake" and mode != "qat":
            assert np.abs(actual - reference).max() < 0.1


def outputs(backend, file):
    runner = backend.load(file, threads=torch.get_num_threads())
    with runner.context():
        return np.array(runner.outputs(runner(runner.prepare(images()))))


def torch_network(module):
    torch.manual_seed(0)
    return Network(kind="torch", module=module.eval())


TRACED = [("torch", "fp32"), ("onednn", "dynamic")]


@pytest.mark.parametrize(("name", "mode"), TRACED)
def test_a_frozen_decision_is_tried_on_every_calibration_example(name, mode, tmp_path):
    """Of what cannot be compiled: what the first examples do not show is found on a later one; what none shows is
    noted."""
    backend = usable(name)
    built = build(backend, mode, tmp_path / "quiet", torch_network(LoudAsTraced()))
    assert "the trace froze a decision at networks.py:" in built.note
    assert "equal on 64 calibration examples" in built.note
    (x,) = images()
    x[40] *= 1000
    with pytest.raises(BuildError, match="another model on calibration example 40"):
        build(backend, mode, tmp_path / "loud", torch_network(LoudAsTraced()), (x,))


@pytest.mark.parametrize(("name", "mode"), TRACED)
def test_what_can_be_compiled_keeps_its_decision(name, mode, tmp_path):
    """The artifact turns the outputs of a loud example round, as the network does; no calibration example is loud."""
    backend = usable(name)
    network = torch_network(Loud())
    built = build(backend, mode, tmp_path / "loud", network)
    assert "torch.jit.script keeps a decision at networks.py:" in built.note
    (x,) = images()
    example = x[:1] * 1000
    runner = backend.load(tmp_path / "loud" / built.file, threads=1)
    with runner.context():
        outputs = runner.outputs(runner(runner.prepare((example,))))
    expected = network.module(torch.from_numpy(example)).detach().numpy()
    assert np.corrcoef(outputs.ravel(), expected.ravel())[0, 1] > 0.99


@pytest.mark.parametrize(("name", "mode"), [*TRACED, ("onednn", "static"), ("onednn", "qat"), ("onnxruntime", "fp32")])
def test_a_network_that_takes_no_single_example_says_so(name, mode, tmp_path):
    """On every path from a network to an artifact."""
    with pytest.raises(BuildError, match="does not take a batch of 1"):
        build(usable(name), mode, tmp_path / "x", torch_network(NeverAlone()))


def test_an_int8_path_that_loses_the_randomness_is_refused_too(tmp_path):
    """FX turns a functional dropout off, so the int8 model would be another than the network."""
    from networks import Forgetful

    with pytest.raises(BuildError, match=r"dropout at networks\.py:\d+ .* draws at random; turn dropout off"):
        build(usable("onednn"), "static", tmp_path / "x", torch_network(Forgetful()))


@pytest.mark.parametrize(
    ("form", "labels", "loss"),
    [
        ("plain", np.linspace(-0.3, 0.3, 64), "mse_loss"),
        ("flat", np.linspace(-0.3, 0.3, 64).astype(np.float32), "mse_loss"),
        ("tuple", np.arange(64) % 2, "binary_cross_entropy_with_logits"),
        ("flat", np.arange(64) % 2, "binary_cross_entropy_with_logits"),
    ],
)
def test_qat_notes_the_loss_that_fits_the_labels(form, labels, loss, tmp_path):
    """Float labels stay floats on their way to the loss."""
    x = np.random.default_rng(0).random((64, 4), dtype=np.float32)
    built = build(usable("onednn"), "qat", tmp_path / "qat", torch_network(Head(1, form)), (x,), labels)
    told = built.note.split("; ")
    assert told[0] == f"trained on {loss}"
    assert any(part.startswith("QAT: Adam, cosine from 0.001") for part in told[1:])


def test_qat_refuses_labels_that_fit_no_loss(tmp_path):
    """Quantities for a classifier."""
    with pytest.raises(
        BuildError, match=r"QAT cannot train: float32 labels of shape \(n,\) and outputs of shape \(n, 10\)"
    ):
        build(usable("onednn"), "qat", tmp_path / "qat", labels=np.linspace(0, 1, 64))


def test_token_ids_go_through_every_torch_path(tmp_path):
    """Whole numbers in, several outputs out."""
    ids = (np.random.default_rng(0).integers(0, 16, (64, 6)),)
    for name, mode in [*TRACED, ("onednn", "static"), ("onnxruntime", "fp32")]:
        built = build(usable(name), mode, tmp_path / f"{name}-{mode}", Network(kind="torch", module=tokens()), ids)
        assert [layer.macs for layer in built.layers] == [80]


def test_a_branch_that_the_first_examples_show_is_refused(tmp_path):
    """By the trace's own comparison, with the line."""
    (x,) = images()
    x[1::2] *= -1
    with pytest.raises(BuildError, match=r"froze a decision at networks\.py:\d+ \(if float"):
        build(usable("torch"), "fp32", tmp_path / "x", torch_network(BranchingAsTraced()), (x,))


@pytest.mark.parametrize("mode", ["fp32", "dynamic", "static"])
def test_a_fixed_batch_builds_in_every_mode(mode, tmp_path):
    """An ONNX file for batches of 4: the artifact says so, its layers count for one example."""
    network = Network(kind="onnx", path=save_conv_and_product(tmp_path / "m.onnx", batch=4))
    built = build(usable("onnxruntime"), mode, tmp_path / mode, network)
    assert built.fixed_batch == 4
    assert [layer.macs for layer in built.layers] == [CONV, PRODUCT]
    assert (compute_int8_share(built.layers) == 1) == (mode != "fp32")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_is_set_is_read_back(runtime, baseline):
    """observed() tells the number of threads from the runtime, not from what was asked."""
    backend = usable(runtime)
    _, file = baseline(runtime)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2)[: len(fingerprint.allowed_cores())]:
            runner = backend.load(file, threads=threads)
            assert runner.observed()["threads"] == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", NAMES)
def test_its_module_imports_nothing_heavy(name):
    """A plan asks backends what they can do, so importing them must cost nothing."""
    target = registry.entry("backend", name).target.partition(":")[0]
    code = f"import sys, {target}; print([m for m in ('torch', 'onnxruntime', 'onnx', 'scipy') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize(("machine", "others"), [("x86_64", True), ("AMD64", True), ("aarch64", False)])
def test_engines_are_for_kinds_of_cpu(machine, others, monkeypatch):
    """Two of them for x86; qnnpack is slower there, which is said; what those two build runs on no ARM."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    for name in ("fbgemm", "x86"):
        backend = registry.load("backend", name)
        said = f"the engine {name} exists only on x86_64; use qnnpack or onednn here"
        assert backend.missing() == (None if others else said)
        assert backend.why_not_for("arm") == (
            f"the engine {name} exists only on x86_64, so nothing it builds runs on ARM"
        )
        assert backend.why_not_for("avx2") is None
        assert backend._note() is None
    for name in ("onednn", "qnnpack"):
        backend = registry.load("backend", name)
        assert (backend.missing(), backend.why_not_for("arm")) == (None, None)
        assert (backend._note() is not None) == (name == "qnnpack" and others)


class Enough(Exception):
    """The build has come so far."""


@pytest.mark.parametrize(
    ("name", "mode", "last", "told"),
    [
        ("torch", "fp32", "trace and freeze", [("trace and freeze", 0.3)]),
        ("torch", "fp32", "canonicalize", [("trace and freeze", 0.3), ("canonicalize", 0.05)]),
        ("onednn", "dynamic", "quantize", [("canonicalize", 0.05), ("quantize", 0.3)]),
        ("onnxruntime", "dynamic", "quantize", [("export to ONNX", 0.1), ("quantize", 0.2)]),
    ],
)
def test_a_build_tells_what_it_is_about(name, mode, last, told, tmp_path):
    """And how far it is."""
    steps = []

    def progress(text, share):
        steps.append((text, share))
        if text == last:
            raise Enough

    backend = usable(name)
    job = BuildJob(network=Network(kind="torch", module=residual_cnn()), mode=mode,
                   recipe=backend.resolve(mode, Recipe()), calibration=images(16), training=None, folder=tmp_path,
                   progress=progress)  # fmt: skip
    with pytest.raises(Enough):
        backend.build(job)
    assert steps == told


def test_torch_sends_onnx_files_to_the_runtime_that_runs_them():
    """While planning, before anything is loaded; networks of its own it takes."""
    torch_backend = registry.load("backend", "torch")
    said = torch_backend.why_not(mode="fp32", kind="onnx")
    assert said == "torch does not run ONNX files; use the onnxruntime backend"
    assert torch_backend.why_not(mode="fp32", kind="torch") is None
    assert torch_backend.why_not(mode="fp32", kind="torchscript") is None
