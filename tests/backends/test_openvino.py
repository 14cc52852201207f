"""OpenVINO: settings read back, threads where they may run, coverage from the kernels that ran, NNCF's default."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import Draft

from qbench import installation, registry
from qbench.backends.base import BuildJob
from qbench.errors import BuildError, CaseSkipped, MeasureError, ModeImpossible
from qbench.machine import fingerprint, half_floats
from qbench.models.base import Network
from qbench.quant.artifacts import coverage, openvino_model
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.onnx import onnxruntime_layers
from qbench.quant.onnx.onnxruntime_layers import Executed
from qbench.quant.recipe import Recipe

BACKEND = registry.load("backend", "openvino")
pytestmark = pytest.mark.skipif(BACKEND.missing() is not None, reason=str(BACKEND.missing()))
ROOT = Path(__file__).parent.parent.parent
CONV, PRODUCT = 8 * 8 * 16 * 16 * 9, 1024 * 10


def images(n=32):
    return (np.random.default_rng(0).random((n, 16, 8, 8), dtype=np.float32),)


def network(file, *, batch="n", more=()):
    """Two branches of convolutions that are added, ``more`` nodes from ``s`` to ``t``, a matrix product."""
    rng = np.random.default_rng(1)
    shapes = {"first": (16, 16, 3, 3), "second": (16, 16, 3, 3), "table": (1024, 10)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) / 12 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], name="left", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["x", "second"], ["c"], name="/right/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["b", "c"], ["s"], name="sum"),
        *(more or [helper.make_node("Relu", ["s"], ["t"], name="last")]),
        helper.make_node("Flatten", ["t"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "table"], ["y"], name="product"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", TensorProto.FLOAT, [batch, 16, 8, 8])],
        [value("y", TensorProto.FLOAT, [batch, 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    return file


def build(mode, source, folder, calibration=None, backend=BACKEND, **recipe):
    folder.mkdir()
    job = BuildJob(
        network=Network(kind="onnx", path=source),
        mode=mode,
        recipe=backend.resolve(mode, Recipe(**recipe)),
        calibration=calibration or images(),
        training=None,
        folder=folder,
    )
    return backend.build(job)


def outputs(runner, inputs):
    return runner.outputs(runner(runner.prepare(inputs)))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return network(tmp_path_factory.mktemp("onnx") / "model.onnx")


@pytest.fixture(scope="module")
def by_nncf(source, tmp_path_factory):
    """NNCF's int8 of the network: built once."""
    folder = tmp_path_factory.mktemp("nncf") / "x"
    return build("static", source, folder, framework_default=True), folder


def test_fp32_gives_what_onnx_runtime_gives_at_any_batch_size(source, tmp_path):
    """The file is the user's own, and runs in fp32 whatever the CPU would prefer."""
    from qbench.quant.onnx import onnxruntime_session

    built = build("fp32", source, tmp_path / "x")
    runner = BACKEND.load(tmp_path / "x" / built.file, threads=1)
    for n in (1, 5):
        np.testing.assert_allclose(
            outputs(runner, images(n)), onnxruntime_session.run(source, images(n)), rtol=1e-4, atol=1e-4
        )
    assert runner.observed()["inference_precision"] == "f32"
    actual = {layer.name: (layer.macs, layer.int8) for layer in built.layers}
    assert actual == {"left": (CONV, False), "/right/Conv": (CONV, False), "product": (PRODUCT, False)}


