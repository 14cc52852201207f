"""What a recipe says of a training: optimizers, schedules and losses by name, and the user's own loss and loop."""

from __future__ import annotations

import math

import pytest
import torch
from networks import perceptron, residual_cnn
from torch import nn
from torch.nn import functional

from qbench.errors import BuildError
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import (
    checkpoint,
    distillation,
    eager,
    fp32_twin,
    fx,
    loss,
    optimizers,
    own_training,
    pt2e,
    qat,
    torch_ao,
)
from qbench.quant.recipe import Recipe, key_parts, training_of

ENGINE = next(engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines)
CODE = """
import copy, torch
from torch.nn import functional
from qbench_seen import SEEN

def focal(outputs, labels):
    log = torch.log_softmax(outputs, 1).gather(1, labels[:, None])[:, 0]
    return (-((1 - log.exp()) ** 2) * log).mean()
def nan(outputs, labels): return outputs.sum() * float("nan")
def late(outputs, labels):
    SEEN.append(1)
    return outputs.sum() * (float("nan") if len(SEEN) > 2 else 1.0)
def item(outputs, labels): return functional.cross_entropy(outputs, labels).item()
def cut(outputs, labels): return functional.cross_entropy(outputs.detach(), labels)
def each(outputs, labels): return functional.cross_entropy(outputs, labels, reduction="none")
def nothing(outputs, labels): pass
def fails(outputs, labels): return outputs.nope

def train(model, batches, settings):
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    for epoch in range(settings.epochs):
        for inputs, labels in batches:
            SEEN.append((tuple(inputs.shape), len(batches)))
            loss = functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        settings.progress(f"epoch {epoch + 1}", (epoch + 1) / settings.epochs)
    settings.freeze_ranges()
    settings.freeze_batch_norm()
    return model
def forgot(model, batches, settings): train(model, batches, settings)
def other(model, batches, settings): return copy.deepcopy(train(model, batches, settings))
def number(model, batches, settings): return 0.9
def idle(model, batches, settings): return model
def diverged(model, batches, settings):
    with torch.no_grad():
        next(model.parameters()).fill_(float("inf"))
    return model
def breaks(model, batches, settings): raise ValueError("no luck")
"""


@pytest.fixture(autouse=True)
def _engine():
    before, threads = torch.backends.quantized.engine, torch.get_num_threads()
    torch_ao.set_engine(ENGINE)
    yield
    torch.backends.quantized.engine = before
    torch.set_num_threads(threads)


@pytest.fixture
def code(tmp_path):
    """The user's folder; what its functions note is in ``qbench_seen``."""
    (tmp_path / "own.py").write_text(CODE)
    (tmp_path / "qbench_seen.py").write_text("SEEN = []\n")
    return tmp_path


def images(n=64):
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def labels(n=64):
    return torch.randint(0, 10, (n,), generator=torch.Generator().manual_seed(2))


def recipe(**changes):
    return Recipe(**{"per_channel": True, "epochs": 2, "batch_size": 16, "learning_rate": 1e-2, "seed": 0, **changes})


def fit(asked, base=None, flow=fx, module=None, targets=..., progress=lambda text, share: None, **more):
    job = QuantizeJob(module or residual_cnn(), ENGINE, asked, (images(1),), progress, base=base)
    return qat.fit(flow, job, (images(),), labels() if targets is ... else targets, **more)


def weights(fitted):
    return torch.cat([value.flatten() for value in fitted.prepared.parameters()])


def test_the_named_default_is_the_default():
    """Adam along half a cosine is what a recipe without the keys gives, bit for bit, and its keys are the same."""
    named = fit(recipe(optimizer="adam", schedule="cosine", loss="cross_entropy"))
    assert torch.equal(weights(fit(recipe())), weights(named))
    assert not set(key_parts(recipe())) & {"optimizer", "optimizer_keys", "schedule_keys", "loss", "train", "qconfig"}
    assert list(training_of(recipe())) == [
        "epochs", "learning_rate", "batch_size", "samples", "seed", "schedule", "distill"
    ]  # fmt: skip


