"""AOTInductor packages: int8 kernels that are really called, one package for every number of threads, no compiler."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from networks import perceptron
from torch import nn

from qbench.backends import inductor
from qbench.backends.base import BuildJob
from qbench.backends.inductor import BACKEND
from qbench.errors import BuildError, CaseSkipped
from qbench.machine import fingerprint, half_floats
from qbench.models.base import Network
from qbench.quant import rounding
from qbench.quant.artifacts import aoti, aoti_profile, same_outputs
from qbench.quant.artifacts.coverage import compute_int8_share
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import pt2e
from qbench.quant.recipe import Recipe

ROOT = Path(__file__).parent.parent.parent


class Shortcut(nn.Module):
    """One input channel, two branches of convolutions that are added, a depthwise one with ReLU6, a small Linear."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.main = nn.Conv2d(8, 16, 3, padding=1)
        self.shortcut = nn.Conv2d(8, 16, 1)
        self.relu2 = nn.ReLU()
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.relu6 = nn.ReLU6()
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.relu(self.norm(self.stem(x)))
        x = self.relu2(self.main(x) + self.shortcut(x))
        return self.head(self.relu6(self.depthwise(x)).mean((2, 3)))


def shortcut():
    torch.manual_seed(0)
    return Shortcut().eval()


class Repeated(nn.Module):
    """A block of convolutions and a Linear that are called three times each; what the Linear gets first is above 0."""

    def __init__(self):
        super().__init__()
        self.stem, self.conv, self.relu = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()
        self.mix, self.head = nn.Linear(8, 8), nn.Linear(8, 10)

    def forward(self, x):
        x = self.relu(self.stem(x))
        for _ in range(3):
            x = self.relu(self.conv(x))
        x = x.amax((2, 3)) + 1
        for _ in range(3):
            x = self.relu(self.mix(x))
        return self.head(x)


def repeated():
    torch.manual_seed(0)
    return Repeated().eval()


def images(n=32):
    return (np.random.default_rng(0).random((n, 1, 8, 8), dtype=np.float32),)


def build(folder, mode, module, *, watched=False, **changes):
    if reason := BACKEND.missing() or BACKEND.why_not(mode=mode, kind="torch"):
        pytest.skip(reason)
    folder.mkdir()
    trained = {"epochs": 1, "learning_rate": 1e-3, "batch_size": 32, "seed": 0} if mode == "qat" else {}
    recipe = BACKEND.resolve(mode, Recipe(calibrator="minmax", **trained, **changes))
    job = BuildJob(
        network=Network(kind="torch", module=module),
        mode=mode,
        recipe=recipe,
        calibration=images(),
        training=(images(), np.arange(32) % 10) if mode == "qat" else None,
        folder=folder,
        watched=watched,
    )
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return BACKEND.build(job), folder / inductor.FILE
    finally:
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    return build(tmp_path_factory.mktemp("inductor") / "static", "static", shortcut())


@pytest.fixture(scope="module")
def fp32(tmp_path_factory):
    return build(tmp_path_factory.mktemp("inductor") / "fp32", "fp32", shortcut(), watched=True)


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory):
    return build(tmp_path_factory.mktemp("inductor") / "dynamic", "dynamic", repeated())


def outputs(file, n=32):
    runner = BACKEND.load(file, threads=torch.get_num_threads())
    with runner.context():
        return np.array(runner.outputs(runner(runner.prepare(images(n)))))


def expected(module, n=32):
    with torch.no_grad():
        return module(torch.from_numpy(images(n)[0])).numpy()


def test_every_layer_runs_in_int8_and_is_named(static):
    """The operators of the compiled graph: both branches under their names, though fusion swaps their order, and the
    Linear of 16 x 10 that Inductor would write out as multiplications."""
    built, file = static
    assert [(layer.name, layer.operator, layer.macs, layer.int8) for layer in built.layers] == [
        ("stem", "onednn::qconv_pointwise", 8 * 9 * 64, True),
        ("main", "onednn::qconv2d_pointwise", 16 * 8 * 9 * 64, True),
        ("shortcut", "onednn::qconv_pointwise", 16 * 8 * 64, True),
        ("depthwise", "onednn::qconv_pointwise", 16 * 9 * 64, True),
        ("head", "onednn::qlinear_pointwise", 160, True),
    ]
    assert built.conversion.float_reasons == {}
    assert aoti.count_int8_calls(file) == 5


