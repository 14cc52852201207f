"""The eager flow: stubs, fusion and float islands in networks that were not written for them."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from networks import Branching, NothingToQuantize, lstm, perceptron, residual_cnn
from torch import nn
from torch.nn import functional

from qbench.errors import BuildError, ModeImpossible
from qbench.quant.artifacts import coverage, torchscript
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import eager, exact_integers, packed_layers, torch_ao
from qbench.quant.pytorch.eager import operator_support
from qbench.quant.pytorch.torch_ao import DeQuantStub, FloatFunctional, QuantStub
from qbench.quant.recipe import Recipe

ENGINES = [engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines]
ENGINE = ENGINES[0]
# Seven bits: no kernel saturates, whatever the CPU has.
RECIPE = Recipe(calibrator="minmax", per_channel=True, symmetric=False, reduce_range=True, clip_ranges=True)
QAT = replace(RECIPE, calibrator="moving_average")


@pytest.fixture(autouse=True)
def _process_state():
    """The engine and the number of threads are process-global: each test leaves them as they were."""
    before, threads = torch.backends.quantized.engine, torch.get_num_threads()
    torch.set_num_threads(1)
    torch_ao.set_engine(ENGINE)
    yield
    torch.set_num_threads(threads)
    torch.backends.quantized.engine = before


class Mobile(nn.Module):
    """Depthwise and pointwise convolutions, BatchNorm and ReLU6, which one module and one function share."""

    def __init__(self, gain=1.0):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False)
        self.norm2 = nn.BatchNorm2d(16)
        self.point = nn.Conv2d(16, 32, 1)
        self.act = nn.ReLU6()
        self.head = nn.Linear(32, 10)
        self.gain = gain

    def forward(self, x):
        x = self.act(self.norm(self.stem(x)) * self.gain if self.gain != 1 else self.norm(self.stem(x)))
        x = functional.relu6(self.norm2(self.depthwise(x)))
        return self.head(functional.relu6(self.point(x)).mean((2, 3)))


class Decoder(nn.Module):
    """PReLU and a transposed convolution."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 8, 3, stride=2, padding=1)
        self.slopes = nn.PReLU(8)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.norm = nn.BatchNorm2d(4)
        self.slope = nn.PReLU()
        self.out = nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x):
        return self.out(self.slope(self.norm(self.up(self.slopes(self.down(x))))))


class Encoder(nn.Module):
    """A transformer encoder written by hand: functional additions, LayerNorm, attention of Linear layers."""

    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.position = nn.Parameter(torch.randn(1, 8, width) * 0.1)
        self.query, self.key, self.value, self.mix = (nn.Linear(width, width) for _ in range(4))
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 32), nn.Linear(32, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.embed(x.squeeze(1)) + self.position
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 4
        x = self.norm(x + self.mix(torch.softmax(scores, -1) @ self.value(x)))
        x = self.norm2(x + self.narrow(functional.gelu(self.wide(x))))
        return self.head(x.mean(1))


class TorchEncoder(nn.Module):
    """torch's own encoder layers."""

    def __init__(self, masked=False):
        super().__init__()
        self.embed = nn.Linear(8, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 10)
        self.masked = masked

    def forward(self, x):
        x = self.embed(x.squeeze(1))
        mask = torch.zeros(8, 8) if self.masked else None
        return self.head(self.encoder(x, mask=mask).mean(1))


class Bag(nn.Module):
    """Token ids in, an EmbeddingBag first."""

    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(32, 16, mode="mean")
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, ids):
        return self.second(torch.relu(self.first(self.bag(ids))))


class Volume(nn.Module):
    """3-D convolutions with a residual addition."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv3d(1, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm3d(8)
        self.second = nn.Conv3d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = functional.max_pool3d(functional.relu(self.norm(self.first(x))), 2)
        x = functional.relu(self.second(x)) + x
        return self.head(torch.flatten(functional.adaptive_avg_pool3d(x, 1), 1))


class Two(nn.Module):
    """Two inputs that meet in a concatenation, a product and a sum."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(8, 16), nn.Linear(4, 16)
        self.both, self.head = nn.Linear(32, 16), nn.Linear(16, 3)

    def forward(self, x, y):
        x, y = functional.relu(self.left(x)), functional.relu(self.right(y))
        return self.head(functional.relu(self.both(torch.cat([x, y], 1))) * x + y)


class Forking(nn.Module):
    """Control flow on values between parts that FX can trace."""

    def __init__(self, level=0.0):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.high, self.low = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 10)
        self.level = level

    def forward(self, x):
        large = float(x[0].mean()) > self.level
        x = self.stem(x)
        x = self.high(x) if large else self.low(x)
        return self.head(functional.relu(x).mean((2, 3)))


class Stubbed(nn.Module):
    """The seed's module: stubs placed by hand around Conv and ReLU."""

    def __init__(self):
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.conv = nn.Conv2d(1, 4, 1)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.dequant(self.relu(self.conv(self.quant(x))))


