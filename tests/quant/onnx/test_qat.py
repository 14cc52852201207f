"""What a trained network has learned, in ONNX: places, scales and weights, and the files made of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from networks import residual_cnn
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from qbench.errors import BuildError
from qbench.quant.flow import QuantizeJob
from qbench.quant.onnx import onnxruntime_layers, onnxruntime_session
from qbench.quant.onnx import qat as onnx_qat
from qbench.quant.onnx.export import deploy_model, deploy_onnxruntime
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Scales
from qbench.quant.pytorch import fx, qat, torch_ao
from qbench.quant.pytorch.fake_quant_sites import ACTIVATION, WEIGHT, learned_scales
from qbench.quant.recipe import Recipe
from qbench.quant.saturation import pair_sums

RECIPE = Recipe(
    flow="onnx", calibrator="moving_average", per_channel=True, symmetric=False, reduce_range=False,
    epochs=1, batch_size=16, seed=0, learning_rate=1e-3,
)  # fmt: skip


def images(n=64):
    return torch.from_numpy(np.random.default_rng(0).random((n, 1, 8, 8), dtype=np.float32))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A network after QAT, still fake-quantized, and its file: trained and exported once."""
    before = torch.backends.quantized.engine
    torch_ao.set_engine(onnx_qat.ENGINE)
    training = qat.fit(
        fx, QuantizeJob(residual_cnn(), onnx_qat.ENGINE, RECIPE, (images(1),)), (images(),), torch.arange(64) % 10
    )
    file = tmp_path_factory.mktemp("qat") / "trained.onnx"
    onnx_qat.write(training.prepared, (images(1),), file)
    torch.backends.quantized.engine = before
    return training.prepared, file


