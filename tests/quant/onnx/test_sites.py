"""Graph + configuration -> the weights and activations that are quantized, and what int8 kernels need beside."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import onnx_networks
import pytest

from qbench.errors import UsageError
from qbench.quant.onnx import sites
from qbench.quant.onnx.formats import config
from qbench.quant.onnx.formats.rules import Rules
from qbench.quant.onnx.graph import prepare
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import CONSTANT_CONDITION, OPEN_BRANCH, FoundLayer
from qbench.quant.onnx.settings import ActivationParams, Config, LayerConfig, TensorConfig, WeightParams


def prepared(network):
    with tempfile.TemporaryDirectory() as folder:
        return prepare.prepare(onnx_networks.save(network, folder))


def find_sites(network, rules=None):
    graph = prepared(network)
    return sites.find(graph, config.default(graph, rules))


def keys(own_sites):
    return {site.tensor: list(site.keys) for site in own_sites.activations}


def test_a_layer_is_known_by_its_name_and_its_first_input():
    """One weight site with its channel axis and one activation site for each layer, in the order of the graph."""
    found_sites = find_sites(onnx_networks.depthwise())
    assert [(site.layer, site.axis) for site in found_sites.weights] == [
        ("stem_conv", 0), ("expand_conv", 0), ("depthwise_conv", 0), ("project_conv", 0), ("classifier", 0),
    ]  # fmt: skip
    assert found_sites.activations[0].tensor == "image"
    assert found_sites.activations[0].keys == {"stem_conv": ("stem_conv", 0)}


@pytest.mark.parametrize(("name", "axes"), [("decoder", [1, 0]), ("mlp", [None, None, None]), ("volume", [0, 0])])
def test_the_channel_axis_is_that_of_the_outputs(name, axes):
    """ConvTranspose keeps its output channels second; MatMul and Gemm have one scale by default."""
    assert [site.axis for site in find_sites(getattr(onnx_networks, name)()).weights] == axes


def test_a_gemm_per_channel_follows_its_transposition():
    """MatMul's columns and a transposed Gemm's rows are the output channels."""
    graph = Graph(onnx_networks.mlp())
    settings = config.default(graph)
    wise = {name: replace(layer, weight=WeightParams(channel_wise=True)) for name, layer in settings.layers.items()}
    result = sites.find(graph, replace(settings, layers=wise))
    transposed = {node.name: bool(sites.attribute(node, "transB", 0)) for node in graph.nodes}
    assert {site.layer: site.axis for site in result.weights} == {
        name: 0 if transposed[name] else 1 for name in settings.layers
    }
    assert {transposed[name] for name in settings.layers} == {True, False}


def test_convolutions_get_a_scale_on_their_output():
    """Who reads a convolution's output, behind a Relu that alone reads it, is quantized there; so is what joins two."""
    own_keys = keys(find_sites(onnx_networks.residual_cnn()))
    assert own_keys["relu1_out"] == ["conv2", "add:1"]
    assert own_keys["relu2_out"] == ["conv3"]
    assert own_keys["bn3_out"] == ["add:0"]
    assert own_keys["relu3_out"] == ["maxpool:0"], "an Add of two int8 inputs gives int8"
    assert own_keys["maxpool_out"] == ["pool:0"], "so does a MaxPool"


def test_what_the_graph_gives_is_quantized_behind_a_convolution():
    """A convolution whose output is the graph's has a scale there, since ONNX Runtime computes it in int8 only so."""
    assert keys(find_sites(onnx_networks.volume()))["y_inner"] == ["graph_output_y:0"]


def test_a_small_last_convolution_costs_no_accuracy():
    """One with less than 2 % of the multiply-accumulates gains no time in int8: its output stays float."""
    draft = onnx_networks.Draft()
    x = draft.conv("x", "wide", 16, 64)
    draft.conv(x, "last", 64, 2, 1)
    draft.nodes[-1].output[0] = "y"
    own_keys = keys(find_sites(draft.model({"x": ["batch", 16, 8, 8]}, {"y": ["batch", 2, 8, 8]})))
    assert own_keys == {"x": ["wide"], "wide_out": ["last"]}


