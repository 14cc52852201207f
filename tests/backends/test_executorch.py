"""ExecuTorch programs: int8 kernels that a call really runs, the bits of its own API, threads that are read back."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from qbench.backends.base import BuildJob
from qbench.backends.executorch import BACKEND, FILE, NOTE
from qbench.errors import BuildError
from qbench.models.base import Network
from qbench.quant.artifacts import executorch_program
from qbench.quant.recipe import Recipe

pytestmark = pytest.mark.skipif(BACKEND.missing() is not None, reason=str(BACKEND.missing()))


class Pair(nn.Module):
    """A product of two activations, of which XNNPACK has no int8 form."""

    def forward(self, x):
        return x @ x.transpose(1, 2)


class Shortcut(nn.Module):
    """A first convolution with BatchNorm, a depthwise one with ReLU6 that is added, a transposed one, one in 1-D, a
    product of two activations; two Linear layers with a GELU between them."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.relu6, self.pair = nn.ReLU6(), Pair()
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.line = nn.ConvTranspose1d(8, 8, 3, padding=1)
        self.mix, self.gelu, self.head = nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 10)

    def forward(self, x):
        x = self.stem(x)
        x = self.up(x + self.relu6(self.depthwise(x)))
        x = self.pair(self.line(x.flatten(2)))
        return self.head(self.gelu(self.mix(x.mean(2))))


def shortcut():
    torch.manual_seed(0)
    return Shortcut().eval()


def images(n=32):
    return (np.random.default_rng(0).random((n, 1, 8, 8), dtype=np.float32),)


def build(folder, mode, module, **changes):
    folder.mkdir()
    trained = {"epochs": 1, "learning_rate": 1e-3, "batch_size": 32, "seed": 0} if mode == "qat" else {}
    job = BuildJob(
        network=Network(kind="torch", module=module),
        mode=mode,
        recipe=BACKEND.resolve(mode, Recipe(**trained, **changes)),
        calibration=images(),
        training=(images(), np.arange(32) % 10) if mode == "qat" else None,
        folder=folder,
    )
    return BACKEND.build(job), folder / FILE


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("executorch")
    return {mode: build(folder / mode, mode, shortcut()) for mode in BACKEND.modes}


INT8 = {
    "fp32": set(),
    "dynamic": {"mix", "head"},
    "static": {"stem.0", "depthwise", "up", "line", "mix", "head"},
    "qat": {"stem.0", "depthwise", "up", "line", "mix", "head"},
}


@pytest.mark.parametrize("mode", INT8)
def test_layers_are_what_a_call_ran(built, mode):
    """By the kernels that the runtime names: XNNPACK's int8 ones and its float ones, with the reason."""
    variant, _ = built[mode]
    assert variant.uncounted is None
    assert {layer.name for layer in variant.layers if layer.int8} == INT8[mode]
    assert [layer.name for layer in variant.layers] == ["stem.0", "depthwise", "up", "line", "pair", "mix", "head"]
    operators = {layer.name: layer.operator for layer in variant.layers}
    assert operators["pair"] == "Batch Matrix Multiply (NC, F32) GEMM"
    assert ("Q" in operators["head"]) == (mode != "fp32")
    if mode == "static":
        why = "XNNPACK takes it in float only (Batch Matrix Multiply (NC, F32) GEMM)"
        assert variant.conversion.float_reasons == {"pair": why}


@pytest.mark.parametrize("mode", INT8)
def test_a_batch_is_answered_one_by_one(built, mode):
    """The same as each example on its own."""
    runner = BACKEND.load(built[mode][1], threads=1)
    (x,) = images(3)
    with runner.context():
        whole = runner.outputs(runner(runner.prepare((x,))))
        single = [runner.outputs(runner(runner.prepare((x[i : i + 1],)))) for i in range(3)]
    assert whole.shape == (3, 10)
    assert np.array_equal(whole, np.concatenate(single))


@pytest.mark.parametrize("mode", ["fp32", "static"])
def test_answers_are_near_fp32(built, mode):
    """fp32 to rounding, int8 to the noise of 8 bits."""
    runner = BACKEND.load(built[mode][1], threads=1)
    with runner.context():
        own = runner.outputs(runner(runner.prepare(images())))
        fp32 = shortcut()(torch.from_numpy(images()[0])).numpy()
    noise = 20 * np.log10(np.linalg.norm(own - fp32) / np.linalg.norm(fp32))
    assert noise < (-100 if mode == "fp32" else -25)


