"""The backend torch: floats as frozen TorchScript; 16 bits proven by what oneDNN says that it ran."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from qbench import registry
from qbench.backends.base import BuildJob
from qbench.backends.int8_coverage import summarize_coverage
from qbench.machine import half_floats
from qbench.models.base import Network
from qbench.quant.recipe import Recipe

BACKEND = registry.load("backend", "torch")
NO_BF16 = half_floats.explain_missing("bf16")


class Net(nn.Module):
    """Convolutions with BatchNorm, an LSTM, a matrix product and a GRU, whose products torch computes by itself."""

    def __init__(self, recurrent=nn.LSTM):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.body = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.rows = recurrent(8 * 32, 32, batch_first=True)
        self.head = nn.Linear(32, 40)

    def forward(self, x):
        y = self.body(self.stem(x)).permute(0, 2, 1, 3).flatten(2)
        return self.head(self.rows(y)[0])


def build(mode, folder, network):
    torch.manual_seed(0)
    images = np.random.default_rng(0).standard_normal((8, 3, 16, 16)).astype(np.float32)
    folder.mkdir()
    job = BuildJob(
        network=Network(kind="python", module=network),
        mode=mode,
        recipe=Recipe(),
        calibration=(images,),
        training=None,
        folder=folder,
    )
    return BACKEND.build(job), images


@pytest.mark.skipif(NO_BF16 is not None, reason=str(NO_BF16))
def test_bf16_is_proven_by_onednns_log(tmp_path):
    """Each layer has a kernel of its work in bf16; half the bytes, and answers near fp32's."""
    torch.manual_seed(0)
    network = Net().eval()
    (half, images), (fp32, _) = (build(mode, tmp_path / mode, network) for mode in ("bf16", "fp32"))
    assert [layer.name for layer in half.layers] == ["stem.0", "body", "rows", "head"]
    assert [layer.precision for layer in half.layers] == ["bf16"] * 4
    assert [layer.macs for layer in half.layers] == [layer.macs for layer in fp32.layers]
    assert {layer.precision for layer in fp32.layers} == {"fp32"}
    sizes = [(tmp_path / mode / "model.pt").stat().st_size for mode in ("bf16", "fp32")]
    assert sizes[0] < 0.65 * sizes[1]
    runners = [BACKEND.load(tmp_path / mode / "model.pt", threads=1) for mode in ("bf16", "fp32")]
    with torch.inference_mode():
        ours, theirs = (runner.outputs(runner(runner.prepare((images,)))) for runner in runners)
    assert ours.dtype == np.float32
    assert 1e-8 < np.mean((ours - theirs) ** 2) / np.mean(theirs**2) < 1e-3


@pytest.mark.skipif(NO_BF16 is not None, reason=str(NO_BF16))
def test_what_torch_computes_by_itself_is_not_called_bf16(tmp_path):
    """A GRU's tensors are bf16, and no kernel of oneDNN's runs for it: it is named with what stays in float."""
    built, _ = build("bf16", tmp_path / "bf16", Net(nn.GRU).eval())
    coverage = summarize_coverage(built, "bf16")
    assert coverage.float_layers == ("rows",)
    assert coverage.macs_half is not None
    assert 0 < coverage.macs_half < 1


def test_a_16_bit_float_needs_a_cpu_and_a_network_that_can_be_cast(monkeypatch):
    """The plan says what is missing; fp32 needs neither."""
    assert BACKEND.why_not(mode="fp32", kind="torchscript") is None
    monkeypatch.setattr(half_floats, "explain_missing", lambda precision: None)
    assert BACKEND.why_not(mode="bf16", kind="python") is None
    assert BACKEND.why_not(mode="bf16", kind="torchscript") == (
        "a TorchScript file keeps its types; give the model's Python source for bf16"
    )
    monkeypatch.setattr(half_floats, "explain_missing", lambda precision: f"no {precision} here")
    assert BACKEND.why_not(mode="fp16", kind="python") == (
        "no fp16 here: torch would convert every value; leave fp16 out here"
    )


class Several(nn.Module):
    """Two heads, and a state in a tuple with nothing beside it."""

    def __init__(self):
        super().__init__()
        self.head, self.boxes = nn.Linear(6, 4), nn.Linear(6, 8)

    def forward(self, x):
        return self.head(x), self.boxes(x).reshape(-1, 2, 4), (x * 2,)


@pytest.mark.parametrize(
    ("mode", "backend"),
    [
        *(("fp32", name) for name in ("torch", "onnxruntime", "openvino", "inductor", "executorch")),
        *(("static", name) for name in ("fbgemm", "onnxruntime", "openvino", "inductor", "executorch")),
    ],
)
def test_each_engine_returns_all_outputs_in_their_order(tmp_path, mode, backend):
    """The first is what it gives as its outputs; where the digest of two artifacts is one, all of them are equal."""
    plugin = registry.load("backend", backend)
    if reason := plugin.missing() or plugin.why_not(mode=mode, kind="torch"):
        pytest.skip(reason)
    torch.manual_seed(0)
    module = Several().eval()
    rows = (np.random.default_rng(0).standard_normal((16, 6)).astype(np.float32),)
    job = BuildJob(
        network=Network(kind="torch", module=module),
        mode=mode,
        recipe=plugin.resolve(mode, Recipe()),
        calibration=rows,
        training=None,
        folder=tmp_path,
    )
    runner = plugin.load(tmp_path / plugin.build(job).file, threads=1)
    with torch.no_grad():
        scores, boxes, (double,) = module(torch.from_numpy(rows[0][:1]))
    with runner.context():
        result = runner(runner.prepare((rows[0][:1],)))
        outputs = [np.array(output) for output in runner.all_outputs(result)]
        first = np.array(runner.outputs(runner(runner.prepare((rows[0][:1],)))))
        digests = {runner.digest((rows[0][:1],)), runner.digest((rows[0][:1],)), runner.digest((rows[0][1:2],))}
    assert [output.shape for output in outputs] == [(1, 4), (1, 2, 4), (1, 6)]
    np.testing.assert_array_equal(outputs[0], first)
    assert len(digests) == 2
    for output, expected in zip(outputs, (scores, boxes, double), strict=True):
        np.testing.assert_allclose(output, expected.numpy(), atol=1e-5 if mode == "fp32" else 0.1)