class Of(nn.Module):
    """A function of a network's layers, which are given by name."""

    def __init__(self, function, **layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def sandwich(*layers):
    """Layers one after the other, named a, act and b."""
    numbers = dict(zip(("a", "act", "b"), layers, strict=True))
    return make_network(lambda: Of(lambda own, x: own.b(own.act(own.a(x))), **numbers))


def make_network(make, *arguments):
    """A seeded network in eval mode, its BatchNorm statistics as after a training."""
    torch.manual_seed(0)
    module = make(*arguments)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d | nn.BatchNorm3d):
            part.running_mean.normal_(0, 0.2)
            part.running_var.uniform_(0.5, 1.5)
    return module.eval()


def noise(*shape, n=16):
    return (torch.randn(n, *shape, generator=torch.Generator().manual_seed(1)),)


def ids():
    return (torch.randint(0, 32, (16, 5), generator=torch.Generator().manual_seed(1)),)


KINDS = {
    "residual": (lambda: residual_cnn(), noise(1, 8, 8)),
    "depthwise": (lambda: make_network(Mobile), noise(3, 16, 16)),
    "decoder": (lambda: make_network(Decoder), noise(1, 8, 8)),
    "encoder": (lambda: make_network(Encoder), noise(1, 8, 8)),
    "torch encoder": (lambda: make_network(TorchEncoder), noise(1, 8, 8)),
    "bag": (lambda: make_network(Bag), ids()),
    "volume": (lambda: make_network(Volume), noise(1, 6, 6, 6)),
    "two inputs": (lambda: make_network(Two), noise(8) + noise(4)),
    "control flow": (lambda: make_network(Forking), noise(1, 8, 8)),
    "branching": (lambda: make_network(Branching), noise(1, 8, 8)),
    "by hand": (lambda: make_network(Stubbed), noise(1, 8, 8)),
}


def batches(inputs, size=4):
    return lambda: (tuple(array[i : i + size] for array in inputs) for i in range(0, len(inputs[0]), size))


def static(module, inputs, recipe=RECIPE, engine=ENGINE, size=4):
    torch_ao.set_engine(engine)
    example = tuple(array[:1] for array in inputs)
    return eager.static(QuantizeJob(module, engine, recipe, example), batches(inputs, size))


class StubbedPair(Stubbed):
    """Two convolutions between stubs placed by hand."""

    def __init__(self):
        super().__init__()
        self.second = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return self.dequant(self.second(self.relu(self.conv(self.quant(x)))))


@pytest.mark.parametrize(
    ("network", "inputs"),
    [(Mobile, noise(3, 16, 16)), (Forking, noise(1, 8, 8)), (StubbedPair, noise(1, 8, 8))],
    ids=["traced whole", "traced in parts", "stubs by hand"],
)
def test_a_layer_whose_kernel_is_wrong_on_calibration_examples_stays_float(network, inputs, monkeypatch):
    """It is built once more without that layer, which is named with the reason, also where FX traced only parts of the
    network, and between stubs that its author placed; the other layers stay int8."""
    requests, compare = [], exact_integers.compare

    def off_in_one_layer(int8, examples):
        requests.append([layer.name for layer in packed_layers.layers(int8)])
        compared = compare(int8, examples)
        return replace(compared, off=dict.fromkeys(requests[0][1:2], 0.25)) if len(requests) == 1 else compared

    monkeypatch.setattr(exact_integers, "compare", off_in_one_layer)
    module = make_network(network)
    actual = static(module, inputs)
    assert len(requests) == 2
    ((wrong, reason),) = [
        (name, why) for name, why in actual.conversion.float_reasons.items() if "exact integers" in why
    ]
    assert reason == "its int8 kernel differs from exact integers in 25.0% of its outputs on this CPU"
    assert requests[0][1].startswith(wrong)
    assert len(requests[1]) == len(requests[0]) - 1
    assert sqnr(module, actual.module, inputs) > 20


def each(module, inputs):
    """Outputs for single examples, which control flow may treat each in its own way."""
    with torch.no_grad():
        return torch.cat([module(*(array[i : i + 1] for array in inputs)) for i in range(len(inputs[0]))])


def decibels(wanted, actual):
    """Signal over the noise between two outputs."""
    return float(10 * torch.log10(wanted.square().mean() / (wanted - actual).square().mean()))


def sqnr(module, int8, inputs):
    return decibels(each(module, inputs), each(int8, inputs))


def covered(module, int8, inputs):
    """Each layer with weights, and whether it ran in int8; products of two activations have no int8 kernel."""
    example = tuple(array[:1] for array in inputs)
    layers = coverage.align_layers(torchscript.find_layers(module, example), torchscript.find_layers(int8, example))
    return tuple(array for array in layers if array.operator not in ("aten::bmm", "aten::scaled_dot_product_attention"))


def count(module, kind):
    return sum(isinstance(part, kind) for part in module.modules())


