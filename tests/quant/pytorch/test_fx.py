"""The FX flow: what becomes int8 on every engine and what does not; ranges behind clamps; kernels wrong or slow."""

from __future__ import annotations

import copy
import operator
import types
from dataclasses import replace

import pytest
import torch
from networks import LSTMClassifier, NothingToQuantize, ResidualCNN, perceptron, residual_cnn
from torch import nn
from torch.nn import functional

from qbench.errors import BuildError, ModeImpossible
from qbench.quant.artifacts import coverage, torchscript
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import dynamic, exact_integers, fx, packed_layers, qat, torch_ao
from qbench.quant.recipe import Recipe

ENGINES = [engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines]
# 7 bits: right on any CPU; with full ranges weights must leave room for sums of 16 bits.
RECIPE = Recipe(flow="fx", calibrator="minmax", per_channel=True, reduce_range=True)
FULL = Recipe(flow="fx", calibrator="minmax", per_channel=True, reduce_range=False, narrow_weights=True)


@pytest.fixture(autouse=True)
def _as_it_was():
    """Engine and threads are process-global: each test leaves them as they were."""
    engine, threads = torch.backends.quantized.engine, torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.backends.quantized.engine = engine
    torch.set_num_threads(threads)


class Clamped(nn.Module):
    """A clamp of any form behind a convolution whose outputs go far beyond it."""

    def __init__(self, clamp):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.clamp = clamp
        self.last = nn.Conv2d(8, 4, 1)
        with torch.no_grad():
            self.conv.weight *= 60

    def forward(self, x):
        return self.last(self.clamp(self.conv(x)))


class Function(nn.Module):
    """A clamp that is no module of torch's."""

    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, x):
        return self.call(x)


class Mobile(nn.Module):
    """Depthwise, ReLU6 of a sum, pooling that shares a range with a clamp."""

    def __init__(self):
        super().__init__()
        self.stem, self.first = nn.Conv2d(1, 16, 3, padding=1), nn.ReLU6()
        self.depthwise, self.second = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU6()
        self.point = nn.Conv2d(16, 16, 1)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 10)
        with torch.no_grad():
            self.stem.weight *= 20

    def forward(self, x):
        x = self.first(self.stem(x))
        x = functional.relu6(x + self.point(self.second(self.depthwise(x))))
        return self.head(torch.flatten(self.pool(x), 1))


class Decoder(nn.Module):
    """PReLU and transposed convolutions with normalization."""

    def __init__(self, up=(8, 4, 2)):
        super().__init__()
        self.encode, self.act = nn.Conv2d(1, up[0], 3, stride=2, padding=1), nn.PReLU()
        self.up, self.norm, self.relu = nn.ConvTranspose2d(*up, stride=2), nn.BatchNorm2d(up[1]), nn.ReLU()
        self.out = nn.Conv2d(up[1], 1, 1)

    def forward(self, x):
        return self.out(self.relu(self.norm(self.up(self.act(self.encode(x))))))


class Encoder(nn.Module):
    """A transformer block with LayerNorm, functional attention and additions."""

    def __init__(self, width=16):
        super().__init__()
        self.into, self.norm, self.norm2 = nn.Linear(8, width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.act = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), nn.GELU()
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.into(x.squeeze(1))
        q, k, v = self.mix(self.norm(x)).chunk(3, -1)
        x = x + self.out(torch.softmax(q @ k.transpose(-2, -1) / 4, -1) @ v)
        x = x + self.down(self.act(self.up(self.norm2(x))))
        return self.head(x.mean(1))


class Opaque(nn.Module):
    """torch's own encoder layer, which FX takes as one operator."""

    def __init__(self):
        super().__init__()
        self.into, self.head = nn.Linear(8, 16), nn.Linear(16, 10)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, x):
        return self.head(self.block(self.into(x.squeeze(1))).mean(1))


class Bag(nn.Module):
    """An embedding bag in front of a classifier."""

    def __init__(self):
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(20, 16), nn.Linear(16, 10)

    def forward(self, ids):
        return self.head(torch.relu(self.bag(ids)))


class Volume(nn.Module):
    """A small 3-D network."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.relu = nn.Conv3d(1, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU()
        self.b, self.head = nn.Conv3d(8, 8, 3, padding=1), nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.b(self.relu(self.norm(self.a(x)))).mean((2, 3, 4)))


class TwoInputs(nn.Module):
    """An image and a vector, concatenated."""

    def __init__(self):
        super().__init__()
        self.image, self.vector, self.head = nn.Conv2d(1, 8, 3), nn.Linear(4, 8), nn.Linear(16, 10)

    def forward(self, x, y):
        both = [functional.relu6(self.image(x)).mean((2, 3)), torch.relu(self.vector(y))]
        return self.head(torch.cat(both, 1))


def images(n=32, size=8, channels=1):
    return torch.rand(n, channels, size, size, generator=torch.Generator().manual_seed(1))


def batches(*inputs, size=16):
    return lambda: zip(*(tensor.split(size) for tensor in inputs), strict=True)


def quiet(text, share):
    pass


def static(module, engine, recipe=RECIPE, inputs=None):
    """The module made int8 on the engine, and the inputs that it was calibrated on."""
    inputs = (images(),) if inputs is None else inputs
    torch_ao.set_engine(engine)
    example = tuple(tensor[:1] for tensor in inputs)
    return fx.static(QuantizeJob(module.eval(), engine, recipe, example), batches(*inputs))


def call(module, *inputs):
    with torch.inference_mode():
        return module(*inputs)


def decibels(module, int8, *inputs):
    """Signal to noise of the int8 outputs against fp32's."""
    expected, actual = call(module, *inputs), call(int8, *inputs)
    return float(10 * torch.log10(expected.square().sum() / (expected - actual).square().sum()))


