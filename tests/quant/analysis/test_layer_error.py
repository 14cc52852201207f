"""The numbers of each layer: right by hand, at the fused output, under the fp32 names, whatever flow converted it."""

from __future__ import annotations

import copy
import math
import re
import weakref
from dataclasses import replace

import pytest
import torch
from networks import Branching, lstm, perceptron, residual_cnn
from torch import nn

from qbench.errors import BuildError
from qbench.quant import canonical
from qbench.quant.analysis import activation_trace, layer_error
from qbench.quant.analysis.quantized_range import InputRange
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import eager, fx, pt2e
from qbench.quant.recipe import Recipe

ENGINE = next(entry for entry in ("x86", "fbgemm", "qnnpack") if entry in torch.backends.quantized.supported_engines)
RECIPE = Recipe(calibrator="minmax", per_channel=True, symmetric=False, reduce_range=True)
FLOWS = {"eager": eager, "fx": fx, "pt2e": pt2e}


@pytest.fixture(autouse=True)
def _one_thread():
    """Engine and threads are process-global: each test leaves them as they were."""
    engine, threads = torch.backends.quantized.engine, torch.get_num_threads()
    torch.backends.quantized.engine = ENGINE
    torch.set_num_threads(1)
    yield
    torch.backends.quantized.engine = engine
    torch.set_num_threads(threads)


def images(n=24, seed=1):
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def batches(tensor, size=8):
    return lambda: ((part,) for part in tensor.split(size))


def seeded(network):
    """An untrained network whose BatchNorms have statistics, in eval mode."""
    torch.manual_seed(0)
    result = network()
    for part in result.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.2)
            part.running_var.uniform_(0.5, 2)
    return result.eval()


def int8(flow, model, mode="static"):
    """What a flow makes of a network, canonicalized first as a build does it."""
    example = (images(1),)
    plain = canonical.canonicalize(model, example).module
    if mode == "dynamic":
        return FLOWS[flow].dynamic(QuantizeJob(plain, ENGINE, RECIPE, example)).module
    return FLOWS[flow].static(QuantizeJob(plain, ENGINE, RECIPE, example), batches(images())).module