def test_matmuls_give_float():
    """Their kernels give float from int8 inputs, so that no reader is quantized for their sake."""
    assert {key for names in keys(find_sites(onnx_networks.mlp())).values() for key in names} == {
        "first",
        "second",
        "third",
    }


def test_a_skipped_layer_is_read_as_a_tensor():
    """A convolution before a skipped one still needs its output's scale, and the skipped one gives none."""
    own_keys = keys(find_sites(onnx_networks.residual_cnn(), Rules(skip_layers=("conv3",))))
    assert own_keys["relu2_out"] == ["conv3:0"]
    assert "bn3_out" not in own_keys
    assert "relu3_out" not in own_keys, "the Add has one float input"


def test_one_tensor_with_one_set_of_parameters_is_one_site():
    """Readers that want the same share a calibrator; one that wants another has its own."""
    graph = prepared(onnx_networks.residual_cnn())
    settings = config.default(graph)
    other = ActivationParams(algorithm="minmax")
    changed = tuple(
        replace(entry, activation=other) if (entry.layer_name, entry.input_index) == ("add", 1) else entry
        for entry in settings.tensor_quantize
    )
    result = sites.find(graph, replace(settings, tensor_quantize=changed))
    shared = [(list(site.keys), site.params.algorithm) for site in result.activations if site.tensor == "relu1_out"]
    assert shared == [(["conv2"], "ifmr"), (["add:1"], "minmax")]


def test_what_stays_float_is_listed_with_its_reason():
    """Kinds that can be quantized, and are not: by their form, by the configuration, or because they are inside."""
    assert find_sites(onnx_networks.product()).floats["product"] == "its weight is not constant"
    found_sites = find_sites(onnx_networks.residual_cnn(), Rules(skip_layers=("fc",)))
    assert found_sites.floats == {"fc": "skipped by the configuration"}
    graph = prepared(onnx_networks.volume())
    assert sites.find(graph, Config(layers={"conv1": LayerConfig()})).floats == {"conv2": "not in the configuration"}


@pytest.mark.parametrize("name", ["branches", "loop"])
def test_subgraphs_stay_float(name):
    """No site lies inside an If or a Loop, and the layers in there are listed."""
    found_sites = find_sites(getattr(onnx_networks, name)())
    assert any("inside a subgraph" in reason for reason in found_sites.floats.values())
    assert not any("/" in site.layer for site in found_sites.weights)


def test_a_layer_without_weight_parameters_has_its_default():
    """An AMCT file may leave them out."""
    graph = prepared(onnx_networks.volume())
    result = sites.find(graph, Config(layers={"conv1": LayerConfig()}))
    assert [(site.layer, site.axis, site.params) for site in result.weights] == [("conv1", 0, WeightParams())]


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (
            Config(layers={"conb": LayerConfig()}),
            "configuration: no layer named 'conb'; did you mean 'conv'?",
        ),
        (
            Config(layers={"max": LayerConfig()}),
            "configuration: max: a MaxPool is not quantized as a layer; list it under tensor_quantize",
        ),
        (
            Config(tensor_quantize=(TensorConfig(layer_name="mxa", input_index=0),)),
            "configuration: tensor_quantize[0].layer_name: no node named 'mxa'; did you mean 'max'?",
        ),
        (
            Config(tensor_quantize=(TensorConfig(layer_name="max", input_index=3),)),
            "configuration: tensor_quantize[0].input_index: max has 1 inputs, from 0 on; got 3",
        ),
        (
            Config(tensor_quantize=(TensorConfig(layer_name="max", input_index=1),)),
            "configuration: tensor_quantize[0].input_index: max has 1 inputs, from 0 on; got 1",
        ),
        (
            Config(tensor_quantize=(TensorConfig(layer_name="conv", input_index=1),)),
            "configuration: tensor_quantize[0]: input 1 of conv is constant; only activations are calibrated",
        ),
        (
            Config(tensor_quantize=(TensorConfig(layer_name="max", input_index=0),) * 2),
            "configuration: tensor_quantize[1]: input 0 of max stands there twice; keep one",
        ),
        (
            Config(layers={"conv": LayerConfig()}, tensor_quantize=(TensorConfig(layer_name="conv", input_index=0),)),
            "configuration: tensor_quantize[0]: input 0 of conv is quantized with that layer already; leave the entry "
            "out",
        ),
        (
            Config(layers={"conv": LayerConfig(quant_enable=False)}),
            "configuration: nothing is left to quantize: every layer is skipped or stays float; enable at least one",
        ),
    ],
)
def test_a_configuration_of_another_model_is_refused(held, message):
    """Each entry that the graph does not have is named, with the nearest name."""
    with pytest.raises(UsageError) as caught:
        sites.find(prepared(onnx_networks.pools()), held)
    assert str(caught.value) == message