def test_a_package_stays_close_to_fp32_whatever_the_batch(static):
    """One input channel is where Inductor's free batch axis gives wrong outputs; examples do not depend on their
    neighbours."""
    _, file = static
    all_at_once = outputs(file)
    assert np.abs(all_at_once - expected(shortcut())).max() < 0.02
    assert np.array_equal(all_at_once[:5], outputs(file, 5))
    assert np.array_equal(all_at_once[:1], outputs(file, 1))


def test_fp32_is_frozen_and_equal(fp32):
    """Weights are packed for oneDNN, which needs freezing; nothing is int8; outputs are the network's."""
    built, file = fp32
    assert [layer.name for layer in built.layers] == ["stem", "main", "shortcut", "depthwise", "head"]
    assert {layer.operator for layer in built.layers[:4]} == {"mkldnn::_convolution_pointwise"}
    assert compute_int8_share(built.layers) == 0
    assert aoti.count_int8_calls(file) == 0
    np.testing.assert_allclose(outputs(file), expected(shortcut()), atol=1e-5)


def test_dynamic_quantizes_each_call_of_a_linear_layer(dynamic):
    """By a range that holds 0, though all values be above it, as the operator chooses it; convolutions stay float."""
    built, file = dynamic
    assert [(layer.name, layer.int8) for layer in built.layers] == [
        *([("stem", False)] + [("conv", False)] * 3),
        *([("mix", True)] * 3 + [("head", True)]),
    ]
    assert np.abs(outputs(file) - expected(repeated())).max() < 0.02


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    """A package for CPUs with AVX2 on x86, else for this machine."""
    target = ("avx2",) if "avx2" in fingerprint.isa() else ()
    return build(tmp_path_factory.mktemp("inductor") / "older", "static", repeated(), target=target)


def test_static_quantizes_each_call_of_a_layer(older):
    """Each call has weights of its own to be packed, and scales of its own."""
    built, file = older
    assert [(layer.name, layer.int8) for layer in built.layers] == [
        (name, True) for name in ("stem", "conv", "conv", "conv", "mix", "mix", "mix", "head")
    ]
    assert aoti.count_int8_calls(file) == 8
    assert np.abs(outputs(file) - expected(repeated())).max() < 0.02


def read_isa(file):
    """The vector instructions of a package's machine code, in Inductor's words."""
    with zipfile.ZipFile(file) as archive:
        notes = [json.loads(archive.read(name)) for name in archive.namelist() if name.endswith("_metadata.json")]
    return next(note["AOTI_CPU_ISA"] for note in notes if "AOTI_CPU_ISA" in note)


@pytest.mark.skipif("avx2" not in fingerprint.isa(), reason="the code is for x86 with AVX2")
def test_a_package_for_an_older_cpu_holds_no_newer_instructions(older, static):
    """What Inductor notes of the package is the CPU that its vectors are for; the answers stay those of the network,
    within rounding."""
    built, file = older
    assert read_isa(file) == "AVX2"
    target = built.conversion.target
    assert (target.compiled_for, target.cpus, target.overflowing) == ("haswell", ("avx2",), ())
    assert target.layers == 8
    assert "machine code for haswell and newer" in built.note
    assert static[0].conversion.target is None
    assert read_isa(static[1]).split()[0] == ("AVX512" if "avx512f" in fingerprint.isa() else "AVX2")
    fp32 = expected(repeated())
    assert np.abs(outputs(file) - fp32).max() < 0.05 * np.abs(fp32).max()


def test_training_gives_int8_layers_too(tmp_path):
    """QAT: each layer is in int8, and the outputs have the shape of the network's."""
    built, file = build(tmp_path / "qat", "qat", perceptron())
    assert [(layer.name, layer.int8) for layer in built.layers] == [("first", True), ("second", True)]
    assert outputs(file).shape == (32, 10)


@pytest.mark.parametrize("values", [(0.5, 1.0), (-1.0, -0.5), (-1.0, 2.0), (0.0, 0.0)])
def test_inductors_dynamic_ranges_are_those_of_the_operator(values):
    """Also where all values have one sign; Inductor's own rule leaves 0 out of the range."""
    from torch._inductor import decomposition

    arguments = (torch.tensor(values), 0, 255, 2**-12, torch.uint8)
    scale, zero_point = torch.ops.quantized_decomposed.choose_qparams.tensor(*arguments)
    with aoti._own_rules():
        rule = decomposition.select_decomp_table()[torch.ops.quantized_decomposed.choose_qparams.tensor]
    assert [float(entry) for entry in rule(*arguments)] == [float(scale), float(zero_point)]


