"""Sums of int8 kernels: asked of the kernels of this machine, and of the same machine with its instructions hidden."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from qbench.machine import fingerprint
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import (
    dynamic,
    exact_integers,
    fx,
    narrow_weights,
    narrow_weights_pt2e,
    older_kernels,
    packed_layers,
    pt2e,
    torch_ao,
)
from qbench.quant.pytorch.packed_layers import LayerKernel
from qbench.quant.recipe import Recipe

ENGINES = [engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines]
RECIPE = Recipe(flow="fx", calibrator="minmax", per_channel=True, reduce_range=False, narrow_weights=True)
# Each makes any x86 machine behave like an older one; what a process reads when it imports torch.
SWITCHES = {
    "AVX2": {"FBGEMM_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "default"},
    "AVX512": {"FBGEMM_ENABLE_INSTRUCTIONS": "AVX512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
}


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that wait for each other take longer than they save here."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def conv(side, stride=1, padding=0, groups=1, dimensions=2, kind="conv"):
    def each(value):
        return (value,) * dimensions

    return LayerKernel(
        kind=kind, dimensions=dimensions, stride=each(stride), padding=each(padding), dilation=each(1),
        output_padding=each(0), groups=groups,
    )  # fmt: skip


LAYERS = {
    "linear": (LayerKernel(kind="linear"), (40, 65)),
    "pointwise": (conv(1), (40, 35, 1, 1)),
    "first": (conv(3, 2, 1), (24, 3, 3, 3)),
    "plain": (conv(3, 1, 1), (24, 16, 3, 3)),
    "groups of 16": (conv(3, 1, 1, groups=4), (64, 16, 3, 3)),
    "groups of 5": (conv(3, 1, 1, groups=5), (25, 5, 3, 3)),
    "depthwise 24": (conv(3, 2, 1, groups=24), (24, 1, 3, 3)),
    "depthwise 144": (conv(5, 2, 2, groups=144), (144, 1, 5, 5)),
    "depthwise 7": (conv(7, 1, 3, groups=48), (48, 1, 7, 7)),
    "transposed": (conv(3, 2, 1, kind="conv_transpose"), (16, 16, 3, 3)),
    "volume": (conv(3, 1, 1, dimensions=3), (8, 6, 3, 3, 3)),
}


def weight_of(name):
    """A random weight and its integers, each channel up to 127."""
    kernel, shape = LAYERS[name]
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with torch_ao.known_warnings():
        if kernel.kind == "conv_transpose":
            return weight, torch.quantize_per_tensor(weight, float(weight.abs().max()) / 127, 0, torch.qint8)
        scales = weight.flatten(1).abs().amax(1).double() / 127
        return weight, torch.quantize_per_channel(weight, scales, torch.zeros(len(weight), dtype=int), 0, torch.qint8)


def hardest(kernel, levels):
    """Inputs of 0 and 255 alone: random ones, and those that each channel of the output finds hardest."""
    random = torch.Generator().manual_seed(1)
    side = 4 + max(levels.shape[2:], default=0)
    x = torch.randint(0, 2, (8, kernel.channels_in(levels), *[side] * kernel.dimensions), generator=random) * 255
    for i in range(6 if kernel.kind != "conv_transpose" else 0):
        at = i % len(levels)
        own = at // (len(levels) // kernel.groups) * levels.shape[1]
        window = [slice(2, 2 + size) for size in levels.shape[2:]]
        x[i] = 0
        x[(i, slice(own, own + levels.shape[1]), *window)] = (levels[at] > 0).long() * 255
    return x


def most_off(kernel, weight):
    """By how much outputs of the kernel differ from exact ones, in units of its sums, at steps of 64 of them."""
    levels = weight.int_repr()
    x = hardest(kernel, levels)
    ones = packed_layers.with_levels(levels, weight, torch.ones_like(packed_layers.scales(weight)[1]))
    expected = kernel.exact(x.float(), levels.float()).double()  # exact below 2**24
    worst = 0.0
    for bias in (-40000.0, 0.0, 40000.0):
        parameters = kernel.pack(ones, torch.full((expected.shape[1],), bias))
        required = (((expected + bias) / 64).round() + 128).clamp(0, 255)
        with torch_ao.known_warnings():
            levels_in = torch._make_per_tensor_quantized_tensor(x.to(torch.uint8), 1.0, 0)
        actual = kernel.call(parameters, levels_in, 64.0, 128).int_repr()
        worst = max(worst, float((actual - required).abs().max()))
    return worst * 64


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", LAYERS)
def test_what_is_said_to_hold_holds(engine, name):
    """Where no channel is said to overflow, the hardest inputs give exact sums; where one is, they do after wider
    steps, which cost less than one bit of the weight, or two where a kernel adds four products."""
    torch_ao.set_engine(engine)
    if (engine, name) == ("qnnpack", "volume"):
        pytest.skip("qnnpack has no 3-D convolution")
    kernel, _ = LAYERS[name]
    source, weight = weight_of(name)
    fitted = narrow_weights.fitted(kernel, weight, source)
    assert not fitted.overflows
    assert most_off(kernel, fitted.weight) <= 64
    assert (fitted.channels == 0) == (not narrow_weights.overflows(kernel, weight.int_repr()).any())
    wider = packed_layers.scales(fitted.weight)[1] / packed_layers.scales(weight)[1]
    assert 1 <= wider.min() <= wider.max() <= (4.01 if name.startswith("depthwise") else 2.01)


@pytest.mark.skipif("fbgemm" not in ENGINES, reason="fbgemm exists on x86 only")
@pytest.mark.parametrize("name", ["depthwise 24", "depthwise 144"])
def test_depthwise_kernels_of_fbgemm_overflow_on_every_cpu(name):
    """VNNI or not: the largest weights meet the largest inputs, and the sum stops at 32767."""
    torch_ao.set_engine("fbgemm")
    kernel, shape = LAYERS[name]
    assert narrow_weights.overflows(kernel, torch.full(shape, 127, dtype=torch.int8)).all()
    assert not narrow_weights.overflows(kernel, torch.full(shape, 31, dtype=torch.int8)).any()


@pytest.mark.parametrize("engine", ENGINES)
def test_seven_bits_of_activations_never_overflow_two_products(engine):
    """127 * (127 + 127) is 32258; so a recipe with a reduced range needs no narrower weights."""
    torch_ao.set_engine(engine)
    for name in ("linear", "plain", "depthwise 24", "transposed"):
        kernel, shape = LAYERS[name]
        assert not narrow_weights.overflows(kernel, torch.full(shape, 127, dtype=torch.int8), top=127).any()


@pytest.mark.parametrize("engine", ENGINES)
def test_dynamic_kernels_keep_every_sum(engine):
    """torch gives activations 7 bits there, with which weights of 8 bits fit on every CPU: a target needs nothing."""
    torch_ao.set_engine(engine)
    layer, x = nn.Linear(32, 16), torch.rand(2, 32, generator=torch.Generator().manual_seed(0)) * 0.3 + 0.7
    nn.init.constant_(layer.weight, 0.1)  # all at the largest level
    int8 = dynamic.by_module(QuantizeJob(nn.Sequential(layer).eval(), engine, Recipe(per_channel=True), (x[:1],)))
    with torch.no_grad(), torch_ao.known_warnings():
        assert torch.allclose(int8.module(x), layer(x), rtol=0.01)


def test_positive_and_negative_losses_do_not_hide_each_other():
    """Two pairs that overflow to either side lose as much: asked together, their sum would be right."""
    torch_ao.set_engine(ENGINES[0])
    kernel = conv(3, 1, 1, groups=8)
    levels = (
        torch.tensor([100, 100, 0, 0, -100, -100, 0, 0, 0], dtype=torch.int8).reshape(1, 1, 3, 3).repeat(8, 1, 1, 1)
    )
    alone = levels.clamp_min(0)
    assert bool(narrow_weights.overflows(kernel, levels).all()) == bool(narrow_weights.overflows(kernel, alone).all())


class Depthwise(nn.Module):
    """A first layer, two depthwise ones and a classifier; weights of one sign meet inputs of the largest level."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.deep = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.deeper = nn.Conv2d(16, 16, 5, padding=2, stride=2, groups=16)
        self.last = nn.Linear(16, 10)
        with torch.no_grad():
            for layer in (self.deep, self.deeper):
                layer.weight.abs_()

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(self.deeper(torch.relu(self.deep(x))))
        return self.last(x.mean((2, 3)))


