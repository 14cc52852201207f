"""Rules of qbench/quant/pytorch/kernel_probe.py: which kernels are tried, and what is said of those that are wrong."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qbench.quant.pytorch import kernel_probe, torch_ao

ENGINES = [engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines]
pytestmark = pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")


@pytest.fixture(autouse=True)
def _engine(engine_put_back):
    """Each test leaves it as it was."""


@pytest.mark.parametrize("engine", ENGINES)
def test_ordinary_convolutions_pass_the_probe(engine):
    """The probe finds nothing wrong with the usual shapes, grouped, strided and dilated ones too."""
    torch_ao.set_engine(engine)
    usual = nn.ModuleList(
        nn.Conv2d(8, 16, kernel, stride=stride, padding=kernel // 2, groups=groups, dilation=dilation)
        for kernel, stride, groups, dilation in [(1, 1, 1, 1), (3, 1, 1, 1), (3, 2, 8, 1), (5, 2, 8, 1), (3, 1, 2, 2)]
    )
    assert kernel_probe.wrong_kernels(usual) == {}


def test_a_wrong_kernel_is_found(monkeypatch):
    """A kernel that returns anything but the sum of products, or raises, is reported, and a right one is not."""
    torch_ao.set_engine(ENGINES[0])

    class Wrong(torch_ao.nnq.Conv2d):
        def forward(self, x):
            return super().forward(x.flip(-1))

    class Refused(torch_ao.nnq.Conv1d):
        def forward(self, x):
            raise RuntimeError("only Conv2d is supported")

    monkeypatch.setitem(kernel_probe._KINDS, nn.Conv2d, Wrong)
    monkeypatch.setitem(kernel_probe._KINDS, nn.Conv1d, Refused)
    wrong_kernels = kernel_probe.wrong_kernels(
        nn.ModuleDict({"a": nn.Conv2d(8, 8, 3), "b": nn.Conv1d(8, 8, 3), "c": nn.Conv3d(2, 2, 3)})
    )
    assert "computes this shape wrongly on this CPU" in wrong_kernels["a"]
    assert wrong_kernels["b"] == f"{ENGINES[0]} has no kernel for it: only Conv2d is supported"


@pytest.mark.parametrize(
    ("decibels", "said"),
    [
        (9.9, "onednn's int8 kernel computes this shape wrongly on this CPU (probed: 10 dB)"),
        (10.0, None),
        (-3.2, "onednn's int8 kernel computes this shape wrongly on this CPU (probed: -3 dB)"),
    ],
)
@pytest.mark.skipif("onednn" not in ENGINES, reason="this torch has no onednn")
def test_the_worse_of_one_example_and_of_several_decides(monkeypatch, decibels, said):
    """Layers of one shape are tried once; those that are not asked about, have too many weights or are another kind
    are not tried at all."""
    torch_ao.set_engine("onednn")
    tried = []

    def measure(layer, batch):
        tried.append((layer.out_channels, batch))
        return decibels if batch == 4 else 40.0

    monkeypatch.setattr(kernel_probe, "_of_convolution", measure)
    monkeypatch.setattr(kernel_probe, "_of_prelu", lambda layer: decibels)
    monkeypatch.setattr(kernel_probe, "_MOST_WEIGHTS", 8 * 8 * 9)

    class Own(nn.Conv2d):
        pass

    module = nn.ModuleDict(
        {
            "a": nn.Conv2d(8, 8, 3),
            "b": nn.Conv2d(8, 8, 3),
            "asked": nn.Conv2d(8, 4, 3),
            "large": nn.Conv2d(8, 9, 3),
            "own": Own(8, 8, 3),
            "linear": nn.Linear(2, 2),
            "slope": nn.PReLU(),
        }
    )
    wrong = kernel_probe.wrong_kernels(module, frozenset(("asked",)))
    assert wrong == ({} if said is None else {"a": said, "b": said, "slope": said})
    assert tried == [(8, 1), (8, 4)]


def test_a_padding_in_words_has_no_kernel():
    """What to write is told."""
    wrong = kernel_probe.wrong_kernels(nn.Sequential(nn.Conv2d(4, 4, 3, padding="same")))
    assert wrong == {"0": "no int8 kernel takes padding='same'; give it in numbers"}


def test_noise_is_told_in_decibels_of_the_signal():
    """A tenth of it is 20 dB; none at all is a finite number."""
    expected = torch.tensor([3.0, 4.0])
    for actual, decibels in ((torch.tensor([3.0, 3.5]), 20.0), (expected, 10 * 13.39794)):
        assert kernel_probe._decibels(expected, quantized(actual)) == pytest.approx(decibels, abs=1e-3)


def quantized(values):
    """Something that gives these values when it is dequantized."""
    return type("Quantized", (), {"dequantize": lambda self: values})()