def test_own_rules_hold_in_the_table_that_is_read_and_only_meanwhile():
    """torch copies the table at the first compilation of the process, which a user's network may have caused."""
    from torch._inductor import decomposition

    product, table = torch.ops.aten.addmm.default, decomposition.select_decomp_table()
    before = dict(table)
    assert product in before
    with aoti._own_rules():
        assert product not in decomposition.select_decomp_table()
    assert decomposition.select_decomp_table() == before


def test_two_builds_give_the_same_bytes(dynamic, tmp_path):
    """Neither the folder, whose name may hold spaces, nor where this process keeps its objects is part of them."""
    _, file = dynamic
    _, again = build(tmp_path / "once more", "dynamic", repeated())
    assert file.read_bytes() == again.read_bytes()
    assert " at 0x" not in aoti.read_sources(file)


def test_only_the_package_is_left(static, fp32, dynamic):
    """Inductor's C++ and objects are gone."""
    assert [[path.name for path in file.parent.iterdir()] for _, file in (static, fp32, dynamic)] == [
        [inductor.FILE]
    ] * 3


RUN = """
import hashlib, json, os, sys
from pathlib import Path
import numpy as np
from qbench.backends.inductor import BACKEND
x = np.random.default_rng(0).random((4, 1, 8, 8), dtype=np.float32)
runner = BACKEND.load(Path(sys.argv[1]), threads=int(sys.argv[2]))
with runner.context():
    prepared = runner.prepare((x,))
    before = len(os.listdir("/proc/self/task"))
    outputs = runner.outputs(runner(prepared))
print(json.dumps({
    "new_threads": len(os.listdir("/proc/self/task")) - before,
    "observed": runner.observed(),
    "outputs": hashlib.sha256(outputs.tobytes()).hexdigest(),
    "compiler": "torch._inductor" in sys.modules,
    "left": os.listdir(os.environ["TMPDIR"]),
}))
"""


