"""The kinds of network that users have, by the PT2E flow: close to fp32, and each float layer with its one reason."""

from __future__ import annotations

import pytest
import torch
from networks import lstm, masked
from torch import nn

from qbench.errors import BuildError
from qbench.quant import canonical
from qbench.quant.analysis import layer_error
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import pt2e, qat
from qbench.quant.recipe import Recipe

pytest.importorskip("torchao", reason="torchao is not installed; pip install 'torchao>=0.18'")
pytestmark = pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
RECIPE = Recipe(
    flow="pt2e", calibrator="minmax", per_channel=True, symmetric=False, reduce_range=False, epochs=1, batch_size=16,
    learning_rate=1e-6, seed=0,
)  # fmt: skip
LINEAR_ONLY = "dynamic quantization by PT2E covers Linear layers only"


class Depthwise(nn.Module):
    """Convolution, depthwise convolution with BatchNorm, and one ReLU6 for both."""

    def __init__(self):
        super().__init__()
        self.first, self.depthwise = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.norm, self.relu, self.head = nn.BatchNorm2d(8), nn.ReLU6(), nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.relu(self.norm(self.depthwise(self.relu(self.first(x))))).mean((2, 3)))


class Decoder(nn.Module):
    """PReLU and a transposed convolution: image to image."""

    def __init__(self):
        super().__init__()
        self.down, self.prelu = nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.PReLU(8)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x):
        return self.out(self.up(self.prelu(self.down(x)))).flatten(1)


class Encoder(nn.Module):
    """Attention by hand, LayerNorm, functional additions."""

    def __init__(self):
        super().__init__()
        self.tokens, self.key, self.value = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.tokens(x.squeeze(1))
        x = self.norm(x + torch.softmax(x @ self.key(x).transpose(1, 2) / 4, -1) @ self.value(x))
        return self.head((x + self.down(torch.relu(self.up(x)))).mean(1))


class Gated(nn.Module):
    """A product with a comparison: a boolean operand of an operator that has an int8 form."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Conv2d(1, 8, 3, padding=1), nn.Linear(8, 10)

    def forward(self, x):
        x = self.first(x)
        return self.head((x * (x > x.mean((2, 3), keepdim=True))).mean((2, 3)))


class Bag(nn.Module):
    """Token ids (n, 6), their mean, 10 scores."""

    def __init__(self):
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(16, 8, mode="mean"), nn.Linear(8, 10)

    def forward(self, ids):
        return self.head(self.bag(ids))


class Volume(nn.Module):
    """A 3-D convolution with BatchNorm."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.Linear(256, 10)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x.reshape(-1, 1, 4, 4, 4)))).flatten(1))


def drawn(*shape):
    return torch.rand(32, *shape, generator=torch.Generator().manual_seed(1))


# Kind -> network, inputs, float layers of static and QAT, those of dynamic (None: it has nothing to quantize).
KINDS = {
    "depthwise": (Depthwise, (drawn(1, 8, 8),), {}, {"first": LINEAR_ONLY, "depthwise": LINEAR_ONLY}),
    "decoder": (Decoder, (drawn(1, 8, 8),), {"up": "X86InductorQuantizer has no int8 form of conv_transpose2d"}, None),
    "lstm": (
        lstm, (drawn(1, 8, 8),), {"lstm": "X86InductorQuantizer has no int8 form of lstm"}, {"lstm": LINEAR_ONLY},
    ),
    "encoder": (Encoder, (drawn(1, 8, 8),), {}, {}),
    "gated": (Gated, (drawn(1, 8, 8),), {}, {"first": LINEAR_ONLY}),
    "embedding bag": (Bag, ((drawn(6) * 16).long(),), {}, {}),
    "3-D": (
        Volume, (drawn(1, 8, 8),), {"conv": "X86InductorQuantizer has no int8 form of conv3d"}, {"conv": LINEAR_ONLY},
    ),
    "two inputs": (masked, (drawn(6), drawn(6)), {}, {}),
}  # fmt: skip


def quantized(name, mode):
    """The fp32 network and what the mode makes of it, as a build does."""
    make, inputs, _, _ = KINDS[name]
    torch.manual_seed(0)
    example = tuple(tensor[:1] for tensor in inputs)
    network = make().eval()
    module = canonical.canonicalize(network, example, training=mode == "qat").module
    if mode == "static":
        return network, pt2e.static(QuantizeJob(module, "inductor", RECIPE, example), lambda: iter([inputs]))
    if mode == "dynamic":
        return network, pt2e.dynamic(QuantizeJob(module, "inductor", RECIPE, example))
    labels = torch.arange(32) % 10 if name != "decoder" else drawn(64)
    trained = qat.train(
        pt2e, QuantizeJob(module, "inductor", RECIPE, tuple(tensor[:1] for tensor in inputs)), inputs, labels
    )
    return network, trained


# QAT of BatchNorm takes torchao a quarter of a minute: what it does is proved once, in test_pt2e.
MADE = [(name, mode) for name in KINDS for mode in ("static", "dynamic", "qat")]
SLOW = {("depthwise", "qat"), ("3-D", "qat")}


@pytest.mark.parametrize(("name", "mode"), [pytest.param(*row) for row in MADE if row not in SLOW])
def test_a_kind_is_close_to_fp32_or_says_why_not(name, mode):
    """Outputs within a tenth of the largest; every float layer has one reason, and no other layer has one."""
    _, inputs, floats, dynamic_floats = KINDS[name]
    if mode == "dynamic" and dynamic_floats is None:
        with pytest.raises(BuildError, match="covers Linear layers, and this model has none.*use static instead"):
            quantized(name, mode)
        return
    arguments, result = quantized(name, mode)
    assert result.conversion.float_reasons == (dynamic_floats if mode == "dynamic" else floats)
    with torch.no_grad():
        expected, actual = arguments(*inputs), result.module(*inputs)
    off = float((actual - expected).abs().max())
    assert 0 < off < 0.1 * float(expected.abs().max())
    for layer in layer_error.measure_layers(arguments, result.module, lambda: iter([inputs])):
        assert layer.sqnr_db is None or layer.sqnr_db > 10 or layer.reason
