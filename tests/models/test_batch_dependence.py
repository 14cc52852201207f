"""Rules of qbench/models/batch_dependence.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from qbench.errors import ModelError
from qbench.models.base import Network
from qbench.models.batch_dependence import require_independent
from qbench.models.dry_run import try_outputs

INPUTS = (np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32),)


class Layer(nn.Module):
    """A convolution behind which a function mixes or does not mix examples."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)
        self.function = function

    def forward(self, x):
        return self.function(self.conv(x)).flatten(1)


class Normalized(nn.Module):
    """A BatchNorm that keeps no running statistics."""

    def __init__(self, layer):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = layer

    def forward(self, x):
        return self.norm(self.conv(x)).flatten(1)


def check(module):
    """Tries a torch network as a run does."""
    network = Network(kind="torch", module=module.eval())
    require_independent(network, INPUTS, try_outputs(network, INPUTS))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - x.mean(0),
        lambda x: x.softmax(0),
        lambda x: x / x.std(0, correction=0).clamp(min=1e-3),
        lambda x: x + x.roll(1, 0),
        lambda x: x * x.abs().max(),
        lambda x: x / (x.amax(0) - x.amin(0)),
    ],
)
def test_a_network_that_mixes_examples_is_refused(function):
    """Whatever mixes them: the message says how far the outputs are apart and what to look for."""
    with pytest.raises(ModelError, match=r"another output alone than among 4 \(up to .*make it work on each example"):
        check(Layer(function))


def test_a_batchnorm_without_running_statistics_is_named():
    """It normalizes by the batch in eval mode, too."""
    with pytest.raises(ModelError, match=r"norm normalizes by the batch, since it has no running statistics; train"):
        check(Normalized(nn.BatchNorm2d(4, track_running_stats=False)))


@pytest.mark.parametrize(("count", "is_refused"), [(1, False), (2, True)])
def test_two_examples_are_enough_to_see_it(count, is_refused):
    """One alone says nothing."""
    network, inputs = Network(kind="torch", module=Layer(lambda x: x - x.mean(0)).eval()), (INPUTS[0][:count],)
    together = try_outputs(network, inputs)
    if not is_refused:
        require_independent(network, inputs, together)
        return
    with pytest.raises(ModelError, match="another output alone than among 2"):
        require_independent(network, inputs, together)


def test_outputs_whose_size_the_example_decides_are_not_compared():
    """Neither with each other nor with the batch's."""
    check(Layer(lambda x: x.flatten(1)[:, : 1 + int(x[0, 0, 0, 0] > 0)]))


class OwnBatchNorm(nn.Module):
    """A layer of the user's that is called so and has no statistics to keep."""

    def forward(self, x):
        return x - x.mean(0)


@pytest.mark.parametrize(
    ("module", "cause"),
    [
        (nn.BatchNorm2d(3, track_running_stats=False), "the network itself normalizes by the batch"),
        (Layer(OwnBatchNorm()), "something in it mixes examples"),
    ],
)
def test_a_layer_is_named_where_it_would_have_running_statistics(module, cause):
    """Also where it is all of the network."""
    with pytest.raises(ModelError, match=f"would depend on the batch: {cause}"):
        check(module)


def test_a_network_that_does_not_take_one_example_is_refused():
    """BatchNorm of one value a channel fails on a single example: that is said, not where it was met first."""

    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3, track_running_stats=False)

        def forward(self, x):
            return self.norm(x.mean((2, 3)))

    with pytest.raises(ModelError, match=r"takes 4 examples at once, but not one alone .*: norm normalizes by the"):
        check(One())


def test_a_random_network_is_told_apart():
    """Dropout that stays on is no matter of the batch."""
    with pytest.raises(ModelError, match=r"dropout at test_batch_dependence\.py:\d+ .* draws at random, so"):
        check(Layer(lambda x: nn.functional.dropout(x, 0.5, training=True)))


@pytest.mark.parametrize(
    "module",
    [
        Layer(lambda x: x.relu()),
        Normalized(nn.BatchNorm2d(4)),
        Normalized(nn.GroupNorm(2, 4)),
        Layer(lambda x: x.argmax(1, keepdim=True)),
        Layer(lambda x: x * 0),
    ],
)
def test_networks_that_keep_examples_apart_pass(module):
    """Kernels that add in another order for another batch are no mixing."""
    check(module)