def test_bits_are_those_of_executorch_by_hand(tmp_path):
    """The framework's default, quantized and lowered by ExecuTorch's own API as its tutorial does."""
    from qbench.quant.artifacts.torch_export import known_warnings

    with known_warnings():  # of imports, too: the first of a process
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )
        from executorch.exir import to_edge_transform_and_lower
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    _, file = build(tmp_path / "own", "static", shortcut(), framework_default=True, canonicalize=False)
    x = torch.from_numpy(images()[0])
    with known_warnings(), torch.no_grad():
        batch = {"x": {0: torch.export.Dim("batch", min=1)}}
        graph = torch.export.export(shortcut(), (x[:2],), dynamic_shapes=batch).module(check_guards=False)
        quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
        prepared = prepare_pt2e(graph, quantizer)
        for start in (0, 16):
            prepared(x[start : start + 16])
        program = torch.export.export(convert_pt2e(prepared), (x[:1],))
        edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
        by_hand = tmp_path / "hand.pte"
        by_hand.write_bytes(edge.to_executorch().buffer)
    own, theirs = (BACKEND.load(path, threads=1) for path in (file, by_hand))
    assert np.array_equal(*(runner.outputs(runner(runner.prepare(images()))) for runner in (own, theirs)))


def test_two_builds_have_the_same_bytes(built, tmp_path):
    """Or a gate by bytes would never be quiet."""
    _, again = build(tmp_path / "static", "static", shortcut())
    assert again.read_bytes() == built["static"][1].read_bytes()


def test_a_skipped_layer_stays_float(tmp_path):
    """With the recipe's reason, and its neighbours int8."""
    variant, _ = build(tmp_path / "static", "static", shortcut(), skip_layers=("depthwise", "mix"))
    assert {layer.name for layer in variant.layers if layer.int8} == {"stem.0", "up", "line", "head"}
    assert variant.conversion.float_reasons["mix"] == "skipped by the recipe (skip_layers)"


def test_one_scale_for_all_channels(built, tmp_path):
    """`per_channel: false` gives other, less exact weights, in kernels that still are int8."""
    variant, file = build(tmp_path / "static", "static", shortcut(), per_channel=False)
    operators = {layer.name: layer.operator for layer in variant.layers}
    assert operators["stem.0"].startswith("Convolution (NHWC, QS8)")
    assert file.read_bytes() != built["static"][1].read_bytes()


def test_symmetric_activations_have_their_zero_in_the_middle(tmp_path):
    """Signed bytes with zero point 0, so that -1 and 1 are as far from their neighbours; the program still is right."""
    symmetric, _ = build(tmp_path / "symmetric", "static", shortcut(), symmetric=True)
    (known,) = symmetric.conversion.input_ranges
    assert known is not None
    assert known.low == pytest.approx(-128 / 127 * known.high)


def test_threads_are_set_and_read_back(built):
    """By the runtime itself, which starts with all cores."""
    for threads in (2, 1):
        runner = BACKEND.load(built["fp32"][1], threads=threads)
        assert runner.observed()["threads"] == threads


def test_where_the_time_goes(built):
    """Products by their format, conversions, and all else, in the order in which they ran."""
    profile = BACKEND.time_nodes(built["static"][1], images(2), threads=1, calls=3)
    kinds = {node.kind for node in profile.nodes}
    assert kinds == {"int8 product", "float product", "conversion", "other"}
    assert sum(node.kind == "int8 product" for node in profile.nodes) == 6
    floats = [node.operator for node in profile.nodes if node.kind == "float product"]
    assert floats == ["Batch Matrix Multiply (NC, F32) GEMM"]
    assert profile.call_seconds > 0


def test_a_program_runs_without_qbench(built, tmp_path):
    """By the lines that are shipped, in a process that has not imported it."""
    (tmp_path / "shipped").mkdir()
    program = BACKEND.deploy(built["static"][1], tmp_path / "shipped", "network")
    (x,) = images(1)
    np.save(tmp_path / "x.npy", x)
    lines = [
        *program.imports,
        "import sys, numpy",
        f"FILE, THREADS = {str(tmp_path / 'shipped' / program.file)!r}, 1",
        *program.load,
        "def answer(arrays):",
        *(f"    {line}" for line in program.call),
        f"numpy.save({str(tmp_path / 'y.npy')!r}, answer([numpy.load({str(tmp_path / 'x.npy')!r})])[0])",
        "assert 'qbench' not in sys.modules",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, capture_output=True)
    runner = BACKEND.load(built["static"][1], threads=1)
    assert np.array_equal(np.load(tmp_path / "y.npy"), runner.outputs(runner(runner.prepare((x,)))))


def test_a_file_that_is_no_program_does_not_load(tmp_path):
    """It is said so, and nothing crashes."""
    path = tmp_path / "model.pte"
    path.write_bytes(b"not a program" * 100)
    with pytest.raises(BuildError, match=r"model\.pte does not load \(.*\); made for another ExecuTorch\?"):
        executorch_program.load(path)