def built(engine, recipe=RECIPE, **changes):
    torch_ao.set_engine(engine)
    model, x = Depthwise().eval(), torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    network = fx.static(QuantizeJob(model, engine, replace(recipe, **changes), (x[:1],)), lambda: iter([(x,)]))
    with torch.no_grad():
        expected, actual = model(x), network.module(x)
    noise = (actual - expected).square().sum()
    return network, x, float(10 * torch.log10(expected.square().sum() / noise))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_build_keeps_every_sum_and_says_so(engine):
    """Only the layers that need it get wider steps, by name in the notes; each layer then is exact integers."""
    result, x, level = built(engine)
    assert exact_integers.compare(result.module, (x,)).off == {}
    assert narrow_weights.hold(result.module, {}, narrow=False).overflowing == []
    assert level > 25
    notes = [note for note in result.conversion.notes if "16 bits" in note]
    if engine == "fbgemm":
        assert "deep, deeper" in notes[0]
        assert "have a wider step, with which no sum overflows" in notes[0]
    if engine == "qnnpack":
        assert notes == []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", LAYERS)
def test_what_is_told_of_older_kernels_is_what_they_do(engine, name):
    """On the machine at hand nothing overflows that is not told from the weights alone; the child below, whose
    instructions are hidden, asks the kernels themselves. All is told where the order of the sums is known."""
    torch_ao.set_engine(engine)
    if (engine, name) == ("qnnpack", "volume"):
        pytest.skip("qnnpack has no 3-D convolution")
    kernel, _ = LAYERS[name]
    levels = weight_of(name)[1].int_repr()
    hidden = os.environ.get("ONEDNN_MAX_CPU_ISA")
    target = ("avx512",) if hidden == "AVX512_CORE" and "avx512f" in fingerprint.isa() else ("avx2",)
    told = older_kernels.overflowing(engine, kernel, levels, top=255, target=target)
    overflowing = narrow_weights.overflows(kernel, levels)
    assert not bool((overflowing & ~told).any())
    # This kernel asks the CPU itself for VNNI, whatever the switches say, and is exact with it.
    asks_cpu = (engine, name) == ("fbgemm", "groups of 16") and "avx512_vnni" in fingerprint.isa()
    known = engine in ("fbgemm", "onednn") and name != "transposed" and not asks_cpu
    if hidden in ("AVX2", "AVX512_CORE") and known:
        assert torch.equal(overflowing, told)
    assert not older_kernels.overflowing(engine, kernel, levels, top=127, target=target).any()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_build_for_older_cpus_holds_there_and_says_what_it_did(engine):
    """Layers that need it, and no others, are narrowed for the kernels of AVX2, whatever this machine has."""
    result, x, level = built(engine, target=("avx2",))
    facts = result.conversion.target
    assert facts.cpus == ("avx2",)
    assert facts.layers == 4
    assert facts.overflowing == ()
    assert facts.layers_narrowed == {"fbgemm": 4, "x86": 4, "onednn": 2, "qnnpack": 0}[engine]
    assert exact_integers.compare(result.module, (x,)).off == {}
    kernels = narrow_weights.Kernels(engine=engine, target=("avx2",))
    assert narrow_weights.hold(result.module, {}, narrow=False, kernels=kernels).overflowing == []
    assert level > 25
    notes = [note for note in result.conversion.notes if "16 bits on avx2" in note]
    assert bool(notes) == bool(facts.layers_narrowed)
    assert built(engine)[0].conversion.target is None