@pytest.mark.parametrize("kind", KINDS)
def test_static_runs_every_layer_in_int8_and_stays_close(kind, tmp_path):
    """All multiply-accumulates of each kind of network run in int8, near fp32, from a file that gives the same."""
    make, inputs = KINDS[kind]
    module = make()
    network = static(module, inputs, size=1).module
    layers = covered(module, network, inputs)
    assert coverage.compute_int8_share(layers) > 0.99, layers
    assert sqnr(module, network, inputs) > 25
    torchscript.save(network, tuple(array[:2] for array in inputs), tmp_path / "a.pt")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["residual", "decoder", "depthwise", "torch encoder"])
def test_every_engine_is_right(kind, engine):
    """Each engine's int8 is near fp32: what its kernels get wrong stays float."""
    make, inputs = KINDS[kind]
    module = make()
    assert sqnr(module, static(module, inputs, engine=engine).module, inputs) > 25


def test_the_fp32_network_is_never_touched_and_builds_repeat():
    """Every function works on a copy, and a second build is the same bit for bit."""
    for kind in ("residual", "control flow", "torch encoder", "by hand"):
        make, inputs = KINDS[kind]
        module = make()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        types = [type(part) for part in module.modules()]
        first, other = (static(module, inputs).module for _ in range(2))
        eager.prepare_qat(QuantizeJob(module, ENGINE, QAT, tuple(tensor[:1] for tensor in inputs)))
        assert torch.equal(each(first, inputs), each(other, inputs))
        assert [type(part) for part in module.modules()] == types
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
        assert not module.training


def test_a_residual_block_is_one_int8_region():
    """BatchNorm is folded, ReLU fused, the addition observed: one tensor is quantized and one dequantized."""
    module = residual_cnn()
    network = static(module, noise(1, 8, 8)).module
    assert count(network, torch_ao.nnq.Quantize) == count(network, torch_ao.nnq.DeQuantize) == 1
    assert count(network, torch_ao.QFunctional) == 1
    assert count(network, torch_ao.nniq.ConvReLU2d) == 1  # the stem; the other ReLU went into the addition
    assert "add_relu" in network.code
    assert count(network, nn.BatchNorm2d) == 0


def test_what_cannot_be_int8_is_an_island():
    """GELU and softmax run in float between int8 layers, LayerNorm in int8."""
    module = make_network(Encoder)
    network = static(module, noise(1, 8, 8)).module
    assert count(network, torch_ao.nnq.LayerNorm) == 2
    assert count(network, torch_ao.nnq.Linear) == 8
    code = [line.strip() for line in network.code.splitlines()]
    gelu = next(line for line in code if "gelu" in line)
    assert "wide_dequant" in gelu
    assert "gelu_quant" in "".join(code)


def test_what_an_engine_cannot_run_becomes_an_island(monkeypatch):
    """The trial run finds an operator without an int8 kernel, and quantizes around it."""
    monkeypatch.setattr(operator_support, "transparent", lambda: frozenset({nn.ReLU, nn.SiLU}))
    module = make_network(Of, lambda own, x: own.second(own.act(own.first(x))))
    module = make_network(
        lambda: Of(lambda own, x: own.b(own.act(own.a(x))), a=nn.Linear(8, 8), act=nn.SiLU(), b=nn.Linear(8, 8))
    )
    made_int8 = static(module, noise(8))
    assert sqnr(module, made_int8.module, noise(8)) > 25
    assert "torch cannot run it in int8" in made_int8.conversion.float_reasons["act"]


def test_an_operator_with_wrong_values_becomes_an_island(monkeypatch):
    """The trial run compares each light operator with fp32 on its own inputs."""

    class Odd(nn.Module):
        def forward(self, x):
            return x if x.is_quantized else torch.sin(3 * x)

    module = sandwich(nn.Linear(8, 8), Odd(), nn.Linear(8, 8))
    monkeypatch.setattr(operator_support, "transparent", lambda: frozenset({Odd}))
    monkeypatch.setattr(Odd, "__module__", torch.nn.__name__)  # tracing goes into no layer of torch's
    made_int8 = static(module, noise(8))
    assert "gives wrong values" in made_int8.conversion.float_reasons["act"]
    assert sqnr(module, made_int8.module, noise(8)) > 25


def test_prelu_is_right_in_int8():
    """torch's int8 PReLU is wrong for a slope whose own range has no one in it; qbench's slopes have one."""
    module = make_network(lambda: Of(lambda own, x: own.act(own.a(x)), a=nn.Conv2d(1, 8, 3), act=nn.PReLU(8)))
    network = static(module, noise(1, 8, 8)).module
    assert count(network, torch_ao.nnq.PReLU) == 1
    assert sqnr(module, network, noise(1, 8, 8)) > 30
    slopes = torch.quantize_per_tensor(torch.full((8,), 0.25), 0.25 / 255, 0, torch.quint8)
    network.act.set_weight(slopes)
    assert sqnr(module, network, noise(1, 8, 8)) < 10


def test_transposed_convolutions_have_weights_per_tensor():
    """No engine has per-channel kernels for them; other layers keep theirs."""
    network = static(make_network(Decoder), noise(1, 8, 8)).module
    schemes = {name: part.weight().qscheme() for name, part in network.named_modules() if name in ("down", "up")}
    assert schemes == {"down": torch.per_channel_affine, "up": torch.per_tensor_affine}


