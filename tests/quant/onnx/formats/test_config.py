"""config.json and quant.cfg: AMCT's files as they are, defaults, presets, priorities, every problem with its path."""

from __future__ import annotations

import json
import tempfile

import numpy as np
import onnx
import onnx_networks
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import UsageError
from qbench.quant.onnx.formats import amct_cfg, config, config_json, defaults
from qbench.quant.onnx.formats.rules import PRESETS, ActivationRule, Rule, Rules, TensorRule, WeightRule
from qbench.quant.onnx.graph import prepare
from qbench.quant.onnx.settings import ActivationParams, Config, LayerConfig, TensorConfig, WeightParams

IFMR = {"max_percentile": 0.999999, "min_percentile": 0.999999, "search_range": (0.7, 1.3), "search_step": 0.01}
# As AMCT's create_quant_config writes it, with what its manual lets a person change.
AMCT = """
{
    "version":1,
    "batch_num":2,
    "activation_offset":true,
    "joint_quant":false,
    "do_fusion":true,
    "skip_fusion_layers":["bn3"],
    "tensor_quantize":[
        {
            "layer_name": "MaxPool_3",
            "input_index": 0,
            "activation_quant_params":{ "num_bits":8, "act_algo":"hfmg", "num_of_bins":4096, "asymmetric":false }
        }
    ],
    "conv1":{
        "quant_enable":true,
        "dmq_balancer_param":0.5,
        "activation_quant_params":{
            "num_bits":8,
            "max_percentile":0.999999,
            "min_percentile":0.99,
            "search_range":[ 0.8, 1.2 ],
            "search_step":0.02,
            "act_algo":"ifmr",
            "asymmetric":null
        },
        "weight_quant_params":{ "num_bits":8, "wts_algo":"arq_quantize", "channel_wise":true }
    },
    "layer1.0/avgpool":{
        "quant_enable":false,
        "activation_quant_params":{ "act_algo":"ifmr" }
    },
    "fc":{
        "quant_enable":true,
        "activation_quant_params":{ "act_algo":"hfmg", "num_of_bins":8192, "asymmetric":false },
        "weight_quant_params":{
            "wts_algo":"ada_quantize", "channel_wise":false, "num_iteration":100, "beta_range":[20, 2]
        }
    }
}
"""


def prepared(network):
    with tempfile.TemporaryDirectory() as folder:
        return prepare.prepare(onnx_networks.save(network, folder))


def problems(text):
    """The lines that reading a text gives."""
    with pytest.raises(UsageError) as caught:
        config.loads(text if isinstance(text, str) else json.dumps(text), name="c.json")
    return str(caught.value).splitlines()


def file(activation=None, weight=None, **general):
    """A small configuration with one layer."""
    layer = {"activation_quant_params": activation or {}, "weight_quant_params": weight or {}}
    return {"version": 1, "batch_num": 1, **general, "conv1": layer}


def test_an_amct_file_is_read_as_it_is():
    """Every key that AMCT writes has its meaning; null for asymmetric is the file's activation_offset."""
    content = config.loads(AMCT)
    assert (content.batch_num, content.activation_offset, content.do_fusion) == (2, True, True)
    assert content.skip_fusion_layers == ("bn3",)
    assert content.exponents == {"conv1": 0.5}
    assert content.tensor_quantize == (
        TensorConfig(
            layer_name="MaxPool_3",
            input_index=0,
            activation=ActivationParams(algorithm="hfmg", asymmetric=False, options={"num_of_bins": 4096}),
        ),
    )
    ifmr = IFMR | {"min_percentile": 0.99, "search_range": (0.8, 1.2), "search_step": 0.02}
    assert content.layers["conv1"] == LayerConfig(
        activation=ActivationParams(algorithm="ifmr", asymmetric=True, options=ifmr), weight=WeightParams(), balance=0.5
    )
    assert content.layers["layer1.0/avgpool"] == LayerConfig(
        quant_enable=False, activation=ActivationParams(options=IFMR), weight=None
    )
    fc = content.layers["fc"]
    assert (fc.activation.algorithm, fc.activation.asymmetric) == ("hfmg", False)
    assert (fc.weight.algorithm, fc.weight.channel_wise) == ("ada_quantize", False)
    assert fc.weight.options["num_iteration"] == 100
    assert fc.weight.options["beta_range"] == (20, 2)


@pytest.mark.parametrize("offset", [True, False])
def test_activation_offset_holds_where_a_layer_says_nothing(offset):
    """A layer's own asymmetric goes before activation_offset."""
    content = config.loads(
        json.dumps(file(activation_offset=offset) | {"fc": {"activation_quant_params": {"asymmetric": not offset}}})
    )
    assert content.layers["conv1"].activation.asymmetric is offset
    assert content.layers["fc"].activation.asymmetric is not offset


activations = st.sampled_from(
    [
        ActivationParams(options=IFMR),
        ActivationParams(algorithm="hfmg", asymmetric=False, options={"num_of_bins": 1024}),
        ActivationParams(algorithm="minmax"),
    ]
)
layers = st.builds(
    LayerConfig,
    quant_enable=st.booleans(),
    activation=activations,
    weight=st.sampled_from([None, WeightParams(), WeightParams(channel_wise=False)]),
)
configs = st.builds(
    Config,
    batch_num=st.integers(1, 9),
    activation_offset=st.booleans(),
    do_fusion=st.booleans(),
    skip_fusion_layers=st.lists(st.text(max_size=5), unique=True, max_size=2).map(tuple),
    layers=st.dictionaries(st.text(min_size=1, max_size=9).map(lambda name: f"/{name}"), layers, max_size=3),
    tensor_quantize=st.lists(
        st.builds(TensorConfig, layer_name=st.just("é"), input_index=st.integers(0, 3), activation=activations),
        max_size=2,
    ).map(tuple),
    balance=st.none() | st.floats(0, 1),
    bias_correction=st.booleans(),
    fp16_scales=st.booleans(),
)


