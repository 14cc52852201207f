"""Ranges: each calibrator against its own definition, bounded, in any order of batches; the QConfig of a recipe."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from qbench import registry
from qbench.errors import BuildError, UnknownName
from qbench.quant.pytorch import qconfig, torch_ao
from qbench.quant.pytorch.torch_calibrators import BINS, Clipped, Histogram, LeastSquares, Percentile
from qbench.quant.recipe import Recipe

ENGINES = [engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines]
OURS = (Percentile, LeastSquares)


def heavy(n=20_000, seed=0):
    """Values with a few far outliers on both sides."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, generator=generator)
    x[:5] *= 30
    return x


def seen(observer, *batches):
    for batch in batches:
        observer(batch)
    return observer


def range_of(observer):
    """(low, high) that the chosen scale and zero point can represent."""
    scale, zero = (float(value) for value in observer.calculate_qparams())
    return (observer.quant_min - zero) * scale, (observer.quant_max - zero) * scale


def squared_error(x, observer):
    scale, zero = observer.calculate_qparams()
    levels = torch.clamp(torch.round(x / scale) + zero, observer.quant_min, observer.quant_max)
    return float((x - (levels - zero) * scale).square().mean())


@pytest.mark.parametrize("make", OURS)
@settings(max_examples=15)
@given(seed=st.integers(0, 1000), sizes=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6), cut=st.integers(1, 50))
def test_the_order_and_the_cut_of_batches_do_not_matter(make, seed, sizes, cut):
    """The range is the same for any order of batches and any division into batches, bit for bit."""
    generator = torch.Generator().manual_seed(seed)
    batches = [torch.randn(100, generator=generator) * size for size in sizes]
    calibrated = seen(make(), *batches)
    other = seen(make(), *torch.cat(batches[::-1]).split(cut))
    assert torch.equal(calibrated.counts, other.counts)
    assert calibrated.chosen() == other.chosen()


@pytest.mark.parametrize("make", OURS)
def test_every_value_is_counted_in_its_bin(make):
    """Counts are those of numpy's histogram over the same edges, for values of all sizes and at edges."""
    x = torch.cat([heavy(), torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, -1e-30, 31.999])])
    observer = seen(make(), x[:7], x[7:])
    expected, _ = np.histogram(x.double().numpy(), bins=observer.edges())
    assert observer.counts.sum() == len(x)
    assert np.array_equal(observer.counts.numpy(), expected)


@pytest.mark.parametrize("make", OURS)
def test_memory_does_not_grow_with_the_examples(make):
    """What an observer keeps is the same after one batch and after many, below 256 KB."""

    def kept(observer):
        return sum(value.numel() * value.element_size() for value in observer.state_dict().values())

    first, many = seen(make(), heavy(10)), seen(make(), *(heavy(10_000, seed) * 10**seed for seed in range(8)))
    assert kept(first) == kept(many) < 256 * 1024


@pytest.mark.parametrize("percentile", [99.0, 99.9, 100.0])
def test_percentile_is_the_quantile_of_all_values(percentile):
    """Both ends lie within a bin of the exact quantiles; at 100 they are the exact extremes."""
    x = heavy()
    observer = seen(Percentile(percentile=percentile), *x.split(777))
    width = 2.0 ** (observer.exponent + 1) / BINS
    tail = (1 - percentile / 100) / 2
    low, high = observer.chosen()
    assert low == pytest.approx(float(torch.quantile(x, tail, interpolation="higher")), abs=width)
    assert high == pytest.approx(float(torch.quantile(x, 1 - tail, interpolation="lower")), abs=width)
    if percentile == 100.0:
        assert (low, high) == (float(x.min()), float(x.max()))


