"""The ONNX pipeline: export that agrees, int8 that runs in integer kernels, coverage from the runtime's profile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from networks import Branching, Forgetful, Grouped, NeverAlone, lstm, perceptron, residual_cnn
from onnx import helper, numpy_helper
from onnx_networks import CONV, PRODUCT, save_conv_and_product

from qbench import registry
from qbench.errors import BuildError
from qbench.quant import canonical
from qbench.quant.artifacts import coverage, onnx_file, onnx_outline
from qbench.quant.onnx import export_torch, onnxruntime_layers, onnxruntime_quantizers, onnxruntime_session
from qbench.quant.onnx import static as onnx_static
from qbench.quant.onnx.export import deploy_model
from qbench.quant.recipe import Recipe

RECIPE = Recipe(calibrator="minmax", per_channel=True)


def images(n=32):
    return (np.random.default_rng(0).random((n, 1, 8, 8), dtype=np.float32),)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """fp32 files of the networks, each exported once (the exporter takes seconds)."""
    folder = tmp_path_factory.mktemp("onnx")
    files = {}
    for name, module in {"cnn": residual_cnn(), "lstm": lstm(), "grouped": Grouped().eval()}.items():
        files[name] = folder / f"{name}.onnx"
        export_torch.export(module, (torch.from_numpy(images(1)[0]),), files[name])
    return files


def test_the_export_agrees_and_takes_any_batch(exported):
    """Outputs equal torch's, at a batch size that the export never saw."""
    with torch.inference_mode():
        expected = residual_cnn()(torch.from_numpy(images(5)[0])).numpy()
    np.testing.assert_allclose(onnxruntime_session.run(exported["cnn"], images(5)), expected, rtol=1e-4, atol=1e-5)
    assert onnx_file.fixed_batch(exported["cnn"]) is None


def test_weights_that_are_mapped_give_the_same_answers(exported, monkeypatch):
    """To the last bit, after the folder that they were mapped from is gone."""
    monkeypatch.setattr(onnx_outline, "SMALL", 0)
    folders = []
    write = onnx_outline.write_weights_apart
    monkeypatch.setattr(onnx_outline, "write_weights_apart", lambda file, to: folders.append(to) or write(file, to))
    run = onnxruntime_session.bind_run(onnxruntime_session.open_lean(exported["cnn"]))
    assert folders
    assert not folders[0].exists()
    assert run(images(5)).tobytes() == onnxruntime_session.run(exported["cnn"], images(5)).tobytes()


def test_a_comment_in_the_models_file_gives_the_same_bytes(tmp_path):
    """The same network from two files of other names and lines: nothing in the export says where it comes from."""
    source = (
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x.flatten(1) * 2\n"
    )
    for name, text in {"one": source, "other": f"# a comment\n{source}"}.items():
        (tmp_path / f"{name}.py").write_text(text)
        names = {"__name__": name}
        exec(compile(text, str(tmp_path / f"{name}.py"), "exec"), names)
        export_torch.export(names["Net"](), (torch.from_numpy(images(1)[0]),), tmp_path / f"{name}.onnx")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "other.onnx").read_bytes()


def static(fp32, file, recipe, calibration):
    """A static int8 file for ONNX Runtime on this CPU, as its backend makes it."""
    content = onnx_static.choose_scales(fp32, recipe, calibration, lambda text, share: None)
    deploy_model.write(content.graph, content.sites, content.record, file, runtime="onnxruntime")
    return content