@given(configs)
def test_what_is_written_is_read_back(held):
    """Text and configuration are the same, whatever the names hold."""
    assert config.loads(config.dumps(held)) == held


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([], "expected an object of keys and layers, got a list"),
        ({"batch_num": 1}, "version: missing; expected 1"),
        (file(version=2), "version: expected 1, got 2"),
        (file(batch_num=0), "batch_num: expected a whole number of at least 1, got 0"),
        (file(batch_num=True), "batch_num: expected a whole number of at least 1, got true"),
        (file(batch_num="2"), 'batch_num: expected a whole number of at least 1, got "2"'),
        (file(activation_offset=1), "activation_offset: expected true or false, got 1"),
        (file(do_fusion="no"), 'do_fusion: expected true or false, got "no"'),
        (file(skip_fusion_layers="bn1"), 'skip_fusion_layers: expected a list of names, got "bn1"'),
        (file(skip_fusion_layers=["a", "a"]), "skip_fusion_layers: 'a' stands there twice; keep one"),
        (file(batch_nun=3), "batch_nun: unknown key; did you mean 'batch_num'?"),
        (file(conv2=True), "conv2: unknown key; a layer is an object ({...})"),
        (
            file(joint_quant=True),
            "joint_quant: only false is supported: each input has its own scale; set it to false",
        ),
        (file(balance=1.5), "balance: expected a number in [0, 1], got 1.5"),
        (file(fc={"dmq_balancer_param": 0.1}), "fc.dmq_balancer_param: expected a number in [0.2, 0.8], got 0.1"),
        (
            file(fakequant_precision_mode="FP8"),
            'fakequant_precision_mode: expected DEFAULT or FORCE_FP16_QUANT, or no such key, got "FP8"',
        ),
        (file(tensor_quantize={}), "tensor_quantize: expected a list, got an object"),
        (
            file(tensor_quantize=[{"layer_name": "a", "input_indx": 1}]),
            "tensor_quantize[0].input_indx: unknown key; did you mean 'input_index'?",
        ),
        (
            file(tensor_quantize=[{"input_index": 0}]),
            "tensor_quantize[0].layer_name: expected the name of a node, got null",
        ),
        (
            file(tensor_quantize=[{"layer_name": "a", "input_index": -1}]),
            "tensor_quantize[0].input_index: expected a whole number of at least 0, got -1",
        ),
        (file(fc={"quant_enabled": True}), "fc.quant_enabled: unknown key; did you mean 'quant_enable'?"),
        (file(3), "conv1.activation_quant_params: expected an object, got 3"),
        (file({}, [1]), "conv1.weight_quant_params: expected an object, got a list"),
        (file({"num_bits": 16}), "conv1.activation_quant_params.num_bits: only 8 is supported, got 16"),
        (file({}, {"num_bits": 4}), "conv1.weight_quant_params.num_bits: only 8 is supported, got 4"),
        (
            file({"act_algo": "ifrm"}),
            "conv1.activation_quant_params.act_algo: no calibrator named 'ifrm'; did you mean 'ifmr'? available: "
            "entropy, hfmg, histogram, ifmr, minmax, moving_average, mse, percentile",
        ),
        (
            file({"act_algo": "ifmr", "num_of_bins": 4096}),
            "conv1.activation_quant_params.num_of_bins: an option of hfmg and histogram, and the algorithm here is "
            "ifmr; keep one of them",
        ),
        (
            file({"act_algo": "hfmg", "search_step": 0.01}),
            "conv1.activation_quant_params.search_step: an option of ifmr, and the algorithm here is hfmg; keep one of "
            "them",
        ),
        (
            file({"serch_step": 0.01}),
            "conv1.activation_quant_params.serch_step: unknown key; did you mean 'search_step'?",
        ),
        (
            file({"search_range": [0.7]}),
            "conv1.activation_quant_params.search_range: expected two numbers, got [0.7]",
        ),
        (file({"search_step": "1"}), "conv1.activation_quant_params.search_step: expected a number, got '1'"),
        (
            file({"act_algo": "hfmg", "num_of_bins": 4096.5}),
            "conv1.activation_quant_params.num_of_bins: expected a whole number, got 4096.5",
        ),
        (
            file({}, {"wts_algo": "arq"}),
            'conv1.weight_quant_params.wts_algo: no algorithm named "arq"; available: arq_quantize, ada_quantize',
        ),
        (
            file({}, {"num_iteration": 5}),
            "conv1.weight_quant_params.num_iteration: an option of ada_quantize, and the algorithm here is "
            "arq_quantize; keep one of them",
        ),
    ],
)
def test_each_problem_has_its_path(content, problem):
    """A wrong key, type or value is one line: where, what is wrong, what to do."""
    assert problems(content) == [f"c.json: {problem}"]


@pytest.mark.parametrize(
    ("activation", "where"),
    [
        ({"max_percentile": 0.5}, "max_percentile"),
        ({"min_percentile": 1.01}, "min_percentile"),
        ({"search_range": [1.3, 0.7]}, "search_range"),
        ({"search_step": 0}, "search_step"),
        ({"act_algo": "hfmg", "num_of_bins": 1023}, "num_of_bins"),
        ({"act_algo": "hfmg", "num_of_bins": 8193}, "num_of_bins"),
    ],
)
def test_a_value_outside_its_range_has_its_path(activation, where):
    """The ranges are those of the manual, told by the calibrator itself."""
    (line,) = problems(file(activation))
    assert line.startswith(f"c.json: conv1.activation_quant_params.{where}: ")