@pytest.mark.parametrize("scheme", [torch.per_tensor_affine, torch.per_tensor_symmetric])
def test_least_squares_has_less_error_than_any_other_calibrator(scheme):
    """On data with two outliers its squared error is well below minmax's and not above the others' (mse)."""
    x = torch.randn(400_000, generator=torch.Generator().manual_seed(0))
    x[0], x[1] = 12.0, -12.0
    makes = [torch_ao.MinMaxObserver, Histogram, Percentile, LeastSquares]
    errors = [squared_error(x, seen(make(qscheme=scheme), *x.split(100_000))) for make in makes]
    assert errors[-1] < 0.7 * errors[0]
    assert errors[-1] <= 1.02 * min(errors)


def test_least_squares_of_values_of_one_sign_keeps_zero_at_the_lowest_level():
    """Behind a ReLU no level is lost below zero."""
    observer = seen(LeastSquares(), heavy().relu())
    assert int(observer.calculate_qparams()[1]) == 0


@pytest.mark.parametrize("make", OURS)
@pytest.mark.parametrize("value", [0.0, 3.0, -2.5])
def test_a_constant_is_represented(make, value):
    """A tensor of one value, zero too, gets a finite positive scale, and the value itself to within a step."""
    observer = seen(make(), torch.full((100,), value))
    scale, _ = observer.calculate_qparams()
    low, high = range_of(observer)
    assert 0 < float(scale) < 1
    assert low - float(scale) <= value <= high + float(scale)


@pytest.mark.parametrize("shape", ["wide", "growing", "positive", "constant"])
def test_the_histogram_calibrator_is_torchs(shape):
    """The faster search ends at torch's own scale and zero point, bit for bit."""
    x = {"wide": heavy(), "growing": heavy() * torch.linspace(0.1, 3, 20_000), "positive": heavy().relu()}.get(
        shape, torch.full((100,), 2.0)
    )
    ours, theirs = seen(Histogram(), *x.split(3000)), seen(torch_ao.HistogramObserver(), *x.split(3000))
    assert all(torch.equal(a, b) for a, b in zip(ours.calculate_qparams(), theirs.calculate_qparams(), strict=True))


@pytest.mark.parametrize("size", [1e-45, 1e-39, 1e-36, 1e-34])
def test_the_histogram_takes_values_near_zero(size):
    """A range whose bins are too narrow for float32 is one bin, not an error; larger values then widen it."""
    tiny = torch.linspace(-1.0, 1.0, 100) * size
    assert range_of(seen(Histogram(), tiny, tiny * 2))[1] < 1e-3
    assert range_of(seen(Histogram(), tiny, torch.linspace(-1.0, 1.0, 1000)))[1] == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("make", [torch_ao.MinMaxObserver, Histogram, Percentile, LeastSquares])
def test_a_clipped_observer_sees_and_passes_on_what_a_relu6_would(make):
    """Its range, its output and so what later layers see are those behind the clamp."""
    x = heavy() * 4
    clipped, behind = Clipped(make, 0.0, 6.0), make()
    passed = clipped(x)
    behind(nn.functional.relu6(x))
    assert torch.equal(passed, nn.functional.relu6(x))
    assert all(torch.equal(a, b) for a, b in zip(clipped.calculate_qparams(), behind.calculate_qparams(), strict=True))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("calibrator", ["entropy", "ifmr", "hfmg"])