@pytest.mark.parametrize("calibrator", registry.names("calibrator"))
def test_static_runs_every_layer_in_integer_kernels(exported, tmp_path, calibrator):
    """Each calibrator of the recipe: all multiply-accumulates in int8, outputs near fp32."""
    file = tmp_path / "static.onnx"
    static(exported["cnn"], file, Recipe(calibrator=calibrator, per_channel=True), images())
    reference = onnxruntime_layers.layers(exported["cnn"], images(1), optimized=False)
    assert (
        coverage.compute_int8_share(coverage.align_layers(reference, onnxruntime_layers.layers(file, images(1)))) == 1.0
    )
    error = np.abs(onnxruntime_session.run(file, images()) - onnxruntime_session.run(exported["cnn"], images())).max()
    assert 0 < error < 0.1


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_recipe_decides_granularity_and_offset(exported, tmp_path, per_channel, symmetric):
    """Weights per channel or as one tensor, matrix products too; a symmetric activation has no offset."""
    recipe = Recipe(calibrator="minmax", per_channel=per_channel, symmetric=symmetric)
    network = static(exported["cnn"], tmp_path / "static.onnx", recipe, images())
    scales = {site.layer: len(network.record[site.layer].scale_w) for site in network.sites.weights}
    assert sorted(scales.values()) == ([8, 8, 10] if per_channel else [1, 1, 1])
    offsets = {entry.offset_d for entry in network.record.values() if entry.scale_d is not None}
    assert (offsets == {0}) == symmetric


def test_percentile_clips_what_the_recipe_says(exported, tmp_path):
    """A smaller share of the values inside the range gives smaller scales."""
    scales = []
    for percentile in (100.0, 60.0):
        recipe = Recipe(calibrator="percentile", percentile=percentile, per_channel=True)
        scaled = onnx_static.choose_scales(exported["cnn"], recipe, images(), lambda text, share: None)
        scales.append([entry.scale_d for entry in scaled.record.values()])
    assert all(less < more for more, less in zip(*scales, strict=True))


def test_the_frameworks_default_runs_in_integer_kernels(exported, tmp_path):
    """ONNX Runtime's own quantizer with its own choices: per tensor, and every layer in int8 on this CPU."""
    file = tmp_path / "static.onnx"
    onnxruntime_quantizers.framework_static(exported["cnn"], file, Recipe(), images())
    reference = onnxruntime_layers.layers(exported["cnn"], images(1), optimized=False)
    assert (
        coverage.compute_int8_share(coverage.align_layers(reference, onnxruntime_layers.layers(file, images(1)))) == 1.0
    )
    scales = [t for t in onnx.load(str(file)).graph.initializer if t.name.endswith("weight_scale")]
    assert scales
    assert not any(tensor.dims for tensor in scales)


def test_dynamic_covers_the_lstm(exported, tmp_path):
    """LSTM and Gemm run in dynamic integer kernels."""
    file = tmp_path / "dynamic.onnx"
    onnxruntime_quantizers.dynamic(exported["lstm"], file, RECIPE)
    reference = onnxruntime_layers.layers(exported["lstm"], images(1), optimized=False)
    aligned = coverage.align_layers(reference, onnxruntime_layers.layers(file, images(1)))
    assert [entry.operator for entry in aligned] == ["DynamicQuantizeLSTM", "DynamicQuantizeMatMul"]
    assert all(entry.int8 for entry in aligned)


def test_dynamic_weights_have_7_bits_where_products_are_added_in_16(exported, tmp_path, monkeypatch):
    """Without VNNI MatMulInteger adds pairs in 16 bits; the framework's default is left as it is."""

    def largest(recipe):
        notes = onnxruntime_quantizers.dynamic(exported["lstm"], tmp_path / "x.onnx", recipe)
        to_arrays = [
            numpy_helper.to_array(to_array) for to_array in onnx.load(str(tmp_path / "x.onnx")).graph.initializer
        ]
        return bool(notes), max(
            int(np.abs(to_array.astype(int)).max()) for to_array in to_arrays if to_array.dtype == np.int8
        )

    for form, expected in (("U8S8", (False, 127)), ("U8U8", (True, 64))):
        monkeypatch.setattr(onnxruntime_quantizers.deploy_onnxruntime, "form_for", lambda form=form: form)
        assert largest(RECIPE) == expected
        assert largest(replace(RECIPE, target=("avx2",))) == (True, 64)
        assert largest(replace(RECIPE, target=("vnni", "arm"))) == expected
    assert largest(replace(RECIPE, framework_default=True)) == (False, 127)


