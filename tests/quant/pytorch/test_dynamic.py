"""Tables of embeddings as quint8, where a recipe asks for it."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from networks import tokens
from torch import nn

from qbench.errors import ModeImpossible
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import dynamic, fx, torch_ao
from qbench.quant.recipe import Recipe

ENGINE = next(engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines)
FLOWS = pytest.mark.parametrize("flow", [fx.dynamic, dynamic.by_module], ids=["fx", "eager"])


@pytest.fixture(autouse=True)
def _engine(engine_put_back):
    torch_ao.set_engine(ENGINE)


def ids(n=32):
    return torch.randint(0, 16, (n, 6), generator=torch.Generator().manual_seed(1))


class Bag(nn.Module):
    """A bag of token ids (n, 6), then 10 scores; of what the bag is made the caller says."""

    def __init__(self, **options):
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(16, 8, **options), nn.Linear(8, 10)

    def forward(self, tokens):
        return self.head(self.bag(tokens))


def bag(**options):
    torch.manual_seed(0)
    return Bag(**options).eval()


@FLOWS
def test_a_table_is_quint8_with_a_scale_for_each_row(flow):
    """Each row spans its own range in 255 steps, the network's own stays as it was, and a saved file gives the same."""
    model = tokens()
    before = copy.deepcopy(model.state_dict())
    quantized = flow(QuantizeJob(model, ENGINE, Recipe(embeddings=True), (ids(1),)))
    table = quantized.module.get_submodule("embedding").weight()
    assert (table.dtype, len(table.q_per_channel_scales())) == (torch.quint8, 16)
    steps = (model.embedding.weight.amax(1).clamp(min=0) - model.embedding.weight.amin(1).clamp(max=0)) / 255
    off = (table.dequantize() - model.embedding.weight).abs().amax(1)
    assert bool((off <= 0.51 * steps + 1e-6).all())
    assert quantized.conversion.float_reasons == {}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    file = io.BytesIO()
    with torch_ao.known_warnings(), torch.no_grad():
        torch.jit.save(torch.jit.trace(quantized.module, (ids(2),)), file)
        file.seek(0)
        assert torch.equal(torch.jit.load(file)(ids())[0], quantized.module(ids())[0])


@FLOWS
def test_nobody_gets_int8_tables_without_asking(flow):
    """A table that is only read saves memory as int8, not multiplications: it is float unless a recipe says so."""
    quantized = flow(QuantizeJob(tokens(), ENGINE, Recipe(), (ids(1),)))
    assert type(quantized.module.get_submodule("embedding")) is nn.Embedding
    assert quantized.conversion.float_reasons == {}


@FLOWS
def test_a_bag_of_sums_is_close_to_fp32(flow):
    """The one kind of bag that torch's int8 kernel computes."""
    model = bag(mode="sum")
    quantized = flow(QuantizeJob(model, ENGINE, Recipe(embeddings=True), (ids(1),)))
    assert quantized.module.get_submodule("bag").weight().dtype == torch.quint8
    with torch.no_grad():
        expected = model(ids())
        assert float((quantized.module(ids()) - expected).abs().max()) < 0.03 * float(expected.abs().max())


@FLOWS
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "mean"}, "sums the rows of a bag whatever its mode"),
        ({"mode": "max"}, "sums the rows of a bag whatever its mode"),
        ({"mode": "sum", "padding_idx": 0}, "padding_idx"),
        ({"mode": "sum", "max_norm": 1.0}, "max_norm"),
    ],
)
def test_a_table_whose_kernel_is_wrong_stays_float_with_the_reason(flow, options, reason):
    """torch takes them without a word and gives other numbers."""
    model = bag(**options)
    quantized = flow(QuantizeJob(model, ENGINE, Recipe(embeddings=True), (ids(1),)))
    assert type(quantized.module.get_submodule("bag")) is nn.EmbeddingBag
    assert reason in quantized.conversion.float_reasons["bag"]


def test_a_table_can_be_skipped():
    """By name, as every layer."""
    by_module = dynamic.by_module(
        QuantizeJob(tokens(), ENGINE, Recipe(embeddings=True, skip_layers=("embedding",)), (ids(1),))
    )
    assert "skip_layers" in by_module.conversion.float_reasons["embedding"]


class Reads(nn.Module):
    """Multiplies by the weight of a layer that it never calls, in control flow that FX does not trace."""

    def __init__(self, called):
        super().__init__()
        self.read, self.called = nn.Linear(8, 8), nn.Linear(8, 4) if called else nn.Identity()

    def forward(self, x):
        if x.sum() > 1e9:
            return x
        return self.called(x @ self.read.weight)


def test_a_layer_whose_weight_other_code_reads_stays_float():
    """An int8 layer has a method in the place of its weight; what is called is int8 all the same."""
    torch.manual_seed(0)
    model, x = Reads(called=True).eval(), torch.randn(1, 8)
    quantized = dynamic.by_module(QuantizeJob(model, ENGINE, Recipe(), (x,)))
    assert type(quantized.module.read) is nn.Linear
    assert type(quantized.module.called) is not nn.Linear
    assert "read by other code" in quantized.conversion.float_reasons["read"]
    assert "called" not in quantized.conversion.float_reasons
    with torch.no_grad():
        assert torch.allclose(quantized.module(x), model(x), atol=0.1)


def test_where_every_layer_is_only_read_dynamic_is_impossible():
    """The message says which, and where it can be."""
    with pytest.raises(ModeImpossible, match=r"^read: its weight is read by other code .*; use onnxruntime, which"):
        dynamic.by_module(QuantizeJob(Reads(called=False).eval(), ENGINE, Recipe(), (torch.randn(1, 8),)))