@pytest.mark.parametrize(
    ("weight", "what"),
    [
        ({"num_iteration": 0}, "num_iteration: expected a number of steps above 0, got 0"),
        ({"reg_param": 0}, "reg_param: expected a number above 0, got 0"),
        ({"beta_range": [2, 20]}, "beta_range: expected two numbers that fall and stay above 1, got (2, 20)"),
        ({"beta_range": [20, 1]}, "beta_range: expected two numbers that fall and stay above 1, got (20, 1)"),
        ({"warm_start": 1}, "warm_start: expected a share from 0 to below 1, got 1"),
    ],
)
def test_a_value_that_adaround_cannot_take_has_its_path(weight, what):
    """Read, not met hours later when the layer's weights are trained; the ends of the ranges are as documented."""
    assert problems(file({}, {"wts_algo": "ada_quantize", **weight})) == [f"c.json: conv1.weight_quant_params.{what}"]
    ends = {"num_iteration": 1, "beta_range": [2, 2], "warm_start": 0}
    config.loads(json.dumps(file({}, {"wts_algo": "ada_quantize", **ends})))


def test_a_whole_number_may_be_written_as_a_float():
    """Other tools' JSON has 100.0; it counts steps all the same."""
    content = file({"act_algo": "hfmg", "num_of_bins": 4096.0}, {"wts_algo": "ada_quantize", "num_iteration": 100.0})
    layer = config.loads(json.dumps(content)).layers["conv1"]
    numbers = (layer.activation.options["num_of_bins"], layer.weight.options["num_iteration"])
    assert [(number, type(number)) for number in numbers] == [(4096, int), (100, int)]


def test_every_problem_is_told_at_once():
    """A person mends a file once."""
    assert len(problems(file({"act_algo": "x"}, {"wts_algo": "y"}, batch_num=0, do_fusion=0))) == 4


def test_a_repeated_layer_is_refused():
    """JSON keeps the last of two equal keys; a file in which one overrides another is refused."""
    assert problems('{"version": 1, "conv1": {}, "conv1": {"quant_enable": false}}') == [
        "c.json: conv1: stands there twice; keep one"
    ]


def test_a_text_that_is_no_json_has_its_place():
    """A missing comma, as in the manual's own example, is found by line and column."""
    assert problems('{\n "version": 1\n "batch_num": 2}') == [
        "c.json:3:2: not JSON: Expecting ',' delimiter; correct the file"
    ]


def test_a_layer_with_the_name_of_a_key_is_refused():
    """Such a file could not be read back."""
    with pytest.raises(UsageError, match="a layer is called 'version', which is a key of config.json; rename it"):
        config.dumps(Config(layers={"version": LayerConfig()}))


@pytest.mark.parametrize(("content", "what"), [(None, "no such configuration"), (b"\xff\xfe", "not a configuration")])
def test_a_file_that_cannot_be_read_says_so(tmp_path, content, what):
    """A missing and a binary file are two messages."""
    if content is not None:
        (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(UsageError, match=what):
        config.read(tmp_path / "c.json")


def test_files_are_written_whole(tmp_path):
    """A configuration is for its owner and group; what was written is read."""
    config.write(Config(batch_num=3), tmp_path / "sub" / "c.json")
    assert (tmp_path / "sub" / "c.json").stat().st_mode & 0o777 == 0o640
    assert config.read(tmp_path / "sub" / "c.json") == Config(batch_num=3)


@pytest.fixture(name="network", scope="module")
def network_():
    return prepared(onnx_networks.pools())


def test_the_default_names_every_layer_and_its_parameters(network):
    """Conv is per channel, every option is written out, AveragePool has no weight."""
    settings = config.default(network)
    assert list(settings.layers) == ["conv", "average", "last"]
    assert settings.layers["conv"] == LayerConfig(activation=ActivationParams(options=IFMR), weight=WeightParams())
    assert settings.layers["average"].weight is None


def test_gemm_and_matmul_have_one_scale_by_default():
    """As in AMCT, only Conv and ConvTranspose are per channel unless a rule says so."""
    graph = prepared(onnx_networks.mlp())
    assert {layer.weight.channel_wise for layer in config.default(graph).layers.values()} == {False}
    rules = Rules(common=Rule(weight=WeightRule(channel_wise=True)))
    assert {layer.weight.channel_wise for layer in config.default(graph, rules).layers.values()} == {True}


def test_a_model_of_any_batch_is_calibrated_on_128_examples():
    """batch_num follows from the batch size: 4 batches of 32, or 128 of the 1 that a model demands."""
    assert config.default(prepared(onnx_networks.residual_cnn())).batch_num == 4
    assert config.default(prepared(onnx_networks.residual_cnn(batch=1))).batch_num == 128
    assert config.default(prepared(onnx_networks.residual_cnn(batch=3))).batch_num == 43


def algorithms(held):
    return {name: layer.activation.algorithm for name, layer in held.layers.items()}


def test_a_layer_goes_before_its_type_and_that_before_common(network):
    """The priority of AMCT: layer, type, common; activation_offset is the last word only where none speaks."""
    rules = Rules(
        activation_offset=False,
        common=Rule(activation=ActivationRule(algorithm="minmax")),
        types={"Conv": Rule(activation=ActivationRule(algorithm="hfmg", asymmetric=True))},
        layers={"last": Rule(activation=ActivationRule(algorithm="mse"))},
    )
    settings = config.default(network, rules)
    assert algorithms(settings) == {"conv": "hfmg", "average": "minmax", "last": "mse"}
    assert {name: layer.activation.asymmetric for name, layer in settings.layers.items()} == {
        "conv": True, "average": False, "last": False,
    }  # fmt: skip
    assert settings.layers["conv"].weight == WeightParams()


def test_a_rule_without_weights_leaves_them_to_the_next(network):
    """What a more special rule does not say comes from the more general one."""
    common = Rule(weight=WeightRule(channel_wise=False))
    rules = Rules(common=common, layers={"conv": Rule(activation=ActivationRule(algorithm="mse"))})
    assert config.default(network, rules).layers["conv"].weight.channel_wise is False


def test_skipped_layers_stay_in_the_file_switched_off(network):
    """A person sees what can be switched on again; patterns and types skip several."""
    for rules in (
        Rules(skip_layers=("conv", "last")),
        Rules(skip_layers=("conv", "la*")),
        Rules(skip_layer_types=("Conv",)),
    ):
        settings = config.default(network, rules)
        assert [name for name, layer in settings.layers.items() if layer.quant_enable] == ["average"]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Rules(skip_layers=("conv", "conv")), "skip_layers: 'conv' stands there 2 times; name it once"),
        (Rules(skip_layers=("cnv",)), "skip_layers: no layer named 'cnv'; did you mean 'conv'?"),
        (Rules(skip_layers=("zzz",)), "skip_layers: no layer named 'zzz'; there are: average, conv, last"),
        (Rules(skip_layers=("x*",)), "skip_layers: no layer named 'x*'; there are: average, conv, last"),
        (Rules(skip_layers=("max",)), "skip_layers: 'max' (MaxPool) is not quantized as a layer; leave it out"),
        (Rules(skip_layer_types=("Conf",)), "skip_layer_types: no type named 'Conf'; did you mean 'Conv'?"),
        (Rules(layers={"lsat": Rule()}), "layers: no layer named 'lsat'; did you mean 'last'?"),
        (
            Rules(skip_layers=("*",)),
            "nothing is left to quantize: every layer is skipped; leave at least one out of skip_layers",
        ),
    ],
)
def test_rules_that_do_not_fit_the_model_are_refused(network, rules, message):
    """Unknown, repeated and unsupported names, with the nearest ones; nothing left to quantize."""
    with pytest.raises(UsageError) as caught:
        config.default(network, rules)
    assert str(caught.value) == message