def test_what_a_dynamic_file_is_for_other_cpus_is_told(exported, tmp_path):
    """How many of its products have narrowed weights; nothing is said of a file for this machine alone."""
    file = tmp_path / "x.onnx"
    onnxruntime_quantizers.dynamic(exported["lstm"], file, RECIPE)
    older, newer = (replace(RECIPE, target=target) for target in (("avx2",), ("vnni", "arm")))
    facts = onnxruntime_quantizers.describe_target(file, older)
    assert (facts.cpus, facts.layers, facts.layers_narrowed) == (("avx2",), 2, 2)
    assert onnxruntime_quantizers.describe_target(file, newer).layers_narrowed == 0
    assert onnxruntime_quantizers.describe_target(file, RECIPE) is None


def test_multiply_accumulates_agree_with_torch(exported):
    """The same network counts the same in both runtimes, by layer name."""
    from qbench.quant.artifacts import torchscript

    ours = torchscript.find_layers(Grouped().eval(), (torch.from_numpy(images(1)[0]),))
    theirs = onnxruntime_layers.layers(exported["grouped"], images(1), optimized=False)
    assert {our.name: our.macs for our in ours} == {our.name: our.macs for our in theirs}
    (recurrent, head) = onnxruntime_layers.layers(exported["lstm"], images(1), optimized=False)
    assert (recurrent.macs, head.macs) == (8 * 4 * 16 * (8 + 16), 160)


def test_skipped_layers_stay_float_by_their_torch_name(exported, tmp_path):
    """skip_layers takes the module's name, which the exporter keeps in the weight's name."""
    file = tmp_path / "static.onnx"
    scaled = static(exported["cnn"], file, Recipe(per_channel=True, skip_layers=("head",)), images())
    reason = "skipped by the recipe (skip_layers, first_layer_float or last_layer_float)"
    assert scaled.float_reasons == {"head": reason}, "a suite has no configuration"
    assert floats(exported["cnn"], file) == ["head"]


def test_a_skipped_layer_that_reads_bytes_says_so(exported, tmp_path):
    """What comes of a convolution in int8 is rounded before the skipped layer reads it; of what it reads of the network
    itself nothing is said."""
    names = [layer.name for layer in onnxruntime_layers.layers(exported["grouped"], images(1), optimized=False)]
    for name, is_rounded in ((names[0], False), (names[1], True)):
        scaled = static(
            exported["grouped"], tmp_path / "static.onnx", Recipe(per_channel=True, skip_layers=(name,)), images()
        )
        said = "what it reads is rounded to int8 all the same" in scaled.float_reasons[name]
        assert said == is_rounded, scaled.float_reasons


def floats(fp32, int8):
    reference = onnxruntime_layers.layers(fp32, images(1), optimized=False)
    return [
        layer.name
        for layer in coverage.align_layers(reference, onnxruntime_layers.layers(int8, images(1)))
        if not layer.int8
    ]


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ({"skip_layers": ("stem",)}, ["stem"]),
        ({"skip_layers": ("h*",)}, ["head"]),
        ({"skip_layers": ("stem", "st*")}, ["stem"]),
        ({"first_layer_float": True}, ["stem"]),
        ({"last_layer_float": True, "first_layer_float": True, "skip_layers": ("head",)}, ["stem", "head"]),
    ],
)
def test_the_recipe_names_what_stays_float(exported, tmp_path, recipe, expected):
    """A module, a pattern, the first and the last layer; naming one twice does no harm."""
    static(exported["cnn"], tmp_path / "static.onnx", Recipe(per_channel=True, **recipe), images())
    assert floats(exported["cnn"], tmp_path / "static.onnx") == expected


