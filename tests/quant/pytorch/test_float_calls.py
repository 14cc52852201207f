"""Calls that int8 would spoil: joins of what one scale cannot hold, arithmetic behind the last layers; float in every
flow of torch's, the others left to the quantizers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import eager, float_calls, fx, pt2e, qat, torch_ao
from qbench.quant.recipe import Recipe
from qbench.quant.sqnr import measure_sqnr

pytestmark = pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
ENGINE = "onednn" if "onednn" in torch.backends.quantized.supported_engines else "qnnpack"
FLOWS = {"fx": fx, "eager": eager, "pt2e": pt2e}
WAYS = ("sigmoid", "raw", "split")


@pytest.fixture(autouse=True)
def _as_it_was():
    """Engine and threads are process-global: each test leaves them as they were."""
    engine, threads = torch.backends.quantized.engine, torch.get_num_threads()
    torch.set_num_threads(1)
    torch_ao.set_engine(ENGINE)
    yield
    torch.backends.quantized.engine = engine
    torch.set_num_threads(threads)


class Head(nn.Module):
    """Two scales, each with boxes of hundreds of pixels joined to scores of about one, and both joined by ``way``."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.fine = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
        self.coarse = nn.Sequential(nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
        self.boxes = nn.ModuleList(nn.Conv2d(16, 4, 1) for _ in range(2))
        self.scores = nn.ModuleList(nn.Conv2d(16, 3, 1) for _ in range(2))
        with torch.no_grad():
            for layer in self.boxes:
                layer.weight.mul_(300)
                layer.bias.fill_(100)

    def forward(self, x):
        fine = self.fine(x)
        joined = []
        for boxes, scores, features in zip(self.boxes, self.scores, (fine, self.coarse(fine)), strict=True):
            sides, logits = torch.relu(boxes(features)), scores(features)
            if self.way == "sigmoid":
                joined.append(torch.cat([sides * 4, torch.sigmoid(logits)], 1).flatten(2))
            elif self.way == "raw":
                joined.append(torch.cat([sides, logits], 1).flatten(2))
            else:
                sides, logits = torch.cat([sides, logits], dim=1).flatten(2).split([4, 3], 1)
                joined.append(torch.cat([sides * 8, torch.sigmoid(logits)], 1))
        return torch.cat(joined, 2)


class Branches(nn.Module):
    """Two branches of one size joined for a convolution; or, ``uneven``, of very different ones."""

    def __init__(self, uneven=False):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 8, 3, padding=1)
        self.last = nn.Conv2d(16, 4, 3, padding=1)
        self.factor = 1000.0 if uneven else 1.0

    def forward(self, x):
        return self.last(torch.cat([torch.relu(self.first(x)) * self.factor, torch.relu(self.second(x))], 1))