@pytest.mark.parametrize("asked", [
    {"optimizer": "sgd"},
    {"optimizer": "sgd", "optimizer_keys": (("momentum", 0.9), ("nesterov", True))},
    {"optimizer": "adamw", "optimizer_keys": (("weight_decay", 0.5),)},
    {"optimizer_keys": (("betas", (0.5, 0.9)),)},
    {"schedule": "linear"},
    {"schedule": "step", "schedule_keys": (("every", 1),)},
    {"schedule_keys": (("warmup", 1.0),)},
    {"loss": "mse", "distill": 0.0},
])  # fmt: skip
def test_each_key_makes_another_training(asked):
    """Each of them gives other weights than the default, and the note says it."""
    targets = functional.one_hot(labels(), 10).float() if asked.get("loss") == "mse" else labels()
    plain, fitted = fit(recipe()), fit(recipe(**asked), targets=targets)
    assert not torch.equal(weights(plain), weights(fitted))
    assert fitted.notes[0] != plain.notes[0]


def test_the_note_says_how_it_was_trained():
    """The optimizer, the schedule and their keys."""
    asked = recipe(
        optimizer="sgd", optimizer_keys=(("momentum", 0.9), ("nesterov", True)), schedule_keys=(("end", 0.1),)
    )
    assert optimizers.describe(asked) == "SGD (momentum 0.9, nesterov), cosine (end 0.1) from 0.01"


@pytest.mark.parametrize(
    ("schedule", "keys", "expected"),
    [
        ("constant", (), [1, 1, 1, 1]),
        ("linear", (), [1, 0.75, 0.5, 0.25]),
        ("linear", (("end", 0.5),), [1, 0.875, 0.75, 0.625]),
        ("cosine", (), [1, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125)]),
        ("step", (("every", 2),), [1, 1, 0.1, 0.1]),
        ("step", (("every", 1), ("gamma", 0.5)), [1, 0.5, 0.25, 0.125]),
        ("constant", (("warmup", 2.0),), [0.5, 1, 1, 1]),
    ],
)
def test_a_schedule_is_its_formula(schedule, keys, expected):
    """The share of the rate at the beginning of each of four epochs of one step."""
    asked = recipe(schedule=schedule, schedule_keys=keys)
    assert [optimizers.share_of_rate(asked, step, 4, 4) for step in range(4)] == pytest.approx(expected)


def test_a_step_that_no_number_holds_is_refused():
    """SGD's first step is the rate itself, Adam's is ten times as long."""
    with pytest.raises(BuildError, match="Adam's first step is longer than a 32-bit"):
        optimizers.make(recipe(learning_rate=1e38), [nn.Parameter(torch.ones(1))])
    assert optimizers.make(recipe(learning_rate=1e38, optimizer="sgd"), [nn.Parameter(torch.ones(1))])


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "expected"),
    [
        ("cross_entropy", torch.randn(4, 3, 2, 2), torch.ones(4, 2, 2).long(), functional.cross_entropy),
        ("cross_entropy", torch.randn(4, 3), torch.tensor([0, 1, 2, 0]), functional.cross_entropy),
        ("binary_cross_entropy", torch.randn(4, 3), torch.ones(4, 3), functional.binary_cross_entropy_with_logits),
        ("mse", torch.randn(4, 1), torch.tensor([1, 2, 3, 4]), lambda x, y: functional.mse_loss(x[:, 0], y.float())),
        ("l1", torch.randn(4, 3), torch.randn(4, 3), functional.l1_loss),
        ("smooth_l1", torch.randn(4, 3), torch.randn(4, 3), functional.smooth_l1_loss),
        ("huber", torch.randn(4, 3), torch.randn(4, 3), functional.huber_loss),
    ],
)
def test_a_named_loss_is_torchs(name, outputs, targets, expected):
    """Also of labels in another shape or type that mean the same."""
    chosen = loss.named(name, outputs[:2], targets)
    assert torch.equal(chosen.of(outputs, chosen.targets), expected(outputs, targets))


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "said"),
    [
        ("cross_entropy", torch.randn(2, 3), torch.randn(4, 3), "whole class numbers .* float32 labels of shape .n, 3"),
        ("cross_entropy", torch.randn(2, 3), torch.tensor([0, 3]), "labels from 0 to 3, but the network has 3 outputs"),
        ("binary_cross_entropy", torch.randn(2, 1), torch.tensor([0, 3]), "labels from 0 to 1, one for each output"),
        ("mse", torch.randn(2, 3), torch.tensor([0, 3]), "as many labels as outputs for each example"),
    ],
)
def test_labels_that_do_not_fit_a_named_loss_are_refused(name, outputs, targets, said):
    """What it takes, and what these are."""
    with pytest.raises(BuildError, match=said):
        loss.named(name, outputs, targets)


