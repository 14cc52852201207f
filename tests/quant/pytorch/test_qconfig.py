"""The QConfig of a recipe: its observers are the registered calibrators, in any order of batches."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qbench import registry
from qbench.errors import BuildError, UnknownName
from qbench.quant.pytorch import qconfig, torch_ao
from qbench.quant.pytorch.clamp_fusion import ClippedObserver
from qbench.quant.recipe import Recipe

ENGINES = [engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines]
CALIBRATORS = registry.names("calibrator")


def heavy(n=20_000, seed=0):
    """Values with a few far outliers on both sides."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, generator=generator)
    x[:5] *= 30
    return x


def observe(observer, *batches):
    for batch in batches:
        observer(batch)
    return observer


def observer_of(calibrator, *, symmetric=False, reduce_range=False):
    recipe = Recipe(calibrator=calibrator, symmetric=symmetric, reduce_range=reduce_range)
    return qconfig.qconfig("fbgemm", recipe, training=False).activation()


def range_of(observer):
    """(low, high) that the chosen scale and zero point can represent."""
    scale, zero = (float(value) for value in observer.calculate_qparams())
    return (observer.quant_min - zero) * scale, (observer.quant_max - zero) * scale


def squared_error(x, observer):
    scale, zero = observer.calculate_qparams()
    levels = torch.clamp(torch.round(x / scale) + zero, observer.quant_min, observer.quant_max)
    return float((x - (levels - zero) * scale).square().mean())


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("calibrator", [name for name in CALIBRATORS if name != "moving_average"])
def test_the_range_is_that_of_the_registered_calibrator(calibrator, symmetric):
    """Each calibrator of a torch flow, but for torch's moving average, is the one of ONNX files: it sees what passes,
    whatever its shape, and its range gets torch's scale; of values that are not finite the ends tell."""
    values = heavy(6000).reshape(2, 3, 10, 100)
    options = {"percentile": qconfig.PERCENTILE} if calibrator == "percentile" else {}
    direct = registry.load("calibrator", calibrator)(asymmetric=not symmetric, **options)
    for part in values.split(1):
        direct.add(part.numpy())
    observer = observer_of(calibrator, symmetric=symmetric)
    assert torch.equal(observer(values), values)
    low, high = direct.range()
    expected = observer._calculate_qparams(torch.tensor(low), torch.tensor(high))
    assert all(torch.equal(first, other) for first, other in zip(observer.calculate_qparams(), expected, strict=True))
    observer(torch.tensor([1.0, torch.inf]))
    assert observer.max_val == torch.inf


@pytest.mark.parametrize("calibrator", ["minmax", "histogram", "percentile", "mse"])
def test_the_order_and_the_cut_of_batches_do_not_matter(calibrator):
    """Scale and zero point are the same for any order of batches and any division into batches, and whoever asked for
    them in between, bit for bit."""
    batches = [heavy(1000, seed + 3) * 10.0**seed for seed in range(-3, 3)]
    observer = observe(observer_of(calibrator), *batches[:3])
    observer.calculate_qparams()
    calibrated = observe(observer, *batches[3:]).calculate_qparams()
    again = observe(observer_of(calibrator), *torch.cat(batches[::-1]).split(37)).calculate_qparams()
    assert all(torch.equal(first, other) for first, other in zip(calibrated, again, strict=True))


@pytest.mark.parametrize("percentile", [99.0, 99.9, 100.0])
def test_the_percentile_of_a_recipe_is_the_calibrators(percentile):
    """What a recipe names is kept; 100 keeps the extremes."""
    x = heavy()
    observer = observe(qconfig.activation_observer(Recipe(calibrator="percentile", percentile=percentile))(), x)
    tail = (1 - percentile / 100) / 2
    low, high = range_of(observer)
    assert high - low == pytest.approx(float(x.quantile(1 - tail) - x.quantile(tail)), rel=0.02)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("reduce_range", [False, True])
def test_least_squares_has_less_error_than_any_other_calibrator(symmetric, reduce_range):
    """On data with two outliers its squared error is well below minmax's and not above the others' (mse)."""
    x = torch.randn(400_000, generator=torch.Generator().manual_seed(0))
    x[0], x[1] = 12.0, -12.0
    names = ("minmax", "histogram", "percentile", "mse")
    observers = [observer_of(name, symmetric=symmetric, reduce_range=reduce_range) for name in names]
    errors = {
        name: squared_error(x, observe(each, *x.split(10_000))) for name, each in zip(names, observers, strict=True)
    }
    assert errors["mse"] < 0.7 * errors["minmax"]
    assert errors["mse"] <= 1.02 * min(errors.values())


def test_least_squares_of_values_of_one_sign_keeps_zero_at_the_lowest_level():
    """Behind a ReLU no level is lost below zero."""
    observer = observe(observer_of("mse"), heavy().relu())
    assert int(observer.calculate_qparams()[1]) == 0


@pytest.mark.parametrize("calibrator", CALIBRATORS)
@pytest.mark.parametrize("value", [0.0, 3.0, -2.5])
def test_a_constant_is_represented(calibrator, value):
    """A tensor of one value, zero too, gets a finite positive scale, and the value itself to within a step."""
    observer = observe(observer_of(calibrator), torch.full((100,), value))
    scale, _ = observer.calculate_qparams()
    low, high = range_of(observer)
    assert 0 < float(scale) < 1
    assert low - float(scale) <= value <= high + float(scale)


@pytest.mark.parametrize("calibrator", [name for name in CALIBRATORS if name != "moving_average"])
def test_small_values_keep_their_levels(calibrator):
    """Values a billion times smaller are rounded to a billionth of the error; zeros alone keep torch's least step."""
    values = torch.randn(4000, generator=torch.Generator().manual_seed(0))
    plain, small = (
        squared_error(values * size, observe(observer_of(calibrator), values * size)) / size**2
        for size in (1.0, 2.0**-30)
    )
    assert small == pytest.approx(plain, rel=1e-3)
    assert float(observe(observer_of(calibrator), torch.zeros(10)).calculate_qparams()[0]) == 2.0**-23


@pytest.mark.parametrize("size", [1e-45, 1e-39, 1e-36, 1e-34])
def test_the_histogram_takes_values_near_zero(size):
    """Values that no scale can tell apart are no error; larger ones then widen the range."""
    tiny = torch.linspace(-1.0, 1.0, 100) * size
    assert range_of(observe(observer_of("histogram"), tiny, tiny * 2))[1] < 1e-3
    larger = observe(observer_of("histogram"), tiny, torch.linspace(-1.0, 1.0, 1000))
    assert range_of(larger)[1] == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("calibrator", ["minmax", "histogram", "percentile", "mse"])
def test_a_clipped_observer_sees_and_passes_on_what_a_relu6_would(calibrator):
    """Its range, its output and so what later layers see are those behind the clamp."""
    x = heavy() * 4
    make = qconfig.activation_observer(Recipe(calibrator=calibrator))
    clipped, behind = ClippedObserver(make, 0.0, 6.0), make()
    passed = clipped(x)
    behind(nn.functional.relu6(x))
    assert torch.equal(passed, nn.functional.relu6(x))
    assert all(torch.equal(a, b) for a, b in zip(clipped.calculate_qparams(), behind.calculate_qparams(), strict=True))


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
    scale, zero = observe(first, heavy()).calculate_qparams()
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