def test_a_clamp_ends_the_range_of_the_layer_before_it():
    """With all levels the ReLU6 goes into the range, which is then a gain; with a reduced range it stays."""
    module = sandwich(nn.Conv2d(1, 8, 3), nn.ReLU6(), nn.Conv2d(8, 4, 3))
    module.a.weight.data *= 60
    inputs = noise(1, 8, 8)
    engine = "qnnpack" if "qnnpack" in ENGINES else ENGINE  # adds in 32 bits on every CPU
    full = replace(RECIPE, reduce_range=False)
    clipped = static(module, inputs, full, engine).module
    assert count(clipped, torch_ao.nniq.ConvReLU2d) == 1
    assert clipped.a.scale * 255 == pytest.approx(6.0, rel=1e-3)
    assert "act" not in clipped.code
    whole = static(module, inputs, replace(full, clip_ranges=False), engine).module
    assert whole.a.scale > 10 * clipped.a.scale
    assert sqnr(module, clipped, inputs) > sqnr(module, whole, inputs) + 1
    reduced = static(module, inputs, RECIPE).module
    assert reduced.a.scale * 127 == pytest.approx(6.0, rel=1e-3)
    assert "act" in reduced.code


@pytest.mark.parametrize("layer", [nn.Sigmoid(), nn.Tanh()])
def test_a_fixed_scale_is_kept_from_kernels_that_saturate(layer):
    """The int8 sigmoid takes all 256 levels: under a reduced range the next layer's input is quantized anew."""
    module = sandwich(nn.Linear(8, 8), layer, nn.Linear(8, 8))
    reduced, full = (static(module, noise(8), replace(RECIPE, reduce_range=how)).module for how in (True, False))
    assert count(reduced, torch_ao.nnq.Quantize) == 2
    assert count(full, torch_ao.nnq.Quantize) == 1
    assert sqnr(module, reduced, noise(8)) > 25


def test_a_constant_keeps_its_tensor_in_int8():
    """A sum or product with a number changes the scale only; it needs no range of its own."""
    module = make_network(lambda: Of(lambda own, x: own.b(2.0 * own.a(x) + 1), a=nn.Linear(8, 8), b=nn.Linear(8, 8)))
    network = static(module, noise(8)).module
    assert "mul_scalar" in network.code
    assert "add_scalar" in network.code
    assert sqnr(module, network, noise(8)) > 25


def test_an_addition_in_place_is_left_alone_where_it_is_read_elsewhere():
    """``x.add_(y)`` changes x for all who read it later, which a new tensor would not."""

    def forward(own, x):
        first = own.a(x)
        stored = first
        first.add_(own.b(x))
        return own.c(first) + own.d(stored)

    module = make_network(lambda: Of(forward, **{name: nn.Linear(8, 8) for name in "abcd"}))
    assert sqnr(module, static(module, noise(8)).module, noise(8)) > 25


def test_functions_become_layers_that_can_be_swapped():
    """``F.linear`` and ``F.conv2d`` on parameters are quantized like their layers; functional dropout is turned off."""

    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(4, 1, 3, 3))
            self.weight = nn.Parameter(torch.randn(10, 4))
            self.bias = nn.Parameter(torch.randn(10))

        def forward(self, x):
            x = torch.relu(functional.conv2d(x, self.kernel, padding=1, stride=2))
            x = functional.dropout(x.mean((2, 3)), 0.5, training=self.training)
            return functional.linear(x, self.weight, self.bias)

    module = make_network(Functional)
    network = static(module, noise(1, 8, 8)).module
    assert coverage.compute_int8_share(covered(module, network, noise(1, 8, 8))) == 1.0
    assert sqnr(module, network, noise(1, 8, 8)) > 25
    assert count(eager.prepare_qat(QuantizeJob(module, ENGINE, QAT, noise(1, 8, 8, n=1))), nn.Dropout) == 1


@pytest.mark.parametrize("traceable", [True, False])
def test_a_layer_called_by_keyword_is_quantized(traceable):
    """torch names a layer's argument ``input``; its int8 classes do not all take the keyword."""

    def forward(own, x):
        y = own.b(input=own.a(input=x))
        return y if traceable or float(x[0, 0]) > 99 else -y

    module = make_network(lambda: Of(forward, a=nn.Linear(8, 8), b=nn.Linear(8, 8)))
    assert [entry.int8 for entry in covered(module, static(module, noise(8)).module, noise(8))] == [True, True]