def nodes_without_names(operator, **weights):
    """A model of one node without a name, then what makes its output."""
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(operator, ["x", *weights], ["y"])], "net",
        [value("x", 1, [1, 3, 8, 8])], [value("y", 1, [1, None, None, None])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    return prepared(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8))


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (nodes_without_names("Conv", w=np.full((4, 3, 3, 3), np.nan, np.float32)),
         ": Conv_0: its weight holds NaN or inf"),
        (nodes_without_names("Relu"), "; it has no Conv, Gemm, MatMul or pooling"),
    ],
    ids=["NaN", "nothing to quantize"],
)  # fmt: skip
def test_a_model_that_cannot_be_quantized_says_why(network, why):
    """The layers that could be, each with its reason; operators that are float in every model are no reason."""
    with pytest.raises(UsageError) as caught:
        config.default(network)
    assert str(caught.value) == f"nothing in this model can be quantized{why}"


def test_a_float_operator_cannot_be_skipped():
    """The message says that it is float anyway, and why."""
    with pytest.raises(
        UsageError, match=r"skip_layers: 'scores' \(MatMul\) stays float anyway \(its weight is not const"
    ):
        config.default(prepared(onnx_networks.tokens()), Rules(skip_layers=("scores",)))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_a_file_that_can_be_read(network, name):
    """A preset is a complete configuration."""
    settings = config.default(network, PRESETS[name])
    assert config.loads(config.dumps(settings)) == settings
    activation = PRESETS[name].common.activation
    held = (None if activation is None else activation.algorithm, PRESETS[name].bias_correction)
    assert held == {"amct": (None, False), "fast": ("minmax", False), "accurate": ("mse", True)}[name]


CFG = """
batch_num: 2  # comments are allowed
activation_offset: false
skip_layers: "last"
skip_layer_types: "AveragePool"
common_config { ifmr_quantize { search_range_start: 0.8 search_step: 0.02 } dmq_balancer { migration_strength: 0.5 } }
override_layer_types {
  layer_type: "Conv"
  calibration_config { hfmg_quantize { num_of_bins: 8192 asymmetric: true } ada_quantize { num_iteration: 100 } }
}
override_layer_configs { layer_name: "conv" calibration_config { arq_quantize { channel_wise: false } } }
tensor_quantize { layer_name: "max" input_index: 0 hfmg_quantize { num_of_bins: 1024 } }
"""


def test_an_amct_simplified_configuration_is_read():
    """quant.cfg gives the rules that AMCT takes from it."""
    assert amct_cfg.loads(CFG) == Rules(
        batch_num=2,
        activation_offset=False,
        skip_layers=("last",),
        skip_layer_types=("AveragePool",),
        common=Rule(activation=ActivationRule(options={"search_range": (0.8, 1.3), "search_step": 0.02})),
        types={
            "Conv": Rule(
                activation=ActivationRule(algorithm="hfmg", asymmetric=True, options={"num_of_bins": 8192}),
                weight=WeightRule(algorithm="ada_quantize", options={"num_iteration": 100}),
            )
        },
        layers={"conv": Rule(weight=WeightRule(channel_wise=False))},
        tensor_quantize=(
            TensorRule(
                layer_name="max",
                input_index=0,
                activation=ActivationRule(algorithm="hfmg", options={"num_of_bins": 1024}),
            ),
        ),
        balance=0.5,
    )