def run_fresh(file, threads, folder):
    folder.mkdir()
    environment = {"PATH": "/nowhere", "TMPDIR": str(folder), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    same_kernels = {name: os.environ[name] for name in fingerprint.HIDING_VARIABLES if name in os.environ}
    command = [sys.executable, "-c", RUN, str(file), str(threads)]
    return json.loads(subprocess.check_output(command, env=environment | same_kernels, text=True).splitlines()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc/self/task")
def test_a_fresh_process_needs_no_compiler_and_gets_its_threads(static, tmp_path):
    """One package, two numbers of threads: with 2, a call starts one more thread of the system, with 1 none; outputs
    are bit-equal to those of the process that built it, nothing of Inductor is imported and nothing is left in /tmp."""
    _, file = static
    first, two = (run_fresh(file, threads, tmp_path / str(threads)) for threads in (1, 2))
    assert [actual["new_threads"] for actual in (first, two)] == [0, 1]
    assert [actual["observed"]["threads"] for actual in (first, two)] == [1, 2]
    assert [actual["observed"]["openmp_runtimes"] for actual in (first, two)] == [1, 1]
    assert (first["compiler"], first["left"]) == (False, [])
    import hashlib

    assert first["outputs"] == two["outputs"] == hashlib.sha256(outputs(file, 4).tobytes()).hexdigest()


def test_the_code_demands_no_number_of_threads(static, fp32, dynamic):
    """Each parallel region asks OpenMP; there are such regions in the networks with convolutions."""
    files = [file for _, file in (static, fp32, dynamic)]
    assert [aoti.read_threads(file) for file in files] == [frozenset()] * 3
    assert "#pragma omp parallel" in aoti.read_sources(files[0])


def test_a_package_for_another_number_of_threads_is_refused(tmp_path):
    """Inductor's own default writes the number into the code."""
    file = tmp_path / "model.pt2"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m/data/aotinductor/model/model.kernel.cpp", "#pragma omp parallel num_threads(2)\n")
    assert aoti.read_threads(file) == {2}
    with pytest.raises(BuildError, match=r"model.pt2 was compiled for 2 threads, not 1; build it again"):
        BACKEND.load(file, threads=1)


def test_a_package_that_does_not_load_says_so(tmp_path):
    """What is no package of this torch and CPU."""
    file = tmp_path / "model.pt2"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m/nothing", "")
    with pytest.raises(BuildError, match="does not load .* Build it again"):
        BACKEND.load(file, threads=1)


def test_a_package_of_another_network_is_refused(fp32):
    """The proof compares outputs on the probes."""
    _, file = fp32
    torch.manual_seed(1)
    probes = tuple(torch.from_numpy(array) for array in images(4))
    assert aoti.require_equal(shortcut(), file, probes) is None
    with pytest.raises(BuildError, match=r"at outputs up to [\d.]+\): does its forward depend on values"):
        aoti.require_equal(Shortcut().eval(), file, probes)
    note = aoti.require_equal(Shortcut().eval(), file, probes, saturates=True)
    assert "sums of 16 bits do overflow (outputs off by up to" in note


@pytest.mark.parametrize(("spreads", "passes"), [(1, True), (3, False)])
def test_an_int8_package_may_differ_by_what_rounding_explains(spreads, passes, monkeypatch):
    """Which is measured on the network, and little for a small one."""
    x = torch.from_numpy(images()[0])
    module = pt2e.dynamic(QuantizeJob(perceptron(), "inductor", Recipe(), (x[:1],))).module
    explained = rounding.spread(module, [(example,) for example in x[:8].split(1)])
    with torch.no_grad():
        largest = float(module(x[:8]).abs().max())
        shifted = largest * same_outputs.TOLERANCE + spreads * explained
    assert 2 * same_outputs.TOLERANCE * largest < explained < 0.02 * largest
    loader = SimpleNamespace(run=lambda inputs: [module(*inputs) + shifted])
    monkeypatch.setattr(aoti, "load", lambda file: loader)
    with contextlib.nullcontext() if passes else pytest.raises(BuildError, match="and rounding explains"):
        assert aoti.require_equal(module, Path("model.pt2"), (x[:8],)) is None


def test_room_for_sums_is_made_in_the_weights():
    """The same on every CPU: the build asks the kernels. A recipe that says what it wants is left alone."""
    for mode in ("static", "dynamic", "qat"):
        for arguments, expected in (
            (Recipe(), (False, True)),
            (Recipe(reduce_range=True), (True, False)),
            (Recipe(reduce_range=False), (False, False)),
            (Recipe(reduce_range=True, narrow_weights=True), (True, True)),
        ):
            recipe = BACKEND.resolve(mode, arguments)
            assert (recipe.reduce_range, recipe.narrow_weights) == expected


def test_open_choices_are_filled_and_stay():
    """Each mode has its own; the framework's default leaves them to the framework."""
    static, qat = (BACKEND.resolve(mode, Recipe()) for mode in ("static", "qat"))
    assert (static.flow, static.per_channel, static.symmetric) == ("pt2e", True, False)
    assert static.calibrator is not None
    assert qat.calibrator == "moving_average"
    assert BACKEND.resolve("dynamic", Recipe(calibrator="minmax")).calibrator is None
    framework = BACKEND.resolve("static", Recipe(framework_default=True))
    assert (framework.calibrator, framework.per_channel, framework.reduce_range) == (None, None, None)
    for mode in BACKEND.modes:
        once = BACKEND.resolve(mode, Recipe())
        assert BACKEND.resolve(mode, once) == once


class Enough(Exception):
    """The build has come so far."""


def test_compiling_is_told_as_it_begins(tmp_path):
    """It takes longest."""
    told = []

    def progress(text, share):
        told.append((text, share))
        if text == "compile":
            raise Enough

    job = BuildJob(network=Network(kind="torch", module=perceptron()), mode="fp32", recipe=Recipe(),
                   calibration=images(), training=None, folder=tmp_path, progress=progress)  # fmt: skip
    with pytest.raises(Enough):
        BACKEND.build(job)
    assert told[-1] == ("compile", 0.7)


@pytest.mark.usefixtures("two_threads")
def test_nodes_are_timed_of_one_example_on_the_threads_that_are_told(monkeypatch):
    """A package takes no more at a time."""
    monkeypatch.setattr(
        aoti_profile,
        "time_nodes",
        lambda file, inputs, *, calls: (file, [len(tensor) for tensor in inputs], calls, torch.get_num_threads()),
    )
    timed = BACKEND.time_nodes(Path("m.pt2"), (images(4)[0], images(4)[0]), threads=1, calls=3)
    assert timed == (Path("m.pt2"), [1, 1], 3, 1)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("exit 1", None),
        ("exit 0", None),
        ("echo g++ 12.2; echo Free Software", "g++ 12.2"),
        ("echo old; exit 1", "old"),
    ],
)
def test_what_a_compiler_says_of_its_version_decides_the_bytes(script, told, tmp_path, monkeypatch):
    """Its first line; one that says nothing, or is not there, decides nothing."""
    compiler = tmp_path / "g++"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert BACKEND.toolchain() == told
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert BACKEND.toolchain() is None


