"""The ONNX pipeline: export that agrees, int8 that runs in integer kernels, coverage from the runtime's profile."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from networks import Branching, Forgetful, Grouped, NeverAlone, lstm, perceptron, residual_cnn
from onnx import TensorProto, helper, numpy_helper

from qbench.errors import BuildError
from qbench.quant import coverage, onnx_file, onnx_layers, onnx_model
from qbench.quant.recipe import Recipe

RECIPE = Recipe(calibrator="histogram", per_channel=True)


def images(n=32):
    return (np.random.default_rng(0).random((n, 1, 8, 8), dtype=np.float32),)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """fp32 files of the networks, each exported once (the exporter takes seconds)."""
    folder = tmp_path_factory.mktemp("onnx")
    files = {}
    for name, module in {"cnn": residual_cnn(), "lstm": lstm(), "grouped": Grouped().eval()}.items():
        files[name] = folder / f"{name}.onnx"
        onnx_model.export(module, (torch.from_numpy(images(1)[0]),), files[name])
    return files


def test_the_export_agrees_and_takes_any_batch(exported):
    """Outputs equal torch's, at a batch size that the export never saw."""
    with torch.inference_mode():
        expected = residual_cnn()(torch.from_numpy(images(5)[0])).numpy()
    np.testing.assert_allclose(onnx_model.run(exported["cnn"], images(5)), expected, rtol=1e-4, atol=1e-5)
    assert onnx_file.fixed_batch(exported["cnn"]) is None


@pytest.mark.parametrize("calibrator", ["histogram", "minmax"])
def test_static_runs_every_layer_in_integer_kernels(exported, tmp_path, calibrator):
    """QDQ, U8S8: all multiply-accumulates in int8, outputs near fp32, the file about a quarter."""
    file = tmp_path / "static.onnx"
    onnx_model.static(exported["cnn"], file, Recipe(calibrator=calibrator, per_channel=True), images())
    reference = onnx_layers.layers(exported["cnn"], images(1), optimized=False)
    assert coverage.share(coverage.align(reference, onnx_layers.layers(file, images(1)))) == 1.0
    error = np.abs(onnx_model.run(file, images()) - onnx_model.run(exported["cnn"], images())).max()
    assert 0 < error < 0.1


def test_activations_are_uint8_and_weights_int8(exported, tmp_path):
    """U8S8 per channel: the form whose kernels VNNI has."""
    file = tmp_path / "static.onnx"
    onnx_model.static(exported["cnn"], file, RECIPE, images())
    graph = onnx.load(str(file)).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    weights = [name for name in types if name.endswith("_quantized") and "bias" not in name]
    assert weights
    assert all(types[name] == onnx.TensorProto.INT8 for name in weights)
    scales = [node for node in graph.node if node.op_type == "QuantizeLinear"]
    assert all(types[node.input[2]] == onnx.TensorProto.UINT8 for node in scales)


def test_dynamic_covers_the_lstm(exported, tmp_path):
    """LSTM and Gemm run in dynamic integer kernels."""
    file = tmp_path / "dynamic.onnx"
    onnx_model.dynamic(exported["lstm"], file, RECIPE)
    reference = onnx_layers.layers(exported["lstm"], images(1), optimized=False)
    found = coverage.align(reference, onnx_layers.layers(file, images(1)))
    assert [one.operator for one in found] == ["DynamicQuantizeLSTM", "DynamicQuantizeMatMul"]
    assert all(one.int8 for one in found)


def test_multiply_accumulates_agree_with_torch(exported):
    """The same network counts the same in both runtimes, by layer name."""
    from qbench.quant import torchscript

    ours = torchscript.layers(Grouped().eval(), (torch.from_numpy(images(1)[0]),))
    theirs = onnx_layers.layers(exported["grouped"], images(1), optimized=False)
    assert {one.name: one.macs for one in ours} == {one.name: one.macs for one in theirs}
    (recurrent, head) = onnx_layers.layers(exported["lstm"], images(1), optimized=False)
    assert (recurrent.macs, head.macs) == (8 * 4 * 16 * (8 + 16), 160)


def test_skipped_layers_stay_float_by_their_torch_name(exported, tmp_path):
    """skip_layers takes the module's name, which the exporter keeps in the weight's name."""
    file = tmp_path / "static.onnx"
    onnx_model.static(exported["cnn"], file, Recipe(per_channel=True, skip_layers=("head",)), images())
    reference = onnx_layers.layers(exported["cnn"], images(1), optimized=False)
    found = coverage.align(reference, onnx_layers.layers(file, images(1)))
    assert [one.name for one in found if not one.int8] == ["head"]


def test_an_unknown_layer_to_skip_lists_the_nodes(exported, tmp_path):
    """A misspelt name must not pass silently."""
    with pytest.raises(BuildError, match="no layer named haed; the ONNX nodes are"):
        onnx_model.static(exported["cnn"], tmp_path / "x.onnx", Recipe(skip_layers=("haed",)), images())