def test_its_rules_make_a_configuration(network):
    """The layer's own rule, its type's and the tensor's arrive where they belong."""
    settings = config.default(network, amct_cfg.loads(CFG))
    assert [name for name, layer in settings.layers.items() if layer.quant_enable] == ["conv"]
    conv = settings.layers["conv"]
    assert (conv.activation.algorithm, conv.activation.asymmetric) == ("hfmg", True)
    assert conv.weight == WeightParams(channel_wise=False)
    (tensor,) = [entry for entry in settings.tensor_quantize if entry.layer_name == "max"]
    assert tensor.activation == ActivationParams(algorithm="hfmg", asymmetric=False, options={"num_of_bins": 1024})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch_num: 0", "q.cfg: batch_num: expected a whole number of at least 1, got 0"),
        (
            "joint_quant: true",
            "q.cfg: joint_quant: only false is supported: each input has its own scale; leave it out",
        ),
        (
            "common_config { ifmr_quantize { } hfmg_quantize { } }",
            "q.cfg: common_config.hfmg_quantize: stands beside ifmr_quantize; keep one of them",
        ),
        (
            "common_config { hfmg_quantize { num_bits: 16 } }",
            "q.cfg: common_config.hfmg_quantize.num_bits: only 8 is supported, got 16",
        ),
    ],
)
def test_a_simplified_configuration_that_cannot_be_is_refused(text, message):
    """What is wrong is named by its path in the file."""
    with pytest.raises(UsageError) as caught:
        amct_cfg.loads(text, name="q.cfg")
    assert str(caught.value) == message


def test_every_spelling_of_eight_bits_is_read():
    """AMCT's releases write quant_bits, num_bits and dst_type, and name a precision of the scales."""
    content = amct_cfg.loads(
        "fakequant_precision_mode: FORCE_FP16_QUANT\n"
        "common_config { ifmr_quantize { dst_type: INT8 num_bits: 8 } arq_quantize { quant_bits: 8 } }\n"
        'override_layer_types { layer_type: "Gemm" calibration_config { hfmg_quantize { dst_type: INT8 } } }'
    )
    assert content.fp16_scales
    assert content.common == Rule(activation=ActivationRule(), weight=WeightRule())
    assert not amct_cfg.loads("fakequant_precision_mode: DEFAULT").fp16_scales
    for end in (0.2, 0.8):
        ends = amct_cfg.loads(f"common_config {{ dmq_balancer {{ migration_strength: {end} }} }}")
        assert ends.balance == end


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ("ifmr_quantize { dst_type: INT4 }", "ifmr_quantize.dst_type: only INT8 is supported, got INT4"),
        ("arq_quantize { quant_bits: 4 }", "arq_quantize.quant_bits: only 8 is supported, got 4"),
        ("dmq_balancer { migration_strength: 0.1 }", "dmq_balancer.migration_strength: expected [0.2, 0.8], got 0.1"),
        ("dmq_balancer { }", "dmq_balancer.migration_strength: missing; expected a number in [0.2, 0.8]"),
        ("hfmg_quantize { num_of_bins: 4095 }", "hfmg_quantize.num_of_bins: expected 1024, 2048, 4096, 8192, got 4095"),
        (
            "ifmr_quantize { search_range_start: 1 search_range_end: 1 }",
            "ifmr_quantize.search_range: expected a start above 0 and an end above that, got 1.0, 1.0",
        ),
        (
            "ifmr_quantize { search_step: 0.9 }",
            "ifmr_quantize.search_step: expected a number above 0 that is at most the length of search_range, 0.6, "
            "got 0.9",
        ),
    ],
)
def test_ranges_are_those_that_amct_documents(part, what):
    """Wherever the part stands, with its path."""
    for place, text in {
        "common_config": f"common_config {{ {part} }}",
        "override_layer_configs[0]": f'override_layer_configs {{ layer_name: "a" calibration_config {{ {part} }} }}',
    }.items():
        with pytest.raises(UsageError) as caught:
            amct_cfg.loads(text, name="q.cfg")
        assert str(caught.value) == f"q.cfg: {place}.{what}"


def test_a_layer_is_balanced_by_its_own_exponent(network):
    """dmq_balancer of a layer or a type goes before the common one, and reaches config.json and back."""
    text = (
        "common_config { dmq_balancer { migration_strength: 0.5 } }\n"
        'override_layer_types { layer_type: "Gemm" calibration_config { dmq_balancer { migration_strength: 0.3 } } }\n'
        'override_layer_configs { layer_name: "conv" calibration_config { dmq_balancer { migration_strength: 0.7 } } }'
    )
    content = config.loads(config.dumps(config.default(network, amct_cfg.loads(text))))
    assert content.exponents["conv"] == 0.7
    others = {name: a for name, a in content.exponents.items() if name != "conv"}
    assert set(others.values()) <= {0.3, 0.5}
    alone = amct_cfg.loads(text.partition("\n")[2])
    settings = config.default(network, alone)
    assert settings.balance is None
    assert settings.exponents["conv"] == 0.7


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            'override_layer_types { layer_type: "Convv" calibration_config { } }',
            "layer_type: no type named 'Convv'; did you mean 'Conv'",
        ),
        (
            'override_layer_types { layer_type: "Gemm" calibration_config { arq_quantize { channel_wise: true } } }',
            "layer_type 'Gemm': channel_wise: only Conv and ConvTranspose take true; a Gemm has one scale",
        ),
        (
            'override_layer_types { layer_type: "AveragePool" calibration_config { dmq_balancer '
            "{ migration_strength: 0.5 } } }",
            "layer_type 'AveragePool': dmq_balancer: a pool has no weight to balance",
        ),
        ('skip_layers: "conv77"', "skip_layers: no layer named 'conv77'"),
    ],
)
def test_rules_that_would_do_nothing_are_refused_by_their_file(network, text, what):
    """The graph decides, the message names quant.cfg."""
    with pytest.raises(UsageError) as caught:
        config.default(network, amct_cfg.loads(text, name="q.cfg"))
    assert str(caught.value).startswith(f"q.cfg: {what}")


