"""The ONNX pipeline: export that agrees, int8 that runs in integer kernels, coverage from the runtime's profile."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from networks import Grouped, lstm, perceptron, residual_cnn

from qbench.errors import BuildError
from qbench.quant import coverage, onnx_model
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
    assert onnx_model.fixed_batch(exported["cnn"]) is None


@pytest.mark.parametrize("calibrator", ["histogram", "minmax"])
def test_static_runs_every_layer_in_integer_kernels(exported, tmp_path, calibrator):
    """QDQ, U8S8: all multiply-accumulates in int8, outputs near fp32, the file about a quarter."""
    file = tmp_path / "static.onnx"
    onnx_model.static(exported["cnn"], file, Recipe(calibrator=calibrator, per_channel=True), images())
    reference = onnx_model.layers(exported["cnn"], images(1), optimized=False)
    assert coverage.share(coverage.align(reference, onnx_model.layers(file, images(1)))) == 1.0
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
    reference = onnx_model.layers(exported["lstm"], images(1), optimized=False)
    found = coverage.align(reference, onnx_model.layers(file, images(1)))
    assert [one.operator for one in found] == ["DynamicQuantizeLSTM", "DynamicQuantizeMatMul"]
    assert all(one.int8 for one in found)


def test_multiply_accumulates_agree_with_torch(exported):
    """The same network counts the same in both runtimes, by layer name."""
    from qbench.quant import torchscript

    ours = torchscript.layers(Grouped().eval(), (torch.from_numpy(images(1)[0]),))
    theirs = onnx_model.layers(exported["grouped"], images(1), optimized=False)
    assert {one.name: one.macs for one in ours} == {one.name: one.macs for one in theirs}
    (recurrent, head) = onnx_model.layers(exported["lstm"], images(1), optimized=False)
    assert (recurrent.macs, head.macs) == (8 * 4 * 16 * (8 + 16), 160)


def test_skipped_layers_stay_float_by_their_torch_name(exported, tmp_path):
    """skip_layers takes the module's name, which the exporter keeps in the weight's name."""
    file = tmp_path / "static.onnx"
    onnx_model.static(exported["cnn"], file, Recipe(per_channel=True, skip_layers=("head",)), images())
    reference = onnx_model.layers(exported["cnn"], images(1), optimized=False)
    found = coverage.align(reference, onnx_model.layers(file, images(1)))
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
