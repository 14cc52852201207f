"""The boundary to torch.ao, its engines, and what is read from and written to TorchScript."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from networks import BranchingAsTraced, Forgetful, Grouped, lstm, residual_cnn

from qbench.errors import BuildError
from qbench.quant.artifacts import torchscript, tracing
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import dynamic, torch_ao
from qbench.quant.recipe import Recipe

ENGINES = [engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines]


@pytest.fixture(autouse=True)
def _engine(engine_put_back):
    """Each test leaves it as it was."""


def images(n=64):
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", [*torch_ao._WHERE, *torch_ao._NAMESPACES])
def test_every_name_of_the_boundary_exists(name):
    """What the boundary offers is torch's own object, and importing it warns of nothing."""
    where = torch_ao._WHERE.get(name)
    value = getattr(torch_ao, name)
    assert value is (
        getattr(importlib.import_module(where), name) if where else importlib.import_module(value.__name__)
    )


def test_a_name_that_the_boundary_does_not_have_is_an_error():
    """A typing mistake fails as in any module."""
    with pytest.raises(AttributeError, match="has no attribute 'prepare_fy'"):
        _ = torch_ao.prepare_fy


def test_setting_an_engine_loads_no_more_than_torch():
    """Importing the boundary loads no torch, and setting an engine loads no graph quantization: planning and measuring
    processes pay for nothing that they do not use."""
    code = (
        "import sys; from qbench.quant.pytorch import torch_ao; print('torch' in sys.modules); "
        "torch_ao.set_engine(sys.argv[1]); print('torch.ao.quantization.quantize_fx' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, ENGINES[0]], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_an_unknown_engine_lists_those_there_are():
    """Engines differ by build of torch."""
    with pytest.raises(BuildError, match="no quantized engine 'vnni'; it has .*onednn"):
        torch_ao.set_engine("vnni")


def test_multiply_accumulates_are_exact():
    """Counted from what ran: plain, depthwise and transposed convolution, linear."""
    actual = {layer.name: layer.macs for layer in torchscript.find_layers(Grouped().eval(), (images(1),))}
    assert actual == {
        "grouped": 8 * 8 * 8 * 9,
        "depthwise": 8 * 4 * 4 * 9,
        "up": 8 * 4 * 4 * 4 * 4,
        "head": 4 * 10,
    }


def test_lstm_multiply_accumulates_are_exact():
    """4 gates x hidden x (input + hidden) for each of 8 rows; the same in fp32 and int8."""
    torch_ao.set_engine(ENGINES[0])
    expected = 8 * 4 * 16 * (8 + 16)
    assert torchscript.find_layers(lstm(), (images(1),))[0].macs == expected
    int8 = dynamic.by_module(QuantizeJob(lstm(), ENGINES[0], Recipe(), (images(1),))).module
    assert torchscript.find_layers(int8, (images(1),))[0].macs == expected


def test_a_saved_model_gives_what_its_module_gives(tmp_path):
    """The reloaded file takes other batch sizes than it was traced with, and agrees with the module."""
    torchscript.save(residual_cnn(), (images(4),), tmp_path / "a.pt")
    with torch.inference_mode():
        actual, expected = torchscript.load(tmp_path / "a.pt")(images(3)), residual_cnn()(images(3))
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)


def test_a_forward_that_changes_by_itself_is_refused(tmp_path):
    """A traced model that does not give its module's outputs is not what it claims to be."""

    class Random(torch.nn.Module):
        def forward(self, x):
            return torch.flatten(x, 1)[:, :10] + torch.rand(10)

    message = r"outputs differ from call to call: rand at test_torch_flows\.py:\d+ .* draws at random"
    with pytest.raises(BuildError, match=message):
        torchscript.save(Random(), (images(1),), tmp_path / "x.pt")


def test_dropout_that_nobody_turned_off_is_named(tmp_path):
    """A functional dropout knows nothing of eval mode."""
    message = r"differ from call to call: dropout at networks\.py:\d+ .* draws at random; turn dropout off"
    with pytest.raises(BuildError, match=message):
        torchscript.save(Forgetful().eval(), (images(4),), tmp_path / "x.pt")


def test_control_flow_that_tracing_froze_is_refused(tmp_path):
    """A branch on values is found on other examples than the traced one."""
    signs = torch.tensor([1.0, -1.0]).reshape(2, 1, 1, 1)
    with pytest.raises(BuildError, match=r"froze a decision at networks\.py:\d+ \(if float"):
        torchscript.save(BranchingAsTraced().eval(), (images(2) * signs,), tmp_path / "x.pt")


def test_products_that_no_layer_makes_are_counted():
    """Attention, matmul, einsum and their kind multiply and accumulate, too: a share of int8 without them flatters."""

    class Products(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 3)

        def forward(self, x, y):
            mixed = torch.nn.functional.scaled_dot_product_attention(x, x, y)
            others = mixed @ y.mT, torch.einsum("bhld,bhmd->bhlm", x, y), x[0, 0, 0].dot(x[0, 0, 1])
            packed = torch.nn.utils.rnn.pack_padded_sequence(x[0], torch.tensor([5, 2]), batch_first=True)
            return others, self.lstm(packed)

    layers = torchscript.find_layers(Products().eval(), (torch.rand(1, 2, 5, 4), torch.rand(1, 2, 5, 4)))
    assert [layer.macs for layer in layers] == [2 * 2 * 5 * 5 * 4, 2 * 5 * 5 * 4, 2 * 5 * 5 * 4, 4, 7 * 4 * 3 * (4 + 3)]
    assert not any(layer.int8 for layer in layers)
    assert layers[-1].name == "lstm"


F, nn = torch.nn.functional, torch.nn


def _int8(x):
    return torch.quantize_per_tensor(x, 0.05, 10, torch.quint8)