def test_a_network_that_cannot_be_lowered_is_told(tmp_path):
    """With the error of its passes."""

    class Spectrum(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 8)

        def forward(self, x):
            return torch.fft.rfft(self.head(x)).abs()

    with pytest.raises(BuildError, match=r"ExecuTorch cannot lower this network \(\w+: .*\); skip the layer, or use"):
        build(tmp_path / "fp32", "fp32", Spectrum().eval())


def test_a_network_that_the_runtime_does_not_run_is_told(tmp_path):
    """By what the runtime says on its standard error, of which its exception has a number alone."""
    volume = nn.Sequential(nn.Unflatten(1, (1, 1)), nn.Conv3d(1, 2, (1, 3, 3)), nn.Flatten(), nn.Linear(72, 10)).eval()
    with pytest.raises(BuildError, match=r"\(aten::convolution.out: Expect input .* 3-D or 4-D, but got, 5\); keep"):
        build(tmp_path / "fp32", "fp32", volume)


@pytest.mark.parametrize(
    ("mode", "kind", "reason"),
    [
        ("static", "onnx", "ExecuTorch does not take ONNX files; use the onnxruntime backend"),
        ("fp32", "torchscript", "torch.export does not take TorchScript files; give the model's Python source"),
        ("bf16", "torch", "qbench builds no bf16 for ExecuTorch; use openvino, or leave bf16 out here"),
        ("weight_only", "torch", "qbench builds no weight_only for ExecuTorch; use openvino, or leave weight_only out"),
    ],
)
def test_what_it_does_not_build_is_said_while_planning(mode, kind, reason):
    """With what to do."""
    assert str(BACKEND.why_not(mode=mode, kind=kind)).startswith(reason)


def test_where_it_is_not_installed(monkeypatch):
    """The extra is named."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "executorch" else object())
    assert BACKEND.missing() == (
        "executorch is not installed; pip install 'executorch>=1.5', or qbench with the extra executorch"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torchao" else object())
    assert BACKEND.missing() == "torchao is not installed; pip install 'torchao>=0.18'"
    assert BACKEND.why_not(mode="static", kind="torch") is None


def test_a_float_network_needs_no_reason_for_its_floats(built):
    """Only an int8 mode does; that batches are answered one by one is said of each."""
    assert built["fp32"][0].conversion.float_reasons == {}
    assert "stem.0" in built["dynamic"][0].conversion.float_reasons
    assert all(str(variant.note).endswith(NOTE) for variant, _ in built.values())


class Enough(Exception):
    """The build has come so far."""


def test_lowering_is_told_as_it_begins(tmp_path):
    """Behind what quantizes."""
    told = []

    def progress(text, share):
        told.append((text, share))
        if text == "lower":
            raise Enough

    job = BuildJob(network=Network(kind="torch", module=nn.Sequential(nn.Linear(4, 2)).eval()), mode="fp32",
                   recipe=BACKEND.resolve("fp32", Recipe()), calibration=(np.zeros((8, 4), np.float32),),
                   training=None, folder=tmp_path, progress=progress)  # fmt: skip
    with pytest.raises(Enough):
        BACKEND.build(job)
    assert told[-1] == ("lower", 0.7)


def test_nothing_of_the_exporter_is_imported_to_run_a_program(built):
    """It takes seconds: what a measuring process imports is the runtime."""
    lines = (
        "import importlib, sys",
        f"[importlib.import_module(name) for name in {executorch_program.MODULES!r}]",
        "assert 'executorch.exir' not in sys.modules and 'torchao' not in sys.modules",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=Path(__file__).parent, capture_output=True)


@pytest.mark.parametrize("layer", [nn.Linear(64, 8), nn.Conv2d(64, 8, 1), nn.Conv2d(8, 8, 3, groups=8)], ids=str)
def test_sums_hold_at_the_ends_of_both_ranges(layer, tmp_path):
    """Every product is the largest one: kernels that add two of them in 16 bits would give half of it."""
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.zero_()
    depth = 64 if layer.weight.shape[1] == 64 else 8
    shape = (32, depth) if isinstance(layer, nn.Linear) else (32, depth, 4, 4)
    x = np.ones(shape, np.float32)
    x[0] = -1  # so that neither end of the activations is 0
    job = BuildJob(
        network=Network(kind="torch", module=nn.Sequential(layer).eval()),
        mode="static",
        recipe=BACKEND.resolve("static", Recipe()),
        calibration=(x,),
        training=None,
        folder=tmp_path,
    )
    BACKEND.build(job)
    runner = BACKEND.load(tmp_path / FILE, threads=1)
    products = layer.weight[0].numel()
    answers = runner.outputs(runner(runner.prepare((x,))))
    assert np.allclose(answers[0], -products, rtol=0.01)
    assert np.allclose(answers[1:], products, rtol=0.01)