def test_a_subclass_that_calls_a_convolution_is_quantized_by_its_call():
    """Its convolution becomes a plain layer with its BatchNorm folded and its shared ReLU6 as its range; only a
    subclass that keeps its call to itself is told as float."""

    class Padded(nn.Conv2d):
        def forward(self, x):
            return functional.conv2d(functional.pad(x, (1, 1, 1, 1)), self.weight, self.bias, self.stride)

    def forward(own, x):
        return own.b(own.act(own.n(own.a(own.act(x)))))

    layers = {"a": Padded(2, 8, 3), "n": nn.BatchNorm2d(8), "act": nn.ReLU6(), "b": Padded(8, 4, 3)}
    module = make_network(lambda: Of(forward, **layers))
    network = static(module, noise(2, 8, 8))
    assert network.conversion.float_reasons == {}
    assert count(network.module, nn.BatchNorm2d) == 0
    assert [entry.int8 for entry in covered(module, network.module, noise(2, 8, 8))] == [True, True]
    forking = make_network(
        lambda: Of(lambda own, x: own.b(own.a(x) if float(x[0, 0, 0, 0]) > 9 else -own.a(x)), **layers)
    )
    with pytest.raises(BuildError, match="nothing to quantize: a: Padded is a subclass of Conv2d.*canonicalize"):
        static(forking, noise(2, 8, 8))


def test_a_layer_used_twice_is_int8_both_times_or_never():
    """A shared layer is exchanged for all its calls; one that must stay float somewhere stays float everywhere."""
    both = make_network(lambda: Of(lambda own, x: own.a(own.a(x)), a=nn.Linear(8, 8)))
    network = static(both, noise(8)).module
    assert [entry.int8 for entry in covered(both, network, noise(8))] == [True, True]
    norm = make_network(lambda: Of(lambda own, x: own.n(own.a(own.n(x))), a=nn.Linear(8, 8), n=nn.LayerNorm(8)))
    made_int8 = static(norm, noise(8))
    assert made_int8.conversion.float_reasons == {}
    assert count(made_int8.module, nn.LayerNorm) == 1
    assert count(made_int8.module, torch_ao.nnq.LayerNorm) == 0
    assert sqnr(norm, made_int8.module, noise(8)) > 25


def test_batch_norm_of_another_axis_is_not_folded_into_linear():
    """On a sequence BatchNorm1d normalizes the positions, not the features that Linear gives."""
    layers = {"a": nn.Linear(8, 6), "n": nn.BatchNorm1d(6), "b": nn.Linear(6, 4)}
    module = make_network(lambda: Of(lambda own, x: own.b(own.n(own.a(x))), **layers))
    module.n.running_var.uniform_(0.1, 9)
    network = static(module, noise(6, 8))
    assert network.conversion.float_reasons == {}
    assert [entry.int8 for entry in covered(module, network.module, noise(6, 8))] == [True, True]
    assert sqnr(module, network.module, noise(6, 8)) > 25


def test_outputs_keep_their_form():
    """Several outputs, in a dict or a tuple, are float tensors as before."""
    module = make_network(
        lambda: Of(lambda own, x: {"a": own.a(x), "b": (own.b(x), x)}, a=nn.Linear(8, 8), b=nn.Linear(8, 2))
    )
    int8 = static(module, noise(8)).module
    with torch.no_grad():
        actual, expected = int8(*noise(8)), module(*noise(8))
    assert list(actual) == ["a", "b"]
    assert decibels(expected["a"], actual["a"]) > 25
    assert decibels(expected["b"][0], actual["b"][0]) > 25
    assert torch.equal(actual["b"][1], expected["b"][1])


def test_control_flow_gets_islands_that_calibration_reached():
    """Parts of a network that FX cannot trace are quantized one by one; a branch that no example took stays float."""
    module = make_network(Forking)
    network = static(module, noise(1, 8, 8), size=1)
    assert count(network.module, torch_ao.nnq.Conv2d) == 3
    assert "FX has no graph of the whole" in network.conversion.notes[0]
    assert count(network.module.stem, torch_ao.nniq.ConvReLU2d) == 1
    one_way = static(make_network(Forking, -9.0), noise(1, 8, 8), size=1)
    assert one_way.conversion.float_reasons == {"low": "it did not run on any calibration example"}
    assert type(one_way.module.low) is nn.Conv2d


def test_stubs_placed_by_hand_stay_where_they_are():
    """The seed's module: one quantize, one fused Conv-ReLU, one dequantize; nothing is added."""
    network = static(make_network(Stubbed), noise(1, 8, 8)).module
    names = {name: type(part) for name, part in network.named_children()}
    assert names == {
        "quant": torch_ao.nnq.Quantize,
        "conv": torch_ao.nniq.ConvReLU2d,
        "relu": nn.Identity,
        "dequant": torch_ao.nnq.DeQuantize,
    }


def by_hand(function, **layers):
    return make_network(lambda: Of(function, quant=QuantStub(), dequant=DeQuantStub(), **layers))


def test_a_region_by_hand_takes_float_functional_and_float_layers():
    """FloatFunctional and ``qconfig = None`` mean what they mean in torch."""

    def forward(own, x):
        y = own.quant(x)
        return own.out(own.dequant(own.sum.add(own.a(y), y)))

    module = by_hand(forward, a=nn.Linear(8, 8), sum=FloatFunctional(), out=nn.Linear(8, 8))
    module.out.qconfig = None
    network = static(module, noise(8)).module
    assert (type(network.a), type(network.out)) == (torch_ao.nnq.Linear, nn.Linear)
    assert count(network, torch_ao.QFunctional) == 1
    assert sqnr(module, network, noise(8)) > 25