def test_a_layer_that_cannot_be_quantized_is_refused():
    """The reason is that of the list of layers, and the way out is to switch it off."""
    with pytest.raises(
        UsageError, match="product: cannot be quantized: its weight is not constant; set quant_enable to"
    ):
        sites.find(prepared(onnx_networks.product()), Config(layers={"product": LayerConfig()}))


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("", "there are: none"),
        ("hgfedcba", "there are: a, b, c, d, e, f, g, h"),
        ("abcdefghi", "there are: a, b, c, d, e, f, g, h, … (9 in all)"),
    ],
)
def test_a_name_that_is_like_none_is_told_which_there_are(names, told):
    """Eight of them at most, in their order."""
    assert sites.unknown("zzz", names, "layer") == f"no layer named 'zzz'; {told}"
    assert sites.unknown("conf1", ["conv1", "conv2", "x"], "node") == (
        "no node named 'conf1'; did you mean 'conv1' or 'conv2'?"
    )


def test_why_nothing_can_be_quantized():
    """That all is skipped, else the first three reasons, and what opens a branch that may never be taken."""
    nodes = [
        FoundLayer(name=name, operator="Conv", kind=kind, reason=reason)
        for name, kind, reason in (
            ("a", "layer", "no weight"), ("b", "layer", None), ("c", "other", "not this"), ("d", "tensor", "no input"),
            ("e", "layer", "no shape"), ("f", "layer", f"it {OPEN_BRANCH}"),
        )
    ]  # fmt: skip
    assert sites.why_nothing(nodes, {"b"}) == (
        "nothing is left to quantize: every layer is skipped; leave at least one out of skip_layers"
    )
    told = "nothing in this model can be quantized"
    named = f"{told}: a: no weight, d: no input, e: no shape"
    assert sites.why_nothing(nodes[:5], set()) == named
    assert sites.why_nothing(nodes, set()) == f"{named} and 1 more; {CONSTANT_CONDITION}"
    assert sites.why_nothing(nodes[1:3], set()) == f"{told}; it has no Conv, Gemm, MatMul or pooling"


def test_what_amct_documents_for_other_layers_is_refused_where_it_is_asked_for():
    """One scale for each channel of what has none, and a balance of a pool; not where they are switched off."""
    graph = prepared(onnx_networks.pools())
    wise = WeightParams(channel_wise=True)
    layers = {"conv": LayerConfig(weight=wise, balance=0.5), "average": LayerConfig(weight=wise, balance=0.5)}
    layers["last"] = LayerConfig()
    with pytest.raises(UsageError) as caught:
        sites.require_documented(graph, Config(layers=layers), "c.json")
    assert str(caught.value).splitlines() == [
        "c.json: average.weight_quant_params.channel_wise: only Conv and ConvTranspose take true; a AveragePool has "
        "one scale",
        "c.json: average.dmq_balancer_param: a pool has no weight to balance; leave it out",
    ]
    off = {name: replace(layer, quant_enable=name == "conv") for name, layer in layers.items()}
    sites.require_documented(graph, Config(layers=off), "c.json")