def test_a_broken_file_is_explained(tmp_path):
    """The runtime's own words, without a traceback."""
    file = tmp_path / "broken.onnx"
    file.write_bytes(b"not a model")
    with pytest.raises(BuildError, match="ONNX Runtime cannot load the model"):
        onnx_model.open_session(file)


def test_an_export_that_differs_is_refused(monkeypatch, tmp_path):
    """An exported file that gives other outputs than the module is never used."""
    monkeypatch.setattr(onnx_model, "run", lambda file, inputs: np.full((1, 10), 7.0))
    with pytest.raises(BuildError, match="differs from the torch model"):
        onnx_model.export(perceptron(), (torch.from_numpy(images(1)[0]),), tmp_path / "x.onnx")


def test_sessions_do_not_spin():
    """A spinning idle thread would slow whatever is measured beside it."""
    options = onnx_model.session_options(2)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 1)


def by_hand(file, *, opset=17, batch="n", named=True, extra=()):
    """A convolution and a matrix product as another exporter writes them; ``extra`` nodes go from ``a`` to ``b``."""
    rng = np.random.default_rng(1)
    weights = {"kernel": rng.standard_normal((4, 1, 3, 3)), "table": rng.standard_normal((144, 10))}
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["a"], name="relu"),
        *(extra or [helper.make_node("Identity", ["a"], ["b"], name="same")]),
        helper.make_node("Flatten", ["b"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "table"], ["y"], name="product"),
    ]
    for node in () if named else nodes:
        node.name = ""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", TensorProto.FLOAT, [batch, 1, 8, 8])],
        [value("y", TensorProto.FLOAT, [batch, 10])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=7), str(file))
    return file


CONV, PRODUCT = 6 * 6 * 4 * 9, 144 * 10


def covered(fp32, int8):
    example = images(1)
    found = coverage.align(onnx_layers.layers(fp32, example, optimized=False), onnx_layers.layers(int8, example))
    return [(one.macs, one.int8) for one in found]


@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("batch", [1, 4, 40])
def test_a_fixed_batch_is_filled_and_its_layers_count_for_one_example(tmp_path, batch, mode):
    """Calibrated in whole batches, also of more than there are examples; multiply-accumulates at batch size 1."""
    fp32, int8 = by_hand(tmp_path / "m.onnx", batch=batch), tmp_path / "int8.onnx"
    if mode == "static":
        onnx_model.static(fp32, int8, RECIPE, images())
    else:
        onnx_model.dynamic(fp32, int8, RECIPE)
    assert onnx_file.fixed_batch(int8) == batch
    assert covered(fp32, int8) == [(CONV, True), (PRODUCT, True)]
    onnx_model.require_repeatable(int8, images(1))
    assert onnx_file.tiled(int8, images(1))[0].shape == (batch, 1, 8, 8)


def test_every_example_calibrates_in_whole_batches(tmp_path):
    """The last batch is filled up from the first examples: none is left out."""
    fp32 = by_hand(tmp_path / "m.onnx", batch=5)
    x = images(7)
    x[0][6] = 100.0
    ranges = {}
    for name, calibration in {"all": x, "without": (x[0][:5],)}.items():
        onnx_model.static(fp32, tmp_path / name, Recipe(calibrator="minmax", per_channel=True), calibration)
        graph = onnx.load(str(tmp_path / name)).graph
        ranges[name] = next(float(numpy_helper.to_array(t)) for t in graph.initializer if t.name == "x_scale")
    assert ranges["all"] == pytest.approx(100 / 255)
    assert ranges["without"] < 0.01


def test_nodes_without_names_are_seen(tmp_path):
    """Other exporters leave names out; what ran is found all the same."""
    fp32, int8 = by_hand(tmp_path / "m.onnx", named=False), tmp_path / "int8.onnx"
    onnx_model.static(fp32, int8, RECIPE, images())
    assert covered(fp32, int8) == [(CONV, True), (PRODUCT, True)]


@pytest.mark.parametrize("opset", [9, 12])
def test_an_old_opset_is_converted_for_scales_per_channel(tmp_path, opset):
    """DequantizeLinear takes one scale per channel from opset 13 on."""
    fp32, int8 = by_hand(tmp_path / "m.onnx", opset=opset), tmp_path / "int8.onnx"
    onnx_model.static(fp32, int8, RECIPE, images())
    assert onnx.load(str(int8)).opset_import[0].version >= 13
    error = np.abs(onnx_model.run(int8, images()) - onnx_model.run(fp32, images())).max()
    assert error < 0.2 * np.abs(onnx_model.run(fp32, images())).max()
    assert covered(fp32, int8) == [(CONV, True), (PRODUCT, True)]