def test_a_recipe_that_leaves_weights_alone_is_not_called_safe():
    """``narrow_weights: false`` says more than a target: the layers that can overflow are named."""
    facts = built("fbgemm", target=("avx2",), narrow_weights=False)[0].conversion.target
    assert facts.overflowing
    reduced = built("fbgemm", target=("avx2",), narrow_weights=False, reduce_range=True)[0]
    assert reduced.conversion.target.overflowing == ()


@pytest.mark.skipif("fbgemm" not in ENGINES, reason="fbgemm exists on x86 only")
def test_a_recipe_may_leave_weights_alone_and_is_told_what_it_costs():
    """``reduce_range: false`` asks for 8 bits of everything: which layers can overflow, and which do on calibration
    examples."""
    result, x, level = built("fbgemm", narrow_weights=False)
    assert set(exact_integers.compare(result.module, (x,)).off) >= {"deep", "deeper"}
    could, do = (note for note in result.conversion.notes if "slow path" not in note)
    assert "may overflow; narrow_weights: true avoids it" in could
    assert "int8 layers differ from exact integers by more than rounding" in do
    assert built("fbgemm")[2] > level + 6


@pytest.mark.parametrize("engine", ENGINES)
def test_wider_steps_round_the_float_weight_once(engine):
    """What was int8 already and is rounded again would be off by up to a whole step."""
    torch_ao.set_engine(engine)
    source, weight = weight_of("depthwise 24")
    kernel, _ = LAYERS["depthwise 24"]
    tensor = narrow_weights.fitted(kernel, weight, narrow_weights._source(weight, source)).weight
    off = (tensor.dequantize() - source).abs() / packed_layers.scales(tensor)[1].float().reshape(-1, 1, 1, 1)
    assert off.max() <= 0.501
    other = torch.randn(source.shape)
    assert torch.equal(narrow_weights._source(weight, other), weight.dequantize())  # not the weight that was rounded