@pytest.mark.parametrize("flow", [fx, eager, pt2e, fp32_twin], ids=["fx", "eager", "pt2e", "twin"])
def test_an_own_loss_is_trained_on(flow, code):
    """It falls, the accuracy is told as for the loss that fits, and its name stands in the record."""
    fitted = fit(recipe(loss="own.py:focal", epochs=8), code, flow, perceptron())
    again = fit(recipe(loss="own.py:focal", epochs=8), code, flow, perceptron())
    assert fitted.loss == "own.py:focal"
    assert "accuracy" in fitted.notes[0]
    assert torch.equal(weights(fitted), weights(again))
    assert not torch.equal(weights(fitted), weights(fit(recipe(epochs=8), None, flow, perceptron())))


def test_an_own_loss_gets_all_outputs(code):
    """Of a network with two heads both; a named loss and the distance to fp32 take the first."""
    (code / "two.py").write_text("def both(outputs, labels): return outputs[0].mean() + 2 * outputs[1].mean()\n")
    outputs = (torch.ones(2, 3, requires_grad=True), torch.ones(2, 1))
    chosen = loss.load("two.py:both", code, outputs, torch.tensor([0, 1]))
    aim = distillation.Aim(loss=chosen, distill=0.0, teacher=None)
    assert float(aim.of(outputs, torch.tensor([0, 1])).detach()) == 3
    assert aim.right(outputs, torch.tensor([0, 1])) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nan", "cannot begin: the loss own.py:nan is nan on the first batch, .* look for a logarithm of 0"),
        ("late", "QAT diverged: the loss is nan in epoch 1; lower learning_rate .*, or mend the loss own.py:late"),
        ("item", "own.py:item returned a float; expected one number as a tensor"),
        ("cut", r"own.py:cut returned a number without a gradient; compute it .* without item\(\), detach\(\)"),
        ("each", r"own.py:each returned a tensor of shape \(16\); expected one number: take its mean\(\)"),
        ("nothing", r"own.py:nothing returned nothing \(is a `return` missing\?\)"),
        ("fails", r"own.py:17: AttributeError: 'Tensor' object has no attribute 'nope'"),
        ("gone", "no 'gone' in this file"),
    ],
)
def test_a_loss_that_is_none_fails_with_its_reason(name, said, code):
    """One sentence with the function, what it gave, and what to do."""
    with pytest.raises(BuildError, match=said):
        fit(recipe(loss=f"own.py:{name}"), code)


def test_a_loss_needs_labels(code):
    """Without labels the fp32 network is followed, and a loss that is named would never be called."""
    with pytest.raises(BuildError, match="QAT with the loss own.py:focal needs labelled training examples"):
        fit(recipe(loss="own.py:focal"), code, targets=None)


@pytest.mark.parametrize("flow", [fx, eager, pt2e, fp32_twin], ids=["fx", "eager", "pt2e", "twin"])
def test_an_own_loop_trains(flow, code):
    """It gets whole batches in a new order each epoch, as many as it was told; the trained network is its own."""
    said = []
    fitted = fit(recipe(train="own.py:train"), code, flow, perceptron(), progress=lambda text, share: said.append(text))
    assert fitted.notes == (f"{'fp32 twin' if flow is fp32_twin else 'QAT'}: by the training loop own.py:train",)
    assert said[-1].endswith(": epoch 2")
    import qbench_seen

    assert qbench_seen.SEEN == [((16, 1, 8, 8), 4)] * 8
    assert torch.equal(weights(fitted), weights(fit(recipe(train="own.py:train"), code, flow, perceptron())))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "forgot",
            r"own.py:forgot returned nothing \(is a `return model` missing\?\): train the model that it is given",
        ),
        ("other", "own.py:other returned another model: train the model that it is given, in place"),
        ("number", "own.py:number returned a float: train the model"),
        ("idle", r"own.py:idle changed no weight of the model; is optimizer.step\(\) missing\?"),
        ("diverged", "own.py:diverged left weights that are no finite numbers"),
        ("breaks", r"own.py:\d+: ValueError: no luck"),
    ],
)
def test_a_loop_that_does_not_train_fails_with_its_reason(name, said, code):
    """One sentence with the function, what it gave back, and what to do."""
    with pytest.raises(BuildError, match=said):
        fit(recipe(train=f"own.py:{name}"), code)