@pytest.mark.parametrize("skipped", ["head", "stem"])
def test_a_skipped_layer_stays_float_in_a_dynamic_file(exported, tmp_path, skipped):
    """Also a Linear, whose Gemm the runtime's own quantizer makes a MatMul of another name before it quantizes."""
    onnxruntime_quantizers.dynamic(
        exported["cnn"], tmp_path / "x.onnx", Recipe(per_channel=True, skip_layers=(skipped,))
    )
    assert floats(exported["cnn"], tmp_path / "x.onnx") == [skipped]


@pytest.mark.parametrize("pattern", ["head", "st*"])
def test_a_layer_that_the_recipe_skips_says_so_in_a_dynamic_file(exported, tmp_path, pattern):
    """As in a static one; what the recipe does not name has no reason."""
    onnxruntime_quantizers.dynamic(
        exported["cnn"], tmp_path / "x.onnx", Recipe(per_channel=True, skip_layers=(pattern,))
    )
    reasons = onnx_static.explain_floats(exported["cnn"], (pattern,))
    assert reasons == dict.fromkeys(floats(exported["cnn"], tmp_path / "x.onnx"), "skipped by the recipe (skip_layers)")
    assert onnx_static.explain_floats(exported["cnn"]) == {}


def test_an_unknown_layer_to_skip_lists_those_there_are(exported, tmp_path):
    """A misspelt name must not pass silently."""
    with pytest.raises(BuildError, match=r"no layer named haed that would be quantized; did you mean head\?"):
        static(exported["cnn"], tmp_path / "x.onnx", Recipe(skip_layers=("haed",)), images())
    with pytest.raises(BuildError, match=r"no layer named haed; did you mean head\?"):
        onnxruntime_quantizers.framework_static(
            exported["cnn"], tmp_path / "x.onnx", Recipe(skip_layers=("haed",)), images()
        )


def test_a_broken_file_is_explained(tmp_path):
    """The runtime's own words, without a traceback."""
    file = tmp_path / "broken.onnx"
    file.write_bytes(b"not a model")
    with pytest.raises(BuildError, match="ONNX Runtime cannot load the model"):
        onnxruntime_session.open_session(file)


def test_an_export_that_differs_is_refused(monkeypatch, tmp_path):
    """An exported file that gives other outputs than the module is never used."""
    monkeypatch.setattr(onnxruntime_session, "bind_run", lambda session: lambda inputs: np.full((1, 10), 7.0))
    with pytest.raises(BuildError, match="differs from the torch model"):
        export_torch.export(perceptron(), (torch.from_numpy(images(1)[0]),), tmp_path / "x.onnx")


def test_sessions_do_not_spin():
    """A spinning idle thread would slow whatever is measured beside it."""
    options = onnxruntime_session.session_options(2)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 1)


def covered(fp32, int8):
    example = images(1)
    aligned = coverage.align_layers(
        onnxruntime_layers.layers(fp32, example, optimized=False), onnxruntime_layers.layers(int8, example)
    )
    return [(entry.macs, entry.int8) for entry in aligned]


@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("batch", [1, 4, 40])
def test_a_fixed_batch_is_filled_and_its_layers_count_for_one_example(tmp_path, batch, mode):
    """Calibrated in whole batches, also of more than there are examples; multiply-accumulates at batch size 1."""
    fp32, int8 = save_conv_and_product(tmp_path / "m.onnx", batch=batch), tmp_path / "int8.onnx"
    if mode == "static":
        static(fp32, int8, RECIPE, images())
    else:
        onnxruntime_quantizers.dynamic(fp32, int8, RECIPE)
    assert onnx_file.fixed_batch(int8) == batch
    assert covered(fp32, int8) == [(CONV, True), (PRODUCT, True)]
    inputs = onnx_file.tile_batch(int8, images(1))
    onnx_file.require_repeatable(registry.load("backend", "onnxruntime").open_file, int8, inputs, "onnxruntime")
    assert inputs[0].shape == (batch, 1, 8, 8)