def test_an_opset_that_cannot_be_converted_says_what_to_do(tmp_path, monkeypatch):
    """The opset is named, no temporary file is."""

    def fail(model, version):
        raise RuntimeError("no adapter for Frobnicate")

    monkeypatch.setattr(onnx.version_converter, "convert_version", fail)
    fp32 = by_hand(tmp_path / "m.onnx", opset=12)
    told = r"this ONNX model has 12 and onnx cannot convert it \(RuntimeError: no adapter.*export it with opset 13"
    with pytest.raises(BuildError, match=told) as raised:
        onnx_model.static(fp32, tmp_path / "x.onnx", RECIPE, images())
    assert "/tmp" not in str(raised.value)


def test_a_conversion_that_changes_the_model_is_refused(tmp_path, monkeypatch):
    """The converted model must give what the original gives."""
    negative = [helper.make_node("Neg", ["a"], ["b"], name="negative")]
    other = onnx.load(str(by_hand(tmp_path / "other.onnx", opset=13, extra=negative)))
    monkeypatch.setattr(onnx.version_converter, "convert_version", lambda *_: other)
    with pytest.raises(BuildError, match="converted from opset 12 to 13, the ONNX model differs; export it with"):
        onnx_model.static(by_hand(tmp_path / "m.onnx", opset=12), tmp_path / "x.onnx", RECIPE, images())


def test_what_the_quantizer_raises_names_no_temporary_file(tmp_path, monkeypatch):
    """One message, without paths that are gone when it is read; memory goes up as it is."""
    import onnxruntime.quantization

    def fail(source, target, **rest):
        raise errors.pop(0)(f"Load model from {source} failed, nothing in {target}")

    errors = [ValueError, MemoryError]
    monkeypatch.setattr(onnxruntime.quantization, "quantize_dynamic", fail)
    fp32 = by_hand(tmp_path / "m.onnx")
    with pytest.raises(BuildError, match="cannot quantize this model: ValueError: .*the model failed") as raised:
        onnx_model.dynamic(fp32, tmp_path / "x.onnx", RECIPE)
    assert "/" not in str(raised.value)
    with pytest.raises(MemoryError):
        onnx_model.dynamic(fp32, tmp_path / "x.onnx", RECIPE)


def test_a_transposed_convolution_stays_float_and_is_counted(exported, tmp_path):
    """Its weight comes through a DequantizeLinear, and the runtime has no integer kernel for it."""
    file = tmp_path / "static.onnx"
    onnx_model.static(exported["grouped"], file, RECIPE, images())
    reference = onnx_layers.layers(exported["grouped"], images(1), optimized=False)
    found = coverage.align(reference, onnx_layers.layers(file, images(1)))
    assert {one.name: one.int8 for one in found} == {"grouped": True, "depthwise": True, "up": False, "head": True}


def test_weights_that_are_computed_are_counted(tmp_path):
    """A kernel from a Mul and a product of two activations, one transposed: shapes are the profile's."""
    kernel = numpy_helper.from_array(np.ones((4, 4, 3, 3), np.float32), "k")
    extra = [
        helper.make_node("Constant", [], ["k"], value=kernel, name="constant"),
        helper.make_node("ReduceMax", ["a"], ["top"], keepdims=0, name="top"),
        helper.make_node("Mul", ["k", "top"], ["scaled"], name="scaled"),
        helper.make_node("Conv", ["a", "scaled"], ["d"], pads=[1, 1, 1, 1], name="computed"),
        helper.make_node("FusedMatMul", ["d", "a"], ["b"], transA=1, domain="com.microsoft", name="squares"),
    ]
    found = onnx_layers.layers(by_hand(tmp_path / "m.onnx", extra=extra), images(1), optimized=False)
    macs = {one.name: one.macs for one in found}
    assert macs == {"conv": CONV, "computed": 36 * 4 * 4 * 9, "squares": 4 * 6 * 6 * 6, "product": PRODUCT}


def test_randomness_in_the_graph_is_refused(tmp_path):
    """A file whose outputs change by themselves cannot be compared with anything."""
    extra = [
        helper.make_node("RandomNormalLike", ["a"], ["noise"], name="noise"),
        helper.make_node("Add", ["a", "noise"], ["b"], name="add"),
    ]
    with pytest.raises(BuildError, match="differ from call to call: is randomness left in its graph"):
        onnx_model.require_repeatable(by_hand(tmp_path / "m.onnx", extra=extra), images(1))


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (NeverAlone, "does not take a batch of 1"),
        (Forgetful, "is dropout or randomness left on"),
        (Branching, "torch.onnx cannot export this model"),
    ],
)
def test_networks_that_cannot_be_exported_say_why(network, words, tmp_path):
    """Before the exporter's own words where the network is at fault."""
    with pytest.raises(BuildError, match=words):
        onnx_model.export(network().eval(), (torch.from_numpy(images(1)[0]),), tmp_path / "x.onnx")