@pytest.mark.skipif("onednn" not in ENGINES, reason="packages call oneDNN")
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_a_graph_for_inductor_gets_the_weights_that_onednn_needs(mode):
    """Of every layer that becomes an int8 kernel, by name; where nothing overflows the graph is left as it is."""
    model, x = Depthwise().eval(), torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    recipe = replace(RECIPE, flow="pt2e", symmetric=False)

    def build(recipe):
        if mode == "dynamic":
            return pt2e.dynamic(QuantizeJob(model, "inductor", recipe, (x[:1],)))
        return pt2e.static(QuantizeJob(model, "inductor", recipe, (x[:1],)), lambda: iter([(x,)]))

    plain, result = build(replace(recipe, narrow_weights=False)), build(recipe)
    could = narrow_weights_pt2e.hold(plain.module, {}, narrow=False)
    assert could.layers == (4 if mode == "static" else 1)
    assert plain.overflows == bool(could.overflowing)
    assert narrow_weights_pt2e.hold(result.module, {}, narrow=False).overflowing == []
    assert not result.overflows
    with torch.no_grad():
        first, second, expected = plain.module(x), result.module(x), model(x)
    assert torch.equal(first, second) == (not could.overflowing)
    assert (second - expected).abs().max() < 0.05 * expected.abs().max()
    assert [note for note in result.conversion.notes if "have a wider step" in note] == list(result.conversion.notes)
    assert bool(result.conversion.notes) == bool(could.overflowing)