def test_a_layer_skipped_inside_a_region_by_hand_is_an_island():
    """Its input is dequantized and its output quantized again."""
    module = by_hand(lambda own, x: own.dequant(own.b(own.a(own.quant(x)))), a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    network = static(module, noise(8), replace(RECIPE, skip_layers=("a",)))
    assert [entry.int8 for entry in covered(module, network.module, noise(8))] == [False, True]
    assert "skip_layers" in network.conversion.float_reasons["a"]
    assert sqnr(module, network.module, noise(8)) > 25


def test_a_layer_skipped_where_fx_traced_only_parts_has_its_reason():
    """A part that is one layer becomes a graph of its own; that the recipe skipped it is told all the same."""
    module, inputs = make_network(Forking), noise(1, 8, 8)
    network = static(module, inputs, replace(RECIPE, skip_layers=("high",)))
    assert "skip_layers" in network.conversion.float_reasons["high"]


def test_stubs_by_hand_that_do_not_fit_are_an_error():
    """A region that torch cannot run in int8, or that never ends, is told with the way out."""
    with pytest.raises(
        BuildError, match=r"the stubs that the network brings do not fit: .*FloatFunctional for \+ and cat, or remove"
    ):
        static(by_hand(lambda own, x: own.dequant(own.a(own.quant(x)) + own.quant(x)), a=nn.Linear(8, 8)), noise(8))
    with pytest.raises(BuildError, match="has a QuantStub but no DeQuantStub: put QuantStub and DeQuantStub around"):
        static(
            make_network(lambda: Of(lambda own, x: own.a(own.quant(x)), quant=QuantStub(), a=nn.Linear(8, 8))), noise(8)
        )


def test_layers_stay_float_by_name_pattern_and_place():
    """skip_layers, first_layer_float and last_layer_float name the layer and the reason."""
    module = perceptron()
    for recipe, expected in (
        (replace(RECIPE, skip_layers=("fir*",)), "first"),
        (replace(RECIPE, first_layer_float=True), "first"),
        (replace(RECIPE, last_layer_float=True), "second"),
    ):
        network = static(module, noise(1, 8, 8), recipe)
        assert [entry.name for entry in covered(module, network.module, noise(1, 8, 8)) if not entry.int8] == [expected]
        assert list(network.conversion.float_reasons) == [expected]
    with pytest.raises(BuildError, match="no layer named frist; there are first, second"):
        static(module, noise(1, 8, 8), replace(RECIPE, skip_layers=("frist",)))
    with pytest.raises(BuildError, match="nothing to quantize: first: skipped by the recipe .* \\(and 1 more\\)"):
        static(module, noise(1, 8, 8), replace(RECIPE, skip_layers=("*",)))


def test_recurrent_layers_stay_float_and_say_so():
    """There is no static int8 kernel for an LSTM."""
    network = static(lstm(), noise(1, 8, 8))
    assert "mode dynamic covers them" in network.conversion.float_reasons["lstm"]
    assert count(network.module, torch_ao.nnq.Linear) == 1


def test_static_without_calibration_is_refused():
    """torch only warns and returns zeros; so it does for values that are no numbers."""
    example = noise(1, 8, 8, n=1)
    with pytest.raises(BuildError, match="calibration observed nothing at first.*skip_layers"):
        eager.static(QuantizeJob(perceptron(), ENGINE, RECIPE, example), lambda: iter(()))
    with pytest.raises(BuildError, match="infinite values or NaN at .*check their preprocessing"):
        static(perceptron(), (torch.full((4, 1, 8, 8), torch.nan),))


@pytest.mark.parametrize("make", [lambda: NothingToQuantize().eval(), lambda: nn.LSTM(8, 8).eval()])
def test_nothing_to_quantize_is_refused(make):
    """A network without a layer for it is not called int8."""
    with pytest.raises(BuildError, match="eager mode found nothing to quantize"):
        static(make(), noise(8, 8))


def test_another_engine_is_refused():
    """Weights are packed for the engine that the process runs."""
    other = next(engine for engine in ENGINES if engine != ENGINE)
    example = noise(1, 8, 8, n=1)
    with pytest.raises(BuildError, match=f"engine is '{ENGINE}'"):
        eager.static(QuantizeJob(perceptron(), other, RECIPE, example), lambda: iter([example]))
    with pytest.raises(BuildError, match=f"engine is '{ENGINE}'"):
        eager.prepare_qat(QuantizeJob(perceptron(), other, QAT, example))


def trained(module, inputs, steps=12, recipe=QAT):
    """A prepared network after a few steps towards its fp32 outputs, with observers and BatchNorm frozen half-way."""
    torch.manual_seed(0)
    expected = each(module, inputs)
    prepared = eager.prepare_qat(QuantizeJob(module, ENGINE, recipe, tuple(array[:1] for array in inputs)))
    optimizer = torch.optim.Adam(prepared.parameters(), 1e-3)
    losses = []
    for step in range(steps):
        if step == steps // 2:
            eager.freeze_observers(prepared)
            eager.freeze_batch_norm(prepared)
        eager.qat_modes(prepared, True)
        loss = (prepared(*inputs) - expected).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    eager.qat_modes(prepared, False)
    return prepared, losses


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "control flow"])
def test_qat_trains_each_kind_and_converts_to_int8(kind):
    """Every kind of network trains with fake quantization, and its int8 does what was trained."""
    make, inputs = KINDS[kind]
    module = make()
    prepared, losses = trained(module, inputs)
    assert all(loss == loss for loss in losses)
    converted = eager.convert_qat(QuantizeJob(prepared, ENGINE, QAT, tuple(array[:1] for array in inputs)))
    assert coverage.compute_int8_share(covered(module, converted.module, inputs)) > 0.99
    assert sqnr(prepared, converted.module, inputs) > 15
    assert not converted.module.training