@pytest.mark.parametrize("batch", [5, "n"])
def test_every_example_calibrates(tmp_path, batch):
    """In whole batches, the last one filled up from the first examples, or in batches of any size: none is left out."""
    fp32 = save_conv_and_product(tmp_path / "m.onnx", batch=batch)
    x = images(22)
    x[0][21] = 100.0
    ranges = {}
    for name, calibration in {"all": x, "without": (x[0][:20],)}.items():
        scaled = onnx_static.choose_scales(fp32, RECIPE, calibration, lambda text, share: None)
        ranges[name] = scaled.record["conv"].scale_d
    assert ranges["all"] == pytest.approx(100 / 255)
    assert ranges["without"] < 0.01


def test_nodes_without_names_are_seen(tmp_path):
    """Other exporters leave names out; what ran is found all the same."""
    fp32, int8 = save_conv_and_product(tmp_path / "m.onnx", named=False), tmp_path / "int8.onnx"
    static(fp32, int8, RECIPE, images())
    assert covered(fp32, int8) == [(CONV, True), (PRODUCT, True)]


@pytest.mark.parametrize("opset", [9, 12])
def test_an_old_opset_is_converted_for_scales_per_channel(tmp_path, opset):
    """DequantizeLinear takes one scale per channel from opset 13 on."""
    fp32, int8 = save_conv_and_product(tmp_path / "m.onnx", opset=opset), tmp_path / "int8.onnx"
    static(fp32, int8, RECIPE, images())
    error = np.abs(onnxruntime_session.run(int8, images()) - onnxruntime_session.run(fp32, images())).max()
    assert error < 0.2 * np.abs(onnxruntime_session.run(fp32, images())).max()
    assert covered(fp32, int8) == [(CONV, True), (PRODUCT, True)]


def test_what_the_quantizer_raises_names_no_temporary_file(tmp_path, monkeypatch):
    """One message, without paths that are gone when it is read; memory goes up as it is."""
    import onnxruntime.quantization

    def fail(source, target, **rest):
        raise errors.pop(0)(f"Load model from {source} failed, nothing in {target}")

    errors = [ValueError, MemoryError]
    monkeypatch.setattr(onnxruntime.quantization, "quantize_dynamic", fail)
    fp32 = save_conv_and_product(tmp_path / "m.onnx")
    with pytest.raises(BuildError, match="cannot quantize this model: ValueError: .*the model failed") as raised:
        onnxruntime_quantizers.dynamic(fp32, tmp_path / "x.onnx", RECIPE)
    assert "/" not in str(raised.value)
    with pytest.raises(MemoryError):
        onnxruntime_quantizers.dynamic(fp32, tmp_path / "x.onnx", RECIPE)


def test_a_transposed_convolution_is_counted_as_the_convolution_that_runs(exported, tmp_path):
    """Its windows lie side by side: it runs as a convolution on bytes, of the same name and multiply-accumulates."""
    file = tmp_path / "static.onnx"
    static(exported["grouped"], file, RECIPE, images())
    reference = onnxruntime_layers.layers(exported["grouped"], images(1), optimized=False)
    aligned = coverage.align_layers(reference, onnxruntime_layers.layers(file, images(1)))
    assert [(entry.name, entry.int8) for entry in aligned] == [
        (name, True) for name in ("grouped", "depthwise", "up", "head")
    ]
    assert [entry.macs for entry in aligned] == [entry.macs for entry in reference]


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
    layers = onnxruntime_layers.layers(
        save_conv_and_product(tmp_path / "m.onnx", extra=extra), images(1), optimized=False
    )
    macs = {layer.name: layer.macs for layer in layers}
    assert macs == {"conv": CONV, "computed": 36 * 4 * 4 * 9, "squares": 4 * 6 * 6 * 6, "product": PRODUCT}