def test_the_calibrators_of_onnx_files_choose_the_same_range(calibrator, symmetric):
    """Behind torch's interface they see what passes, whatever its shape, and their range gets torch's scale; values
    that are not finite show in the ends, which calibration refuses."""
    scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
    observer = qconfig.activation_observer(Recipe(calibrator=calibrator))(dtype=torch.quint8, qscheme=scheme)
    values = heavy(6000).reshape(2, 3, 10, 100)
    direct = registry.load("calibrator", calibrator)(asymmetric=not symmetric)
    for part in values.split(1):
        direct.add(part.numpy())
    assert torch.equal(observer(values), values)
    low, high = direct.range()
    expected = observer._calculate_qparams(torch.tensor(low), torch.tensor(high))
    assert all(torch.equal(first, other) for first, other in zip(observer.calculate_qparams(), expected, strict=True))
    observer(torch.tensor([1.0, torch.inf]))
    assert observer.max_val == torch.inf


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("calibrator", registry.names("calibrator"))
@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_a_recipe_becomes_a_qconfig(engine, calibrator, reduce_range, symmetric):
    """Levels, zero point and granularity are what the recipe says, in constructors that make a new observer each."""
    recipe = Recipe(calibrator=calibrator, per_channel=True, reduce_range=reduce_range, symmetric=symmetric)
    config = qconfig.qconfig(engine, recipe, training=False)
    first, other = config.activation(), config.activation()
    assert first is not other
    scale, zero = seen(first, heavy()).calculate_qparams()
    assert (first.quant_min, first.quant_max) == (0, 127 if reduce_range else 255)
    if symmetric:
        assert int(zero) == (63 if reduce_range else 128)
    assert float(scale) > 0
    assert config.weight().qscheme == torch.per_channel_symmetric
    per_tensor = qconfig.qconfig(engine, Recipe(per_channel=False), training=False)
    assert per_tensor.weight().qscheme == torch.per_tensor_symmetric


def test_a_qconfig_of_instances_is_refused():
    """One observer shared by all layers would mix their ranges; torch refuses it where it is made."""
    with pytest.raises(ValueError, match="observer instance"):
        torch_ao.QConfig(activation=torch_ao.MinMaxObserver(), weight=torch_ao.MinMaxObserver)


def test_layers_with_kernels_of_their_own_get_a_qconfig_of_their_own():
    """Transposed convolutions are per tensor, PReLU's slope is quint8, LayerNorm's weights float, LSTM stays float."""
    recipe = Recipe(per_channel=True)

    def config(layer, training=False):
        return qconfig.qconfig("onednn", recipe, training=training, layer=layer)

    assert config(nn.ConvTranspose2d).weight().qscheme == torch.per_tensor_symmetric
    assert config(nn.ConvTranspose2d, training=True).weight().qscheme == torch.per_tensor_symmetric
    assert config(nn.PReLU).weight().dtype == torch.quint8
    assert config(nn.LayerNorm).weight().dtype == torch.float32
    assert config(nn.LSTM) is None
    assert config(nn.MultiheadAttention) is None


@pytest.mark.parametrize("calibrator", [None, "moving_average", "minmax"])
def test_training_gets_fake_quantize(calibrator):
    """For QAT activations and weights are fake-quantized, weights per channel, in the range of the recipe."""
    recipe = Recipe(calibrator=calibrator, per_channel=True, reduce_range=True)
    config = qconfig.qconfig("fbgemm", recipe, training=True)
    activation, weight = config.activation(), config.weight()
    assert isinstance(activation, torch_ao.FakeQuantizeBase)
    assert isinstance(weight, torch_ao.FakeQuantizeBase)
    assert weight.is_per_channel
    assert (activation.quant_min, activation.quant_max) == (0, 127)


@pytest.mark.parametrize("calibrator", ["histogram", "percentile", "mse"])
def test_a_calibrator_too_slow_for_training_is_refused(calibrator):
    """A histogram in every training step is refused with what to use."""
    with pytest.raises(BuildError, match=f"calibrator '{calibrator}'.*use moving_average or minmax"):
        qconfig.qconfig("fbgemm", Recipe(calibrator=calibrator), training=True)


def test_an_unknown_calibrator_lists_those_there_are():
    """A misspelt calibrator is an error that names all."""
    with pytest.raises(UnknownName, match="no calibrator named 'minmx'; did you mean 'minmax'"):
        qconfig.qconfig("fbgemm", Recipe(calibrator="minmx"), training=False)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("training", [False, True])
def test_the_frameworks_default_is_torchs_own(engine, training):
    """framework_default gives the engine's default QConfig of torch, whatever else the recipe says."""
    recipe = Recipe(framework_default=True, calibrator="minmax", per_channel=False)
    make = torch_ao.get_default_qat_qconfig if training else torch_ao.get_default_qconfig
    with torch_ao.known_warnings():
        assert repr(qconfig.qconfig(engine, recipe, training=training)) == repr(make(engine))
