"""Rules of qbench/quant/pytorch/mean_errors.py: biases give back what rounded weights do on average."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch_int8_layers
from torch import nn

from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import eager, fx, mean_errors, torch_ao
from qbench.quant.pytorch.packed_layers import LayerKernel, layers
from qbench.quant.recipe import Recipe

ENGINE = "onednn" if "onednn" in torch.backends.quantized.supported_engines else "qnnpack"
BY_ONE_SCALE = Recipe(calibrator="minmax", per_channel=False, narrow_weights=True)  # which rounds most
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.ao.quantization is deprecated")


@pytest.fixture(autouse=True)
def _engine(engine_put_back):
    torch_ao.set_engine(ENGINE)


class Net(nn.Module):
    """A convolution, a depthwise and a transposed one, one of a single dimension, and Linear over tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.line = nn.Conv1d(8, 6, 3, padding=1)
        self.head = nn.Linear(6, 5)
        with torch.no_grad():  # so that one scale suits few of the weights
            for part in (self.conv, self.depthwise, self.line, self.head):
                part.weight[0] *= 8

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.up(torch.relu(self.depthwise(torch.relu(self.conv(x))))))
        return self.head(torch.relu(self.line(x.flatten(2))).transpose(1, 2))


def draw(count: int, seed: int) -> Any:
    return torch.rand(count, 3, 12, 12, generator=torch.Generator().manual_seed(seed)) + 0.2


def job_of(recipe: Recipe) -> QuantizeJob:
    return QuantizeJob(module=Net().eval(), engine=ENGINE, recipe=recipe, example=(draw(1, 0),))


def list_biases(int8: Any) -> dict[str, Any]:
    return {layer.name: layer.parameters.unpack()[1] for layer in layers(int8)}


@pytest.mark.parametrize("name", torch_int8_layers.LAYERS)
def test_means_are_those_of_what_the_layer_gives(name: str) -> None:
    """Over all places, with steps, rims and groups."""
    kernel, _ = torch_int8_layers.LAYERS[name]
    weight, x = (torch.from_numpy(array).double() for array in torch_int8_layers.draw(name))
    x = x[:, None].expand(-1, 3, -1) if kernel.kind == "linear" else x  # a Linear layer sees tokens
    outputs = kernel.exact(x, weight)
    places = tuple(range(2, outputs.dim())) if kernel.kind != "linear" else (1,)
    assert torch.allclose(mean_errors.find_means(kernel, x, weight), outputs.mean(dim=places))


def test_a_layer_may_read_one_row() -> None:
    """Without an axis of examples."""
    weight, x = torch.randn(4, 5), torch.randn(5)
    assert torch.allclose(mean_errors.find_means(LayerKernel(kind="linear"), x, weight), (weight @ x)[None], atol=1e-6)


def test_means_of_a_transposed_convolution_are_those_of_what_it_gives() -> None:
    """Whose places meet other weights."""
    kernel = LayerKernel(
        kind="conv_transpose", dimensions=2, stride=(2, 2), padding=(1, 1), dilation=(1, 1), output_padding=(1, 1)
    )
    weight, x = torch.randn(4, 2, 3, 3), torch.randn(3, 4, 5, 5)
    assert torch.allclose(mean_errors.find_means(kernel, x, weight), kernel.exact(x, weight).mean(dim=(2, 3)))


@pytest.mark.parametrize("flow", [fx, eager])
def test_the_mean_of_the_outputs_is_nearer_to_that_of_fp32(flow: Any) -> None:
    """On other examples, too; every layer that is a module has another bias, also one that had none."""
    recipe = replace(BY_ONE_SCALE, flow=flow.__name__.rpartition(".")[2])

    def build(recipe: Recipe) -> Any:
        return flow.static(job_of(recipe), lambda: [(draw(8, seed),) for seed in (1, 2, 3)]).module

    plain, given_back = build(replace(recipe, bias_correction=False)), build(recipe)
    x = draw(32, 9)
    with torch.inference_mode():
        expected = Net().eval()(x).mean(dim=(0, 1))
        off = [(int8(x).mean(dim=(0, 1)) - expected).abs().max() for int8 in (plain, given_back)]
    assert off[1] < 0.5 * off[0]
    before, after = list_biases(plain), list_biases(given_back)
    assert before.keys() == after.keys()
    assert len(before) == 5
    for name, bias in before.items():
        assert not torch.equal(torch.zeros_like(after[name]) if bias is None else bias, after[name]), name


def test_of_the_frameworks_default_biases_stay() -> None:
    """And of what was trained, which has learned them: no calibration is given there."""
    assert not Recipe(framework_default=True).gives_back_means
    assert not Recipe(bias_correction=False).gives_back_means
    assert Recipe().gives_back_means


@pytest.mark.parametrize(("batches", "is_changed"), [([1, 1], True), ([1], False), ([], False)])
def test_one_example_tells_no_mean(batches: list[int], is_changed: bool) -> None:
    """Nothing could tell it from chance."""
    recipe = replace(BY_ONE_SCALE, bias_correction=False)
    int8 = fx.static(job_of(recipe), lambda: [(draw(8, 1),)]).module
    before = list_biases(int8)
    floats = {name: part.weight.detach() for name, part in Net().named_modules() if hasattr(part, "weight")}
    mean_errors.give_back(int8, floats, [(draw(count, seed),) for seed, count in enumerate(batches)])
    after = list_biases(int8)
    changed = [name for name, bias in before.items() if bias is not None and not torch.equal(bias, after[name])]
    assert bool(changed) is is_changed


def test_so_many_examples_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """However they are cut into batches; no batch is asked for that is not needed."""
    monkeypatch.setattr(mean_errors, "EXAMPLES", 5)
    taken = mean_errors.take(iter([(torch.zeros(3),), (torch.zeros(3),), "not looked at"]))
    assert [len(batch[0]) for batch in taken] == [3, 2]
