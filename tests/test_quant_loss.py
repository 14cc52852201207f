"""The loss of QAT follows from outputs and labels, and what fits none is refused."""

from __future__ import annotations

import pytest
import torch
from networks import Head

from qbench.errors import BuildError
from qbench.quant import forward, loss, qat, torch_ao
from qbench.quant.recipe import Recipe

ENGINE = next(engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines)
RECIPE = Recipe(per_channel=True, epochs=60, batch_size=32, learning_rate=1e-2, seed=0)


@pytest.fixture(autouse=True)
def _engine():
    """The engine is process-global: each test leaves it as it was."""
    before = torch.backends.quantized.engine
    torch_ao.set_engine(ENGINE)
    yield
    torch.backends.quantized.engine = before


def points(n=128):
    return torch.rand(n, 4, generator=torch.Generator().manual_seed(1)) - 0.5


def head(outputs, form):
    torch.manual_seed(0)
    return Head(outputs, form).eval()


KINDS = {
    "cross_entropy": (3, lambda x: x[:, :3].argmax(1)),
    "binary_cross_entropy_with_logits": (1, lambda x: (x.sum(1) > 0).long()),
    "mse_loss": (1, lambda x: x.sum(1) / 2),
}


FORMS = [
    (name, form) for name in KINDS for form in ("plain", "flat", "tuple") if (name, form) != ("cross_entropy", "flat")
]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_qat_learns_whatever_the_labels_mean(name, form):
    """Classes, one logit and quantities, from outputs of each form: the loss that fits falls by a third."""
    outputs, labels_of = KINDS[name]
    x = points()
    labels = labels_of(x)
    module = head(outputs, form)
    trained = qat.train(module, ENGINE, RECIPE, (x,), labels, lambda *_: None)
    assert trained.loss == name
    with torch.no_grad():
        before, after = (forward.first(part(x)) for part in (module, trained.module))
        chosen = loss.choose(before, labels)
        assert chosen.of(after, chosen.targets) < 0.67 * chosen.of(before, chosen.targets)


@pytest.mark.parametrize(
    ("outputs", "labels", "words"),
    [
        (torch.zeros(2, 3), torch.tensor([0, 3]), "labels from 0 to 3, but the network has 3 outputs"),
        (torch.zeros(2, 3), torch.tensor([-1, 1]), "labels from -1 to 1"),
        (torch.zeros(2, 1), torch.tensor([0, 7]), "whole labels from 0 to 7 with one output.*or float labels"),
        (torch.zeros(2, 3), torch.tensor([0.5, 0.1]), r"float32 labels of shape \(n,\) and outputs of shape \(n, 3\)"),
        (torch.zeros(2, 3), torch.zeros(2, 3).long(), r"int64 labels of shape \(n, 3\).*fit no loss"),
        (torch.zeros(2, 3, 4), torch.tensor([0, 1]), r"outputs of shape \(n, 3, 4\) fit no loss"),
        (torch.zeros(2).long(), torch.tensor([0, 1]), "these are int64: does forward end in argmax"),
        (torch.tensor(0.5), torch.tensor([0, 1]), "one number for a whole batch"),
    ],
)
def test_labels_that_fit_no_loss_are_refused(outputs, labels, words):
    """The message says what was found and what would fit."""
    with pytest.raises(BuildError, match=words):
        loss.choose(outputs, labels)


def test_float_labels_of_several_values_are_quantities():
    """As many labels as outputs per example, in any shape that holds as many."""
    assert loss.choose(torch.zeros(2, 3), torch.zeros(5, 3)).name == "mse_loss"
    assert loss.choose(torch.zeros(2, 1), torch.zeros(5)).name == "mse_loss"
    assert loss.choose(torch.zeros(2), torch.zeros(5).double()).targets.dtype == torch.float32