@pytest.mark.parametrize(
    ("function", "is_refused"),
    [
        (lambda x: x * (1 + 0.02 * (len(x) > 1)), False),
        (lambda x: x * (1 + 0.1 * (len(x) > 1)), True),
        (lambda x: x + 0.01 * x.roll(1, 0), True),
        (lambda x: x + 0.01 * x.mean(0), True),
    ],
)
def test_roundings_that_follow_the_size_of_a_batch_are_no_mixing(function, is_refused):
    """An example that has the same output among copies of itself as among others mixes with none; far from what it has
    alone it is refused all the same."""
    if is_refused:
        with pytest.raises(ModelError, match="another output alone than among 4"):
            check(Layer(function))
    else:
        check(Layer(function))


def onnx_network(path: Path, batch: int | str, mixing: bool) -> Network:
    """x - x.mean(0), or x - 1, as a file."""
    shape = [batch, 3, 8, 8]
    value = helper.make_tensor_value_info
    axes = numpy_helper.from_array(np.array([0], dtype=np.int64), "axes")
    tensor = numpy_helper.from_array(np.ones(1, dtype=np.float32), "one")
    nodes = [helper.make_node("ReduceMean", ["x", "axes"], ["m"])] if mixing else []
    nodes.append(helper.make_node("Sub", ["x", "m" if mixing else "one"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, shape)],
        [axes if mixing else tensor],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), str(path))
    return Network(kind="onnx", path=path)


@pytest.mark.parametrize("batch", ["n", 2, 4, 6])
def test_an_onnx_file_that_mixes_examples_is_refused(tmp_path: Path, batch: int | str):
    """With a free batch and with a fixed one."""
    network = onnx_network(tmp_path / "m.onnx", batch, mixing=True)
    with pytest.raises(ModelError, match="another output alone than among"):
        require_independent(network, INPUTS, try_outputs(network, INPUTS))
    apart = onnx_network(tmp_path / "a.onnx", batch, mixing=False)
    require_independent(apart, INPUTS, try_outputs(apart, INPUTS))


def test_a_file_for_single_examples_cannot_mix_them(tmp_path: Path):
    """A fixed batch of 1 is its own proof."""
    network = onnx_network(tmp_path / "m.onnx", 1, mixing=True)
    require_independent(network, INPUTS, try_outputs(network, INPUTS))


def test_examples_along_another_axis_are_a_cause_of_several_inputs():
    """Where a network takes several inputs, the key that says where one of them has its examples is named."""

    class Stateful(nn.Module):
        def forward(self, x, state):
            return x + state.mean((0, 2))[:, None]

    network = Network(kind="torch", module=Stateful().eval())
    inputs = tuple(np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((4, 4), (4, 4, 2)))
    with pytest.raises(ModelError, match=r"or say where its examples lie along another axis: `inputs: \{state: \{axis"):
        require_independent(network, inputs, try_outputs(network, inputs))


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_outputs_of_any_size_are_compared(scale):
    """By a share of the largest."""
    with pytest.raises(ModelError, match="another output alone than among 4"):
        check(Layer(lambda x: scale * (x - x.mean(0))))
    with pytest.raises(ModelError, match="gives another output each time for the same examples"):
        check(Layer(lambda x: scale * nn.functional.dropout(x, 0.5, training=True)))
    check(Layer(lambda x: scale * x.relu()))


def test_outputs_that_are_no_numbers_are_told_elsewhere():
    """Nothing is near to NaN, alone or among others."""
    check(Layer(lambda x: x * float("nan")))


@pytest.mark.parametrize(("count", "named"), [(3, "0, 1, 2 normalizes"), (4, "0, 1, 2 and 1 more normalizes")])
def test_the_first_three_layers_that_normalize_by_the_batch_are_named(count, named):
    """And how many more there are."""
    layers = [nn.BatchNorm2d(3, track_running_stats=False) for _ in range(count)]
    with pytest.raises(ModelError, match=f"would depend on the batch: {named} by the batch"):
        check(nn.Sequential(*layers))