def passes(asked, inputs, targets, n=2):
    """The examples' numbers of each batch, over so many passes."""
    batches = own_training.TrainingBatches(inputs, targets, asked)
    return [[(batch, target) for batch, target in batches] for _ in range(n)]


def test_batches_are_all_examples_in_an_order_of_the_seed():
    """Each pass another one; the seed is 0 where the recipe has none, and a batch 64 examples."""
    inputs = torch.arange(200.0)
    drawn = passes(Recipe(), (inputs,), None)
    assert [[len(batch) for batch, _ in epoch] for epoch in drawn] == [[50] * 4] * 2
    first, second = (torch.cat([batch for batch, _ in epoch]) for epoch in drawn)
    assert torch.equal(first.sort().values, inputs)
    assert torch.equal(second.sort().values, inputs)
    assert not torch.equal(first, second)
    assert not torch.equal(first, inputs)
    (same,) = passes(Recipe(seed=0), (inputs,), None, 1)
    assert torch.equal(torch.cat([batch for batch, _ in same]), first)
    (other,) = passes(Recipe(seed=1), (inputs,), None, 1)
    assert not torch.equal(torch.cat([batch for batch, _ in other]), first)
    assert len(own_training.TrainingBatches((inputs,), None, Recipe(batch_size=60, samples=61))) == 2


def test_a_recipe_with_fewer_samples_trains_on_those_of_its_seed():
    """The same ones in each pass."""
    chosen = []
    for seed in (3, 3, 4):
        drawn = passes(Recipe(seed=seed, samples=20, batch_size=8), (torch.arange(200.0),), None)
        first, second = (torch.cat([batch for batch, _ in epoch]).sort().values for epoch in drawn)
        assert torch.equal(first, second)
        assert len(first) == 20
        chosen.append(first)
    assert torch.equal(chosen[0], chosen[1])
    assert not torch.equal(chosen[0], chosen[2])


def test_a_batch_is_what_the_network_takes_and_its_labels():
    """A tensor, or a tuple of several; each with its label, or None."""
    inputs, targets = (torch.arange(8.0), torch.arange(8.0) + 10), torch.arange(8) + 20
    ((batch, target), *_), *_ = passes(recipe(), inputs, targets)
    assert isinstance(batch, tuple)
    assert torch.equal(batch[0] + 10, batch[1])
    assert torch.equal(batch[0] + 20, target)
    ((batch, target), *_), *_ = passes(recipe(), inputs[:1], None)
    assert (type(batch), target) == (torch.Tensor, None)


class Flow:
    """Notes what is asked of it."""

    def __init__(self):
        self.asked = []

    def freeze_observers(self, prepared):
        self.asked.append(("observers", prepared))

    def freeze_batch_norm(self, prepared):
        self.asked.append(("batch norm", prepared))

    def qat_modes(self, prepared, training):
        self.asked.append((training, prepared))


LOOP = """
def train(model, batches, settings):
    settings.freeze_batch_norm()
    for share in (-0.5, 0.0, 0.5, 1.0, 2.0):
        settings.progress(f"at {share}", share)
    model.weight.data += 1
    model.told = (settings.epochs, settings.learning_rate, settings.batch_size, settings.seed)
    return model
def nan(model, batches, settings):
    model.weight.data[0, 0] = float("nan")
    return model
def second(model, batches, settings):
    model.bias.data += 1
    return model
def more(model, batches, settings):
    import torch
    model.more = torch.nn.Parameter(torch.zeros(1))
    return model
"""