def test_a_common_channel_wise_means_the_layers_that_have_channels(network):
    """AMCT's common_config: a Gemm beside a Conv keeps its one scale."""
    rules = amct_cfg.loads("common_config { arq_quantize { channel_wise: true } }")
    settings = config.default(prepared(onnx_networks.residual_cnn()), rules)
    assert settings.layers["conv1"].weight.channel_wise
    assert not settings.layers["fc"].weight.channel_wise


def test_an_unknown_field_has_its_place():
    """A typing error names line and column."""
    with pytest.raises(UsageError, match=r'^q\.cfg:1:1: not protobuf text .*no field named "batchnum"'):
        amct_cfg.loads("batchnum: 1", name="q.cfg")


# --- what a file leaves out, and what is at the ends of what it may say -----------------------------------------------


def test_a_file_of_a_version_alone_is_the_default():
    """Of a layer, too; and the keys of AMCT that have one meaning may stand there."""
    assert config.loads('{"version": 1}') == Config()
    assert config.loads('{"version": 1, "a": {}}').layers == {
        "a": LayerConfig(activation=ActivationParams(options=IFMR))
    }
    for mode in ("", "FORCE_FP32_QUANT", "DEFAULT"):
        given = {"version": 1, "joint_quant": False, "fakequant_precision_mode": mode}
        assert config.loads(json.dumps(given)) == Config()
    assert config.loads('{"version": 1, "fakequant_precision_mode": "FORCE_FP16_QUANT"}').fp16_scales
    (tensor,) = config.loads('{"version": 1, "tensor_quantize": [{"layer_name": "a"}]}').tensor_quantize
    assert tensor == TensorConfig(layer_name="a", input_index=0, activation=ActivationParams(options=IFMR))
    offset = '{"version": 1, "activation_offset": false, "tensor_quantize": [{"layer_name": "a"}]}'
    assert not config.loads(offset).tensor_quantize[0].activation.asymmetric


def test_an_exponent_may_be_each_end_of_its_range():
    """A whole number, too; it is a float from there on."""
    for balance in (0, 1, 0.5):
        assert config.loads(json.dumps(file(balance=balance))).balance == balance
    assert isinstance(config.loads(json.dumps(file(balance=1))).balance, float)
    for own in (0.2, 0.8):
        assert config.loads(json.dumps(file(fc={"dmq_balancer_param": own}))).layers["fc"].balance == own


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (file(version=True), "version: expected 1, got true"),
        (file(balance=True), "balance: expected a number in [0, 1], got true"),
        (file(balance="x"), 'balance: expected a number in [0, 1], got "x"'),
        (file(balance=-0.1), "balance: expected a number in [0, 1], got -0.1"),
        (file(fc={"dmq_balancer_param": 0.81}), "fc.dmq_balancer_param: expected a number in [0.2, 0.8], got 0.81"),
        (file(joint_quant=0), None),
        (file(joint_quant=None), None),
        (file({"num_bits": True}), "conv1.activation_quant_params.num_bits: only 8 is supported, got true"),
        (file({"asymmetric": 1}), "conv1.activation_quant_params.asymmetric: expected true or false, got 1"),
        (file({}, {"channel_wise": 1}), "conv1.weight_quant_params.channel_wise: expected true or false, got 1"),
        (file({}, 3), "conv1.weight_quant_params: expected an object, got 3"),
        (file(fc={"quant_enable": None}), "fc.quant_enable: expected true or false, got null"),
        (file(fc={"zzz": 1}), f"fc.zzz: unknown key; there are: {', '.join(config_json.LAYER)}"),
        (file(tensor_quantize=[{"layer_name": "a"}, 3]), "tensor_quantize[1]: expected an object, got 3"),
        (
            file(tensor_quantize=[{"layer_name": ""}]),
            'tensor_quantize[0].layer_name: expected the name of a node, got ""',
        ),
        (
            file(tensor_quantize=[{"layer_name": "a", "input_index": True}]),
            "tensor_quantize[0].input_index: expected a whole number of at least 0, got true",
        ),
        (
            file(tensor_quantize=[{"layer_name": "a", "activation_quant_params": {"num_bits": 4}}]),
            "tensor_quantize[0].activation_quant_params.num_bits: only 8 is supported, got 4",
        ),
        (file(skip_fusion_layers=["a", 3]), "skip_fusion_layers: expected a list of names, got a list"),
        (
            file({}, {"wts_algo": "ada_quantise"}),
            "conv1.weight_quant_params.wts_algo: no algorithm named \"ada_quantise\"; did you mean 'ada_quantize'? "
            "available: arq_quantize, ada_quantize",
        ),
        (file(balance="x" * 58), f'balance: expected a number in [0, 1], got "{"x" * 58}"'),
        (file(balance="x" * 59), f'balance: expected a number in [0, 1], got "{"x" * 56}…'),
        (3, "expected an object of keys and layers, got 3"),
    ],
)
def test_what_only_resembles_a_value_is_refused(content, problem):
    """True is no number, 0 and null are not false, a list may hold one wrong entry."""
    lines = problems(content)
    expected = "joint_quant: only false is supported: each input has its own scale; set it to false"
    assert lines == [f"c.json: {problem or expected}"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"version": 1, "version": 1}', "version"),
        ('{"version": 1, "a": {"quant_enable": true, "quant_enable": true}}', "a.quant_enable"),
        ('{"version": 1, "a": {"activation_quant_params": {"num_bits": 8, "num_bits": 8}}}',
         "a.activation_quant_params.num_bits"),
        ('{"version": 1, "a": {"weight_quant_params": {"num_bits": 8, "num_bits": 8}}}',
         "a.weight_quant_params.num_bits"),
        ('{"version": 1, "tensor_quantize": [{"layer_name": "a", "layer_name": "b"}]}',
         "tensor_quantize[0].layer_name"),
    ],
)  # fmt: skip
def test_a_key_that_stands_there_twice_is_refused_everywhere(text, where):
    """Named once, with its path."""
    assert problems(text) == [f"c.json: {where}: stands there twice; keep one"]


