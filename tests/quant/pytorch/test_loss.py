"""The loss of QAT follows from outputs and labels, and what fits none is refused."""

from __future__ import annotations

import math

import pytest
import torch
from networks import Head

from qbench.errors import BuildError
from qbench.quant import model_call
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import distillation, fx, loss, qat, torch_ao
from qbench.quant.recipe import Recipe

ENGINE = next(engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines)
RECIPE = Recipe(per_channel=True, epochs=60, batch_size=32, learning_rate=1e-2, seed=0)


@pytest.fixture(autouse=True)
def _engine(engine_put_back):
    torch_ao.set_engine(ENGINE)


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
    trained = qat.train(fx, QuantizeJob(module, ENGINE, RECIPE, (x[:1],)), (x,), labels)
    assert trained.conversion.notes[0] == f"trained on {name}"
    with torch.no_grad():
        before, after = (model_call.first(part(x)) for part in (module, trained.module))
        choice = loss.choose(before, labels)
        assert choice.of(after, choice.targets) < 0.67 * choice.of(before, choice.targets)


@pytest.mark.parametrize(
    ("outputs", "labels", "words"),
    [
        (torch.zeros(2, 3), torch.tensor([0, 3]), "labels from 0 to 3, but the network has 3 outputs"),
        (torch.zeros(2, 3), torch.tensor([-1, 1]), "labels from -1 to 1"),
        (torch.zeros(2, 1), torch.tensor([0, 7]), "whole labels from 0 to 7 with one output.*or float labels"),
        (torch.zeros(2, 3), torch.tensor([0.5, 0.1]), r"float32 labels of shape \(n,\) and outputs of shape \(n, 3\)"),
        (torch.zeros(2, 3), torch.zeros(2, 3).long(), r"int64 labels of shape \(n, 3\).*fit no loss"),
        (torch.zeros(2, 3, 4), torch.tensor([0, 1]), r"outputs of shape \(n, 3, 4\) fit no loss.*or set distill: 1"),
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


def test_a_class_for_each_place_and_the_token_that_follows_have_a_loss():
    """Torch's cross-entropy of those that count; neither labels of -1 nor those of documents do."""
    masks = torch.tensor([[[0, 2], [-1, 1]]])
    scores = torch.randn(1, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    choice = loss.choose(scores, masks)
    each = torch.nn.functional.cross_entropy(scores, masks.clamp(min=0), reduction="none")
    assert float(choice.of(scores, choice.targets)) == pytest.approx(float(each[masks >= 0].mean()), rel=1e-5)
    windows = torch.tensor([[7_000, 1, 4, -1]])
    logits = torch.randn(1, 3, 5, generator=torch.Generator().manual_seed(1))
    choice = loss.choose(logits, windows)
    expected = torch.nn.functional.cross_entropy(logits[0, :2], torch.tensor([1, 4]))
    assert float(choice.of(logits, choice.targets)) == pytest.approx(float(expected), rel=1e-5)
    assert float(choice.distance(logits, logits)) == pytest.approx(0, abs=1e-6)
    with pytest.raises(BuildError, match="labels from -1 to 5, but the network has 5 outputs"):
        loss.choose(logits, torch.tensor([[0, 1, 5, -1]]))


CLASSES = torch.tensor([[2.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize(
    ("outputs", "labels", "right"),
    [
        (CLASSES, torch.tensor([0, 1]), 1),
        (torch.tensor([[1.0], [-1.0], [0.5]]), torch.tensor([1, 0, 0]), 2),
        (torch.tensor([1.0, -1.0, 0.5]), torch.tensor([1, 1, 1]), 2),
    ],
)
def test_right_predictions_are_counted(outputs, labels, right):
    """The largest output is the class; one logit above 0 is the label 1."""
    choice = loss.choose(outputs, labels)
    assert choice.right(outputs, choice.targets) == right


def test_quantities_are_neither_right_nor_wrong():
    """A regression has no accuracy."""
    assert loss.choose(torch.zeros(2), torch.zeros(2)).right is None


def test_the_distance_of_classes_is_the_divergence_of_their_probabilities():
    """Known answer: (1/2, 1/2) seen from (3/4, 1/4), in nats, over a batch of two of which one is equal."""
    choice = loss.choose(torch.zeros(2, 2), torch.tensor([0, 1]))
    teacher = torch.tensor([[math.log(3.0), 0.0], [5.0, 5.0]])
    expected = (0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)) / 2
    assert float(choice.distance(torch.zeros(2, 2), teacher)) == pytest.approx(expected, rel=1e-6)


def test_the_distance_of_one_logit_is_that_of_the_two_classes_it_stands_for():
    """A logit z says what the two outputs (z, 0) say."""
    actual, teacher = torch.tensor([[0.3], [-2.0]]), torch.tensor([[1.5], [0.2]])
    distance = loss.choose(actual, torch.tensor([0, 1])).distance(actual, teacher)
    pairs = [torch.cat([part, torch.zeros(2, 1)], 1) for part in (actual, teacher)]
    assert float(distance) == pytest.approx(
        float(loss.choose(pairs[0], torch.tensor([0, 1])).distance(*pairs)), rel=1e-5
    )


@pytest.mark.parametrize("outputs", [CLASSES, torch.tensor([[1.5], [-3.0]]), torch.tensor([1.5, -3.0])])
@pytest.mark.parametrize("labels", [torch.tensor([0, 1]), torch.tensor([0.5, 2.0]), None])
def test_a_network_has_no_distance_to_itself(outputs, labels):
    """Every distance is 0 at the teacher's own outputs, where it also has its least value."""
    if labels is not None and labels.is_floating_point() and outputs is CLASSES:
        labels = torch.zeros(2, 2)
    choice = loss.imitate(outputs) if labels is None else loss.choose(outputs, labels)
    assert float(choice.distance(outputs, outputs)) == pytest.approx(0, abs=1e-6)
    assert float(choice.distance(outputs + torch.tensor([0.5, -0.5])[: outputs.shape[-1]], outputs)) > 1e-3


def test_a_share_of_the_loss_is_the_distance_to_the_teacher():
    """share = 1/4: three parts labels, one part distance, on the examples asked for."""
    module = head(3, "plain")
    x, labels = points(8), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    mixed = distillation.aim(module, 0.25, (x,), labels, size=3)
    index = torch.tensor([5, 1])
    outputs = torch.tensor([[1.0, 0.0, -1.0], [0.0, 2.0, 0.0]])
    with torch.no_grad():
        teacher = module(x)[index]
    expected = 0.75 * mixed.loss.of(outputs, labels[index]) + 0.25 * mixed.loss.distance(outputs, teacher)
    assert float(mixed.of(outputs, index)) == pytest.approx(float(expected), rel=1e-6)
    assert mixed.name == "cross_entropy and 25% distance to the fp32 network's outputs"


def test_without_a_share_no_teacher_runs():
    """The fp32 network is asked for its outputs on the two probes only."""
    calls = []
    module = head(3, "plain")
    module.register_forward_hook(lambda part, inputs, out: calls.append(len(out)))
    assert distillation.aim(module, 0.0, (points(8),), torch.zeros(8).long(), size=4).teacher is None
    assert calls == [2]


def test_following_the_teacher_alone_takes_any_labels():
    """With a share of 1 labels that fit no loss are not looked at; with less they are refused."""
    labels = torch.zeros(8, 2, 2).long()
    alone = distillation.aim(head(3, "plain"), 1.0, (points(8),), labels, size=4)
    assert alone.name == "100% distance to the fp32 network's outputs"
    assert float(alone.of(alone.teacher[:2], torch.tensor([0, 1]))) == 0
    with pytest.raises(BuildError, match="fit no loss"):
        distillation.aim(head(3, "plain"), 0.9, (points(8),), labels, size=4)