_STILL = torch.zeros(4), torch.ones(4)
# What FX runs on int8 tensors without weights (torch's native backend configuration), each on an image or on a signal.
ON_INT8 = {
    "add": lambda x: torch.ops.quantized.add(x, x, 0.1, 10),
    "add_relu": lambda x: torch.ops.quantized.add_relu(x, x, 0.1, 10),
    "mul": lambda x: torch.ops.quantized.mul(x, x, 0.1, 10),
    "mul_relu": lambda x: torch.ops.quantized.mul_relu(x, x, 0.1, 10),
    "add_scalar": lambda x: torch.ops.quantized.add_scalar(x, 0.5),
    "mul_scalar": lambda x: torch.ops.quantized.mul_scalar(x, 0.5),
    "cat": lambda x: torch.ops.quantized.cat([x, x], 1, 0.1, 10),
    "torch_cat": lambda x: torch.cat([x, x], 1),
    "stack": lambda x: torch.stack([x, x]),
    "elu": lambda x: torch.ops.quantized.elu(x, 0.1, 10),
    "leaky_relu": lambda x: torch.ops.quantized.leaky_relu(x, 0.1, False, 0.1, 10),
    "hardswish": lambda x: torch.ops.quantized.hardswish(x, 0.1, 10),
    "prelu": lambda x: torch.ops.quantized.prelu(x, _int8(torch.ones(1)), 0.1, 10),
    "instance_norm": lambda x: torch.ops.quantized.instance_norm(x, None, None, 1e-5, 0.1, 10),
    "group_norm": lambda x: torch.ops.quantized.group_norm(x, 2, None, None, 1e-5, 0.1, 10),
    "layer_norm": lambda x: torch.ops.quantized.layer_norm(x, [8], None, None, 1e-5, 0.1, 10),
    "batch_norm": lambda x: torch.ops.quantized.batch_norm2d(x, *reversed(_STILL), *_STILL, 1e-5, 0.1, 10),
    "hardsigmoid": lambda x: F.hardsigmoid(x),
    "sigmoid": lambda x: torch.sigmoid(x),
    "softmax": lambda x: torch.ops.quantized.softmax(x, -1, 0.01, 0),
    "tanh": lambda x: torch.tanh(x),
    "matmul": lambda x: torch.ops.quantized.matmul(x, x, 0.1, 10),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool3d": lambda x: F.avg_pool3d(x.unsqueeze(0), 2),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x.unsqueeze(0), 1),
    "max_pool1d": lambda x: F.max_pool1d(x.flatten(0, 1), 2),
    "avg_pool1d": lambda x: F.avg_pool1d(x.flatten(0, 1), 2),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x.flatten(0, 1), 2),
    "hardtanh": lambda x: F.hardtanh(x),
    "hardtanh_": lambda x: F.hardtanh_(x),
    "relu": lambda x: F.relu(x),
    "relu6": lambda x: F.relu6(x),
    "clamp": lambda x: x.clamp(0, 1),
    "interpolate_nearest": lambda x: F.interpolate(x, scale_factor=2.0),
    "interpolate_size": lambda x: F.interpolate(x, size=(5, 7)),
    "interpolate_bilinear": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "interpolate_nearest_3d": lambda x: F.interpolate(x.unsqueeze(2), scale_factor=2.0),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "flatten": lambda x: x.flatten(1),
    "mean": lambda x: x.mean((2, 3)),
    "narrow": lambda x: x.narrow(1, 0, 2),
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "transpose": lambda x: x.transpose(1, 2),
    "permute": lambda x: x.permute(0, 2, 3, 1).contiguous(),
    "reshape": lambda x: x.reshape(1, -1),
    "view": lambda x: x.view(1, -1),
    "chunk": lambda x: x.chunk(2, 1)[1],
    "slice": lambda x: x[:, ::2, 1:],
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "pad": lambda x: F.pad(x, (1, 1, 1, 1)),
    "dropout": lambda x: F.dropout(x, training=False),
    "max": lambda x: x.max(),
    "topk": lambda x: x.topk(2)[0],
    "clone": lambda x: x.clone(),
    "detach": lambda x: x.detach(),
}  # fmt: skip


@pytest.mark.parametrize("name", ON_INT8)
def test_counting_layers_leaves_operators_on_int8_tensors_as_they_are(name):
    """What runs in a module and in its trace runs under the count, too: torch's Python decompositions of operators
    such as upsample_nearest2d refuse int8 tensors, and every U-Net and FPN with nearest upsampling failed."""

    class Network(nn.Module):
        def forward(self, x):
            y = ON_INT8[name](_int8(x))
            return y.dequantize() @ torch.ones(y.shape[-1], 3) if y.dim() else y.dequantize()

    network, x = Network().eval(), torch.rand(1, 4, 8, 8)
    expected = call_of(network, x)
    traced = tracing.trace(network, (x,)).script
    for module in (network, traced):
        layers = torchscript.find_layers(module, (x,))
        assert len(layers) == (1 if expected.dim() else 0)  # the product behind the operator


def test_a_count_that_fails_says_why_and_fails_nothing(monkeypatch):
    """The artifact runs; only its coverage is not known. What cannot be read back is refused as before."""

    def broken(*_):
        raise ValueError("Invalid dtype!")

    monkeypatch.setattr(torchscript, "_multiply_accumulates", broken)
    network, x = nn.Linear(3, 2).eval(), torch.rand(1, 3)
    reason = "its operators cannot be watched (ValueError: Invalid dtype! at test_torch_flows.py:"
    layers, why = torchscript.count_layers(network, (x,))
    assert layers == ()
    assert why is not None
    assert why.startswith(reason)


def call_of(module, *inputs):
    with torch.inference_mode():
        return module(*inputs)