def scaled(model, name, factor):
    """A copy in which the weight of one layer is multiplied."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.get_submodule(name).weight.mul_(factor)
    return other


def by_name(entries):
    return {entry.name: entry for entry in entries}


class Chain(nn.Module):
    """Linear layers without bias, in a row."""

    def __init__(self, *, in_place=False):
        super().__init__()
        self.first = nn.Linear(64, 16, bias=False)
        self.second = nn.Linear(16, 8, bias=False)
        self.in_place = in_place

    def forward(self, x):
        x = self.first(torch.flatten(x, 1))
        if self.in_place:
            x += 100
        return self.second(x)


class Mobile(nn.Module):
    """Depthwise and pointwise convolutions with BatchNorm, one in-place ReLU6 for all, a residual, dropout."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.act = nn.ReLU6(inplace=True)
        self.depth = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.norm2 = nn.BatchNorm2d(8)
        self.point = nn.Conv2d(8, 16, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(16)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.act(self.norm1(self.stem(x)))
        x = x + self.act(self.norm2(self.depth(x)))
        return self.head(self.drop(self.norm3(self.point(x)).mean((2, 3))))


class Encoder(nn.Module):
    """One transformer layer over the rows of an image."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.layer(self.embed(x.squeeze(1))).mean(1))


class Twice(nn.Module):
    """One convolution that is called twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.shared = nn.Conv2d(4, 4, 3, padding=1)
        self.calls = 2

    def forward(self, x):
        x = self.first(x)
        for _ in range(self.calls):
            x = torch.relu(self.shared(x))
        return x.mean((2, 3))


class Wrapped(nn.Module):
    """The network one level further down, as wrappers put it."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


class Odd(nn.Module):
    """Conv-BatchNorm-ReLU; ``detour`` multiplies what the convolution gave."""

    def __init__(self, detour=1.0):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU()
        self.detour = detour

    def forward(self, x):
        x = self.conv(x)
        return self.relu(self.norm(x if self.detour == 1 else x * self.detour))


def test_sqnr_and_cosine_by_hand():
    """Outputs of 0.9 x have noise 0.01 x^2: 20 dB, with cosine 1; a layer before it is equal, n counts all values."""
    model = Chain()
    layers = layer_error.measure_layers(model, scaled(model, "second", 0.9), batches(images(20)))
    assert [entry.name for entry in layers] == ["first", "second"]
    assert (layers[0].sqnr_db, layers[0].n) == (math.inf, 20 * 16)
    assert layers[0].cosine == pytest.approx(1)
    assert layers[1].sqnr_db == pytest.approx(20, abs=1e-3)
    assert (layers[1].cosine, layers[1].n) == (pytest.approx(1), 20 * 8)


def test_the_opposite_output_has_cosine_minus_one():
    """Noise of 4 x^2 is -6.02 dB; a dead int8 layer has 0 dB and cosine 0."""
    model = Chain()
    entry = by_name(layer_error.measure_layers(model, scaled(model, "second", -1.0), batches(images())))["second"]
    assert (entry.sqnr_db, entry.cosine) == (pytest.approx(-20 * math.log10(2), abs=1e-3), pytest.approx(-1))
    dead = by_name(layer_error.measure_layers(model, scaled(model, "second", 0.0), batches(images())))["second"]
    assert (dead.sqnr_db, dead.cosine) == (pytest.approx(0), 0.0)


def test_the_numbers_do_not_depend_on_how_examples_are_batched():
    """Sums over all batches, the last one smaller: the same as over one."""
    model = perceptron()
    other = scaled(model, "first", 0.7)
    whole, parts = (layer_error.measure_layers(model, other, batches(images(22), size)) for size in (22, 5))
    for first, several in zip(whole, parts, strict=True):
        assert several.sqnr_db == pytest.approx(first.sqnr_db, rel=1e-6)
        assert several.cosine == pytest.approx(first.cosine, rel=1e-9)
        assert several.n == first.n


def test_what_is_written_into_an_output_later_does_not_count():
    """``x += 100`` behind a layer changes the tensor that the layer gave, not the layer's numbers."""
    model = Chain(in_place=True)
    first = by_name(layer_error.measure_layers(model, scaled(model, "first", 0.9), batches(images())))["first"]
    assert first.sqnr_db == pytest.approx(20, abs=1e-3)


@pytest.mark.parametrize("network", [residual_cnn, lambda: seeded(Mobile)], ids=["residual", "mobile"])
@pytest.mark.parametrize("flow", FLOWS)
def test_fused_layers_are_compared_at_the_fused_output(flow, network):
    """Convolutions with BatchNorm and ReLU or a shared ReLU6 stay near fp32 under their own names, in every
    flow."""
    model = network()
    layers = layer_error.measure_layers(model, int8(flow, model), batches(images(16, seed=3)))
    weighted = [name for name, part in model.named_modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    assert [entry.name for entry in layers] == weighted
    assert [entry.reason for entry in layers] == [None] * len(layers)
    assert all(25 < entry.sqnr_db < 80 and 0.99 < entry.cosine <= 1 for entry in layers)


def test_before_the_fused_output_there_is_nothing_to_compare():
    """The control: int8's fused convolution held against what fp32's convolution gives by itself is far off."""
    model = residual_cnn()
    outputs = []
    for network in (model, int8("fx", model)):
        network.stem.register_forward_hook(lambda _, __, output: outputs.append(output))
        with torch.inference_mode():
            network(images())
    signal, noise = outputs[0].square().sum(), (outputs[0] - outputs[1].dequantize()).square().sum()
    assert 10 * math.log10(signal / noise) < 10


def test_the_worst_layer_is_found():
    """A weight that lost its range stands out at its own layer and shows in those behind it."""
    model = residual_cnn()
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.body.weight.clamp_(-0.02, 0.02)
    numbers = by_name(layer_error.measure_layers(model, int8("fx", broken), batches(images())))
    assert numbers["body"].sqnr_db < 20 < numbers["stem"].sqnr_db


@pytest.mark.parametrize("flow", FLOWS)
def test_a_skipped_layer_is_nearly_equal(flow):
    """What runs in float before anything is quantized has no noise but that of float32's own rounding."""
    model = residual_cnn()
    recipe = replace(RECIPE, skip_layers=("stem", "body"))
    converted = FLOWS[flow].static(QuantizeJob(model, ENGINE, recipe, (images(1),)), batches(images()))
    numbers = by_name(layer_error.measure_layers(model, converted.module, batches(images())))
    assert numbers["stem"].sqnr_db > 100
    assert numbers["head"].sqnr_db < 80


@pytest.mark.parametrize("flow", ["eager", "pt2e"])
def test_dynamic_models_have_numbers_too(flow):
    """LSTM and Linear by name: the first output of a layer that gives several is compared."""
    model = lstm()
    numbers = by_name(layer_error.measure_layers(model, int8(flow, model, "dynamic"), batches(images())))
    assert numbers["lstm"].n == 24 * 8 * 16
    assert (numbers["lstm"].sqnr_db > 30, 20 < numbers["head"].sqnr_db < 80) == (True, True)


@pytest.mark.parametrize("flow", FLOWS)
def test_attention_is_one_layer_though_int8_has_it_in_parts(flow):
    """The output of what stands below its name is its output; projections inside have no rows of their own."""
    model = seeded(Encoder)
    numbers = by_name(layer_error.measure_layers(model, int8(flow, model), batches(images())))
    assert set(numbers) == {
        "embed", "layer.self_attn", "layer.norm1", "layer.linear1", "layer.linear2", "layer.norm2", "head"
    }  # fmt: skip
    assert all(entry.sqnr_db is not None and entry.sqnr_db > 15 for entry in numbers.values())


def test_a_network_with_control_flow_has_numbers():
    """What no tracer can follow is watched as it runs."""
    model = Branching().eval()
    layers = layer_error.measure_layers(model, int8("eager", model), batches(images()))
    assert [entry.name for entry in layers] == ["head"]
    assert layers[0].sqnr_db > 20


def test_a_layer_that_runs_twice_is_one_row_over_both_calls():
    """Each call against its own: n is doubled, and both are near."""
    model = seeded(Twice)
    numbers = by_name(layer_error.measure_layers(model, int8("fx", model), batches(images())))
    assert numbers["shared"].n == 2 * numbers["first"].n
    assert numbers["shared"].sqnr_db > 25


def test_a_graph_for_single_examples_gets_them_one_by_one():
    """An export that fixed the batch size at 1 is compared over all examples all the same."""
    model = perceptron()
    graph = torch.export.export(model, (images(1),)).module()
    layers = layer_error.measure_layers(model, graph, batches(images(6), 3))
    assert [(entry.name, entry.n) for entry in layers] == [("first", 6 * 32), ("second", 6 * 10)]
    assert all(entry.sqnr_db > 100 for entry in layers)


def test_a_wrapper_does_not_hide_the_names():
    """``module.first`` is the fp32 network's ``first``."""
    model = perceptron()
    layers = layer_error.measure_layers(model, Wrapped(scaled(model, "second", 0.9)), batches(images()))
    assert [(entry.name, entry.reason) for entry in layers] == [("first", None), ("second", None)]
    assert layers[0].sqnr_db == math.inf


def test_a_wrappers_own_layer_is_not_mistaken_for_the_networks():
    """Where a name stands twice, the place that has most of the names is the network."""
    model = perceptron()
    wrapper = Wrapped(scaled(model, "second", 0.9))
    wrapper.second = nn.Identity()
    wrapper.register_forward_hook(lambda module, _, output: module.second(output))
    layers = layer_error.measure_layers(model, wrapper, batches(images()))
    assert [(entry.name, entry.reason) for entry in layers] == [("first", None), ("second", None)]


def test_a_graphs_layer_counts_the_quantization_of_its_output():
    """Behind the fused ReLU stand quantize and, one for each user, dequantize: what the users get is compared."""
    model = residual_cnn()
    trace = activation_trace.ActivationTrace()
    activation_trace.run_traced(int8("pt2e", model), (images(),), trace, "int8")
    names = [trace.steps[number].name for number in trace.chain(("stem", 0))]
    assert names == ["conv2d", "relu", "quantize_per_tensor", "dequantize_per_tensor"]


def test_an_output_that_settles_later_is_taken_there():
    """Where int8 computes a layer in several steps, the last module of its chain that both have is what counts."""
    model = seeded(Odd)
    other = scaled(model, "conv", 0.5)
    other.detour = 2.0
    layers = layer_error.measure_layers(model, other, batches(images()))
    assert [entry.name for entry in layers] == ["conv"]
    assert layers[0].sqnr_db > 100


def test_each_batch_is_let_go_before_the_next_but_one():
    """Memory does not grow with the number of batches, neither for inputs nor for outputs."""
    calls = []

    def outputs(_, __, output):
        calls.append(weakref.ref(output))

    model = perceptron()
    model.first.register_forward_hook(outputs)
    alive = []

    def passes():
        for _ in range(6):
            alive.append(sum(call() is not None for call in calls))
            batch = images(2)
            calls.append(weakref.ref(batch))
            yield (batch,)

    layer_error.measure_layers(model, scaled(model, "second", 0.9), passes)
    assert max(alive) <= 3


def test_the_networks_are_left_as_they_were():
    """No hook stays, no weight changes, train and eval mode are untouched."""
    model, other = perceptron(), perceptron()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    layer_error.measure_layers(model, other, batches(images()))
    assert all(not part._forward_hooks for network in (model, other) for part in network.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(BuildError):
        layer_error.measure_layers(model, other, batches(torch.zeros(8, 3)))
    assert all(not part._forward_hooks for network in (model, other) for part in network.modules())


class Lacking(Chain):
    """The chain without its first layer's name."""

    def __init__(self):
        super().__init__()
        self.other, self.first = self.first, None

    def forward(self, x):
        return self.second(self.other(torch.flatten(x, 1)))


class Idle(Chain):
    """A layer that no input reaches."""

    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(2, 2)


def once():
    model = seeded(Twice)
    model.calls = 1
    return model


def wider():
    model = Chain()
    model.second = nn.Linear(16, 9)
    return model


def filled(name, value):
    model = Chain()
    nn.init.constant_(model.get_submodule(name).weight, value)
    return model


@pytest.mark.parametrize(
    ("fp32", "other", "name", "reason"),
    [
        (Idle(), Idle(), "spare", "these inputs do not run it"),
        (Chain(), Lacking(), "first", "nothing in the int8 network carries its name"),
        (seeded(Twice), once(), "shared", "fp32 runs it 2 times, int8 1 times"),
        (Chain(), wider(), "second", r"its output has shape \(8, 8\) in fp32 and \(8, 9\) in int8"),
        (filled("second", 0.0), Chain(), "second", "its fp32 output is zero everywhere"),
        (Chain(), filled("second", float("nan")), "second", "its outputs are not all finite"),
    ],
    ids=["not run", "no name", "other count", "other shape", "no signal", "not finite"],
)
def test_a_layer_without_numbers_says_why(fp32, other, name, reason):
    """None for both numbers and n = 0, never a zero that looks measured; the other layers keep theirs."""
    numbers = by_name(layer_error.measure_layers(fp32.eval(), other.eval(), batches(images(8))))
    assert re.match(reason, numbers[name].reason)
    assert (numbers[name].sqnr_db, numbers[name].cosine, numbers[name].n) == (None, None, 0)
    assert any(entry.reason is None for entry in numbers.values())


def test_a_layer_that_only_some_batches_run_says_so():
    """Data decides in the fp32 network; the int8 one always takes the same way."""

    class Sometimes(Chain):
        def forward(self, x):
            hidden = self.first(torch.flatten(x, 1))
            return self.second(hidden) if x.shape[0] == 8 else hidden

    model = Sometimes()
    plain = Chain()
    plain.load_state_dict(model.state_dict())
    numbers = by_name(layer_error.measure_layers(model, plain, batches(images(20))))
    assert numbers["second"].reason == "fp32 and int8 do not both run it on every batch"
    assert numbers["first"].sqnr_db == math.inf


def test_no_batches_is_an_error():
    """There is nothing to compare on."""
    with pytest.raises(BuildError, match="there are no batches: give calibration examples"):
        layer_error.measure_layers(perceptron(), perceptron(), lambda: iter(()))


DOES_NOT_RUN = r"does not run on a calibration batch \(RuntimeError: (addmm: )?mat1"  # torch 2.15 names the operator


def test_a_network_that_does_not_run_is_named():
    """Which of the two, and what it said."""
    model = perceptron()
    with pytest.raises(BuildError, match=f"the fp32 network {DOES_NOT_RUN}"):
        layer_error.measure_layers(nn.Sequential(nn.Linear(3, 3)), model, batches(images()))
    with pytest.raises(BuildError, match=f"the int8 network {DOES_NOT_RUN}"):
        layer_error.measure_layers(model, nn.Sequential(nn.Linear(3, 3)), batches(images()))


# --- what int8 clips ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", FLOWS)
def test_the_range_of_each_layer_is_that_of_its_fused_output(flow):
    """A ReLU behind a layer ends its range at 0, and calibration about where its outputs end; layers of a dynamic
    network, whose outputs stay float, have none."""
    model = residual_cnn()
    (stem,) = by_name(layer_error.measure_layers(model, int8(flow, model), batches(images())))["stem"].ranges
    with torch.inference_mode():
        highest = float(torch.relu(model.norm(model.stem(images()))).max())
    assert (stem.low, stem.high) == (0, pytest.approx(highest, rel=1.1))
    assert stem.high >= 0.9 * highest
    if flow != "fx":
        dynamic = layer_error.measure_layers(model, int8(flow, model, "dynamic"), batches(images(16)))
        assert [entry.ranges for entry in dynamic] == [()] * len(dynamic)


@pytest.mark.parametrize("flow", FLOWS)
def test_examples_unlike_those_of_the_calibration_are_clipped(flow):
    """Nothing (beyond a percentile) is clipped of what was calibrated on, much of what is ten times as bright."""
    model = residual_cnn()
    ranges = {
        layer.name: layer.ranges
        for layer in layer_error.measure_layers(model, int8(flow, model), batches(images()))
        if layer.ranges
    }
    assert "stem" in ranges
    (same,), (bright,) = (layer_error.measure_clipping(model, batches(images() * by), [ranges]) for by in (1, 10))
    assert max(same.values()) < 0.01
    assert bright["stem"] > 0.2


def test_the_share_of_clipped_values_by_hand():
    """What lies more than half a step outside, over all batches; two variants in one pass, each by its own ranges."""
    model = Chain()
    wide, narrow = (InputRange(low=-high, high=high, step=0.1) for high in (9.0, 0.2))
    clipping = layer_error.measure_clipping(
        model, batches(images(20), 8), [{"first": (wide,)}, {"first": (narrow,), "second": (wide,)}]
    )
    with torch.inference_mode():
        values = model.first(images(20).flatten(1))
    assert clipping[0] == {"first": 0.0}
    assert clipping[1] == {"first": pytest.approx(float((values.abs() > 0.25).float().mean())), "second": 0.0}
    assert 0 < clipping[1]["first"] < 1


def test_each_call_of_a_layer_is_held_against_its_own_range():
    """And a layer that is called another number of times than the build saw has no share."""
    model = seeded(Twice)
    never, always = InputRange(low=-99.0, high=99.0, step=0.1), InputRange(low=98.0, high=99.0, step=0.1)
    assert layer_error.measure_clipping(model, batches(images()), [{"shared": (never, always)}]) == [{"shared": 0.5}]
    assert layer_error.measure_clipping(model, batches(images()), [{"shared": (never,), "gone": (never,)}]) == [{}]