def covered(module, int8, *inputs):
    example = tuple(tensor[:1] for tensor in inputs)
    return coverage.align_layers(torchscript.find_layers(module, example), torchscript.find_layers(int8, example))


def operators(int8):
    """What a converted graph calls, by name: types of modules and names of functions and methods."""
    return [
        type(int8.get_submodule(node.target)).__name__ if node.op == "call_module" else str(node.target)
        for node in int8.graph.nodes
    ]


def clamps(int8):
    return [name for name in operators(int8) if any(word in name.lower() for word in ("relu6", "hardtanh", "clamp"))]


IDS = torch.randint(0, 20, (32, 5), generator=torch.Generator().manual_seed(1))
NETWORKS = {
    "residual": (ResidualCNN, (images(),)),
    "mobile": (Mobile, (images(),)),
    "encoder": (Encoder, (images(),)),
    "bag": (Bag, (IDS,)),
    "volume": (Volume, (torch.rand(32, 1, 4, 6, 6),)),
    "two inputs": (TwoInputs, (images(), torch.rand(32, 4))),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_of_a_network_is_int8_and_close(engine, name):
    """All multiply-accumulates of layers run in int8, outputs stay near fp32, and what FX did is repeatable."""
    make, inputs = NETWORKS[name]
    if (engine, name) == ("qnnpack", "volume"):
        pytest.skip("qnnpack has no 3-D convolution; another test holds what is said of it")
    model = make().eval()
    network = static(model, engine, inputs=inputs)
    assert decibels(model, network.module, *inputs) > 25
    assert {entry.operator for entry in covered(model, network.module, *inputs) if not entry.int8} <= {"aten::bmm"}
    assert network.conversion.float_reasons == {}
    again = static(model, engine, inputs=inputs)
    assert torch.equal(call(network.module, *inputs), call(again.module, *inputs))


@pytest.mark.parametrize("mode", ["static", "qat", "dynamic"])
def test_the_fp32_model_is_never_touched(mode):
    """Every flow works on a copy."""
    model = residual_cnn()
    before = copy.deepcopy(model)
    torch_ao.set_engine(ENGINES[0])
    if mode == "static":
        static(model, ENGINES[0])
    elif mode == "qat":
        fx.prepare_qat(QuantizeJob(model, ENGINES[0], Recipe(per_channel=True), (images(1),)))
    else:
        fx.dynamic(QuantizeJob(model, ENGINES[0], Recipe(), (images(1),)))
    assert repr(model) == repr(before)
    assert not any(part.training for part in model.modules())
    assert all(
        torch.equal(a, b) for a, b in zip(model.state_dict().values(), before.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("calibrator", ["moving_average", "histogram", "percentile", "mse"])
def test_every_calibrator_serves(calibrator):
    """Each calibrator of a recipe gives a model near fp32."""
    model = residual_cnn()
    network = static(model, ENGINES[0], Recipe(calibrator=calibrator, per_channel=True, reduce_range=True))
    assert decibels(model, network.module, images()) > 25


CLAMPS = {
    "relu6": nn.ReLU6(),
    "hardtanh": nn.Hardtanh(-1.0, 1.0),
    "hardtanh from zero": nn.Hardtanh(0.0, 2.0),
    "function": Function(functional.relu6),
    "clamp": Function(lambda x: torch.clamp(x, 0, 3)),
    "method": Function(lambda x: x.clamp(min=-1.0, max=2.0)),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize("name", CLAMPS)
def test_ranges_end_where_the_following_clamp_cuts(engine, name, reduce_range):
    """clip_ranges brings less than half the noise of the range that was seen before the clamp, also where weights are
    narrowed and add noise of their own (fbgemm without VNNI: 3.3 dB here, natively 4 and more)."""
    model = Clamped(CLAMPS[name]).eval()
    clipped, wide = (replace(RECIPE if reduce_range else FULL, clip_ranges=clip) for clip in (True, False))
    inputs = images(size=4)
    good, bad = (static(model, engine, recipe, (inputs,)).module for recipe in (clipped, wide))
    assert decibels(model, good, inputs) > decibels(model, bad, inputs) + 3


def test_a_clamp_that_saturation_does_is_gone():
    """With a full range from zero no operator is left for ReLU6; a reduced range does not saturate, and it stays."""
    network = static(Clamped(nn.ReLU6()), ENGINES[0], FULL).module
    stored = static(Clamped(nn.ReLU6()), ENGINES[0], RECIPE).module
    assert clamps(network) == []
    assert clamps(stored) == ["ReLU6"]


def test_a_clamp_whose_range_others_share_stays():
    """In cat(relu6(a), b) the range of b is the wider one: the clamp of a is not removed, and its outputs are cut."""

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.relu6 = nn.Conv2d(1, 4, 1), nn.Conv2d(1, 4, 1), nn.ReLU6()

        def forward(self, x):
            return torch.cat([self.relu6(self.a(x)), self.b(x)], 1)

    model = Shared().eval()
    with torch.no_grad():
        model.a.weight.fill_(40)
        model.b.weight.fill_(20)
    int8 = static(model, ENGINES[0]).module
    actual = call(int8, images())
    assert clamps(int8) == ["ReLU6"]
    assert float(actual[:, :4].max()) <= 6.2
    assert float(actual[:, 4:].max()) > 15


def test_a_clamp_behind_a_float_layer_stays():
    """Where the convolution is skipped nothing saturates: the clamp must not be taken away."""
    model = Clamped(nn.ReLU6()).eval()
    network = static(
        model, ENGINES[0], Recipe(calibrator="minmax", per_channel=True, skip_layers=("conv", "clamp", "last"))
    )
    assert torch.equal(call(network.module, images()), call(model, images()))


@pytest.mark.skipif("qnnpack" not in ENGINES, reason="this torch has no qnnpack")
def test_qnnpacks_clamp_gets_plain_memory():
    """qnnpack's clamp shuffles channels-last int8 tensors (torch 2.13): a clamp that stays is given another format."""
    model = Clamped(nn.ReLU6()).eval()
    inputs = images().contiguous(memory_format=torch.channels_last)
    int8 = static(model, "qnnpack", RECIPE, (inputs,)).module
    assert clamps(int8) == ["ReLU6"]
    assert decibels(model, int8, inputs) > 25
    default = static(model, "qnnpack", Recipe(framework_default=True), (inputs,))
    assert [note for note in default.conversion.notes if "shuffles the values" in note and "keeps 1 of them" in note]
    assert decibels(model, default.module, inputs) < 10


@pytest.mark.skipif("qnnpack" not in ENGINES, reason="this torch has no qnnpack")
def test_a_dead_channel_does_not_overflow_qnnpacks_bias():
    """A channel of zeros has a bias and no weights: bias / (input scale * weight scale) must stay an int32."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 1)).eval()
    with torch.no_grad():
        model[0].weight[1] = 0
        model[0].bias[1] = -6
    assert decibels(model, static(model, "qnnpack", FULL).module, images()) > 30


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("form", ["module", "function"])
def test_zero_padding_works_on_int8(engine, form):
    """Between two int8 layers nothing is dequantized to be padded, and values are those of padding in float."""

    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 4, 3, stride=2)
            self.pad = (
                nn.ZeroPad2d((0, 1, 0, 1)) if form == "module" else Function(lambda x: functional.pad(x, (0, 1, 0, 1)))
            )

        def forward(self, x):
            return self.b(self.pad(self.a(x)))

    model = Padded().eval()
    int8 = static(model, engine).module
    assert operators(int8).count("dequantize") == 1
    assert decibels(model, int8, images()) > 28


def test_what_the_recipe_keeps_float_stays_float_with_its_reason():
    """Names, patterns, first and last layer; a pattern that matches nothing is an error that lists the layers."""
    model = residual_cnn()

    def kept(**choices):
        network = static(model, ENGINES[0], Recipe(calibrator="minmax", per_channel=True, reduce_range=True, **choices))
        layers = covered(model, network.module, images())
        assert [layer.name for layer in layers if not layer.int8] == [
            layer.name for layer in layers if layer.name in network.conversion.float_reasons
        ]
        return dict(network.conversion.float_reasons)

    assert kept(skip_layers=("body",)) == {"body": "skipped by the recipe (skip_layers)"}
    assert list(kept(skip_layers=("s*", "h?ad"))) == ["stem", "head"]
    assert kept(first_layer_float=True) == {"stem": "the first layer stays float (first_layer_float)"}
    assert kept(last_layer_float=True) == {"head": "the last layer stays float (last_layer_float)"}
    with pytest.raises(BuildError, match=r"skip_layers: no layer named bodie, x\*; there are body, head, norm, relu"):
        kept(skip_layers=("bodie", "x*"))


def test_the_sums_of_a_transformer_stay_float():
    """Their additions run in float between int8 layers; a network without LayerNorm keeps its int8 additions."""
    encoder = Encoder().eval()
    network = static(encoder, ENGINES[0])
    assert not any(name.startswith("quantized.add") for name in operators(network.module))
    assert all(
        entry.int8
        for entry in covered(encoder, network.module, images())
        if entry.name in dict(encoder.named_modules())
    )
    assert decibels(encoder, network.module, images()) > 20
    assert any(name.startswith("quantized.add") for name in operators(static(residual_cnn(), ENGINES[0]).module))


def test_recurrent_and_opaque_layers_stay_float_with_their_reason():
    """An LSTM has no static kernel, and FX does not look into torch's own encoder layer; both are said by name."""
    lstm, opaque = LSTMClassifier().eval(), Opaque().eval()
    assert static(lstm, ENGINES[0]).conversion.float_reasons == {
        "lstm": "torch has no static int8 kernel for it; use dynamic"
    }
    reasons = static(opaque, ENGINES[0]).conversion.float_reasons
    assert "FX does not look into TransformerEncoderLayer (block)" in reasons["block.linear1"]
    assert {"into", "head"} & set(reasons) == set()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("up", [(8, 4, 2), (8, 8, 2), (8, 8, 3), (4, 8, 3)])
def test_transposed_convolutions_are_right_or_float(engine, up):
    """Per-channel recipes give a transposed convolution per-tensor weights; where the engine's kernel is wrong for its
    shape on this CPU it stays float and says so."""
    model = Decoder(up).eval()
    network = static(model, engine)
    assert decibels(model, network.module, images()) > 15
    layers = {entry.name: entry.int8 for entry in covered(model, network.module, images())}
    assert layers["encode"]
    assert layers["up"] == ("up" not in network.conversion.float_reasons)
    assert all("wrongly on this CPU" in reason for reason in network.conversion.float_reasons.values())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("slopes", [1, 8])
def test_prelu_is_right_or_float(engine, slopes):
    """torch's int8 PReLU multiplies positive values, too (2.13, vectorized): one slope runs as the LeakyReLU that it
    is, several stay float where the kernel is wrong, and so does one in QAT."""
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.PReLU(slopes), nn.Conv2d(8, 4, 1)).eval()
    int8 = static(model, engine).module
    assert decibels(model, int8, images()) > 25
    assert ("LeakyReLU" in operators(int8)) == (slopes == 1)
    prepared = trained(model, engine)
    assert (
        decibels(prepared.eval(), fx.convert_qat(QuantizeJob(prepared, engine, QAT, (images(1),))).module, images())
        > 25
    )


@pytest.mark.skipif("qnnpack" not in ENGINES, reason="this torch has no qnnpack")
def test_what_an_engine_cannot_do_stays_float_with_its_words():
    """qnnpack has no 3-D convolution: the network works, its layers are named with what qnnpack says."""
    model, x = Volume().eval(), torch.rand(8, 1, 4, 6, 6)
    network = static(model, "qnnpack", inputs=(x,))
    assert decibels(model, network.module, x) > 25
    assert set(network.conversion.float_reasons) == {"a", "b"}
    assert all(
        reason.startswith("qnnpack has no kernel for it: ") for reason in network.conversion.float_reasons.values()
    )


@pytest.mark.skipif("qnnpack" not in ENGINES, reason="this torch has no qnnpack")
def test_a_pool_that_qnnpack_lacks_is_a_skip():
    """It has no max_pool3d on bytes: the reason says so and names what has."""
    model = nn.Sequential(nn.Conv3d(1, 4, 3), nn.ReLU(), nn.MaxPool3d(2), nn.Flatten(), nn.Linear(108, 3)).eval()
    with pytest.raises(ModeImpossible, match="quantized_max_pool3d.*use another engine"):
        static(model, "qnnpack", RECIPE, (torch.randn(16, 1, 8, 8, 8),))


class OneEnd(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, x):
        return self.b(torch.clamp(self.a(x), min=0.1))


@pytest.mark.skipif("qnnpack" not in ENGINES, reason="this torch has no qnnpack")
def test_a_clamp_with_one_end_is_a_skip_on_qnnpack():
    """torch clamps bytes there with both ends only: the reason names what else runs the network."""
    with pytest.raises(ModeImpossible, match="quantized clamp.*use another engine"):
        static(OneEnd().eval(), "qnnpack", RECIPE)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_frameworks_default_is_torchs_own_flow(engine):
    """framework_default gives bit for bit what torch's own steps give: default mapping, prepare, calibrate, convert."""
    model, x = residual_cnn(), images()
    network = static(model, engine, Recipe(framework_default=True, calibrator=None, clip_ranges=False), (x,))
    with torch_ao.known_warnings(), torch.inference_mode():
        mapping = torch_ao.get_default_qconfig_mapping(engine)
        prepared = torch_ao.prepare_fx(copy.deepcopy(model), mapping, (x[:1],))
        for batch in x.split(16):
            prepared(batch)
        theirs = torch_ao.convert_fx(prepared)
    assert torch.equal(call(network.module, x), call(theirs, x))


def test_a_framework_default_that_torch_itself_refuses_is_explained():
    """onednn's default asks for per-channel weights in a transposed convolution, which torch asserts against."""
    with pytest.raises(BuildError, match=r"torch.ao refuses this recipe for this model: Per channel.*skip_layers"):
        static(Decoder(), "onednn", Recipe(framework_default=True))


def test_the_engine_of_the_process_must_be_the_engine_asked_for():
    """Weights are packed for the engine that is set: another one is refused, in every mode."""
    first, other = ENGINES[:2]
    model, example = perceptron(), (images(1),)
    torch_ao.set_engine(first)
    for refused in (
        lambda: fx.static(QuantizeJob(model, other, RECIPE, example), batches(images())),
        lambda: fx.dynamic(QuantizeJob(model, other, RECIPE, example)),
        lambda: dynamic.by_module(QuantizeJob(model, other, RECIPE, example)),
        lambda: fx.prepare_qat(QuantizeJob(model, other, Recipe(per_channel=True), example)),
    ):
        with pytest.raises(BuildError, match=f"engine is '{first}'.*set_engine.'{other}'"):
            refused()


def test_static_without_calibration_is_refused():
    """torch only warns and returns zeros; no batches, or empty ones, are refused by the name of the layer."""
    torch_ao.set_engine(ENGINES[0])
    for nothing in (lambda: iter([]), lambda: iter([(images(0),)])):
        with pytest.raises(BuildError, match="calibration observed nothing at .*first.*unused"):
            fx.static(QuantizeJob(perceptron(), ENGINES[0], RECIPE, (images(1),)), nothing)


@pytest.mark.parametrize("calibrator", ["minmax", "histogram", "percentile", "mse"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_calibration_on_values_that_are_no_numbers_is_refused(calibrator, value):
    """A NaN would become a scale: it is refused with the place; infinite values likewise."""
    x = images()
    x[3, 0, 2, 2] = value
    with pytest.raises(BuildError, match=r"calibration met infinite values or NaN at .*check their preprocessing"):
        static(residual_cnn(), ENGINES[0], Recipe(calibrator=calibrator, per_channel=True), (x,))


class Untraced(nn.Module):
    """Does before its layer what FX cannot follow."""

    def __init__(self, before):
        super().__init__()
        self.before, self.head = before, nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.before(torch.flatten(x, 1)))


BRANCHES = "its control flow depends on values or shapes; rewrite that part with tensor operations"
NUMBERS = (
    "a number is needed where FX has a stand-in for a tensor or its shape; rewrite that part with tensor operations"
)


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (lambda x: -x if x.sum() > 0 else x, BRANCHES),
        (lambda x: sum(row for row in x.split(1)) + x, BRANCHES),
        (lambda x: x * float(x.sum()), NUMBERS),
        (lambda x: x * len(range(x.shape[1])), NUMBERS),
        (lambda x: x * {torch.float32: 1.0}[x.dtype], "its forward fails on FX's stand-ins for tensors, though not on"),
    ],
    ids=["branch", "loop", "number", "shape", "lookup"],
)
def test_what_fx_cannot_follow_is_told_by_its_kind(before, said):
    """Control flow, a number, or a line that fails on stand-ins alone; with that line, and by no other cause."""
    with pytest.raises(BuildError, match=r"^FX cannot trace this model \(.* at test_fx.py:\d+\): ") as refused:
        static(Untraced(before), ENGINES[0])
    assert said in str(refused.value)


def test_depthwise_shapes_without_a_fast_kernel_are_named():
    """fbgemm has fast grouped kernels for few shapes; others are named with their shape, and only there."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.Conv2d(16, 16, 5, padding=2, stride=2, groups=16),
        nn.Conv2d(16, 16, 3, stride=2, groups=16, padding=0),
        nn.Conv2d(16, 16, 3, padding=1),
    ).eval()
    for engine in ENGINES:
        network = static(model, engine, inputs=(images(4, 24),))
        notes = [note for note in network.conversion.notes if "slow path" in note]
        if engine == "fbgemm":
            assert notes == [
                "1 grouped convolution takes fbgemm's slow path, many times slower than fp32: 3 (16 groups, kernel "
                "3x3, stride 2x2, padding 0x0); the engine onednn has fast kernels for them"
            ]
        elif engine in ("onednn", "qnnpack"):
            assert notes == []


@pytest.mark.parametrize("engine", ENGINES)
def test_full_ranges_are_finer_than_reduced_ones(engine):
    """8 bits of activations have less noise than 7 on every CPU, also where weights get wider steps for them."""
    model, x = residual_cnn(), images()
    full, reduced = (decibels(model, static(model, engine, recipe).module, x) for recipe in (FULL, RECIPE))
    assert full > reduced + 1


def test_a_layer_whose_kernel_is_wrong_on_calibration_examples_stays_float(monkeypatch):
    """It is built once more without that layer, which is named with the reason."""
    requests = []

    def compare(int8, examples):
        names = [layer.name for layer in packed_layers.layers(int8)]
        requests.append(names)
        return exact_integers.Compared(
            layers=len(names), examples=4, off=dict.fromkeys(names[1:2], 0.25) if len(requests) == 1 else {}
        )

    monkeypatch.setattr(exact_integers, "compare", compare)
    network = static(residual_cnn(), ENGINES[0], FULL)
    wrong = requests[0][1]
    assert len(requests) == 2
    assert wrong not in requests[1]
    assert (
        network.conversion.float_reasons[wrong]
        == "its int8 kernel differs from exact integers in 25.0% of its outputs on this CPU"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_dynamic_covers_linear_and_recurrent_layers(engine):
    """FX's dynamic flow and the exchange of modules give the same int8 layers, near fp32."""
    torch_ao.set_engine(engine)
    model, example = LSTMClassifier().eval(), (images(1),)
    for result in (
        fx.dynamic(QuantizeJob(model, engine, Recipe(), example)),
        dynamic.by_module(QuantizeJob(model, engine, Recipe(), example)),
    ):
        assert all(entry.int8 for entry in covered(model, result.module, images()))
        assert decibels(model, result.module, images()) > 25
        assert result.conversion.float_reasons == {}


def test_dynamic_per_channel_concerns_linear_only():
    """Recurrent kernels are per tensor; Linear's are what the recipe says."""
    torch_ao.set_engine(ENGINES[0])
    for per_channel in (False, True):
        job = QuantizeJob(LSTMClassifier().eval(), ENGINES[0], Recipe(per_channel=per_channel), (images(1),))
        configurations = dynamic.configurations(job)
        schemes = {name: config.weight().qscheme for name, config in configurations.items()}
        assert schemes["lstm"] == torch.per_tensor_symmetric
        assert schemes["head"] == (torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric)


@pytest.mark.parametrize("flow", [fx.dynamic, dynamic.by_module])
def test_dynamic_says_what_stays_float(flow):
    """Convolutions and skipped layers are named with the reason; nothing left is an error that says what to use."""
    torch_ao.set_engine(ENGINES[0])
    example = (images(1),)
    quantized = flow(QuantizeJob(residual_cnn(), ENGINES[0], Recipe(), example))
    assert set(quantized.conversion.float_reasons) == {"stem", "body"}
    skipped = flow(QuantizeJob(perceptron(), ENGINES[0], Recipe(skip_layers=("first",)), example))
    assert skipped.conversion.float_reasons == {"first": "skipped by the recipe (skip_layers)"}
    assert [entry.int8 for entry in covered(perceptron(), skipped.module, images())] == [False, True]
    with pytest.raises(BuildError, match="use static instead"):
        flow(QuantizeJob(NothingToQuantize(), ENGINES[0], Recipe(), example))
    with pytest.raises(BuildError, match="no layer named frist; there are first, second"):
        flow(QuantizeJob(perceptron(), ENGINES[0], Recipe(skip_layers=("frist",)), example))


QAT = Recipe(flow="fx", calibrator="moving_average", per_channel=True, reduce_range=True)


def trained(model, engine, recipe=QAT, steps=4, inputs=None):
    """The fake-quantized model after a few steps on a loss that pulls outputs to zero."""
    torch_ao.set_engine(engine)
    inputs = (images(),) if inputs is None else inputs
    prepared = fx.prepare_qat(QuantizeJob(model, engine, recipe, tuple(tensor[:1] for tensor in inputs)))
    optimizer = torch.optim.SGD(prepared.parameters(), 1e-3)
    for _ in range(steps):
        loss = prepared(*inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return prepared


@pytest.mark.parametrize("engine", ENGINES)
def test_qat_becomes_the_int8_model_that_it_simulates(engine):
    """The converted model gives what the fake-quantized one gave, all layers are int8, the prepared one still works."""
    model = Mobile().eval()
    prepared = trained(model, engine)
    fx.freeze_observers(prepared)
    fx.freeze_batch_norm(prepared)
    fx.qat_modes(prepared, False)
    simulated = call(prepared, images())
    converted = fx.convert_qat(QuantizeJob(prepared, engine, QAT, (images(1),)))
    assert decibels(lambda x: simulated, converted.module, images()) > 30
    assert all(entry.int8 for entry in covered(model, converted.module, images()))
    assert torch.equal(call(prepared, images()), simulated)
    fx.qat_modes(prepared, True)
    fx.convert_qat(QuantizeJob(prepared, engine, QAT, (images(1),)))
    assert all(part.training for part in prepared.modules() if not isinstance(part, nn.BatchNorm2d))


def test_frozen_statistics_stay_frozen_in_training_mode():
    """After freezing, neither scales nor BatchNorm statistics move, fused or on their own, whatever mode is set."""

    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
            self.relu, self.alone = nn.ReLU(), nn.BatchNorm2d(4)

        def forward(self, x):
            return self.alone(self.relu(self.norm(self.conv(x))))

    def moving(prepared):
        words = ("running_", "scale", "zero_point", "min_val", "max_val")
        state = prepared.state_dict().items()
        copies = (
            value.clone() for name, value in state if any(word in name for word in words) and "weight_fake" not in name
        )
        return list(copies)

    prepared = trained(Alone().eval(), ENGINES[0])
    before = moving(prepared)
    prepared(images() * 5)
    assert not all(torch.equal(a, b) for a, b in zip(moving(prepared), before, strict=True))
    fx.freeze_observers(prepared)
    fx.freeze_batch_norm(prepared)
    fx.qat_modes(prepared, True)
    before = moving(prepared)
    prepared(images() * 9)
    assert prepared.training
    assert all(torch.equal(a, b) for a, b in zip(moving(prepared), before, strict=True))


def test_a_qat_without_fake_quantize_is_refused():
    """What would be plain fp32 training is not called QAT."""
    torch_ao.set_engine(ENGINES[0])
    with pytest.raises(BuildError, match="no fake-quantize"):
        fx.prepare_qat(QuantizeJob(NothingToQuantize(), ENGINES[0], QAT, (images(1),)))


def test_qat_keeps_what_the_recipe_keeps_float():
    """A skipped layer and an opaque one train in float, and the converted model says why."""
    recipe = Recipe(calibrator="moving_average", per_channel=True, skip_layers=("head",))
    prepared = trained(Opaque().eval(), ENGINES[0], recipe)
    converted = fx.convert_qat(QuantizeJob(prepared, ENGINES[0], recipe, (images(1),)))
    assert converted.conversion.float_reasons["head"] == "skipped by the recipe (skip_layers)"
    assert [entry.name for entry in covered(Opaque().eval(), converted.module, images()) if entry.int8] == ["into"]


def test_a_saved_model_gives_what_its_module_gives(tmp_path):
    """With every rewrite in it (no clamps, padding in int8, layers left float) the file is bit-equal to the module."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU6(),
        nn.ZeroPad2d((0, 1, 0, 1)),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.ConvTranspose2d(8, 8, 2),
    ).eval()
    for engine in ENGINES:
        network = static(model, engine)
        torchscript.save(network.module, (images(4),), tmp_path / f"{engine}.pt")
        assert torch.equal(call(torchscript.load(tmp_path / f"{engine}.pt"), images()), call(network.module, images()))


class Behind(nn.Module):
    """A sigmoid whose input comes from outside, or from a layer that may stay float."""

    def __init__(self, function):
        super().__init__()
        self.function, self.before, self.last = function, nn.Linear(6, 6), nn.Linear(12, 3)

    def forward(self, x):
        return self.last(torch.cat([self.function(x), self.function(self.before(x) * 4)], 1))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("function", [torch.sigmoid, torch.tanh, nn.Sigmoid(), nn.Hardsigmoid()])
def test_the_input_of_a_function_of_fixed_range_is_not_clipped_to_that_range(function, training):
    """torch gives what comes into a sigmoid from outside the sigmoid's own output range, 0..1: half of it is lost."""
    engine = ENGINES[-1]
    torch_ao.set_engine(engine)
    model, x = Behind(function).eval(), torch.randn(512, 6) * 3
    recipe = Recipe(flow="fx", calibrator="minmax", per_channel=True, reduce_range=False, skip_layers=("before",))
    if training:
        prepared = fx.prepare_qat(QuantizeJob(model, engine, recipe, (x[:2],)))
        prepared(x)
        fx.freeze_observers(prepared)
        int8 = fx.convert_qat(QuantizeJob(prepared, engine, recipe, (x[:1],))).module
    else:
        int8 = fx.static(QuantizeJob(model, engine, recipe, (x[:1],)), lambda: iter([(x,)])).module
    with torch.no_grad():
        expected = model(x)
        error = (int8(x) - expected).square().mean() / (expected - expected.mean(0)).square().mean()
    assert error < 0.01


class Twice(nn.Module):
    """One layer is called on large values and then on small ones."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        large = self.layer(8 * x)
        return torch.cat([large, self.layer(torch.relu(large) / 64)], 1)


def test_the_range_of_a_layer_that_is_called_twice_holds_the_outputs_of_both_calls():
    """A converted layer has one output scale, and FX takes that of the last call: the outputs of the first were clipped
    to it (1 dB)."""
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
    module = Twice(nn.Linear(16, 16)).eval()
    int8 = static(module, ENGINES[0], inputs=(x,)).module
    expected, actual = call(module, x)[:, :16], call(int8, x)[:, :16]
    assert float(10 * torch.log10(expected.square().sum() / (expected - actual).square().sum())) > 15


class Odd(nn.Module):
    """A convolution around which something runs that int8 cannot hold."""

    def __init__(self, between):
        super().__init__()
        self.a, self.b, self.between = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1), between

    def forward(self, x):
        return self.b(self.between(self.a(x)))


def hidden(x):
    """Scores with a mask of -inf made of their values, weighed by a softmax."""
    mask = torch.zeros_like(x).masked_fill(x < x.mean(-1, keepdim=True), float("-inf"))
    return torch.softmax(x + mask.unsqueeze(0).squeeze(0), -1)


ODD = {
    "a comparison": lambda x: torch.where(x > x.mean((2, 3), keepdim=True), x, 0.1 * x),
    "a product with booleans": lambda x: x * (x > 0) * ((x > 0.1) & (x < 0.5)).float(),
    "booleans side by side": lambda x: torch.cat([x > 0, x > 1], 1).unsqueeze(0).squeeze(0)[:, :8] * x,
    "a complex spectrum": lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2, s=(8, 8)),
    "a number of a shape": lambda x: (x * (x.shape[1] // 2) ** -0.5) @ x.transpose(2, 3),
    "a mask of -inf": hidden,
}


@pytest.mark.parametrize("kind", ODD)
def test_what_int8_cannot_hold_stays_as_it_is(kind):
    """Booleans and complex numbers ended in 'Quantize only works on Float Tensor', a number that a shape gives in an
    observer without numel, a mask of -inf in a word about the data; the convolutions are int8 beside them."""
    module = Odd(ODD[kind])
    int8 = static(module, ENGINES[0], inputs=(images() - 0.3,)).module
    assert decibels(module, int8, images() - 0.3) > 15
    assert sum(layer.int8 for layer in covered(module, int8, images() - 0.3)) == 2


def test_a_mask_trains():
    """-inf has no scale: QAT leaves it float, and its loss is a number."""
    module = Odd(hidden).eval()
    torch_ao.set_engine(ENGINES[0])
    recipe = Recipe(flow="fx", per_channel=True, epochs=1, batch_size=8, learning_rate=1e-4)
    trained = qat.train(fx, QuantizeJob(module, ENGINES[0], recipe, (images(1) - 0.3,)), (images() - 0.3,), None)
    assert decibels(module, trained.module, images() - 0.3) > 10


def test_an_infinite_output_is_still_blamed_on_the_data():
    """A mask leaves the outputs finite; what does not is no mask."""
    with pytest.raises(BuildError, match="calibration met infinite values or NaN"):
        static(Odd(lambda x: x / (x - x)), ENGINES[0])
    with pytest.raises(BuildError, match="calibration met infinite values or NaN"):
        static(Odd(lambda x: x.masked_fill(x > 0, float("-inf"))), ENGINES[0])


class Parts(nn.Module):
    """Opaque layers of torch's among containers, in a network that is no container."""

    def __init__(self):
        super().__init__()
        self.block, self.inner = nn.TransformerEncoderLayer(4, 1, 4), nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 4))
        self.many, self.named = nn.ModuleList([nn.PReLU()]), nn.ModuleDict({"a": nn.Embedding(2, 2)})
        self.bare = nn.Module()
        self.bare.last = nn.Linear(4, 4)


@pytest.mark.parametrize("kind", ["own recipe", "framework's default", "author's"])
def test_a_mapping_keeps_float_what_has_no_kernel_and_what_is_named(kind):
    """In each kind of recipe: layers that FX takes as one operator, and those that were left out, by name. Only
    qbench's own recipe says anything of types; what the author said stays as it was."""
    authors = torch_ao.QConfigMapping().set_module_name("bare.last", "as it is")
    given = types.SimpleNamespace(mapping=authors) if kind == "author's" else None
    recipe = RECIPE if kind == "own recipe" else Recipe(framework_default=True)
    mapping = fx.mapping(Parts(), "onednn", recipe, {"inner.0": "kept"}, training=False, own=given)
    floats = [name for name, config in mapping.module_name_qconfigs.items() if config is None]
    assert floats == ["block", "block.self_attn", "inner.1", "named.a", "inner.0"]
    assert list(authors.module_name_qconfigs) == ["bare.last"]
    assert ("bare.last" in mapping.module_name_qconfigs) == (kind == "author's")
    left = {called for called, config in mapping.object_type_qconfigs.items() if config is None}
    assert ({torch.matmul, torch.bmm, nn.LayerNorm, functional.layer_norm, torch.add} <= left) == (kind == "own recipe")


@pytest.mark.parametrize("engine", ["fbgemm", "onednn"])
@pytest.mark.parametrize("training", [False, True])
def test_a_mapping_has_the_recipe_s_observers_in_the_place_of_the_engine_s(training, engine):
    """For all layers, and for the functions of those that need another; a network without a norm keeps its sums, and a
    function of a fixed range its own. A network that is one opaque layer is not left out of itself."""
    mapping = fx.mapping(nn.TransformerEncoderLayer(4, 1, 4), engine, RECIPE, {}, training=training)
    assert "" not in mapping.module_name_qconfigs
    mapping = fx.mapping(nn.Conv2d(1, 1, 1), engine, RECIPE, {}, training=training)
    with torch_ao.known_warnings():
        default, kinds = torch_ao.get_default_qconfig_mapping(engine), mapping.object_type_qconfigs
    assert mapping.global_qconfig.activation().quant_max == 127
    theirs = {kind for kind, config in default.object_type_qconfigs.items() if config == default.global_qconfig}
    assert all(kinds[kind].activation().quant_max == 127 for kind in theirs)
    for layer, called in (
        (nn.ConvTranspose1d, functional.conv_transpose1d),
        (nn.ConvTranspose2d, functional.conv_transpose2d),
        (nn.ConvTranspose3d, functional.conv_transpose3d),
    ):
        assert kinds[layer].weight().qscheme == kinds[called].weight().qscheme == torch.per_tensor_symmetric
    assert kinds[nn.PReLU].weight().dtype == torch.quint8
    assert kinds[nn.LayerNorm].weight().dtype == kinds[functional.layer_norm].weight().dtype == torch.float32
    assert kinds[nn.Sigmoid].activation().zero_point == default.object_type_qconfigs[nn.Sigmoid].activation().zero_point
    assert operator.add not in kinds


def test_fake_quantization_of_weights_is_told_by_its_type():
    """That of activations is none, nor is an observer."""
    weight = torch_ao.FakeQuantize(dtype=torch.qint8, quant_min=-128, quant_max=127)
    others = (torch_ao.FakeQuantize(), torch_ao.MinMaxObserver(dtype=torch.qint8), nn.Linear(1, 1))
    assert [fx._fakes_weights(part) for part in (weight, *others)] == [True, False, False, False]


class Skipping(nn.Module):
    """A float layer of an opaque part, one that is named, one without a kernel, and one that was left as it was."""

    def __init__(self):
        super().__init__()
        self.deep = nn.ModuleDict({"block": Opaque().block})
        self.named, self.table, self.plain, self.unused = (nn.Linear(16, 16) for _ in range(4))
        self.table, self.act = nn.LSTM(16, 16), nn.ReLU()

    def forward(self, x):
        return self.act(self.plain(self.table(self.named(self.deep["block"](x)))[0]))


def test_why_layers_of_a_converted_graph_are_float():
    """Whatever around them FX took as one operator, the recipe's word, no kernel, or no pattern; of what does not run,
    and of what multiplies nothing, nothing is said."""
    module = Skipping()

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return not isinstance(m, Skipping | nn.ModuleDict)

    graph = torch.fx.GraphModule(module, Tracer().trace(module))
    closed = "FX does not look into TransformerEncoderLayer (deep.block); build it of its parts to quantize them"
    inside = {name for name, part in module.named_modules() if name.startswith("deep.block.") and "linear" in name}
    inside |= {"deep.block.self_attn.out_proj"}
    reasons = fx._float_reasons(module, graph, {"named": "kept"})
    assert {name: why for name, why in reasons.items() if why == closed}.keys() == inside
    assert {name: why for name, why in reasons.items() if why != closed} == {
        "named": "kept",
        "table": "torch has no static int8 kernel for it; use dynamic",
        "deep.block.self_attn": "torch has no static int8 kernel for it; use dynamic",
        "plain": "FX has no int8 kernel for it as it stands in this network (pattern not matched)",
    }
