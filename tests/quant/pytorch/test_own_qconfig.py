"""A network's own qconfig: honoured by the recipe that takes it, read by no other, refused in one sentence."""

from __future__ import annotations

import types

import numpy as np
import pytest
import torch
from networks import lstm, perceptron, residual_cnn
from torch import nn
from torch.ao import quantization as tq

from qbench import registry
from qbench.backends import torch_quantize
from qbench.backends.base import BuildJob
from qbench.errors import BuildError, ModeImpossible
from qbench.models.base import Network
from qbench.quant.pytorch import own_qconfig, torch_ao
from qbench.quant.recipe import Recipe

ENGINE = next(engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines)
ACTIVATION = {"dtype": torch.quint8, "quant_min": 0, "quant_max": 15}
WEIGHT = {"dtype": torch.qint8, "quant_min": -8, "quant_max": 7, "qscheme": torch.per_tensor_symmetric}
FOUR_BITS = {
    "static": tq.QConfig(
        activation=tq.MinMaxObserver.with_args(**ACTIVATION), weight=tq.MinMaxObserver.with_args(**WEIGHT)
    ),
    "dynamic": tq.QConfig(
        activation=tq.default_dynamic_qconfig.activation, weight=tq.MinMaxObserver.with_args(**WEIGHT)
    ),
    "qat": tq.QConfig(
        activation=tq.FakeQuantize.with_args(observer=tq.MovingAverageMinMaxObserver, **ACTIVATION),
        weight=tq.FakeQuantize.with_args(observer=tq.MovingAverageMinMaxObserver, **WEIGHT),
    ),
}


@pytest.fixture(autouse=True)
def _engine(engine_put_back):
    torch_ao.set_engine(ENGINE)


def images(n=64):
    return (np.random.default_rng(0).random((n, 1, 8, 8), dtype=np.float32),)


def quantized(module, mode, *, flow=None, qconfig="own", folder=None):
    backend = registry.load("backend", ENGINE)
    asked = Recipe(flow=flow, qconfig=qconfig, epochs=1, learning_rate=1e-3, batch_size=32, seed=0)
    job = BuildJob(
        network=Network(kind="torch", module=module),
        mode=mode,
        recipe=backend.resolve(mode, asked),
        calibration=images(),
        training=(images(), np.arange(64) % 10) if mode == "qat" else None,
        folder=folder,
    )
    example = tuple(torch.from_numpy(array[:1]) for array in images())
    return torch_quantize.quantize_network(job, ENGINE, example)


def outputs(module):
    with torch.no_grad():
        return module(*map(torch.from_numpy, images()))


def error(module, converted):
    """The distance of the int8 network's outputs from fp32, as a share."""
    wanted = outputs(module)
    return float((outputs(converted.module) - wanted).norm() / wanted.norm())


def with_qconfig(module, config, at=""):
    module.get_submodule(at).qconfig = config
    return module


@pytest.mark.parametrize("flow", ["fx", "eager"])
@pytest.mark.parametrize(("mode", "make"), [("static", residual_cnn), ("dynamic", perceptron), ("qat", residual_cnn)])
def test_four_bits_give_other_answers(mode, make, flow):
    """A 4-bit qconfig is further from fp32 than 8 bits are, and the network that was given keeps it."""
    module = with_qconfig(make(), FOUR_BITS[mode])
    eight = error(make(), quantized(make(), mode, flow=flow, qconfig=None))
    four = error(module, quantized(module, mode, flow=flow))
    assert four > 2 * eight > 0
    assert module.qconfig is FOUR_BITS[mode]


@pytest.mark.parametrize("flow", ["fx", "eager"])
@pytest.mark.parametrize(("mode", "make"), [("static", residual_cnn), ("dynamic", perceptron), ("qat", residual_cnn)])
def test_no_other_recipe_reads_it(mode, make, flow):
    """torch's converters read the attribute of a layer whatever they are told (QAT of fx, dynamic of eager): the
    default recipe gives the very same with it as without."""
    plain, module = make(), make()
    for part in module.modules():
        part.qconfig = FOUR_BITS[mode]
    plain, given = (quantized(network, mode, flow=flow, qconfig=None) for network in (plain, module))
    assert torch.equal(outputs(plain.module), outputs(given.module))