def test_qat_fuses_for_training_and_keeps_what_was_prepared():
    """BatchNorm trains inside its convolution; converting leaves the trained network as it was."""
    module = residual_cnn()
    prepared, _ = trained(module, noise(1, 8, 8))
    assert count(prepared, torch_ao.nniqat.ConvBnReLU2d) == 1
    assert all(
        part.weight_fake_quant.fake_quant_enabled for part in prepared.modules() if hasattr(part, "weight_fake_quant")
    )
    before = copy.deepcopy(prepared.state_dict())
    first, other = (eager.convert_qat(QuantizeJob(prepared, ENGINE, QAT, noise(1, 8, 8, n=1))).module for _ in range(2))
    assert torch.equal(each(first, noise(1, 8, 8)), each(other, noise(1, 8, 8)))
    assert all(torch.equal(value, before[name]) for name, value in prepared.state_dict().items())


def test_frozen_means_frozen():
    """Neither ranges nor BatchNorm statistics, fused or not, move once they are frozen, whatever mode is set."""

    def forward(own, x):
        x = torch.relu(own.n(own.a(x)))
        return own.b(own.m(x + own.c(x)))

    layers = {"a": nn.Conv2d(1, 4, 3), "n": nn.BatchNorm2d(4), "m": nn.BatchNorm2d(4)}
    module = make_network(lambda: Of(forward, **layers, b=nn.Conv2d(4, 4, 3), c=nn.Conv2d(4, 4, 1)))
    prepared, _ = trained(module, noise(1, 8, 8), steps=2)
    before = {name: value.clone() for name, value in prepared.state_dict().items()}
    eager.qat_modes(prepared, True)
    prepared(*(5 * entry for entry in noise(1, 8, 8)))
    watched = ("running_mean", "running_var", "min_val", "max_val", "scale")
    moved = [name for name, value in prepared.state_dict().items() if not torch.equal(value, before[name])]
    assert [name for name in moved if name.rpartition(".")[2] in watched] == []
    assert sum(name.rpartition(".")[2] == "running_mean" for name in before) == 2


def test_a_qat_without_fake_quantize_is_refused():
    """What would be plain fp32 training is not called QAT."""
    module = make_network(lambda: Of(lambda own, x: own.a(x), a=nn.ConvTranspose2d(1, 2, 2)))
    with pytest.raises(ModeImpossible, match="no fake-quantize on any weight: this would be plain fp32 training"):
        eager.prepare_qat(QuantizeJob(module, ENGINE, QAT, noise(1, 8, 8, n=1)))


def test_a_branch_that_training_never_took_is_refused():
    """Its fake quantization has no range; the message names the layer to skip."""
    module = make_network(Forking)
    inputs = tuple(entry.abs() for entry in noise(1, 8, 8))
    prepared, _ = trained(module, inputs)  # takes the branch ``high`` only, as the example does
    with pytest.raises(BuildError, match="nothing to quantize|observed nothing"):
        eager.convert_qat(
            QuantizeJob(
                eager.prepare_qat(QuantizeJob(module, ENGINE, QAT, (-inputs[0][:1],))), ENGINE, QAT, (inputs[0][:1],)
            )
        )
    assert list(eager.convert_qat(QuantizeJob(prepared, ENGINE, QAT, (inputs[0][:1],))).conversion.float_reasons) == [
        "low"
    ]


def test_dynamic_covers_linear_and_lstm():
    """Linear, LSTM and torch's encoder layers hold int8 weights; what fx refuses to trace works, too."""
    for make, inputs in ((lstm, noise(1, 8, 8)), KINDS["torch encoder"], KINDS["control flow"]):
        module = make()
        network = eager.dynamic(QuantizeJob(module, ENGINE, Recipe(), tuple(array[:1] for array in inputs))).module
        ones = [
            array
            for array in covered(module, network, inputs)
            if type(module.get_submodule(array.name)) is not nn.Conv2d
        ]
        assert [array.name for array in ones if not array.int8 and array.name] == []
        assert sqnr(module, network, inputs) > 20