def test_a_file_that_is_nested_without_end_is_none():
    """Python gives up on it in its own way."""
    (line,) = problems('{"a":' * 100_000)
    assert line.startswith("c.json: not JSON: ")
    assert line.endswith("; correct the file")


def test_what_is_written_leaves_out_what_is_not_set():
    """Every parameter is written out, pairs as lists; qbench's own keys stand there where they say something."""
    plain = json.loads(config.dumps(Config(layers={"a": LayerConfig()})))
    assert plain == {
        "version": 1, "batch_num": 1, "activation_offset": True, "do_fusion": True, "skip_fusion_layers": [],
        "tensor_quantize": [],
        "a": {
            "quant_enable": True,
            "activation_quant_params": {"num_bits": 8, "act_algo": "ifmr", "asymmetric": True},
        },
    }  # fmt: skip
    layer = LayerConfig(
        quant_enable=False, activation=ActivationParams(options=IFMR), weight=WeightParams(), balance=0.5
    )
    rich = Config(balance=0.0, fp16_scales=True, bias_correction=True, layers={"é": layer})
    text = config.dumps(rich)
    written = json.loads(text)
    assert (written["balance"], written["fakequant_precision_mode"], written["bias_correction"]) == (
        0.0, "FORCE_FP16_QUANT", True,
    )  # fmt: skip
    assert written["é"]["activation_quant_params"]["search_range"] == [0.7, 1.3]
    assert written["é"]["weight_quant_params"] == {"num_bits": 8, "wts_algo": "arq_quantize", "channel_wise": True}
    assert written["é"]["dmq_balancer_param"] == 0.5
    assert '\n  "é": {\n    "quant_enable": false,' in text
    assert text.endswith("}\n")


def test_an_empty_simplified_configuration_says_nothing():
    """As one with the values that hold anyway."""
    assert amct_cfg.loads("") == Rules()
    same = "version: 1 activation_offset: true joint_quant: false do_fusion: true common_config { }"
    assert amct_cfg.loads(same) == Rules()
    other = amct_cfg.loads('do_fusion: false skip_fusion_layers: "bn1" batch_num: 1')
    assert (other.do_fusion, other.skip_fusion_layers, other.batch_num) == (False, ("bn1",), 1)
    assert amct_cfg.loads("", name="q.cfg").file == "q.cfg"


