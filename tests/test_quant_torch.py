"""The torch pipeline on real engines: int8 that is proven, saved and refused where it must be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from networks import Branching, Forgetful, Grouped, NothingToQuantize, lstm, perceptron, residual_cnn

from qbench.errors import BuildError
from qbench.quant import coverage, qat, torch_ao, torchscript
from qbench.quant.recipe import Recipe

RECIPE = Recipe(calibrator="histogram", per_channel=True)
ENGINES = [engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines]


@pytest.fixture(autouse=True)
def _engine():
    """The engine is process-global: each test leaves it as it was."""
    before = torch.backends.quantized.engine
    yield
    torch.backends.quantized.engine = before


def images(n=64):
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def labels(n=64):
    return torch.randint(0, 10, (n,), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("engine", ENGINES)
def test_static_quantizes_every_layer_and_stays_close(engine):
    """On each engine all multiply-accumulates run in int8 and the outputs stay near fp32."""
    torch_ao.set_engine(engine)
    model = residual_cnn()
    int8 = torch_ao.static(model, engine, RECIPE, (images(),))
    with torch.inference_mode():
        error = float((int8(images()) - model(images())).abs().max())
    seen = torchscript.layers(int8, (images(1),))
    assert coverage.share(coverage.align(torchscript.layers(model, (images(1),)), seen)) == 1.0
    assert 0 < error < 0.1


def test_the_fp32_model_is_never_touched():
    """Every flow works on a copy."""
    model = residual_cnn()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch_ao.set_engine(ENGINES[0])
    torch_ao.static(model, ENGINES[0], RECIPE, (images(),))
    torch_ao.dynamic(model, Recipe())
    qat.train(model, ENGINES[0], RECIPE, (images(),), labels(), lambda *_: None)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training


def test_dynamic_covers_linear_and_lstm():
    """LSTM and Linear hold int8 weights; the layers read from the saved file say so by name."""
    torch_ao.set_engine(ENGINES[0])
    model = lstm()
    found = coverage.align(
        torchscript.layers(model, (images(1),)), torchscript.layers(torch_ao.dynamic(model, Recipe()), (images(1),))
    )
    assert [(one.name, one.int8) for one in found] == [("lstm", True), ("head", True)]


def test_static_leaves_an_lstm_float_and_says_so():
    """Recurrent layers stay float in static; coverage names them."""
    torch_ao.set_engine(ENGINES[0])
    model = lstm()
    int8 = torch_ao.static(model, ENGINES[0], RECIPE, (images(),))
    found = coverage.align(torchscript.layers(model, (images(1),)), torchscript.layers(int8, (images(1),)))
    assert [one.name for one in found if not one.int8] == ["lstm"]
    assert 0 < coverage.share(found) < 0.2


@pytest.mark.parametrize("flow", ["static", "qat", "dynamic"])
def test_skipped_layers_stay_float(flow):
    """skip_layers keeps a layer out of int8, in every flow."""
    engine = ENGINES[0]
    torch_ao.set_engine(engine)
    model, recipe = perceptron(), Recipe(per_channel=True, skip_layers=("first",), epochs=1, batch_size=32)
    if flow == "static":
        int8 = torch_ao.static(model, engine, recipe, (images(),))
    elif flow == "qat":
        int8 = qat.train(model, engine, recipe, (images(),), labels(), lambda *_: None).module
    else:
        int8 = torch_ao.dynamic(model, recipe)
    found = coverage.align(torchscript.layers(model, (images(1),)), torchscript.layers(int8, (images(1),)))
    assert [one.name for one in found if not one.int8] == ["first"]


@pytest.mark.parametrize("make", ["static", "dynamic"])
def test_an_unknown_layer_to_skip_is_an_error_that_lists_the_layers(make):
    """A misspelt name must not pass silently."""
    torch_ao.set_engine(ENGINES[0])
    recipe = Recipe(skip_layers=("frist",))
    flows = {
        "static": lambda: torch_ao.static(perceptron(), ENGINES[0], recipe, (images(),)),
        "dynamic": lambda: torch_ao.dynamic(perceptron(), recipe),
    }
    with pytest.raises(BuildError, match="no layer named frist; there are first, second"):
        flows[make]()


def test_control_flow_that_fx_cannot_trace_is_explained():
    """The message says what FX cannot follow and where to go."""
    with pytest.raises(BuildError, match="FX cannot trace this model.*onnxruntime"):
        torch_ao.static(Branching().eval(), ENGINES[0], RECIPE, (images(),))


def test_a_qat_without_fake_quantize_is_refused():
    """What would be plain fp32 training is not called QAT."""
    with pytest.raises(BuildError, match="no fake-quantize"):
        torch_ao.prepare_qat(NothingToQuantize(), ENGINES[0], RECIPE, (images(1),))


def test_static_without_calibration_is_refused():
    """torch only warns and returns zeros; qbench refuses."""
    with pytest.raises(BuildError, match="calibration observed nothing"):
        torch_ao.static(perceptron(), ENGINES[0], RECIPE, (images(0),))


def test_dynamic_without_a_layer_for_it_is_refused():
    """A model of convolutions has nothing that dynamic quantization covers."""
    with pytest.raises(BuildError, match="use static instead"):
        torch_ao.dynamic(NothingToQuantize(), Recipe())


def test_an_unknown_engine_lists_those_there_are():
    """Engines differ by build of torch."""
    with pytest.raises(BuildError, match="no quantized engine 'vnni'; it has .*onednn"):
        torch_ao.set_engine("vnni")


def test_qat_is_seeded():
    """The same seed gives the same int8 model; another seed another one."""
    engine = ENGINES[0]
    torch_ao.set_engine(engine)

    def outputs(seed):
        recipe = Recipe(per_channel=True, epochs=1, batch_size=16, learning_rate=1e-2, seed=seed)
        model = qat.train(perceptron(), engine, recipe, (images(),), labels(), lambda *_: None).module
        with torch.no_grad():
            return model(images())

    one = outputs(0)
    assert torch.equal(one, outputs(0))
    assert not torch.equal(one, outputs(1))


def test_qat_learns():
    """Training with fake quantization lowers the loss of the int8 model on its own data."""
    engine = ENGINES[0]
    torch_ao.set_engine(engine)
    x, y = images(128), labels(128)
    recipe = Recipe(per_channel=True, epochs=100, batch_size=32, learning_rate=1e-2, seed=0)
    int8 = qat.train(perceptron(), engine, recipe, (x,), y, lambda *_: None).module
    with torch.no_grad():
        before = float(torch.nn.functional.cross_entropy(perceptron()(x), y))
        after = float(torch.nn.functional.cross_entropy(int8(x), y))
    assert after < 0.8 * before


def test_a_diverging_qat_is_stopped():
    """A loss that is no longer finite ends the build with what to do."""
    recipe = Recipe(per_channel=True, epochs=20, batch_size=16, learning_rate=1e30, seed=0)
    with pytest.raises(BuildError, match="QAT diverged.*lower learning_rate"):
        qat.train(perceptron(), ENGINES[0], recipe, (images() * 1e3,), labels(), lambda *_: None)


def test_multiply_accumulates_are_exact():
    """Counted from what ran: plain, depthwise and transposed convolution, linear."""
    found = {one.name: one.macs for one in torchscript.layers(Grouped().eval(), (images(1),))}
    assert found == {
        "grouped": 8 * 8 * 8 * 9,
        "depthwise": 8 * 4 * 4 * 9,
        "up": 8 * 4 * 4 * 4 * 4,
        "head": 4 * 10,
    }


def test_lstm_multiply_accumulates_are_exact():
    """4 gates x hidden x (input + hidden) for each of 8 rows; the same in fp32 and int8."""
    torch_ao.set_engine(ENGINES[0])
    expected = 8 * 4 * 16 * (8 + 16)
    assert torchscript.layers(lstm(), (images(1),))[0].macs == expected
    assert torchscript.layers(torch_ao.dynamic(lstm(), Recipe()), (images(1),))[0].macs == expected


def test_a_saved_model_gives_what_its_module_gives(tmp_path):
    """The reloaded file takes other batch sizes than it was traced with, and agrees with the module."""
    torchscript.save(residual_cnn(), (images(4),), tmp_path / "a.pt")
    with torch.inference_mode():
        found, expected = torchscript.load(tmp_path / "a.pt")(images(3)), residual_cnn()(images(3))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)


def test_a_forward_that_changes_by_itself_is_refused(tmp_path):
    """A traced model that does not give its module's outputs is not what it claims to be."""

    class Random(torch.nn.Module):
        def forward(self, x):
            return torch.flatten(x, 1)[:, :10] + torch.rand(10)

    with pytest.raises(BuildError, match="outputs differ from call to call: is dropout or randomness left on"):
        torchscript.save(Random(), (images(1),), tmp_path / "x.pt")


def test_dropout_that_nobody_turned_off_is_named(tmp_path):
    """A functional dropout knows nothing of eval mode."""
    with pytest.raises(BuildError, match="differ from call to call: is dropout"):
        torchscript.save(Forgetful().eval(), (images(4),), tmp_path / "x.pt")


def test_control_flow_that_tracing_froze_is_refused(tmp_path):
    """A branch on values is found on other examples than the traced one."""
    signs = torch.tensor([1.0, -1.0]).reshape(2, 1, 1, 1)
    with pytest.raises(BuildError, match=r"froze a decision at networks\.py:\d+ \(if float"):
        torchscript.save(Branching().eval(), (images(2) * signs,), tmp_path / "x.pt")