@pytest.mark.parametrize("masked", [False, True])
def test_torchs_own_encoder_is_int8_in_its_linear_layers(masked):
    """Attention that hides its Linear layers is spelled out before, with a mask and without, so that they are int8."""
    module = make_network(TorchEncoder, masked)
    network = static(module, noise(1, 8, 8))
    assert network.conversion.float_reasons == {}
    assert {type(network.module.get_submodule(name)) for name in ("embed", "head")} == {torch_ao.nnq.Linear}
    assert sqnr(module, network.module, noise(1, 8, 8)) > 20


def test_a_layer_that_torch_cannot_convert_becomes_an_island(monkeypatch):
    """torch's convert does not say which layer it fails on; each is tried alone, and that one stays float."""
    convert = torch_ao.nnq.Linear.from_float.__func__

    def refuse(cls, part, *rest, **named):
        if part.out_features == 7:
            raise AssertionError("no kernel for seven")
        return convert(cls, part, *rest, **named)

    monkeypatch.setattr(torch_ao.nnq.Linear, "from_float", classmethod(refuse))
    module = sandwich(nn.Linear(8, 7), nn.Identity(), nn.Linear(7, 8))
    network = static(module, noise(8))
    assert list(network.conversion.float_reasons) == ["a"]
    assert network.conversion.float_reasons["a"].startswith(
        "torch cannot run it in int8: AssertionError: no kernel for seven"
    )
    assert [entry.int8 for entry in covered(module, network.module, noise(8))] == [False, True]


@pytest.mark.skipif("qnnpack" not in ENGINES, reason="this build of torch has no qnnpack")
def test_what_an_engine_cannot_save_stays_float():
    """qnnpack runs a 3-D convolution but cannot unpack its weights, so no file could hold it."""
    network = static(make_network(Volume), noise(1, 6, 6, 6), engine="qnnpack")
    assert list(network.conversion.float_reasons) == ["first", "second"]
    assert "unpack" in network.conversion.float_reasons["first"]


def test_an_observer_sees_each_value_once():
    """torch.ao's fused conv + relu runs its observer as its last child and again from a hook: twice the time, and a
    moving average that moves twice."""
    torch_ao.set_engine(ENGINES[-1])
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval()
    recipe = Recipe(flow="eager", calibrator="moving_average", per_channel=True, reduce_range=True)
    x = torch.randn(2, 1, 12, 12)
    job = QuantizeJob(model, ENGINES[-1], recipe, (x[:1],))
    prepared = eager._prepared(job, lambda: iter([(x,)]), {}, training=False)
    observers = {name: part for name, part in prepared.named_modules() if isinstance(part, torch_ao.ObserverBase)}
    calls = dict.fromkeys(observers, 0)

    def count(name):
        def hook(*_):
            calls[name] += 1

        return hook

    for name, part in observers.items():
        part.register_forward_hook(count(name))
    with torch.no_grad():
        prepared(x)
    assert len(calls) >= 4
    assert set(calls.values()) == {1}


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("a.b.activation_post_process", "a.b"),
        ("a.b.weight_fake_quant", "a.b"),
        ("a.weight_fake_quant.activation_post_process", "a"),
        ("a.activation_post_process.activation_post_process", "a"),
        ("a.module.activation_post_process", "a"),
        ("a_quant.module", "a_quant"),
    ],
)
def test_an_observer_belongs_to_the_layer_around_it(name, layer):
    """The outermost; a layer that stands alone in its graph goes by the name of the graph."""
    assert eager._layer_of(name) == layer


def test_what_is_wrong_is_told_by_the_names_of_the_network():
    """A part that FX traced alone lies in a wrapper; what has no name of its own is left out, and the network's name is
    none."""
    module = nn.ModuleDict({"a": nn.Linear(1, 1), "module": nn.Linear(1, 1), "b": nn.ModuleDict({"c": nn.ReLU()})})
    wrong = {"a.module": "1", "module": "2", "b.module.c": "3", "add_functional": "4", "": "5"}
    assert eager._by_own_name(module, wrong) == {"a": "1", "module": "2", "b.c": "3"}


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        ({}, "the network has no convolution and no Linear layer"),
        ({"a": "why"}, "a: why"),
        ({"a": "why", "b": "x"}, "a: why (and 1 more)"),
        ({"a": "why", "b": "x", "c": "y"}, "a: why (and 2 more)"),
    ],
)
def test_why_there_is_nothing_to_quantize(reasons, said):
    """The first layer's reason, and of how many more there is one."""
    assert eager._nothing(reasons) == f"eager mode found nothing to quantize: {said}"


def test_layers_without_an_int8_class_have_their_reason_and_others_only_by_the_recipe():
    """What multiplies nothing needs none; the recipe's word goes before torch's."""
    module = nn.ModuleDict({"a": nn.Linear(1, 1), "act": nn.ReLU(), "lstm": nn.LSTM(1, 1), "gru": nn.GRU(1, 1)})
    assert eager._reasons(module, {"act": "kept", "gru": "kept"}) == {
        "lstm": operator_support.why_float(module["lstm"]), "gru": "kept",
    }  # fmt: skip
    assert eager._reasons(module, {"a": "kept"})["a"] == "kept"