@pytest.mark.parametrize(
    ("machine", "cpu", "runs"),
    [("x86_64", "avx2", True), ("AMD64", "vnni", True), ("x86_64", "arm", False), ("aarch64", "arm", True),
     ("aarch64", "avx2", False)],
)  # fmt: skip
def test_a_package_runs_on_cpus_of_its_own_kind(machine, cpu, runs, monkeypatch):
    """Its machine code is for that."""
    monkeypatch.setattr(inductor.platform, "machine", lambda: machine)
    reason = BACKEND.why_not_for(cpu)
    told = f"its package holds machine code for {machine}, which no other kind of CPU loads"
    assert reason == (None if runs else told)


def test_floats_of_16_bits_need_a_cpu_and_weights_of_few_bits_another_runtime(monkeypatch):
    """With what to do."""
    monkeypatch.setattr(half_floats, "explain_missing", lambda precision: f"no {precision} here")
    said = "no fp16 here: torch would convert every value; leave fp16 out here"
    assert BACKEND.why_not(mode="fp16", kind="torch") == said
    monkeypatch.setattr(half_floats, "explain_missing", lambda precision: None)
    assert BACKEND.why_not(mode="fp16", kind="torch") is None
    assert str(BACKEND.why_not(mode="weight_only", kind="torch")).endswith("use onnxruntime or openvino")


def test_without_a_compiler_it_is_missing_with_the_reason(monkeypatch):
    """Planning then skips its cases."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "there is no 'no-such-compiler'; install g++" in BACKEND.missing()


def test_every_refusal_says_what_to_do(monkeypatch):
    """ONNX, TorchScript, another CPU, no torchao; fp32 needs neither x86 nor torchao."""
    assert "use the onnxruntime backend" in BACKEND.why_not(mode="fp32", kind="onnx")
    assert "give the model's Python source" in BACKEND.why_not(mode="static", kind="torchscript")
    with monkeypatch.context() as patch:
        patch.setattr(inductor.platform, "machine", lambda: "aarch64")
        assert "is for x86 only; use onednn" in BACKEND.why_not(mode="static", kind="torch")
        assert BACKEND.why_not(mode="fp32", kind="torch") is None
    monkeypatch.setattr(inductor.importlib.util, "find_spec", lambda name: None)
    assert "torchao is not installed; pip install" in BACKEND.why_not(mode="dynamic", kind="torch")


def test_a_package_tells_where_its_time_goes_where_it_was_compiled_to_be_watched(static, fp32):
    """Each product of its graph once; one that is to be shipped tells nothing, and costs nothing for it."""
    with pytest.raises(CaseSkipped, match="not compiled to be watched"):
        BACKEND.time_nodes(static[1], images(1), threads=1, calls=3)
    built, file = fp32
    threads = torch.get_num_threads()
    try:
        profile = BACKEND.time_nodes(file, images(1), threads=1, calls=3)
    finally:
        torch.set_num_threads(threads)
    assert [node.kind for node in profile.nodes].count("float product") == len(built.layers)
    assert profile.watched_seconds >= profile.node_seconds > 0


def test_bf16_is_proven_by_onednns_log(tmp_path):
    """Every layer of the network in bf16 has a kernel of its work that the package ran; its answers are near fp32's and
    half of its weights' bytes are gone."""
    network = shortcut()
    built, file = build(tmp_path / "bf16", "bf16", network)
    assert [layer.name for layer in built.layers] == ["stem", "main", "shortcut", "depthwise", "head"]
    proven = {layer.name for layer in built.layers if layer.precision == "bf16"}
    assert proven >= {"stem", "main", "shortcut", "depthwise"}
    assert built.format == "pt2"
    runner = BACKEND.load(file, threads=1)
    with torch.inference_mode():
        ours = runner.outputs(runner(runner.prepare(images())))
        theirs = network(torch.from_numpy(images()[0])).numpy()
    assert ours.dtype == np.float32
    assert 1e-8 < np.mean((ours - theirs) ** 2) / np.mean(theirs**2) < 1e-2