def images(n=12):
    return torch.rand(n, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def seeded(make, *args):
    torch.manual_seed(0)
    return make(*args).eval()


def quantize(module, flow, **recipe):
    keys = {"calibrator": "minmax", "per_channel": True, "reduce_range": True, **recipe}
    engine = "inductor" if flow == "pt2e" else ENGINE
    job = QuantizeJob(module, engine, Recipe(flow=flow, **keys), (images(1),))
    return FLOWS[flow].static(job, lambda: iter([(images(),)])).module


def decibels_of_scores(module, int8):
    with torch.no_grad():
        expected, actual = (part(images())[:, 4:].numpy() for part in (module, int8))
    return measure_sqnr(expected, actual)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("flow", FLOWS)
def test_scores_survive_beside_boxes(flow, way):
    """Scores joined to boxes of hundreds of pixels keep the precision of their own scale, in every flow."""
    module = seeded(Head, way)
    assert decibels_of_scores(module, quantize(module, flow)) > 35


@pytest.mark.parametrize("flow", ["fx", "eager"])
def test_the_frameworks_own_recipe_loses_them(flow):
    """Untouched, the framework's recipe gives both one scale, and the scores are gone: what the rule is for."""
    module = seeded(Head, "raw")
    assert decibels_of_scores(module, quantize(module, flow, framework_default=True)) < 20


@pytest.mark.parametrize("flow", ["fx", "eager"])
def test_the_frameworks_own_recipe_keeps_them_where_it_is_asked_to(flow):
    """Nothing else of it changes: what `explain` tries to tell what the joins alone cost. With AVX2 alone its sums of
    16 bits may overflow (31 dB)."""
    module = seeded(Head, "raw")
    assert decibels_of_scores(module, quantize(module, flow, framework_default=True, float_joins=True)) > 25


@pytest.mark.parametrize("flow", ["fx", "pt2e"])
def test_a_trained_head_keeps_its_scores(flow):
    """QAT prepares the same joins in float."""
    module = seeded(Head, "raw")
    engine = "inductor" if flow == "pt2e" else ENGINE
    recipe = Recipe(flow=flow, per_channel=True, reduce_range=True, epochs=1, learning_rate=1e-9, batch_size=4, seed=0)
    recipe = Recipe(**{**vars(recipe), "samples": 12, "schedule": "constant", "distill": 1.0, "optimizer": "sgd"})
    job = QuantizeJob(module, engine, recipe, (images(1),))
    int8 = qat.train(FLOWS[flow], job, (images(),), None).module
    assert decibels_of_scores(module, int8) > 25


@pytest.mark.parametrize("uneven", [False, True])
def test_what_a_convolution_reads_is_left_to_the_quantizer(uneven):
    """A join that only layers with weights read is not touched, whatever its inputs: their kernels take one scale."""
    traced = torch.fx.symbolic_trace(seeded(Branches, uneven))
    assert float_calls.find_float_calls(traced, [(images(1),)]) == []


def test_what_hands_the_values_on_stays_float_too():
    """Behind an uneven join, flatten, split and a further join are float: an observer there would have one scale."""
    traced = torch.fx.symbolic_trace(seeded(Head, "split"))
    names = [node.name for node in float_calls.find_float_calls(traced, [(images(1),)])]
    assert names[:4] == ["cat", "flatten", "split", "getitem"]
    assert "cat_2" in names


class Decoding(nn.Module):
    """Centres of boxes in pixels from what the last layer gives, by sums and products with constants; before, a sum
    that a layer follows."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.last = nn.Conv2d(8, 4, 1)
        self.register_buffer("centres", torch.arange(256.0).reshape(1, 1, 256) * 4)

    def forward(self, x):
        x = torch.relu(self.first(x))
        sides = torch.relu(self.last(x + torch.relu(self.second(x)))).flatten(2)
        return self.centres + (sides[:, 2:] - sides[:, :2]) * 0.5


@pytest.mark.parametrize("flow", FLOWS)
def test_arithmetic_behind_the_last_layers_keeps_its_precision(flow):
    """Pixels of an image of 1024 are as fine as what the last layer gives, not as a step of 4."""
    module = seeded(Decoding)
    int8 = quantize(module, flow)
    with torch.no_grad():
        assert float((int8(images()) - module(images())).abs().max()) < 0.1


def test_only_what_no_layer_follows_is_arithmetic_behind_the_last():
    """A sum before a layer stays in int8, as does a ReLU right behind the last one, which kernels fuse."""
    traced = torch.fx.symbolic_trace(seeded(Decoding))
    names = [node.name for node in float_calls.find_float_calls(traced, [(images(1),)])]
    assert names == ["sub", "mul", "add_1"]


def test_an_untouched_module_comes_back_itself():
    """Where nothing is uneven, or FX cannot trace it, no graph is made of the module."""

    class Deciding(nn.Module):
        def forward(self, x):
            return torch.cat([x, x * 1000], 1) if x.sum() > 0 else x

    for module in (seeded(Branches), Deciding()):
        assert float_calls.hide(module, [(images(1),)]) is module


def test_a_hidden_graph_computes_the_same():
    """Calls as modules give bit for bit what the calls gave, methods and lists of tensors among them."""
    module = seeded(Head, "split")
    hidden = float_calls.hide(copy.deepcopy(module), [(images(1),)])
    assert sum(isinstance(part, float_calls.FloatCall) for part in hidden.modules()) > 5
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(hidden)(images()), module(images()))


class Joined(nn.Module):
    """Something large and something small, joined and read as a case has it, in a network that trains."""

    def __init__(self, read):
        super().__init__()
        self.read, self.norm, self.pool, self.slope = read, nn.BatchNorm2d(3), nn.MaxPool2d(2), nn.PReLU()
        self.up, self.wide = nn.ConvTranspose2d(6, 3, 1), nn.Conv2d(12, 3, 1)

    def forward(self, x):
        small = self.norm(x)
        return self.read(self, small * 1000, small)


def joined(a, b):
    return torch.cat([a, b], 1)


def for_a_layer_and_more(net, y):
    again = torch.cat([torch.relu(y), y], 1)
    return net.wide(again) + torch.exp(-y)[:, :3]


def dense(y):
    for _ in range(60):
        y = joined(torch.relu(y), y)[:, :6]
    return y


def behind_the_last_layer(net, a, b):
    y = net.up(joined(b, b))
    return net.norm(y * (y.shape[1] + 1)) - 1


READ = {
    "by keyword": (lambda net, a, b: torch.cat(tensors=[a, b], dim=1), ["cat"]),
    "up to what another has": (lambda net, a, b: joined(a, b)[:, : a.shape[1] : b.shape[1]], ["cat", "getitem_2"]),
    "from what another has": (lambda net, a, b: joined(a, b)[:, a.shape[1] :], ["cat", "getitem_1"]),
    "methods": (lambda net, a, b: joined(a, b).flatten(start_dim=2).transpose(1, 2), ["cat", "flatten", "transpose"]),
    "a module without weights": (lambda net, a, b: net.pool(joined(a, b)), ["cat", "pool"]),
    "a module, and what is behind it": (
        lambda net, a, b: net.pool(joined(a, b)).flatten(2),
        ["cat", "pool", "flatten"],
    ),
    "a module with weights": (lambda net, a, b: net.slope(joined(a, b)), ["cat"]),
    "for layers alone": (lambda net, a, b: net.up(torch.relu(joined(a, b))), []),
    "for a layer and more": (
        lambda net, a, b: for_a_layer_and_more(net, joined(a, b)),
        ["cat", "relu", "cat_1", "add"],
    ),
    "in many ways": (lambda net, a, b: net.up(dense(joined(a, b))), []),
    "a sum of joins": (lambda net, a, b: joined(b, -b) + joined(a, -a), []),
    "behind the last layer": (behind_the_last_layer, ["mul_1", "sub"]),
    "no carrier": (lambda net, a, b: torch.exp(-joined(a, b)), ["cat"]),
    "carriers without a join": (lambda net, a, b: a.flatten(2), []),
    "one size": (lambda net, a, b: joined(b, -b), []),
    "whole numbers": (lambda net, a, b: joined(a.long(), b.long()), []),
    "with nothing": (lambda net, a, b: torch.cat([a[:0].flatten(), b.flatten()]), []),
    "a join of joins": (lambda net, a, b: torch.stack([joined(a, b), joined(b, b)]), ["cat", "stack"]),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", READ)
def test_joins_and_what_hands_them_on_are_hidden_however_they_are_written(kind, training):
    """What a call holds is filled in again wherever a tensor or a number of the graph stood: in lists, keywords and
    slices. Looking at the values leaves the modes of a network and its statistics as they were."""
    read, expected = READ[kind]
    module = seeded(Joined, read).train(training)
    before = copy.deepcopy(module.state_dict())
    hidden = float_calls.hide(module, [(images(2),)])
    hid = [node.name for node in getattr(hidden, "graph", torch.fx.Graph()).nodes if "float" in str(node.target)]
    assert hid == expected
    assert len(expected) == (hidden.code.count("_float(") if expected else 0)
    assert {part.training for part in hidden.modules()} == {training}
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    if not training:
        with torch.no_grad():
            assert torch.equal(hidden(images(2)), module(images(2)))


def test_what_becomes_one_tensor_of_several_is_named_without_what_hands_it_on():
    """Joins and arithmetic; flatten and split, which go with them, are left out."""
    traced = torch.fx.symbolic_trace(seeded(Head, "split"))
    assert float_calls.name_joins(traced, [(images(1),)]) == ("cat", "mul", "cat_1", "cat_2", "mul_1", "cat_3", "cat_4")


def test_a_network_is_run_only_where_a_call_could_stay_float():
    """Without joins, and with sums before its last layer alone, no example is asked for."""

    def unasked():
        raise AssertionError("an example was asked for")
        yield

    network = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(), nn.Conv2d(3, 3, 1), nn.ReLU())
    for traced in (torch.fx.symbolic_trace(network), torch.fx.symbolic_trace(seeded(Joined, lambda net, a, b: a + b))):
        assert float_calls.find_float_calls(traced, unasked()) == []
    with pytest.raises(AssertionError, match="an example was asked for"):
        float_calls.find_float_calls(torch.fx.symbolic_trace(seeded(Decoding)), unasked())
