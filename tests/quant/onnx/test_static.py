"""A static recipe to scales: in memory, and in the file that builds of one network share."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_networks
import pytest
from calibration_models import cnn, graph, images

import qbench.onnx
from qbench.backends import onnx_build
from qbench.backends.base import BuildJob
from qbench.errors import UsageError
from qbench.models.base import Network
from qbench.quant.flow import Conversion
from qbench.quant.onnx import onnxruntime_session, static
from qbench.quant.onnx.calibration import complete_scales
from qbench.quant.onnx.export import deploy_model
from qbench.quant.onnx.formats import calibration_file, config_json, protobuf_text
from qbench.quant.onnx.formats.rules import ActivationRule, Rule, Rules, WeightRule
from qbench.quant.onnx.graph import prepare
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import ActivationParams, LayerConfig, WeightParams
from qbench.quant.onnx.static import Scaled, choose_scales
from qbench.quant.recipe import Recipe, key_parts

RECIPE = Recipe(calibrator="minmax", per_channel=True, skip_layers=("point",))


def scaled(folder: Path, recipe: Recipe = RECIPE) -> Scaled:
    """The scales of the residual network."""
    cnn().save(folder / "fp32.onnx")
    return choose_scales(folder / "fp32.onnx", recipe, (images(20),), lambda text, share: None)


def test_no_suite_writes_or_reads_the_forms_of_amct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration and a record are texts at the edge of `qbench onnx` alone: scales are found, saved and loaded
    without either, and no model says anything in that form."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a suite went through a text of AMCT's form")

    for module, name in (
        (config_json, "dumps"),
        (config_json, "loads"),
        (protobuf_text, "text"),
        (protobuf_text, "empty"),
    ):
        monkeypatch.setattr(module, name, refuse)
    scaled(tmp_path).save(tmp_path / "scaled.onnx")
    graph = Scaled.load(tmp_path / "scaled.onnx").graph
    assert {entry.key for entry in graph.model.metadata_props} == {"qbench.scaled"}


def test_a_file_gives_back_the_scales_it_was_given(tmp_path: Path) -> None:
    """Sites, scales to the last bit, mean inputs, reasons and notes of a file are those that were found, and the graph
    has no constant more."""
    chosen = scaled(tmp_path)
    chosen.save(tmp_path / "scaled.onnx")
    loaded = Scaled.load(tmp_path / "scaled.onnx")
    assert (loaded.sites, loaded.record) == (chosen.sites, chosen.record)
    assert (loaded.float_reasons, loaded.notes) == (chosen.float_reasons, chosen.notes)
    assert list(chosen.float_reasons) == ["point"]
    assert list(loaded.mean_inputs) == list(chosen.mean_inputs) == ["stem", "deep", "head"]
    for layer, means in chosen.mean_inputs.items():
        np.testing.assert_array_equal(loaded.mean_inputs[layer], means)
    assert loaded.graph.constants == chosen.graph.constants
    assert loaded.graph.outputs == chosen.graph.outputs == ("y",)


# One channel in eight of what the second layer reads is sixty times as large as the others.
UNEVEN = """
<ir_version: 8, opset_import: ["" : 17]>
mlp (float[n,16] x) => (float[n,5] y) {
  [first] a = Gemm <transB: int = 1> (x, first_w, first_b)
  [relu] b = Relu (a)
  [second] c = Gemm <transB: int = 1> (b, second_w, second_b)
  [relu2] d = Relu (c)
  [third] y = Gemm <transB: int = 1> (d, third_w, third_b)
}
"""
SIZES = {"first_w": (32, 16), "first_b": (32,), "second_w": (24, 32), "second_b": (24,)}
SIZES |= {"third_w": (5, 24), "third_b": (5,)}
PLAIN = Recipe(calibrator="minmax", per_channel=True, narrow_weights=True)


def uneven() -> Graph:
    """A perceptron with channels that differ much."""
    network = graph(UNEVEN, SIZES)
    factors = np.ones(32, np.float32)
    factors[::8] = 60
    for name, by in (("first_w", factors[:, None]), ("first_b", factors), ("second_w", 1 / factors)):
        network.set_constant(name, network.constant(name) * by)
    return network


def quantize(folder: Path, recipe: Recipe) -> Conversion:
    """Writes the file that ONNX Runtime gets, int8.onnx, beside fp32.onnx."""
    uneven().save(folder / "fp32.onnx")
    job = BuildJob(
        network=Network(kind="onnx", path=folder / "fp32.onnx"),
        mode="static",
        recipe=recipe,
        calibration=(images(128, shape=(16,)),),
        training=None,
        folder=folder,
    )
    return onnx_build.quantize_network(job, folder / "fp32.onnx", folder / "int8.onnx", runtime="onnxruntime")


def sqnr(folder: Path, recipe: Recipe) -> float:
    """Of the file that ONNX Runtime gets, on examples that did not calibrate it, in dB."""
    quantize(folder, recipe)
    inputs = (images(512, seed=7, shape=(16,)),)
    exact, rounded = (onnxruntime_session.run(folder / name, inputs) for name in ("fp32.onnx", "int8.onnx"))
    return float(10 * np.log10((exact**2).sum() / ((exact - rounded) ** 2).sum()))


@pytest.mark.parametrize("target", [(), ("avx2",)])
@pytest.mark.parametrize(
    ("keys", "gain"), [({"balance": 0.5}, 15.0), ({"adaround": True}, 0.0), ({"bias_correction": True}, 0.0)]
)
def test_each_key_brings_a_static_file_nearer_to_fp32(
    tmp_path: Path, keys: dict[str, object], gain: float, target: tuple[str, ...]
) -> None:
    """Balance takes the large channels away, AdaRound and bias correction lose nothing: dB gained over the default,
    where channels are uneven; each changes the file. So it is where weights leave room for sums of 16 bits, too:
    AdaRound and bias correction know of the wider steps."""
    recipe = replace(PLAIN, target=target)
    before = sqnr(tmp_path, recipe)
    plain = (tmp_path / "int8.onnx").read_bytes()
    assert sqnr(tmp_path, replace(recipe, **keys)) > before + gain
    assert (tmp_path / "int8.onnx").read_bytes() != plain


@pytest.mark.parametrize("chosen", [False, True])
def test_what_layers_are_given_is_kept_only_where_the_recipe_leaves_biases_open(tmp_path: Path, chosen: bool) -> None:
    """With ``bias_correction: false`` biases stay as they are, with ``true`` they were corrected while calibrating."""
    assert scaled(tmp_path).mean_inputs
    assert not scaled(tmp_path, replace(RECIPE, bias_correction=chosen)).mean_inputs


@pytest.mark.parametrize("target", [(), ("avx2",)])
def test_biases_give_back_what_rounded_weights_do_on_average_unless_told_not_to(
    tmp_path: Path, target: tuple[str, ...]
) -> None:
    """By default a file is nearer to fp32 than with the biases as they were, whichever steps its weights have."""
    recipe = replace(PLAIN, target=target)
    assert sqnr(tmp_path, recipe) > sqnr(tmp_path, replace(recipe, bias_correction=False)) + 0.2


def test_what_made_room_before_adaround_is_told(tmp_path: Path) -> None:
    """The file for older CPUs tells which layers got wider steps, whether before AdaRound or as it is written."""
    told = [quantize(tmp_path, replace(PLAIN, target=("avx2",), adaround=adaround)).target for adaround in (None, True)]
    assert None not in told
    plain, fitted = told
    assert 0 < plain.channels_narrowed <= fitted.channels_narrowed
    assert plain.layers_narrowed == fitted.layers_narrowed == 3


@pytest.mark.parametrize("keys", [{}, {"balance": 0.5}, {"adaround": True}, {"bias_correction": True}])
def test_a_suite_finds_the_scales_and_weights_of_qbench_onnx(tmp_path: Path, keys: dict[str, object]) -> None:
    """The same settings on the same batches give the same record and the same weights, to the last bit."""
    uneven().save(tmp_path / "fp32.onnx")
    data = images(32, shape=(16,))
    chosen = choose_scales(tmp_path / "fp32.onnx", replace(PLAIN, **keys), (data,), lambda text, share: None)
    algorithm = "ada_quantize" if keys.get("adaround") else "arq_quantize"
    weight = WeightRule(algorithm=algorithm, channel_wise=True)
    rules = Rules(
        batch_num=2,
        common=Rule(activation=ActivationRule(algorithm="minmax"), weight=weight),
        balance=keys.get("balance"),
        bias_correction=bool(keys.get("bias_correction")),
    )
    files = tmp_path / "calibration.onnx", tmp_path / "record.txt"
    qbench.onnx.quantize(tmp_path / "fp32.onnx", qbench.onnx.config(tmp_path / "fp32.onnx", rules=rules), *files)
    record = qbench.onnx.calibrate(files[0], [data[:16], data[16:]], files[1], threads=1).record
    assert complete_scales.as_written(record) == chosen.record
    by_hand = calibration_file.read(files[0]).graph()
    assert by_hand.constants == chosen.graph.constants
    for name in by_hand.constants:
        assert np.array_equal(by_hand.constant(name), chosen.graph.constant(name)), name


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_what_int8_would_round_to_zeros_stays_float(tmp_path: Path, runtime: str) -> None:
    """Values below 3e-5 have no scale: the layer that takes them in computes in float, and says so, and the network
    keeps its answers; the layers beside it are int8."""
    network = graph(
        UNEVEN.replace("(b, second_w", "(s, second_w").replace("[second]", "[shrink] s = Mul (b, tiny)\n  [second]"),
        {**SIZES, "tiny": np.float32(1e-7)},
    )
    network.set_constant("second_w", network.constant("second_w") * np.float32(1e7))
    network.save(tmp_path / "fp32.onnx")
    chosen = choose_scales(tmp_path / "fp32.onnx", PLAIN, (images(128, shape=(16,)),), lambda text, share: None)
    assert [site.layer for site in chosen.sites.weights] == ["first", "third"]
    assert list(chosen.float_reasons) == ["second"]
    assert "would round to zeros" in chosen.float_reasons["second"]
    assert not any("3e-5" in note for note in chosen.notes)
    deploy_model.write(chosen.graph, chosen.sites, chosen.record, tmp_path / "int8.onnx", runtime=runtime)
    inputs = (images(64, seed=7, shape=(16,)),)
    exact, rounded = (onnxruntime_session.run(tmp_path / name, inputs) for name in ("fp32.onnx", "int8.onnx"))
    assert 10 * np.log10((exact**2).sum() / ((exact - rounded) ** 2).sum()) > 25


def test_an_artifact_without_these_keys_keeps_its_place_in_the_cache() -> None:
    """What a recipe leaves open is no part of the key; what it sets is."""
    assert not {"balance", "adaround", "bias_correction"} & key_parts(PLAIN).keys()
    assert key_parts(replace(PLAIN, balance=0.5))["balance"] == 0.5


def test_the_progress_of_a_build_never_goes_back(tmp_path: Path) -> None:
    """Each step that changes weights has its part of the way."""
    uneven().save(tmp_path / "fp32.onnx")
    shares: list[float] = []
    recipe = replace(PLAIN, balance=0.5, adaround=True, bias_correction=True)
    choose_scales(tmp_path / "fp32.onnx", recipe, (images(40, shape=(16,)),), lambda text, share: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(0.8)


def test_a_suite_takes_nothing_from_the_room_of_amcts_forms(tmp_path: Path) -> None:
    """From a recipe to a written model a process imports no module that reads or writes a form of AMCT's, nor rules."""
    cnn().save(tmp_path / "fp32.onnx")
    code = (
        "import json, sys; import numpy as np; from pathlib import Path\n"
        "from qbench.quant.onnx import static; from qbench.quant.onnx.export import deploy_model\n"
        "from qbench.quant.recipe import Recipe\n"
        f"folder = Path({str(tmp_path)!r}); recipe = Recipe(calibrator='minmax', per_channel=True)\n"
        "images = np.random.default_rng(0).standard_normal((8, 3, 8, 8)).astype('f')\n"
        "scaled = static.choose_scales(folder / 'fp32.onnx', recipe, (images,), lambda *told: None)\n"
        "deploy_model.write(scaled.graph, scaled.sites, scaled.record, folder / 'x.onnx', runtime='onnxruntime')\n"
        "print(json.dumps([name for name in sys.modules if name.startswith('qbench.quant.onnx.formats.')]))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert (tmp_path / "x.onnx").is_file()
    assert set(json.loads(out.splitlines()[-1])) <= {"qbench.quant.onnx.formats.text_file"}  # which sets modes of files


def prepared(network: Any, folder: Path) -> Graph:
    """The graph that scales are found for."""
    return prepare.prepare(onnx_networks.save(network, folder))


@pytest.mark.parametrize(
    ("changes", "activation", "weight"),
    [
        ({}, ActivationParams(algorithm="minmax"), WeightParams()),
        (
            {"calibrator": "percentile", "percentile": 99.5, "symmetric": True, "per_channel": False},
            ActivationParams(algorithm="percentile", asymmetric=False, options={"percentile": 99.5}),
            WeightParams(channel_wise=False),
        ),
        ({"calibrator": "percentile"}, ActivationParams(algorithm="percentile"), WeightParams()),
        (
            {"calibrator": "mse", "percentile": 99.5, "symmetric": False, "per_channel": True, "adaround": True},
            ActivationParams(algorithm="mse"),
            WeightParams(algorithm="ada_quantize"),
        ),
    ],
)
def test_a_recipe_says_how_each_layer_is_quantized(
    tmp_path: Path, changes: dict[str, Any], activation: ActivationParams, weight: WeightParams
) -> None:
    """By minimum and maximum, with an offset, and a scale for each channel, where it says nothing; a pool has no
    weight."""
    config = static._configure(prepared(onnx_networks.pools(), tmp_path), Recipe(**changes), 7)
    assert config.batch_num == 7
    assert config.layers == {
        "conv": LayerConfig(activation=activation, weight=weight),
        "average": LayerConfig(activation=activation),
        "last": LayerConfig(activation=activation, weight=weight),
    }
    assert all(tensor.activation == activation for tensor in config.tensor_quantize)
    assert config.tensor_quantize
    assert (config.balance, config.bias_correction) == (None, False)


def test_balance_and_bias_correction_are_those_of_the_recipe(tmp_path: Path) -> None:
    """For all layers."""
    config = static._configure(prepared(onnx_networks.pools(), tmp_path), Recipe(balance=0.3, bias_correction=True), 1)
    assert (config.balance, config.bias_correction) == (0.3, True)


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({}, []),
        ({"skip_layers": ("*conv",)}, ["stem_conv", "expand_conv", "depthwise_conv", "project_conv"]),
        ({"skip_layers": ("project_conv", "classifier")}, ["project_conv", "classifier"]),
        ({"first_layer_float": True}, ["stem_conv"]),
        ({"last_layer_float": True}, ["classifier"]),
        (
            {"skip_layers": ("stem_conv",), "first_layer_float": True, "last_layer_float": True},
            ["stem_conv", "classifier"],
        ),
    ],
)
def test_a_recipe_leaves_layers_out(tmp_path: Path, changes: dict[str, Any], left: list[str]) -> None:
    """By name, by pattern, and those at both ends that multiply."""
    config = static._configure(prepared(onnx_networks.depthwise(), tmp_path), Recipe(**changes), 1)
    assert [name for name, layer in config.layers.items() if not layer.quant_enable] == left


def test_a_pool_at_an_end_is_not_the_layer_there(tmp_path: Path) -> None:
    """Nothing is multiplied in it: the first and the last layer are those that have weights."""
    draft = onnx_networks.Draft()
    x = draft.add("AveragePool", ["image"], "in", kernel_shape=[2, 2], strides=[2, 2])
    x = draft.conv(draft.conv(draft.conv(x, "a", 3, 4), "b", 4, 4), "c", 4, 4)
    draft.add("AveragePool", [x], "out", kernel_shape=[2, 2], strides=[2, 2], outputs=["y"])
    graph = prepared(draft.model({"image": ["batch", 3, 16, 16]}, {"y": ["batch", 4, 4, 4]}), tmp_path)
    config = static._configure(graph, Recipe(first_layer_float=True, last_layer_float=True), 1)
    assert [name for name, layer in config.layers.items() if not layer.quant_enable] == ["a", "c"]


def test_a_recipe_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    """With what to do."""
    graph = prepared(onnx_networks.pools(), tmp_path)
    with pytest.raises(UsageError, match="nothing is left to quantize: every layer is skipped"):
        static._configure(graph, Recipe(skip_layers=("*",)), 1)