def test_the_scales_are_those_that_were_learned(trained):
    """Every weight's scales, channel by channel, and every activation's, at the layer that reads it."""
    prepared, file = trained
    learned = onnx_qat.learned(Graph.load(file))
    read = {name for node in learned.graph.nodes for name in node.input}
    assert set(learned.graph.constants) <= read, "the constants of what was taken out are left"
    torchs = learned_scales(prepared)
    weights = [scale.scale for scale in torchs if scale.of == WEIGHT]
    ours = [learned.record[site.layer].scale_w for site in learned.sites.weights]
    assert len(ours) == len(weights) == 3
    for mine, theirs in zip(ours, weights, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    activations = {
        (np.float32(scale.scale[0]), scale.zero_point[0] - 128) for scale in torchs if scale.of == ACTIVATION
    }
    read = {(np.float32(scale.scale_d), scale.offset_d) for scale in learned.record.values()}
    assert read < activations  # the output's own scale is read by no layer
    assert len(read) == 4


def test_the_graph_is_the_trained_network_in_fp32(trained):
    """No quantize node is left, BatchNorm is folded, and outputs are the network's own name."""
    graph = onnx_qat.learned(Graph.load(trained[1])).graph
    kinds = [node.op_type for node in graph.nodes]
    assert sorted(kinds) == sorted(["Conv", "Relu", "Conv", "Add", "Relu", "ReduceMean", "Gemm", "Identity"])
    assert graph.outputs == ("output",)
    onnx.checker.check_model(graph.model)


def test_the_int8_file_gives_what_the_trained_network_gives(trained, tmp_path):
    """Every layer in an integer kernel, outputs by less than a level from the fake-quantized network's on average: its
    own are rounded, and clipped to their learned range, which the file's are not."""
    prepared, file = trained
    learned = onnx_qat.learned(Graph.load(file))
    form = "U8U8"  # exact on every CPU
    deployed = deploy_onnxruntime.deploy(learned.graph, learned.sites, learned.record, form=form)
    deployed.save(tmp_path / "int8.onnx")
    with torch.inference_mode():
        expected = prepared(images()).numpy()
    ours = onnxruntime_session.run(tmp_path / "int8.onnx", (images().numpy(),))
    level = next(scale.scale[0] for scale in reversed(learned_scales(prepared)) if scale.of == ACTIVATION)
    assert np.abs(ours - expected).mean() < level
    assert all(layer.int8 for layer in onnxruntime_layers.layers(tmp_path / "int8.onnx", (images(1).numpy(),)))


class Ghost(nn.Module):
    """Two convolutions with in-place ReLUs side by side, cut to a width: quantized again behind Concat and Slice."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.cheap = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.fc = nn.Linear(12, 10)

    def forward(self, x):
        wide = self.wide(x)
        return self.fc(torch.cat([wide, self.cheap(wide)], 1)[:, :12].mean((2, 3)))


class LayerScale(nn.Module):
    """A parameter that multiplies what a layer gives, as in ConvNeXt: torch quantizes it as it does activations."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 8, 3, padding=1), nn.LayerNorm(8)
        self.up, self.down, self.act = nn.Linear(8, 16), nn.Linear(16, 8), nn.GELU()
        self.scale, self.fc = nn.Parameter(torch.full((8,), 0.1)), nn.Linear(8, 10)

    def forward(self, x):
        x = self.conv(x)
        y = self.scale * self.down(self.act(self.up(self.norm(x.permute(0, 2, 3, 1)))))
        return self.fc((x + y.permute(0, 3, 1, 2)).mean((2, 3)))


def vgg():
    """In-place ReLUs and Dropouts between linear layers."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 32),
        nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(32, 32), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(32, 10),
    )  # fmt: skip


@pytest.mark.parametrize(("build", "layers"), [(vgg, 4), (Ghost, 3), (LayerScale, 4)])
def test_what_torch_quantizes_twice_or_as_a_parameter(build, layers, tmp_path):
    """A tensor that is quantized again behind a Dropout or an in-place ReLU, and a parameter with a scale of its own,
    end in a file that loads, with every layer in int8 and the outputs of the trained network."""
    torch.manual_seed(0)
    file = tmp_path / "trained.onnx"
    prepared = fitted(build(), RECIPE)
    onnx_qat.write(prepared, (images(1),), file)
    learned = onnx_qat.learned(Graph.load(file))
    written = deploy_model.write(
        learned.graph, learned.sites, learned.record, tmp_path / "int8.onnx", runtime="onnxruntime"
    )
    assert written.floats == {}
    assert [layer.int8 for layer in onnxruntime_layers.layers(tmp_path / "int8.onnx", (images(1).numpy(),))] == [
        True
    ] * layers
    with torch.inference_mode():
        expected = prepared(images()).numpy()
    ours = onnxruntime_session.run(tmp_path / "int8.onnx", (images().numpy(),))
    assert np.abs(ours - expected).mean() < 0.03 * np.abs(expected).max()


def test_a_learned_output_is_quantized_where_the_runtime_needs_it(tmp_path):
    """The scale that torch has learned for a last convolution makes it int8 in ONNX Runtime; OpenVINO's file gives
    floats."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    recipe = replace(RECIPE, distill=1.0)
    file = tmp_path / "trained.onnx"
    onnx_qat.write(fitted(network, recipe), (images(1),), file)
    for runtime, quantized in (("onnxruntime", 3), ("openvino", 2)):
        learned = onnx_qat.learned(Graph.load(file))
        int8_file = tmp_path / f"{runtime}.onnx"
        deploy_model.write(learned.graph, learned.sites, learned.record, int8_file, runtime=runtime)
        kinds = [node.op_type for node in onnx.load(int8_file).graph.node]
        assert kinds.count("QuantizeLinear") == quantized
    example = (images(1).numpy(),)
    assert [layer.int8 for layer in onnxruntime_layers.layers(tmp_path / "onnxruntime.onnx", example)] == [True, True]


def fitted(network, recipe):
    """A network after QAT, still fake-quantized."""
    before = torch.backends.quantized.engine
    torch_ao.set_engine(onnx_qat.ENGINE)
    training = qat.fit(
        fx, QuantizeJob(network.eval(), onnx_qat.ENGINE, recipe, (images(1),)), (images(),), torch.arange(64) % 10
    )
    torch.backends.quantized.engine = before
    return training.prepared


def pair(tensor, name, *, zero, axis=None, scale=0.5):
    """A quantize and a dequantize node behind a tensor."""
    along = {} if axis is None else {"axis": axis}
    values = np.full(4, scale, np.float32) if axis is not None else np.array(scale, np.float32)
    zeros = np.full(values.shape, zero)
    constants = [numpy_helper.from_array(values, f"{name}_s"), numpy_helper.from_array(zeros, f"{name}_z")]
    ends = [f"{name}_s", f"{name}_z"]
    nodes = [
        helper.make_node("QuantizeLinear", [tensor, *ends], [f"{name}_q"], name=f"{name}_q", **along),
        helper.make_node("DequantizeLinear", [f"{name}_q", *ends], [name], name=name, **along),
    ]
    return nodes, constants


def by_hand(weight_pair, more=(), output="y"):
    """x -> [Q DQ] -> MatMul by a transposed weight (4 x 3) -> y."""
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    first, second = pair("x", "xd", zero=np.uint8(3)), weight_pair
    nodes = [
        *first[0], *second[0],
        helper.make_node("Transpose", ["wd"], ["wt"], perm=[1, 0], name="turn"),
        helper.make_node("MatMul", ["xd", "wt"], ["y"], name="product"),
        *more,
    ]  # fmt: skip
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net", [value("x", TensorProto.FLOAT, [1, 3])], [value(output, TensorProto.FLOAT, [1, 4])],
        [weight, *first[1], *second[1]],
    )  # fmt: skip
    return Graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_a_weight_that_is_transposed_on_its_way_keeps_its_channels():
    """The transposed one is the layer's weight, and its scales lie along the other axis."""
    learned = onnx_qat.learned(by_hand(pair("w", "wd", zero=np.int8(0), axis=0)))
    (site,) = learned.sites.weights
    assert (site.layer, site.axis) == ("product", 1)
    assert np.array_equal(learned.graph.constant(site.tensor), np.arange(12).reshape(4, 3).T)
    assert learned.record["product"] == Scales(scale_d=0.5, offset_d=-125, scale_w=(0.5,) * 4, offset_w=(0,) * 4)