def test_layers_are_found_with_names_and_shapes():
    """As modules of FX's graph; a Linear layer holds its parameters in a module of its own."""
    result, _, _ = built(ENGINES[-1])
    actual = {layer.name: layer.kernel for layer in packed_layers.layers(result.module)}
    assert list(actual) == ["first", "deep", "deeper", "last"]
    assert actual["deeper"] == conv(5, 2, 2, groups=16)
    assert actual["last"].kind == "linear"


@pytest.mark.skipif(os.environ.get("QBENCH_SWITCHED") == "1", reason="this is the child with switches")
@pytest.mark.parametrize("switches", SWITCHES)
def test_everything_here_holds_with_instructions_hidden(switches):
    """The engines' own switches, set before torch is imported, let any machine behave like one without VNNI."""
    environment = os.environ | SWITCHES[switches] | {"QBENCH_SWITCHED": "1"}
    some = (
        ["-k", "what_is_said_to_hold_holds or what_is_told"] if switches == "AVX512" else []
    )  # other bits, the same shapes
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", __file__, *some]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


def test_a_note_names_the_layers_that_no_step_mends():
    """``no sum overflows`` is said of those layers alone of which it is true."""
    found_sites = narrow_weights.Sums(layers=4, overflowing=["a", "b"], left=["b"], channels=3, of_channels=8)
    note = narrow_weights.note(found_sites, "fbgemm", narrow=True)
    assert note.startswith("fbgemm adds products in 16 bits in 2 of 4 layers (a, b): 3 of the 8 channels")
    assert note.endswith("have a wider step, with which no sum overflows but in b")
    found_sites.left.clear()
    assert narrow_weights.note(found_sites, "fbgemm", narrow=True).endswith("with which no sum overflows")


def test_what_is_said_of_sums_that_could_overflow():
    """Nothing where none can; the older CPUs of a target by name; what to ask for where weights are left alone."""
    sums = narrow_weights.Sums(layers=9, overflowing=["a", "b", "c", "d"], left=["a", "d"], channels=3, of_channels=8)
    assert narrow_weights.note(narrow_weights.Sums(layers=9), "x86", narrow=True) is None
    assert narrow_weights.note(sums, "x86", narrow=False, target=("avx2", "vnni")) == (
        "x86 adds products in 16 bits on avx2 in 4 of 9 layers (a, b, c and 1 more), which activations and weights of "
        "8 bits may overflow; narrow_weights: true avoids it"
    )
    facts = narrow_weights.facts(sums, ("avx2", "vnni"))
    assert (facts.cpus, facts.layers, facts.layers_narrowed) == (("avx2", "vnni"), 9, 2)
    assert (facts.channels_narrowed, facts.overflowing) == (3, ("a", "d"))
    sums.channels = 0
    assert narrow_weights.facts(sums, ("avx2",)).layers_narrowed == 0
    assert narrow_weights.facts(sums, ()) is None


class Limited(narrow_weights.Kernels):
    """Kernels whose sums hold where no level of a channel is larger than 100, and whose steps grow to the double."""

    def overflow(self, kernel, levels):
        return levels.flatten(1).int().abs().amax(1) > 100

    def widen(self, kernel, levels):
        return torch.full((len(levels),), 2.0, dtype=torch.double)


def rounded(weight, *, per_channel):
    if not per_channel:
        return torch.quantize_per_tensor(weight, 1.0, 0, torch.qint8)
    count = len(weight)
    return torch.quantize_per_channel(
        weight, torch.ones(count, dtype=torch.double), torch.zeros(count, dtype=torch.long), 0, torch.qint8
    )


WEIGHT = torch.tensor([[100.0, 2.4], [-101.0, 2.6], [10.0, 1.0]])