def einsums(file):
    """MatMul, two einsums of activations, MatMul: 16 x 64 tokens."""
    rng = np.random.default_rng(1)
    weights = {"w": rng.standard_normal((64, 64)) / 8, "table": rng.standard_normal((64, 10)) / 8}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Einsum", ["h", "h"], ["s"], equation="bid,bjd->bij", name="scores"),
        helper.make_node("Softmax", ["s"], ["p"], name="softmax"),
        helper.make_node("Einsum", ["p", "h"], ["o"], equation="bij,bjd->bid", name="mixed"),
        helper.make_node("MatMul", ["o", "table"], ["y"], name="last"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", TensorProto.FLOAT, ["n", 16, 64])],
        [value("y", TensorProto.FLOAT, ["n", 16, 10])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    return file


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_an_einsum_of_activations_counts_as_float(name, tmp_path):
    """It stays float on both engines: coverage is the share of the other two products, not 100 %."""
    tokens = (np.random.default_rng(0).standard_normal((8, 16, 64)).astype(np.float32),)
    built = build(
        "static", einsums(tmp_path / "m.onnx"), tmp_path / "x", tokens, backend=registry.load("backend", name)
    )
    products = {"first": 16 * 64 * 64, "scores": 16 * 16 * 64, "mixed": 16 * 16 * 64, "last": 16 * 64 * 10}
    assert {layer.name: layer.macs for layer in built.layers} == products
    assert [layer.name for layer in built.layers if layer.int8] == ["first", "last"]


def patches(file):
    """The beginning of a vision transformer: a convolution makes tokens, a class token stands before them."""
    draft = Draft()
    kernel = [draft.weight("patch.weight", 32, 16, 2, 2), draft.bias("patch.bias", 32)]
    draft.add("Conv", ["x", *kernel], "patch", kernel_shape=[2, 2], strides=[2, 2])
    draft.add("Shape", ["x"], "shape", start=0, end=1)
    draft.add("Concat", ["shape_out", draft.constant("one", np.int64([1, 32]))], "size", axis=0)
    draft.add("Expand", [draft.weight("token", 1, 1, 32), "size_out"], "expanded")
    draft.add("Reshape", ["patch_out", draft.constant("flat", np.int64([0, 32, 16]))], "tokens")
    draft.add("Transpose", ["tokens_out"], "rows", perm=[0, 2, 1])
    draft.add("Concat", ["expanded_out", "rows_out"], "all", axis=1)
    norm = [draft.constant("g", np.ones(32, np.float32)), draft.constant("h", np.zeros(32, np.float32))]
    draft.add("LayerNormalization", ["all_out", *norm], "norm", axis=-1)
    draft.add("MatMul", ["norm_out", draft.weight("w", 32, 10)], "product", outputs=["y"])
    onnx.save(draft.model({"x": ["n", 16, 8, 8]}, {"y": ["n", 17, 10]}), str(file))
    return file


def test_a_convolution_that_a_concat_reads_keeps_its_biases(tmp_path):
    """A ViT had 1.8 dB on OpenVINO where ONNX Runtime has 32.4: bytes between the convolution and the Concat with the
    class token made OpenVINO add the bias of channel 0 to all. It reads floats there; both runtimes agree."""
    inputs = (images(64)[0] - np.float32(0.5),)
    actual = []
    for name in ("onnxruntime", "openvino"):
        backend = registry.load("backend", name)
        built = build("static", patches(tmp_path / "m.onnx"), tmp_path / name, inputs, backend=backend)
        assert all(layer.int8 for layer in built.layers)
        actual.append(outputs(backend.load(tmp_path / name / built.file, threads=1), inputs))
    noise = np.square(actual[0] - actual[1]).sum() / np.square(actual[0]).sum()
    assert -10 * np.log10(noise) > 25


def test_outputs_are_copies(source):
    """The request writes the next result over the last one; what was handed out must not change."""
    runner = BACKEND.load(source, threads=1)
    first = outputs(runner, images(1))
    changed = first.copy()
    outputs(runner, (images(2)[0][1:],))
    assert np.array_equal(first, changed)


def test_nncf_quantizes_and_every_layer_is_seen_in_an_int8_kernel(by_nncf, source):
    """The framework's default travels as one file, whose branches run in another order than they are written."""
    built, folder = by_nncf
    assert zipfile.ZipFile(folder / built.file).namelist() == ["model.xml", "model.bin"]
    assert coverage.compute_int8_share(built.layers) == 1.0
    assert {layer.name for layer in built.layers} == {"left", "/right/Conv", "product"}
    runner = BACKEND.load(folder / built.file, threads=1)
    expected = outputs(BACKEND.load(source, threads=1), images())
    assert 0 < np.abs(outputs(runner, images()) - expected).max() < 0.1 * np.abs(expected).max()
    assert sum(file.stat().st_size for file in folder.iterdir()) < 0.7 * source.stat().st_size


def test_largest_weights_meet_largest_activations_and_nothing_overflows(tmp_path):
    """Without VNNI, OpenVINO adds two products of bytes in 16 bits: all weights and all inputs at their largest would
    give about half of what they should."""
    fp32 = network(tmp_path / "m.onnx")
    model = onnx.load(str(fp32))
    for tensor in model.graph.initializer[:2]:
        tensor.CopyFrom(numpy_helper.from_array(np.ones((16, 16, 3, 3), np.float32), tensor.name))
    onnx.save(model, str(fp32))
    x = (np.ones((1, 16, 8, 8), np.float32),)
    built = build("static", fp32, tmp_path / "x", x, calibrator="minmax")
    assert coverage.compute_int8_share(built.layers) == 1.0
    expected = outputs(BACKEND.load(fp32, threads=1), x)
    actual = outputs(BACKEND.load(tmp_path / "x" / built.file, threads=1), x)
    assert np.abs(actual - expected).max() < 0.03 * np.abs(expected).max()


def test_a_float_kernel_that_writes_int8_is_no_int8_layer(tmp_path):
    """OpenVINO calls such a layer i8; its kernel's name tells that it multiplied floats."""
    weight = numpy_helper.from_array(np.ones((16, 16, 1, 1), np.float32), "up")
    more = [
        helper.make_node("Relu", ["s"], ["r"], name="last"),
        helper.make_node("Constant", [], ["up"], value=weight, name="constant"),
        helper.make_node("ConvTranspose", ["r", "up"], ["t"], name="transposed"),
    ]
    built = build("static", network(tmp_path / "m.onnx", more=more), tmp_path / "x", framework_default=True)
    (layer,) = [row for row in built.layers if row.name == "transposed"]
    assert layer.operator.startswith("Deconvolution")
    assert layer.int8 == layer.operator.lower().endswith("_i8")


def products(file, *, batch, width=64, layers=2):
    """Matrix products with a Relu between them."""
    draft, x = Draft(), "x"
    for i in range(layers):
        x = draft.linear(x, f"layer{i}", width, width)
        x = draft.add("Relu", [x], f"relu{i}") if i < layers - 1 else x
    onnx.save(draft.model({"x": [batch, width]}, {x: [batch, width]}), file)
    return file


@pytest.mark.parametrize(("batch", "default"), [(1, False), (1, True), (3, False), ("n", False)])
def test_products_of_a_fixed_batch_are_int8_in_the_one_kernel_that_openvino_writes_for_them(tmp_path, batch, default):
    """Such a kernel has the name of a float one; that it reads matrices of bytes tells. fp32 is none of that. It is
    written for CPUs with AVX-512 or VNNI; elsewhere the products stay apart, and only what rounds their input has a
    kernel of that kind."""
    source = products(tmp_path / "m.onnx", batch=batch)
    x = np.random.default_rng(0).standard_normal((32, 64), dtype=np.float32)
    built = build("static", source, tmp_path / "x", (x,), framework_default=default)
    assert [(layer.macs, layer.int8) for layer in built.layers] == [(64 * 64, True)] * 2
    size = 1 if batch == "n" else batch
    timed = BACKEND.time_nodes(tmp_path / "x" / built.file, (x[:size],), threads=1, calls=2)
    kinds = [node.kind for node in timed.nodes]
    if {"avx512f", "avx_vnni"} & set(fingerprint.isa()):
        assert set(kinds) <= {"int8 product", "conversion"}
    else:
        assert (kinds.count("int8 product"), len(kinds)) == (2, 3)
        assert "float product" not in kinds
    assert not any(executed.layer.int8 for executed in BACKEND.execute(source, (x[:size],)))


def test_a_product_that_stays_float_beside_joined_ones_is_not_counted(tmp_path):
    """Of three products the one that the recipe skips."""
    source = products(tmp_path / "m.onnx", batch=1, layers=3)
    x = np.random.default_rng(0).standard_normal((32, 64), dtype=np.float32)
    built = build("static", source, tmp_path / "x", (x,), skip_layers=("layer1",))
    assert sum(layer.int8 for layer in built.layers) == 2


def test_a_fixed_batch_is_filled(tmp_path):
    """Calibrated in whole batches; layers count for one example."""
    built = build("static", network(tmp_path / "m.onnx", batch=3), tmp_path / "x", framework_default=True)
    assert built.fixed_batch == 3
    assert [layer.macs for layer in built.layers] == [CONV, CONV, PRODUCT]
    runner = BACKEND.load(tmp_path / "x" / built.file, threads=1)
    assert outputs(runner, images(3)).shape == (3, 10)


def test_a_batch_of_each_size_is_answered_by_the_model_that_was_compiled_for_it(tmp_path):
    """Whatever was prepared since; int8 answers are the same bit for bit, by whichever size they were asked."""
    built = build("static", network(tmp_path / "m.onnx"), tmp_path / "x")
    runner = BACKEND.load(tmp_path / "x" / built.file, threads=1)
    (x,) = images(6)
    six = runner.prepare((x,))
    single = [outputs(runner, (x[i : i + 1],)) for i in range(6)]
    assert np.array_equal(runner.outputs(runner(six)), np.concatenate(single))
    assert built.fixed_batch is None


def test_what_runs_is_compiled_for_the_examples_of_a_call(source, monkeypatch):
    """Where it is measured, and where its layers and its nodes' times are read: of the same kernels."""
    compiled = []

    def compile_for(self, shapes, **how):
        compiled.append(shapes)
        return compile_really(self, shapes, **how)

    compile_really = openvino_model.ReadModel.compile
    monkeypatch.setattr(openvino_model.ReadModel, "compile", compile_for)
    inputs = images(3)
    outputs(BACKEND.load(source, threads=1), inputs)
    BACKEND.open_file(source)(inputs)
    BACKEND.execute(source, inputs)
    BACKEND.time_nodes(source, inputs, threads=1, calls=1)
    BACKEND.watch(source, inputs, threads=1, seconds=0.01)
    assert compiled
    assert all([*shapes] == [(3, 16, 8, 8)] for shapes in compiled)


def test_what_is_set_is_read_back(source):
    """Threads, one stream, no pinning: as the compiled model tells them."""
    for threads in range(1, min(2, len(os.sched_getaffinity(0))) + 1):
        observed = BACKEND.load(source, threads=threads).observed()
        assert (observed["threads"], observed["interop_threads"], observed["pinned_by_runtime"]) == (threads, 1, False)


ON_ONE_CORE = """
import os, sys
import openvino  # as in a measuring process: imported before it is pinned
from pathlib import Path
import numpy as np
from qbench.backends.openvino import BACKEND
from qbench.process.threads import TASKS
core = max(os.sched_getaffinity(0))
before = set(os.listdir(TASKS))
os.sched_setaffinity(0, [core])
runner = BACKEND.load(Path(sys.argv[1]), threads=1)
runner(runner.prepare((np.zeros((1, 16, 8, 8), np.float32),)))
seen = runner.observed()
own = [task for task in os.listdir(TASKS) if task not in before or task == str(os.getpid())]
assert {tuple(os.sched_getaffinity(int(task))) for task in own} == {(core,)}
print(seen["threads"], BACKEND.load(Path(sys.argv[1]), threads=2).observed()["threads"])
"""


def test_threads_stay_on_the_cores_of_the_process(source):
    """Pinned after the import, every thread of the model may run on that core only; a second one is not had there, and
    the read-back says so."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    actual = subprocess.check_output([sys.executable, "-c", ON_ONE_CORE, str(source)], text=True, env=environment)
    assert actual.split() == ["1", "1"]


def test_a_thread_elsewhere_is_no_measurement(source, monkeypatch):
    """Where OpenVINO's threads may run on cores that the process may not use, the read-back fails."""
    from qbench.process import threads

    runner = BACKEND.load(source, threads=1)
    allowed = threads.list_cores()
    monkeypatch.setattr(threads, "list_cores", lambda: {**allowed, 2**22 + 1: {10_000}})
    with pytest.raises(MeasureError, match="OpenVINO lets threads run on the cores 10000"):
        runner.observed()


def test_inputs_and_outputs_are_not_copied_around_a_call(source):
    """A copy would be timed; memory that may only be read is the exception."""
    runner = BACKEND.load(source, threads=1)
    (array,) = images(1)
    _, tensors = runner.prepare((array,))
    assert np.shares_memory(tensors[0].data, array)
    array.flags.writeable = False
    _, tensors = runner.prepare((array,))
    assert not np.shares_memory(tensors[0].data, array)
    calls = []
    request = SimpleNamespace(infer=lambda tensors, **how: calls.append((tensors, how)) or "result")
    assert runner((request, tensors)) == "result"
    assert calls == [(tensors, {"share_inputs": True, "share_outputs": True})]


def test_layers_are_matched_by_name_and_then_by_size():
    """Two layers of one size in another order keep their own precision; what lost its name falls into its place."""

    def make_layer(name, macs, int8=False):
        return Executed(
            names=frozenset([name]),
            layer=Layer(name=name, operator="x", macs=macs, precision="int8" if int8 else "fp32"),
        )

    reference = [make_layer("a", 10), make_layer("b", 10), make_layer("c", 30)]
    executed = [make_layer("b", 10, True), make_layer("a", 10), make_layer("renamed", 30, True)]
    assert [layer.int8 for layer in onnxruntime_layers.match(reference, executed)] == [False, True, True]
    assert [layer.name for layer in onnxruntime_layers.match(reference, executed)] == ["a", "b", "c"]


def test_without_the_packages_the_reason_names_the_extra(monkeypatch):
    """A plan skips the cases and says what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "nncf" else object())
    assert BACKEND.missing() == f"nncf not installed; {installation.install(['nncf'], 'openvino')}"


def test_dynamic_is_refused_with_a_reason():
    """There is no kernel that quantizes activations as it runs."""
    assert "use static" in BACKEND.why_not(mode="dynamic", kind="torch")


def test_a_broken_file_is_explained(tmp_path):
    """In one line, without the places in OpenVINO's sources."""
    file = tmp_path / "model.onnx"
    file.write_bytes(b"not a model")
    with pytest.raises(BuildError, match="OpenVINO cannot load the model: ") as raised:
        BACKEND.load(file, threads=1)
    assert "\n" not in str(raised.value)
    assert "Exception from" not in str(raised.value)


def test_an_operator_that_openvino_does_not_know_is_a_skip_with_its_name(tmp_path):
    """No fault of the suite's, as a network that torch.onnx cannot export: an EmbeddingBag ended a run with 1."""
    node = helper.make_node("Inverse", ["x"], ["y"], domain="com.microsoft")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 3]) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "inverse.onnx")
    with pytest.raises(ModeImpossible, match="it does not know com.microsoft.Inverse as it .*use the onnx"):
        openvino_model.compile_file(tmp_path / "inverse.onnx")