@pytest.mark.parametrize(("scale", "sites"), [(0.5, [["first", "second"]]), (0.25, [["first"], ["second"]])])
def test_a_tensor_that_is_quantized_twice_alike_is_one_place(scale, sites):
    """By two nodes: the layers behind both read it; on another scale it is a place of its own."""
    nodes, constants = [], []
    for name, size in (("a", 0.5), ("b", scale)):
        activations, values = pair("x", f"x{name}", zero=np.uint8(3), scale=np.float32(size))
        weights, more = pair(f"w{name}", f"w{name}d", zero=np.int8(0))
        nodes += [*activations, *weights]
        constants += [*values, *more, numpy_helper.from_array(np.ones((3, 4), np.float32), f"w{name}")]
    nodes += [
        helper.make_node("MatMul", ["xa", "wad"], ["ya"], name="first"),
        helper.make_node("MatMul", ["xb", "wbd"], ["yb"], name="second"),
        helper.make_node("Add", ["ya", "yb"], ["y"], name="sum"),
    ]
    value = helper.make_tensor_value_info
    ends = [value("x", TensorProto.FLOAT, [1, 3])], [value("y", TensorProto.FLOAT, [1, 4])]
    model = helper.make_model(
        helper.make_graph(nodes, "net", *ends, constants), opset_imports=[helper.make_opsetid("", 17)]
    )
    learned = onnx_qat.learned(Graph(model))
    assert [list(site.keys) for site in learned.sites.activations] == sites
    assert {site.tensor for site in learned.sites.activations} == {"x"}
    assert [learned.record[layer].scale_d for layer in ("first", "second")] == [0.5, scale]


def test_what_is_no_uniform_quantization_is_refused():
    """Unsigned or shifted weights, and a network in which nothing is quantized."""
    for zero in (np.uint8(128), np.int8(1)):
        with pytest.raises(BuildError, match="wd: expected symmetric int8 weights"):
            onnx_qat.learned(by_hand(pair("w", "wd", zero=zero, axis=0)))
    nothing = by_hand(([helper.make_node("Identity", ["w"], ["wd"], name="same")], []))
    with pytest.raises(BuildError, match="no weight of the trained network is quantized"):
        onnx_qat.learned(nothing)


@pytest.mark.parametrize("form", ["U8U8", "U8S8"])
def test_weights_are_signed_with_room_where_16_bit_sums_would_overflow(trained, tmp_path, monkeypatch, form):
    """Unsigned ones are slow in ONNX Runtime and float in OpenVINO; with VNNI nothing is given up."""
    monkeypatch.setattr(deploy_onnxruntime, "form_for", lambda isa=None: form)
    learned = onnx_qat.learned(Graph.load(trained[1]))
    file = tmp_path / "x.onnx"
    notes = deploy_model.write(learned.graph, learned.sites, learned.record, file, runtime="onnxruntime").notes
    graph = onnx.load(str(tmp_path / "x.onnx")).graph
    (weight,) = [
        tensor for tensor in graph.initializer if tensor.name.startswith("body.weight") and len(tensor.dims) == 4
    ]
    values = numpy_helper.to_array(weight)
    assert values.dtype == np.int8
    most = max(
        int(pairs.amounts.sum(axis=0).max(initial=0))
        for pairs in (
            pair_sums.find_pairs(pair_sums.PairedProduct(weight=values, pairing=order)) for order in ("flat", "even")
        )
    )
    assert (most == 0) == bool(notes) == (form == "U8U8")
