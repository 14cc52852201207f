"""The fp32 twin of a QAT: the same training, nothing rounded."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from networks import residual_cnn
from torch import nn

from qbench.errors import BuildError
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import fake_quant_sites, fp32_twin, fx, qat, torch_ao
from qbench.quant.recipe import Recipe

RECIPE = Recipe(epochs=3, batch_size=16, learning_rate=1e-2, seed=0)


class Killed(BaseException):
    """As a kill ends a process, no handler in between."""


def images(n=64):
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def labels(n=64):
    return torch.randint(0, 10, (n,), generator=torch.Generator().manual_seed(2))


def fit(module, recipe=RECIPE, flow=fp32_twin, checkpoints=None, progress=lambda text, share: None):
    job = QuantizeJob(module, "onednn", recipe, (images(1),), progress)
    return qat.fit(flow, job, (images(),), labels(), checkpoints=checkpoints)


def by_hand(module):
    """The training as a reader of the guide would write it: Adam, cosine, one order of examples for each epoch, the
    statistics of BatchNorm frozen for the last tenth."""
    network = copy.deepcopy(module).train()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    order, step, total = torch.Generator().manual_seed(0), 0, 12
    for _ in range(3):
        for index in torch.randperm(64, generator=order).tensor_split(4):
            if step >= math.ceil(0.9 * total):
                for part in network.modules():
                    if isinstance(part, nn.BatchNorm2d):
                        part.eval()
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 * 0.5 * (1 + math.cos(math.pi * step / total))
            loss = nn.functional.cross_entropy(network(images()[index]), labels()[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    return network.eval()


def test_it_is_a_plain_training_with_qats_schedule_and_order():
    """Weight by weight what a training loop by hand gives; the network itself is not touched."""
    module = residual_cnn().eval()
    before = copy.deepcopy(module.state_dict())
    fitted = fit(module)
    expected = by_hand(module).state_dict()
    assert set(fitted.prepared.state_dict()) == set(expected)
    for name, value in fitted.prepared.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)
    assert not fitted.prepared.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_nothing_is_rounded_and_the_note_says_what_it_is():
    """No fake quantization anywhere; loss and steps are QAT's own."""
    torch_ao.set_engine("onednn")
    twin, trained = fit(residual_cnn()), fit(residual_cnn(), RECIPE, fx)
    assert fake_quant_sites.sites(twin.prepared) == ()
    assert twin.loss == trained.loss
    (note,) = twin.notes
    assert note.startswith("fp32 twin: Adam, cosine from 0.01, 3 x 4 steps, last epoch: loss ")
    assert trained.notes[0].startswith("QAT: Adam, cosine from 0.01, 3 x 4 steps")


def test_it_distills_as_qat_does():
    """With a share of distillation the fp32 network is the teacher, and the weights move another way."""
    distilled = fit(residual_cnn(), Recipe(epochs=3, batch_size=16, learning_rate=1e-2, seed=0, distill=1.0))
    assert distilled.loss == "100% distance to the fp32 network's outputs"
    plain = fit(residual_cnn()).prepared.state_dict()
    assert any(not torch.equal(value, plain[name]) for name, value in distilled.prepared.state_dict().items())


def test_a_killed_training_ends_with_the_weights_of_an_unbroken_one(tmp_path):
    """Its checkpoints are those of QAT: it goes on where it was, bit for bit."""

    def kill(text, share):
        if text.startswith("fp32 twin epoch 2"):
            raise Killed

    unbroken = fit(residual_cnn()).prepared
    with pytest.raises(Killed):
        fit(residual_cnn(), checkpoints=tmp_path, progress=kill)
    said = []
    resumed = fit(residual_cnn(), checkpoints=tmp_path, progress=lambda text, share: said.append(text))
    assert [text.partition(":")[0] for text in said] == ["fp32 twin epoch 2/3", "fp32 twin epoch 3/3"]
    state = unbroken.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in resumed.prepared.state_dict().items())


def test_a_network_that_cannot_train_is_refused():
    """With every parameter frozen the twin would be the fp32 network again."""
    module = residual_cnn().requires_grad_(False)
    with pytest.raises(BuildError, match="the fp32 twin cannot train: requires_grad is off for every parameter"):
        fit(module)


def test_a_training_that_diverges_says_whose_it_is():
    """The message names the twin, not QAT."""
    with pytest.raises(BuildError, match=r"fp32 twin diverged: the loss is .* lower learning_rate \(it is 1e\+30\)"):
        fit(residual_cnn(), Recipe(epochs=3, batch_size=16, learning_rate=1e30, seed=0))