@pytest.mark.parametrize(
    ("per_channel", "channels", "levels", "steps"),
    [
        (True, 1, [[100, 2], [-50, 1], [10, 1]], [1.0, 2.0, 1.0]),
        (False, 3, [[50, 1], [-50, 1], [5, 0]], [2.0]),
    ],
)
def test_only_channels_that_overflow_get_a_wider_step(per_channel, channels, levels, steps):
    """All where they have one step together; of the others no integer changes."""
    sums, kernel, weight = narrow_weights.Sums(), LayerKernel(kind="linear"), rounded(WEIGHT, per_channel=per_channel)
    new = narrow_weights.ask(sums, Limited(), "a", kernel, weight, WEIGHT, narrow=True)
    assert new.int_repr().tolist() == levels
    assert packed_layers.scales(new)[1].tolist() == steps
    assert sums == narrow_weights.Sums(layers=1, overflowing=["a"], channels=channels, of_channels=3)
    assert narrow_weights.ask(sums, Limited(), "b", kernel, weight, None, narrow=False) is weight
    assert narrow_weights.ask(sums, Limited(), "c", kernel, new, None, narrow=True) is new
    assert (sums.layers, sums.overflowing, sums.left, sums.of_channels) == (3, ["a", "b"], ["b"], 6)


class Never(Limited):
    """Kernels whose sums of the second channel never hold."""

    def overflow(self, kernel, levels):
        return torch.tensor([False, True, False])


def test_a_layer_that_no_step_mends_is_left_as_it_was():
    """It is named as left, and none of its channels counts as wider."""
    sums, weight = narrow_weights.Sums(), rounded(WEIGHT, per_channel=True)
    assert narrow_weights.ask(sums, Never(), "a", LayerKernel(kind="linear"), weight, WEIGHT, narrow=True) is weight
    assert sums == narrow_weights.Sums(layers=1, overflowing=["a"], left=["a"], of_channels=3)


@pytest.mark.parametrize("per_channel", [True, False])
def test_the_float_weight_is_known_by_its_integers(per_channel):
    """In whichever shape and type; half a step off, and no more, in every value."""
    weight = rounded(torch.tensor([[3.0, 2.0], [-5.0, 0.0]]), per_channel=per_channel)
    near = torch.tensor([[3.5, 2.0], [-5.0, -0.5]])
    assert torch.equal(narrow_weights._source(weight, near.double().flatten()), near)
    for other in (None, torch.ones(3), near + torch.tensor([0.0, 0.6])):
        assert torch.equal(narrow_weights._source(weight, other), weight.dequantize())


@pytest.mark.parametrize(
    ("side", "stride", "padding", "more"),
    [(16, 16, 0, 0), (2, 2, 0, 0), (3, 2, 1, 1), (4, 2, 1, 0), (9, 4, 4, 3), (3, 1, 1, 0), (7, 3, 2, 1), (5, 8, 0, 3)],
)
def test_a_transposed_convolution_is_asked_in_the_middle_of_a_small_input(side, stride, padding, more):
    """Every place that is asked reads as many weights as any of its phase can, whatever the stride; the input grows no
    more with it, since the output is so many times as large, and it is computed for each of stride x stride places."""
    kernel = replace(conv(side, stride, padding, kind="conv_transpose"), output_padding=(more, more))
    levels = torch.ones(1, 1, side, side, dtype=torch.int8)
    size = narrow_weights._size(kernel, levels)
    assert size[0] * stride <= max(12, side + 3 * stride + more)
    large = kernel.exact(torch.ones(1, 1, 30, 30).double(), levels.double())[0, 0]
    x = torch._make_per_tensor_quantized_tensor(torch.ones(1, 1, *size, dtype=torch.uint8), 1.0, 0)
    asked = list(narrow_weights._places(kernel, levels, x))
    assert len(asked) == stride * stride
    phases = {(row % stride, column % stride) for _, (row, column) in asked}
    assert len(phases) == stride * stride
    for sums, (row, column) in asked:
        assert float(sums) == float(large[row % stride :: stride, column % stride :: stride].max())