def test_randomness_in_the_graph_is_refused(tmp_path):
    """A file whose outputs change by themselves cannot be compared with anything."""
    extra = [
        helper.make_node("RandomNormalLike", ["a"], ["noise"], name="noise"),
        helper.make_node("Add", ["a", "noise"], ["b"], name="add"),
    ]
    file = save_conv_and_product(tmp_path / "m.onnx", extra=extra)
    with pytest.raises(BuildError, match="differ from call to call: is randomness left in its graph"):
        onnx_file.require_repeatable(registry.load("backend", "onnxruntime").open_file, file, images(1), "onnxruntime")


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (NeverAlone, "does not take a batch of 1"),
        (Forgetful, r"dropout at networks\.py:\d+ .* draws at random; turn dropout off"),
        (Branching, "torch.onnx cannot export this model: .*give an ONNX file of the model, or use a torch engine"),
    ],
)
def test_networks_that_cannot_be_exported_say_why(network, words, tmp_path):
    """Before the exporter's own words where the network is at fault."""
    with pytest.raises(BuildError, match=words):
        export_torch.export(network().eval(), (torch.from_numpy(images(1)[0]),), tmp_path / "x.onnx")


class TiedWeights(torch.nn.Module):
    """One table for the tokens and the head, and one Linear that is called twice."""

    def __init__(self):
        super().__init__()
        self.table, self.twice = torch.nn.Embedding(20, 16), torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(16, 20, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        x = self.twice(self.table(tokens)).mean(1)
        return self.head(torch.relu(self.twice(x)))


def test_weights_with_several_readers_are_quantized_dynamically(tmp_path, monkeypatch):
    """ONNX Runtime's quantizer transposes a Gemm's weight under its name: with a second reader (a tied embedding, an
    MLP that is called twice) it raised 'Inferred shape and existing shape differ'. The working folder stays clean."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    fp32, int8 = tmp_path / "files" / "fp32.onnx", tmp_path / "files" / "int8.onnx"
    tokens = torch.arange(12).reshape(2, 6)
    module = TiedWeights().eval()
    export_torch.export(module, (tokens[:1],), fp32)
    onnxruntime_quantizers.dynamic(fp32, int8, Recipe(per_channel=True))
    result = onnxruntime_session.run(int8, (tokens.numpy(),))
    expected = module(tokens).detach().numpy()
    assert np.abs(result - expected).max() < 0.1 * np.abs(expected).max()
    assert [entry.name for entry in tmp_path.iterdir()] == ["files"]


class Padded(torch.nn.Module):
    """An encoder whose outputs at hidden places count."""

    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 1)

    def forward(self, x):
        return self.encoder(x, src_key_padding_mask=x[..., 0] > 0.5)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_encoder_with_a_padding_mask_is_exported_as_its_fast_path_computes_it(tmp_path):
    """The fast path gives zeros where a token is hidden, the exported slow path does not: every ONNX engine refused
    nn.TransformerEncoder with src_key_padding_mask."""
    module = Padded().eval()
    x = torch.rand(4, 6, 16, generator=torch.Generator().manual_seed(0))
    x[..., 0] = (torch.arange(6) >= torch.tensor([[2], [3], [4], [5]])).float()  # hidden at the end only
    with torch.no_grad():
        assert float(module(x)[:, -1].abs().max()) == 0
    plain = canonical.plain_attention(module, (x,))
    assert not any(isinstance(network, torch.nn.TransformerEncoder) for network in plain.modules())
    export_torch.export(plain, (x[:1],), tmp_path / "m.onnx")
    with torch.no_grad():
        np.testing.assert_allclose(
            onnxruntime_session.run(tmp_path / "m.onnx", (x.numpy(),)), module(x).numpy(), atol=1e-4
        )


def test_a_network_without_attention_is_exported_as_it_is():
    """Nothing is copied."""
    module = TiedWeights().eval()
    assert canonical.plain_attention(module, (torch.arange(12).reshape(2, 6),)) is module