def own(tmp_path, flow, name="train", **changes):
    """A training of one layer by a loop of ``LOOP``."""
    (tmp_path / "loop.py").write_text(LOOP)
    asked = Recipe(train=f"loop.py:{name}", **changes)
    batches = own_training.TrainingBatches((torch.zeros(130, 2),), None, asked)
    return own_training.OwnTraining(nn.Linear(2, 2), flow, asked, batches, tmp_path)


def test_a_loop_is_told_what_the_recipe_says_or_the_defaults(tmp_path):
    """One epoch of batches of 64 at 0.001 with seed 0."""
    lines, flow = [], Flow()
    training = own(tmp_path, flow)
    assert (training.epoch, training.epochs, training.total) == (0, 1, 3)
    training.run_epoch(lambda text, share: lines.append((text, share)))
    model = training._prepared
    assert model.told == (1, 1e-3, 64, 0)
    assert [text for text, _ in lines] == [
        "QAT by loop.py:train",
        *(f"QAT: at {s}" for s in (-0.5, 0.0, 0.5, 1.0, 2.0)),
    ]
    assert [share for _, share in lines] == pytest.approx([0.1, 0.1, 0.1, 0.45, 0.8, 0.8])
    assert flow.asked == [("batch norm", model)]
    assert training.epoch == 1
    training.finish()
    assert flow.asked[1:] == [("observers", model), ("batch norm", model), (False, model)]
    told = own(tmp_path, flow, epochs=5, batch_size=65, learning_rate=0.5, seed=9)
    assert told.total == 10
    told.run_epoch(lambda text, share: None)
    assert told._prepared.told == (5, 0.5, 65, 9)


def test_a_trained_loop_goes_on_where_it_was(tmp_path):
    """Its network and that it is done; None changes nothing."""
    training, again = own(tmp_path, Flow()), own(tmp_path, Flow())
    before = again._prepared.weight.detach().clone()
    again.resume(None)
    assert (again.epoch, torch.equal(again._prepared.weight, before)) == (0, True)
    training.run_epoch(lambda text, share: None)
    again.resume(training.state())
    assert again.epoch == 1
    assert torch.equal(again._prepared.weight, training._prepared.weight)


def test_any_changed_weight_is_a_training(tmp_path):
    """One tensor of several, or one that is added; a single number that is none is none."""
    for name in ("second", "more"):
        own(tmp_path, Flow(), name).run_epoch(lambda text, share: None)
    with pytest.raises(BuildError, match="loop.py:nan left weights that are no finite numbers"):
        own(tmp_path, Flow(), "nan").run_epoch(lambda text, share: None)


def test_a_loop_must_leave_fake_quantization_in_the_model(code, monkeypatch):
    """Else there were nothing to convert."""
    (code / "off.py").write_text(
        "import torch\n"
        "def train(model, batches, settings):\n"
        "    for name, part in list(model.named_modules()):\n"
        "        if 'FakeQuantize' in type(part).__name__ and '.' not in name:\n"
        "            setattr(model, name, torch.nn.Identity())\n"
        "    return model\n"
    )
    with pytest.raises(BuildError, match="off.py:train took fake quantization out of the model; leave it"):
        fit(recipe(train="off.py:train"), code)


def test_a_loop_without_labels_gets_none(code):
    """How to do without them is the loop's to know."""
    with pytest.raises(BuildError, match="own.py:"):  # its cross-entropy of None
        fit(recipe(train="own.py:train"), code, targets=None)


def test_a_checkpoint_of_other_code_is_another_training(code, tmp_path):
    """The text of the user's loss is part of a training's name."""
    folder = tmp_path / "kept"
    fit(recipe(loss="own.py:focal"), code, checkpoints=folder)
    (code / "own.py").write_text(CODE.replace("** 2", "** 3"))
    with pytest.raises(BuildError, match="checkpoint of another training .*it differs in loss"):
        fit(recipe(loss="own.py:focal"), code, checkpoints=folder)
    assert checkpoint.FILE == "qat.pt"