@pytest.mark.parametrize(
    ("part", "options"),
    [
        ("ifmr_quantize { search_range_start: 0.5 }", {"search_range": (0.5, 1.3)}),
        ("ifmr_quantize { search_range_end: 1.5 }", {"search_range": (0.7, 1.5)}),
        ("ifmr_quantize { search_range_start: 0.5 search_range_end: 1.5 max_percentile: 0.9 }",
         {"search_range": (0.5, 1.5), "max_percentile": 0.9}),
        ("ada_quantize { beta_range_start: 30 }", {"beta_range": (30.0, 2.0)}),
        ("ada_quantize { beta_range_end: 3 channel_wise: true }", {"beta_range": (20.0, 3.0)}),
        ("ada_quantize { warm_start: 0.1 num_bits: 8 }", {"warm_start": 0.1}),
    ],
)  # fmt: skip
def test_a_start_and_an_end_are_one_option(part, options):
    """Of which the other end is AMCT's default; a number is the decimal that stands there."""
    rule = amct_cfg.loads(f"common_config {{ {part} }}").common
    assert (rule.activation or rule.weight).options == options
    if rule.weight:
        assert rule.weight.channel_wise == (True if "channel_wise" in part else None)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('override_layer_types { layer_type: "a" } override_layer_types { layer_type: "a" }',
         "override_layer_types: layer_type 'a' stands there twice; keep one"),
        ('override_layer_configs { layer_name: "a" } override_layer_configs { layer_name: "a" }',
         "override_layer_configs: layer_name 'a' stands there twice; keep one"),
        ('override_layer_types { } override_layer_types { layer_type: "a" calibration_config { '
         "arq_quantize { num_bits: 4 } } }",
         "override_layer_types[1].arq_quantize.num_bits: only 8 is supported, got 4"),
        ('tensor_quantize { layer_name: "a" } tensor_quantize { layer_name: "a" input_index: 1 '
         "ifmr_quantize { } hfmg_quantize { } }",
         "tensor_quantize[1].hfmg_quantize: stands beside ifmr_quantize; keep one of them"),
        ("common_config { arq_quantize { } ada_quantize { } }",
         "common_config.ada_quantize: stands beside arq_quantize; keep one of them"),
        ("common_config { dmq_balancer { migration_strength: 0.9 } }",
         "common_config.dmq_balancer.migration_strength: expected [0.2, 0.8], got 0.9"),
        ("common_config { ada_quantize { warm_start: 1 } }",
         "common_config.ada_quantize.warm_start: expected a share from 0 to below 1, got 1.0"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_in_a_simplified_configuration_is_refused(text, what):
    """The second of two entries has its own number."""
    with pytest.raises(UsageError) as caught:
        amct_cfg.loads(text, name="q.cfg")
    assert str(caught.value) == f"q.cfg: {what}"


def test_rules_come_from_the_nearest_that_says_something():
    """Of activations, weights and exponents each by itself; without any it is AMCT's own."""
    empty = Rules()
    assert empty.activation("a", "Conv") == ActivationParams(options=IFMR)
    assert empty.weight("a", "Conv", channel_wise=True) == WeightParams(channel_wise=True)
    assert empty.weight("a", "Gemm", channel_wise=False) == WeightParams(channel_wise=False)
    assert empty.exponent("a", "Conv") is None
    assert not Rules(activation_offset=False).activation("a", "Conv").asymmetric
    rules = Rules(
        common=Rule(balance=0.5, weight=WeightRule(algorithm="ada_quantize")),
        types={"Conv": Rule(balance=0.0)},
        layers={"a": Rule(weight=WeightRule(channel_wise=False))},
    )
    assert [rules.exponent(name, kind) for name, kind in (("a", "Conv"), ("a", "Gemm"), ("b", "Conv"))] == [
        0.0,
        0.5,
        0.0,
    ]
    assert rules.weight("a", "Conv", channel_wise=True) == WeightParams(channel_wise=False)
    other = rules.weight("b", "Conv", channel_wise=True)
    assert (other.algorithm, other.channel_wise, other.options["num_iteration"]) == ("ada_quantize", True, 1000)


def test_problems_with_rules_of_no_file_have_no_name(network):
    """Those of a file begin with it, each in its line."""
    wrong = {"skip_layers": ("zz1", "zz2"), "skip_layer_types": ("Conv",)}
    for named, start in ((None, ""), ("q.cfg", "q.cfg: ")):
        with pytest.raises(UsageError) as caught:
            config.default(network, Rules(**wrong, file=named))
        lines = str(caught.value).splitlines()
        assert [line.startswith(f"{start}skip_layers: no layer named 'zz") for line in lines] == [True, True]


def test_a_rule_of_one_scale_is_no_mistake_where_there_is_one(network):
    """A Gemm may be told that it has one, a Conv that it has many; rules that no file holds may ask for more."""
    fine = (
        'override_layer_types { layer_type: "Gemm" calibration_config { arq_quantize { channel_wise: false } } }'
        'override_layer_types { layer_type: "Conv" calibration_config { arq_quantize { channel_wise: true } } }'
    )
    config.default(network, amct_cfg.loads(fine, name="q.cfg"))
    config.default(network, Rules(types={"Gemm": Rule(weight=WeightRule(channel_wise=True))}))
    part = "calibration_config { dmq_balancer { migration_strength: 0.5 } }"
    layer = f'override_layer_configs {{ layer_name: "average" {part} }}'
    with pytest.raises(UsageError, match=r"^q\.cfg: layer 'average': dmq_balancer: a pool has no weight to balance"):
        config.default(network, amct_cfg.loads(layer, name="q.cfg"))
    graph = prepared(onnx_networks.mlp())
    name = next(iter(config.default(graph).layers))
    part = "calibration_config { arq_quantize { channel_wise: true } }"
    wise = f'override_layer_configs {{ layer_name: "{name}" {part} }}'
    with pytest.raises(UsageError, match=rf"layer '{name}': channel_wise: only Conv and ConvTranspose take true; a "):
        config.default(graph, amct_cfg.loads(wise, name="q.cfg"))


def test_every_part_of_the_rules_is_in_the_configuration(network):
    """The batch size that a model demands is that of its first input."""
    rules = Rules(
        batch_num=7, activation_offset=False, do_fusion=False, skip_fusion_layers=("a",), balance=0.25,
        bias_correction=True, fp16_scales=True,
    )  # fmt: skip
    settings = config.default(network, rules)
    assert (settings.batch_num, settings.activation_offset, settings.do_fusion) == (7, False, False)
    assert (settings.skip_fusion_layers, settings.balance, settings.bias_correction, settings.fp16_scales) == (
        ("a",), 0.25, True, True,
    )  # fmt: skip
    assert defaults.fixed_batch(network) is None
    assert defaults.fixed_batch(prepared(onnx_networks.residual_cnn(batch=3))) == 3


def test_what_rules_ask_of_a_place_that_is_needed_anyway_is_taken(network):
    """A place that is not needed stands behind the others, with AMCT's own parameters."""
    plain = config.default(network).tensor_quantize
    place = plain[0]
    asked = TensorRule(
        layer_name=place.layer_name, input_index=place.input_index,
        activation=ActivationRule(algorithm="hfmg"),
    )  # fmt: skip
    unneeded = TensorRule(layer_name="no such node", input_index=2, activation=ActivationRule(algorithm="mse"))
    settings = config.default(network, Rules(tensor_quantize=(unneeded, asked), activation_offset=False))
    assert [(t.layer_name, t.input_index) for t in settings.tensor_quantize] == [
        *((t.layer_name, t.input_index) for t in plain), ("no such node", 2),
    ]  # fmt: skip
    assert settings.tensor_quantize[0].activation == ActivationParams(
        algorithm="hfmg", asymmetric=False, options={"num_of_bins": 4096}
    )
    assert settings.tensor_quantize[-1].activation == ActivationParams()


def test_only_layers_that_are_on_are_balanced():
    """By their own exponent, also by 0, else by the common one."""
    layers = {
        "own": LayerConfig(balance=0.0), "off": LayerConfig(quant_enable=False, balance=0.4), "plain": LayerConfig(),
    }  # fmt: skip
    assert Config(layers=layers).exponents == {"own": 0.0}
    assert Config(layers=layers, balance=0.6).exponents == {"own": 0.0, "plain": 0.6}