@pytest.mark.parametrize("flow", ["fx", "eager"])
def test_no_other_recipe_reads_that_a_layer_has_none(flow):
    """torch's eager converter takes the None of a layer in place of what it is told: dynamic is int8 all the same."""
    plain, module = perceptron(), with_qconfig(perceptron(), FOUR_BITS["static"])
    last = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)][-1]
    given = quantized(with_qconfig(module, None, last), "dynamic", flow=flow, qconfig=None)
    assert torch.equal(outputs(quantized(plain, "dynamic", flow=flow, qconfig=None).module), outputs(given.module))


@pytest.mark.parametrize("flow", ["fx", "eager"])
def test_a_layer_whose_qconfig_is_none_stays_float(flow):
    """Its reason says so; the layers around it are int8."""
    module = with_qconfig(perceptron(), tq.get_default_qconfig(ENGINE))
    last = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)][-1]
    converted = quantized(with_qconfig(module, None, last), "static", flow=flow)
    assert converted.conversion.float_reasons == {last: own_qconfig.FLOAT}
    assert "quantized" in str(type(list(converted.module.modules())[1]))


@pytest.mark.parametrize("flow", ["fx", "eager"])
@pytest.mark.parametrize("attribute", ["qconfig", "qconfig_mapping"])
def test_a_mapping_is_honoured(flow, attribute):
    """By type and by name, under either attribute."""
    module = perceptron()
    last = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)][-1]
    eight = error(module, quantized(module, "static", flow=flow, qconfig=None))
    mapping = tq.QConfigMapping().set_global(FOUR_BITS["static"]).set_module_name(last, None)
    setattr(module, attribute, mapping)
    converted = quantized(module, "static", flow=flow)
    assert list(converted.conversion.float_reasons) == [last]
    assert error(perceptron(), converted) > eight


def of(activation, weight):
    return types.SimpleNamespace(activation=activation, weight=weight)