NO_BF16 = half_floats.explain_missing("bf16")


@pytest.fixture
def halves(tmp_path):
    """The network of ``network`` in fp32 and in bf16: the file and what was built."""
    pool = helper.make_node("MaxPool", ["s"], ["t"], name="pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    source = network(tmp_path / "source.onnx", more=[pool])
    builds = {mode: build(mode, source, tmp_path / mode) for mode in ("fp32", "bf16")}
    return {mode: (tmp_path / mode / built.file, built) for mode, built in builds.items()}


@pytest.mark.skipif(NO_BF16 is not None, reason=str(NO_BF16))
def test_bf16_is_proven_by_the_kernels_that_ran(halves):
    """Every product is bf16's by its kernel's name, the runtime tells it, the bytes are half, and the answers are those
    of bf16: near fp32's, and not the same."""
    (file, built), (fp32_file, fp32) = halves["bf16"], halves["fp32"]
    assert {layer.precision for layer in built.layers} == {"bf16"}
    assert all("bf16" in layer.operator for layer in built.layers)
    assert [layer.name for layer in built.layers] == [layer.name for layer in fp32.layers]
    assert {layer.precision for layer in fp32.layers} == {"fp32"}
    assert (built.format, built.conversion.flow) == ("openvino", None)
    weights = sum(numpy_helper.to_array(each).size for each in onnx.load(fp32_file).graph.initializer)
    with zipfile.ZipFile(file) as pair:
        assert 2 * weights <= pair.getinfo(openvino_model.WEIGHTS).file_size < 2.1 * weights
    runner, baseline = (BACKEND.load(each, threads=1) for each in (file, fp32_file))
    assert (runner.observed()["inference_precision"], baseline.observed()["inference_precision"]) == ("bf16", "f32")
    ours, theirs = (outputs(each, images()) for each in (runner, baseline))
    noise = np.mean((ours - theirs) ** 2) / np.mean(theirs**2)
    assert 1e-8 < noise < 1e-3


@pytest.mark.skipif(NO_BF16 is not None, reason=str(NO_BF16))
@pytest.mark.parametrize("limit", ["AVX2", "AVX512_CORE"])
def test_bf16_is_skipped_on_a_cpu_that_does_not_multiply_it(halves, limit):
    """OpenVINO would run fp32 in silence there, convert every value under a kernel's name that ends in bf16, or find no
    kernel (limited to AVX2 on a CPU with bf16: for this file's pooling)."""
    code = """
import sys
from pathlib import Path
from qbench import registry
from qbench.errors import CaseSkipped
try:
    registry.load("backend", "openvino").load(Path(sys.argv[1]), threads=1)
except CaseSkipped as reason:
    print(reason)
"""
    variables = {**os.environ, "ONEDNN_MAX_CPU_ISA": limit}
    command = [sys.executable, "-c", code, str(halves["bf16"][0])]
    said = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert said.startswith(f"ONEDNN_MAX_CPU_ISA={limit} hides this CPU's instructions that multiply bf16")
    assert said.rstrip().endswith("run this bf16 file on a CPU that multiplies bf16")


def test_a_16_bit_float_needs_a_cpu_that_multiplies_it(monkeypatch):
    """The plan says what the CPU lacks; where it has it, nothing stands in the way of an ONNX file."""
    monkeypatch.setattr(half_floats, "explain_missing", lambda precision: f"no {precision} here")
    assert BACKEND.why_not(mode="fp16", kind="onnx") == (
        "no fp16 here: OpenVINO would run it in fp32, or convert every value; leave fp16 out here"
    )
    assert BACKEND.why_not(mode="static", kind="onnx") is None
    monkeypatch.setattr(half_floats, "explain_missing", lambda precision: None)
    assert BACKEND.why_not(mode="fp16", kind="onnx") is None


@pytest.mark.skipif(half_floats.explain_missing("fp16") is None, reason="this CPU multiplies fp16")
def test_a_format_that_openvino_does_not_take_is_no_answer(monkeypatch, tmp_path):
    """Asked for fp16 on a CPU without it OpenVINO takes bf16 or fp32 in silence: what it reads back decides."""
    file = tmp_path / "half.zip"
    openvino_model.store_half(network(tmp_path / "source.onnx"), file, "fp16")
    assert openvino_model.read_file(file).list_settings(1)["INFERENCE_PRECISION_HINT"] == "f16"
    monkeypatch.setattr(half_floats, "explain_missing", lambda precision: None)
    with pytest.raises(CaseSkipped, match=r"asked for fp16, OpenVINO takes (bf16|f32); run this fp16 file on"):
        openvino_model.compile_file(file)


@pytest.mark.skipif(NO_BF16 is not None, reason=str(NO_BF16))
def test_the_program_that_ships_bf16_asks_for_it(halves, tmp_path):
    """Else OpenVINO would choose by the CPU; fp32 is asked for as before."""
    for mode, hint in (("fp32", "f32"), ("bf16", "bf16")):
        program = BACKEND.deploy(halves[mode][0], tmp_path, f"model-{mode}")
        assert f'"INFERENCE_PRECISION_HINT": "{hint}"' in "".join(program.load)


@pytest.mark.parametrize(("bits", "least"), [(8, 0.24), (4, 0.12)])
def test_weights_of_few_bits_are_told_with_what_multiplies_them(tmp_path, bits, least):
    """OpenVINO names kernels of weights of few bits alike whether it makes bytes of the activations or not: its answers
    tell. Asked for fp32 it makes none."""
    draft = network(tmp_path / "source.onnx")
    layers, answers, sizes = {}, {}, {}
    for arithmetic in ("int8", "fp32"):
        built = build(
            "weight_only", draft, tmp_path / arithmetic, bits=bits, group=32, symmetric=False, arithmetic=arithmetic
        )
        layers[arithmetic] = {layer.name: layer for layer in built.layers}
        file = tmp_path / arithmetic / built.file
        answers[arithmetic] = outputs(BACKEND.load(file, threads=1), images())
        with zipfile.ZipFile(file) as pair:
            sizes[arithmetic] = pair.getinfo(openvino_model.WEIGHTS).file_size
    assert [layers[name]["product"].weight_bits for name in ("int8", "fp32")] == [bits] * 2
    assert layers["fp32"]["product"].precision == "fp32"
    if np.array_equal(answers["int8"], answers["fp32"]):  # a CPU whose kernels make no bytes
        assert layers["int8"]["product"].precision == "fp32"
    else:
        assert layers["int8"]["product"].precision == "int8"
    assert least * 4 * 1024 * 10 < sizes["int8"] < 2 * 1024 * 10 + 4 * 2 * 16 * 16 * 9


def test_a_layer_that_is_skipped_keeps_its_floats(tmp_path):
    """By the name that it has in the file; the others do not."""
    built = build("weight_only", network(tmp_path / "source.onnx"), tmp_path / "a", bits=8, skip_layers=("pro*",))
    (product,) = [layer for layer in built.layers if layer.name == "product"]
    assert product.weight_bits is None
    assert built.conversion.float_reasons == {"product": "the recipe skips it"}