@pytest.mark.parametrize(
    ("config", "mode", "kind", "said"),
    [
        (None, "static", ModeImpossible, "no layer of this network has a qconfig for the recipe `qconfig: own`; set"),
        (of(tq.MinMaxObserver(), tq.MinMaxObserver), "static", BuildError, r"holds an observer itself, .* `MinMaxObs"),
        ("int8", "static", BuildError, r"a qconfig is str, not a QConfig\(activation=…, weight=…\)"),
        (of(lambda: 1 / 0, tq.MinMaxObserver), "static", BuildError, "makes no observer: ZeroDivisionError"),
        (FOUR_BITS["qat"], "static", ModeImpossible, r"static cannot take the qconfig of .*: it is one of qat \(f"),
        (FOUR_BITS["static"], "qat", ModeImpossible, r"one of static .* make it by .*get_default_qat_"),
        (FOUR_BITS["static"], "dynamic", ModeImpossible, r"one of static \(obs.*\); make it by .*dynamic_"),
        (tq.float16_dynamic_qconfig, "dynamic", BuildError, r"cannot run the .*: its activations are float16"),
        (
            of(tq.MinMaxObserver.with_args(dtype=torch.qint8), FOUR_BITS["static"].weight),
            "static", BuildError, f"{ENGINE} cannot run the qconfig of first, second: its activations are qint8, and",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_message(config, mode, kind, said):
    """Of all layers at once, with what to write instead."""
    with pytest.raises(BuildError, match=said) as raised:
        quantized(with_qconfig(perceptron(), config), mode)
    assert type(raised.value) is kind


def test_recurrent_layers_are_dynamic_by_their_own():
    """A qconfig on a submodule alone leaves the others float."""
    module = lstm()
    name = next(name for name, part in module.named_modules() if isinstance(part, nn.LSTM))
    converted = quantized(with_qconfig(module, tq.default_dynamic_qconfig, name), "dynamic")
    assert "DynamicQuantizedLSTM" in repr(converted.module)
    assert set(converted.conversion.float_reasons.values()) == {own_qconfig.FLOAT}


def activations_up_to(top):
    observer = tq.MinMaxObserver if top is None else tq.MinMaxObserver.with_args(quant_min=0, quant_max=top)
    return of(observer, tq.MinMaxObserver)


@pytest.mark.parametrize(
    ("tops", "seven"), [((127,), True), ((128,), False), ((None,), False), ((127, 127), True), ((127, 255), False)]
)
def test_seven_bits_are_levels_up_to_127_in_every_layer(tops, seven):
    """A layer that stays float says nothing of it."""
    first, *more = [activations_up_to(top) for top in tops]
    mapping = tq.QConfigMapping().set_global(first).set_module_name("float", None)
    for config in more:
        mapping.set_module_name("last", config)
    assert own_qconfig.seven_bits(own_qconfig.OwnQConfigs(mapping=mapping)) is seven


def test_levels_below_zero_are_no_seven_bits():
    """An observer of the user's own may end where no byte of an activation begins."""

    class Below(tq.MinMaxObserver):
        def __init__(self, **options):
            super().__init__(**options)
            self.quant_max = -1

    mapping = tq.QConfigMapping().set_global(of(Below, tq.MinMaxObserver))
    assert not own_qconfig.seven_bits(own_qconfig.OwnQConfigs(mapping=mapping))


def test_what_stands_for_the_network_is_the_first_that_is_there():
    """Its own, else that of a type, a pattern or a name."""
    empty = tq.QConfigMapping()
    for table, config in (("set_module_name", "name"), ("set_module_name_regex", "pattern"), ("set_global", "network")):
        getattr(empty, table)(*(("a", config) if table != "set_global" else (config,)))
        assert own_qconfig.OwnQConfigs(mapping=empty).between == config
    typed = tq.QConfigMapping().set_object_type(nn.ReLU, None).set_object_type(nn.Linear, "type")
    assert own_qconfig.OwnQConfigs(mapping=typed.set_module_name("a", "name")).between == "type"


class OfClass(nn.Sequential):
    """A network whose class says what its layers have."""

    qconfig = FOUR_BITS["static"]


def test_a_network_is_taken_without_what_its_author_said():
    """What stands on the class, too, in a copy; a layer that is to be float stays one, and a network without a word
    comes back itself."""
    module = OfClass(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    module[0].qconfig, module[1].qconfig = None, FOUR_BITS["static"]
    bare, own = own_qconfig.take(module)
    assert bare is not module
    assert module.qconfig is module[1].qconfig is FOUR_BITS["static"]
    assert vars(bare)["qconfig"] is None
    assert [getattr(part, "qconfig", "none") for part in bare] == [None, "none", "none"]
    assert [own.of(name, nn.Linear) for name in ("0", "1", "2")] == [None, *[FOUR_BITS["static"]] * 2]
    assert own.float_layers(module) == {"0": own_qconfig.FLOAT}
    plain = nn.Linear(2, 2)
    assert own_qconfig.take(plain) == (plain, None)


def test_a_network_that_is_one_layer_has_no_float_layer():
    """Without a name there is none to keep float; the network itself is named as such."""
    module = with_qconfig(nn.Linear(2, 2), of(lambda: 1 / 0, tq.MinMaxObserver))
    bare, own = own_qconfig.take(module)
    with pytest.raises(BuildError, match="^the qconfig of the network makes no observer: ZeroDivisionError"):
        own_qconfig.read(bare, own, "static", ENGINE)
    own.mapping.set_global(None)
    assert own.float_layers(bare) == {}
    with pytest.raises(ModeImpossible, match="no layer of this network has a qconfig"):
        own_qconfig.read(bare, own, "static", ENGINE)


def test_every_layer_that_cannot_be_is_counted():
    """By reason: three names, and how many more; what no kernel computes goes before another mode."""
    module = nn.Sequential(*[nn.Linear(2, 2) for _ in range(6)])
    module.qconfig = of(tq.MinMaxObserver.with_args(dtype=torch.qint8), tq.MinMaxObserver.with_args(dtype=torch.qint8))
    module[4].qconfig, module[5].qconfig = FOUR_BITS["qat"], of(tq.MinMaxObserver, tq.MinMaxObserver)
    with pytest.raises(BuildError) as raised:
        own_qconfig.read(*own_qconfig.take(module), "static", "fbgemm")
    takes = "and the int8 kernels of torch take {} (of up to 8 bits)".format
    assert str(raised.value) == (
        f"fbgemm cannot run the qconfig of 0, 1, 2 and 1 more: its activations are qint8, {takes('quint8')}; "
        f"5: its weights are quint8, {takes('qint8')}"
    )


def test_a_lack_of_memory_is_no_fault_of_a_qconfig():
    """It goes up as it is."""

    def full():
        raise MemoryError

    module = with_qconfig(nn.Linear(2, 2), of(full, tq.MinMaxObserver))
    with pytest.raises(MemoryError):
        own_qconfig.read(*own_qconfig.take(module), "static", ENGINE)
