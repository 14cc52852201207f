"""Quantization-aware training on every flow: it trains, resumes bit for bit, and refuses what is not QAT."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import math
import types

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import Head, lstm, masked, perceptron, residual_cnn
from sklearn.datasets import load_digits
from torch import nn

from qbench.errors import BuildError, ModeImpossible
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import (
    checkpoint,
    eager,
    fake_quant_sites,
    fx,
    kernel_probe,
    pt2e,
    qat,
    qat_modes,
    torch_ao,
    trainer,
)
from qbench.quant.recipe import Recipe

ENGINE = next(engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines)
RECIPE = Recipe(per_channel=True, epochs=3, batch_size=16, learning_rate=1e-2, seed=0)
FLOWS = pytest.mark.parametrize("flow", [fx, eager, pt2e], ids=["fx", "eager", "pt2e"])


@pytest.fixture(autouse=True)
def _engine():
    """The engine and the number of threads are process-global: each test leaves them as they were."""
    before, threads = torch.backends.quantized.engine, torch.get_num_threads()
    torch_ao.set_engine(ENGINE)
    torch.set_num_threads(1)
    yield
    torch.backends.quantized.engine = before
    torch.set_num_threads(threads)


class Dropping(nn.Module):
    """Convolution with BatchNorm, and dropout, whose randomness is part of a training's state; (n, 1, 8, 8) in."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU6()
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(36, 10)

    def forward(self, x):
        return self.head(self.drop(torch.flatten(self.relu(self.norm(self.conv(x))), 1)))


def dropping():
    torch.manual_seed(0)
    return Dropping().eval()


def images(n=64):
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def labels(n=64):
    return torch.randint(0, 10, (n,), generator=torch.Generator().manual_seed(2))


def quiet(text, share):
    """A progress that nobody reads."""


def fit(module, flow=fx, recipe=RECIPE, checkpoints=None, progress=quiet, n=64):
    return qat.fit(
        flow,
        QuantizeJob(module, ENGINE, recipe, (images(1),), progress=progress),
        (images(n),),
        labels(n),
        checkpoints=checkpoints,
    )


def train(module, flow=fx, recipe=RECIPE, checkpoints=None, progress=quiet, n=64):
    return qat.train(
        flow,
        QuantizeJob(module, ENGINE, recipe, (images(1),), progress=progress),
        (images(n),),
        labels(n),
        checkpoints=checkpoints,
    )


def changed(**values):
    return dataclasses.replace(RECIPE, **values)


def spying(**functions):
    """The FX flow with some of its functions replaced."""
    module = types.ModuleType("spying")
    for name in ("prepare_qat", "freeze_observers", "freeze_batch_norm", "qat_modes", "convert_qat"):
        setattr(module, name, functions.get(name, getattr(fx, name)))
    return module


class Killed(Exception):
    """The process went away."""


def killed_in(epoch):
    """A progress that ends the training in an epoch, counted from 1."""

    def progress(text, share):
        if f"epoch {epoch}/" in text:
            raise Killed

    return progress


def same_state(network, another):
    """Equal in every bit; the ranges of observers that saw nothing are infinite, and equal too."""
    first, second = network.state_dict(), another.state_dict()
    assert first.keys() == second.keys()
    return all(torch.equal(value, second[name]) for name, value in first.items())


# ---- it trains -------------------------------------------------------------------------------------------------------


@FLOWS
def test_qat_learns_on_every_flow(flow):
    """The int8 network that comes out predicts its training examples better than the fp32 network that went in."""
    x, y = images(128), labels(128)
    recipe = changed(epochs=60, batch_size=32)
    int8 = train(perceptron(), flow, recipe, n=128).module
    with torch.no_grad():
        before, after = (nn.functional.cross_entropy(part(x), y) for part in (perceptron(), int8))
    assert after < 0.8 * before


def digits():
    """1,000 real digits to train on and 797 to test on: images (n, 1, 8, 8) from 0 to 1 and labels."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(data.images / 16, dtype=torch.float32)[:, None][order]
    y = torch.tensor(data.target)[order]
    return x[:1000], y[:1000], x[1000:], y[1000:]


def uneven(x, y):
    """A digit classifier whose channels differ 4,096-fold in size (the next layer makes up for it), trained in fp32."""
    torch.manual_seed(0)
    first, depthwise = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
    module = nn.Sequential(
        first, nn.ReLU(), depthwise, nn.ReLU(), nn.Conv2d(8, 8, 1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(128, 10),
    )  # fmt: skip
    optimizer, order = torch.optim.Adam(module.parameters(), lr=1e-2), torch.Generator().manual_seed(0)
    for _ in range(8):
        for index in torch.randperm(len(y), generator=order).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[index]), y[index]).backward()
            optimizer.step()
    factors = 2.0 ** torch.linspace(0, 12, 8)
    with torch.no_grad():
        first.weight *= factors[:, None, None, None]
        first.bias *= factors
        depthwise.weight /= factors[:, None, None, None]
    return module.eval()


def test_qat_beats_static_where_static_loses_most():
    """Per-tensor weights over channels of very different size: static loses half of its accuracy and more, QAT gets at
    least half of the loss back."""
    x, y, test_x, test_y = digits()
    module, recipe = uneven(x, y), changed(per_channel=False, epochs=4, batch_size=64, calibrator=None)

    def accuracy(part):
        with torch.no_grad():
            return float((part(test_x).argmax(1) == test_y).float().mean())

    static = fx.static(
        QuantizeJob(module, ENGINE, dataclasses.replace(recipe, calibrator="minmax"), (x[:1],)), lambda: iter([(x,)])
    )
    trained = qat.train(fx, QuantizeJob(module, ENGINE, recipe, (x[:1],)), (x,), y)
    fp32, lost, kept = accuracy(module), accuracy(static.module), accuracy(trained.module)
    assert fp32 > 0.9
    assert lost < fp32 - 0.4
    assert kept > lost + (fp32 - lost) / 2


def test_following_the_teacher_comes_closer_to_it():
    """On labels that mean nothing, distillation keeps the fp32 network's outputs and plain QAT does not."""
    x = images()
    with torch.no_grad():
        teacher = residual_cnn()(x)
        far, near = (
            float((train(residual_cnn(), recipe=changed(distill=share)).module(x) - teacher).abs().mean())
            for share in (0.0, 1.0)
        )
    assert near < 0.5 * far


def test_outputs_of_any_shape_can_follow_the_teacher():
    """A network of images to images, whose labels fit no loss, trains with distill: 1."""
    module = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1)).eval()
    targets = torch.zeros(16, 8, 8).long()
    trained = qat.train(fx, QuantizeJob(module, ENGINE, changed(distill=1.0), (images(1),)), (images(16),), targets)
    assert trained.conversion.notes[0] == "trained on 100% distance to the fp32 network's outputs"
    assert trained.module(images(2)).shape == (2, 2, 8, 8)


def test_a_network_of_two_inputs_trains():
    """Every input is shuffled in the same order."""
    x = torch.rand(64, 6, generator=torch.Generator().manual_seed(1)) - 0.5
    mask = torch.ones(64, 6)
    mask[::2] = 0
    y = (mask[:, 0] > 0).long() * (1 + (x[:, 0] > 0).long())
    trained = qat.train(
        fx, QuantizeJob(masked(), ENGINE, changed(epochs=80, learning_rate=0.1), (x[:1], mask[:1])), (x, mask), y
    ).module
    with torch.no_grad():
        assert float((trained(x, mask).argmax(1) == y).float().mean()) > 0.8


def test_progress_tells_loss_and_accuracy():
    """The last text of an epoch holds the mean over it; shares grow."""
    said = []
    train(perceptron(), progress=lambda text, share: said.append((text, share)))
    assert [text.partition(":")[0] for text, _ in said] == [f"QAT epoch {epoch}/3" for epoch in (1, 2, 3)]
    assert all(part in said[-1][0] for part in ("loss ", ", accuracy "))
    shares = [share for _, share in said]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 1


def test_what_is_said_of_accuracy_is_true():
    """At a learning rate that changes nothing, in one batch, the accuracy is that of the network."""
    said = []
    module = perceptron()
    trained = fit(
        module,
        recipe=changed(epochs=1, batch_size=64, learning_rate=1e-12),
        progress=lambda text, share: said.append(text),
    )
    with torch.no_grad():
        right = float((trained.prepared(images()).argmax(1) == labels()).float().mean())
    assert said[-1].endswith(f"accuracy {right:.1%}")


def test_accuracy_counts_every_batch():
    """A network that is right everywhere is right in all four batches of an epoch."""
    module, said = perceptron(), []
    with torch.no_grad():
        module.second.bias[3] = 9
    qat.fit(
        fx,
        QuantizeJob(module, ENGINE, changed(epochs=1), (images(1),), progress=lambda text, share: said.append(text)),
        (images(),),
        torch.full((64,), 3),
    )
    assert said[-1].endswith("accuracy 100.0%")


def test_few_examples_are_all_trained_on():
    """Of fewer than 1,000 none is held out; of more, one in 20 and at most 512, drawn by the seed."""
    assert [len(part) for part in trainer.split_examples(999, 0)] == [999, 0]
    assert [len(part) for part in trainer.split_examples(1000, 0)] == [950, 50]
    assert [len(part) for part in trainer.split_examples(50_000, 0)] == [49_488, 512]
    kept, out = trainer.split_examples(1000, 0)
    assert torch.equal(torch.cat([kept, out]).sort().values, torch.arange(1000))
    assert not torch.equal(out, trainer.split_examples(1000, 1)[1])
    fewer, same = trainer.split_examples(1000, 0, 100)
    assert len(fewer) == 100
    assert set(fewer.tolist()) < set(kept.tolist())
    assert torch.equal(same, out)


def holding_out(flow=fx, recipe=RECIPE, checkpoints=None, progress=quiet, x=None):
    """A training of 1,000 examples in two epochs of four steps."""
    x = images(1000) if x is None else x
    recipe = dataclasses.replace(recipe, epochs=2, batch_size=250)
    return qat.fit(
        flow,
        QuantizeJob(dropping(), ENGINE, recipe, (x[:1],), progress=progress),
        (x,),
        labels(1000),
        checkpoints=checkpoints,
    )


def test_held_out_accuracy_is_that_of_the_network():
    """The last text tells loss and accuracy of the network in eval mode on the 50 that it was not trained on."""
    said = []
    fitted = holding_out(recipe=changed(learning_rate=1e-12), progress=lambda text, share: said.append(text))
    _, out = trainer.split_examples(1000, 0)
    with torch.no_grad():
        outputs = fitted.prepared(images(1000)[out])
    right = float((outputs.argmax(1) == labels(1000)[out]).float().mean())
    assert said[-1].endswith(f", accuracy {right:.1%}")
    assert "; held out: loss " in said[-1]
    assert said[-1].partition(": ")[2] in fitted.notes[0]


@FLOWS
def test_what_is_held_out_leaves_no_trace(flow):
    """Neither weights nor ranges nor statistics know of it: with other held-out examples all stay the same bits."""
    _, out = trainer.split_examples(1000, 0)
    other = images(1000)
    other[out] *= 100
    if flow is pt2e:
        recipe, make = changed(epochs=1, batch_size=500), perceptron
        fitted = [
            qat.fit(flow, QuantizeJob(make(), ENGINE, recipe, (x[:1],)), (x,), labels(1000)).prepared
            for x in (images(1000), other)
        ]
    else:
        fitted = [holding_out(flow, x=x).prepared for x in (images(1000), other)]
    assert same_state(*fitted)


def test_a_resumed_training_tells_the_same_of_what_is_held_out(tmp_path):
    """Killed after the last epoch, the notes still hold it."""
    notes = holding_out(checkpoints=tmp_path).notes
    assert "held out" in notes[0]
    assert holding_out(checkpoints=tmp_path).notes == notes


class Middle(nn.Module):
    """A 1-D convolution between rows and a Linear layer; (n, 1, 8, 8) in."""

    def __init__(self):
        super().__init__()
        self.conv, self.relu, self.head = nn.Conv1d(8, 4, 3), nn.ReLU(), nn.Linear(24, 10)

    def forward(self, x):
        return self.head(self.relu(self.conv(x.squeeze(1))).flatten(1))


@FLOWS
def test_a_layer_that_was_not_rounded_in_training_is_named(flow):
    """Eager has no fake-quantize for 1-D convolutions, which are int8 all the same; the other flows have one."""
    notes = " ".join(train(Middle().eval(), flow, changed(epochs=1)).conversion.notes)
    named = "QAT did not round the weights of conv (Conv1d) in training, only after it"
    assert (named in notes) == (flow is eager)
    assert "head (" not in notes


def test_a_layer_that_stays_float_is_not_told_as_unrounded():
    """What is float on purpose has its reason elsewhere."""
    trained = train(Middle().eval(), eager, changed(epochs=1, skip_layers=("conv",)))
    assert "skip_layers" in trained.conversion.float_reasons["conv"]
    assert "did not round" not in " ".join(trained.conversion.notes)


def test_the_notes_say_how_it_was_trained():
    """Optimizer, schedule, rate, steps and where it ended."""
    (note,) = fit(perceptron()).notes
    assert note.startswith("QAT: Adam, cosine from 0.01, 3 x 4 steps, last epoch: loss ")


# ---- the loop --------------------------------------------------------------------------------------------------------


def rates(monkeypatch, **values):
    """The learning rate of each step of a training."""
    rates_used = []

    class Recording(torch.optim.Adam):
        def step(self, closure=None):
            rates_used.append(self.param_groups[0]["lr"])
            return super().step(closure)

    monkeypatch.setattr(torch.optim, "Adam", Recording)
    fit(perceptron(), recipe=changed(**values))
    return rates_used


def test_a_cosine_schedule_falls_to_nothing(monkeypatch):
    """Step k of n runs at rate * (1 + cos(pi k / n)) / 2 (Loshchilov and Hutter 2017, without restarts)."""
    assert rates(monkeypatch, schedule="cosine") == pytest.approx(
        [0.01 * (1 + math.cos(math.pi * step / 12)) / 2 for step in range(12)]
    )


def test_a_constant_schedule_stays(monkeypatch):
    """Every step runs at the recipe's rate."""
    assert rates(monkeypatch, schedule="constant") == [0.01] * 12


def test_ranges_are_frozen_before_batch_norm_in_the_last_steps():
    """Of 20 steps, observers stop after 16, BatchNorm statistics after 18, and both only once."""
    steps, frozen = [], {}

    def prepare(*args):
        prepared = fx.prepare_qat(*args)
        prepared.register_forward_pre_hook(lambda *_: steps.append(1))
        return prepared

    def noting(name):
        def freeze(prepared):
            assert name not in frozen
            frozen[name] = len(steps)
            getattr(fx, name)(prepared)

        return freeze

    names = ("freeze_observers", "freeze_batch_norm")
    fit(residual_cnn(), spying(prepare_qat=prepare, **{name: noting(name) for name in names}), changed(epochs=5))
    assert len(steps) == 20
    assert frozen == {"freeze_observers": 16, "freeze_batch_norm": 18}


@FLOWS
def test_a_fitted_network_no_longer_changes(flow):
    """After training, ranges and statistics are frozen and the network is in eval mode: new inputs leave no trace."""
    fitted = fit(dropping() if flow is not pt2e else perceptron(), flow, changed(epochs=1, batch_size=64)).prepared
    before = copy.deepcopy(fitted.state_dict())
    with torch.no_grad():
        outputs, again = (fitted(images() * 9) for _ in range(2))
    assert torch.equal(outputs, again)
    assert all(torch.equal(value, before[name]) for name, value in fitted.state_dict().items())


@given(examples=st.integers(1, 500), size=st.integers(1, 200))
def test_batches_hold_every_example_and_none_is_alone(examples, size):
    """Nearly equal batches: none larger than asked for (three for a size of two, where one would be alone)."""
    sizes = [len(part) for part in torch.arange(examples).tensor_split(trainer.count_batches(examples, size))]
    assert sum(sizes) == examples
    assert max(sizes) <= max(size, 3 if size == 2 else 1)
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) > 1 or size == 1 or examples == 1


@pytest.mark.parametrize(
    ("examples", "size", "batches"),
    [(64, 64, 1), (65, 64, 2), (129, 64, 3), (1, 8, 1), (2, 1, 2), (3, 2, 1), (4, 2, 2), (5, 2, 2), (9, 4, 3)],
)
def test_there_are_no_more_batches_than_it_takes(examples, size, batches):
    """The least number by which none is too large, or one less where an example would be alone."""
    assert trainer.count_batches(examples, size) == batches


def test_a_step_is_made_by_the_gradient_of_its_own_batch(monkeypatch):
    """Nothing of the batch before is left in it."""
    computed, taken = [], []

    def prepare(*args):
        prepared = fx.prepare_qat(*args)
        next(prepared.parameters()).register_hook(lambda gradient: computed.append(gradient.clone()))
        return prepared

    class Recording(torch.optim.Adam):
        def step(self, closure=None):
            taken.append(self.param_groups[0]["params"][0].grad.clone())
            return super().step(closure)

    monkeypatch.setattr(torch.optim, "Adam", Recording)
    fit(perceptron(), spying(prepare_qat=prepare))
    assert len(taken) == 12
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(taken, computed, strict=True))


def test_a_long_epoch_tells_of_every_eighth_step_and_of_its_last():
    """With the share of all steps."""
    said = []
    fit(perceptron(), recipe=changed(epochs=2, batch_size=3), progress=lambda text, share: said.append((text, share)))
    steps = [8, 16, 22, 30, 38, 44]
    assert [share for _, share in said] == [pytest.approx(0.1 + 0.7 * step / 44) for step in steps]
    assert [text.partition(":")[0] for text, _ in said] == [f"QAT epoch {epoch}/2" for epoch in (1, 1, 1, 2, 2, 2)]


def test_a_training_is_seeded():
    """The same seed gives the same weights, another seed others."""
    first, again = fit(dropping()).prepared, fit(dropping()).prepared
    assert same_state(first, again)
    assert not same_state(first, fit(dropping(), recipe=changed(seed=1)).prepared)


def test_the_seed_decides_dropout_too():
    """On equal examples their order does not matter, and what drops out does."""
    x, y, said = torch.ones(32, 8), torch.zeros(32).long(), []
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4)).eval()
    for seed in (0, 1, 0):
        recipe = changed(seed=seed, epochs=1, batch_size=32)
        qat.fit(
            fx, QuantizeJob(module, ENGINE, recipe, (x[:1],), progress=lambda text, share: said.append(text)), (x,), y
        )
    assert said[0] == said[2] != said[1]


def test_a_training_leaves_the_process_as_it_was():
    """The fp32 network, the random numbers to come and the number of threads are untouched."""
    torch.set_num_threads(2)
    module, expected = dropping(), torch.random.get_rng_state()
    before = copy.deepcopy(module.state_dict())
    torch.random.set_rng_state(expected)
    threads = set()
    train(module, recipe=changed(distill=0.5), progress=lambda *_: threads.add(torch.get_num_threads()))
    assert threads == {1}
    assert torch.equal(torch.random.get_rng_state(), expected)
    assert torch.get_num_threads() == 2
    assert not module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


# ---- a killed training goes on ---------------------------------------------------------------------------------------


@FLOWS
@pytest.mark.parametrize("epoch", [2, 3])
def test_a_killed_training_ends_with_the_weights_of_an_unbroken_one(flow, epoch, tmp_path):
    """Killed early, or in the epoch in which ranges and statistics freeze: weights, ranges, dropout and the order of
    examples go on where they were, bit for bit."""
    make = perceptron if flow is pt2e else dropping
    unbroken = fit(make(), flow).prepared
    with pytest.raises(Killed):
        fit(make(), flow, checkpoints=tmp_path, progress=killed_in(epoch))
    said = []
    resumed = fit(make(), flow, checkpoints=tmp_path, progress=lambda text, share: said.append(text))
    assert [text[:11] for text in said] == [f"QAT epoch {left}" for left in range(epoch, 4)]
    assert same_state(resumed.prepared, unbroken)
    example = (images(1),)
    parts = [
        flow.convert_qat(QuantizeJob(part, ENGINE, RECIPE, example)).module for part in (resumed.prepared, unbroken)
    ]
    with torch.no_grad():
        assert torch.equal(parts[0](images()), parts[1](images()))


def test_a_training_that_was_done_only_converts(tmp_path):
    """Killed after the last epoch: nothing is trained again, and the notes are the same."""
    done = fit(dropping(), checkpoints=tmp_path)
    said = []
    again = fit(dropping(), checkpoints=tmp_path, progress=lambda text, share: said.append(text))
    assert said == []
    assert same_state(done.prepared, again.prepared)
    assert again.notes == done.notes


def test_a_resumed_training_freezes_what_was_frozen(tmp_path):
    """BatchNorm's freeze is not in a network's state: with 10 epochs, the last one goes on with frozen statistics."""
    recipe = changed(epochs=10, batch_size=64)
    unbroken = fit(dropping(), recipe=recipe).prepared
    with pytest.raises(Killed):
        fit(dropping(), recipe=recipe, checkpoints=tmp_path, progress=killed_in(10))
    assert same_state(fit(dropping(), recipe=recipe, checkpoints=tmp_path).prepared, unbroken)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 half a file", b"\x80\x04."])
def test_a_checkpoint_that_cannot_be_read_is_begun_anew(damage, tmp_path):
    """Half a file costs time, not the result."""
    unbroken = fit(perceptron()).prepared
    (tmp_path / checkpoint.FILE).write_bytes(damage)
    assert same_state(fit(perceptron(), checkpoints=tmp_path).prepared, unbroken)


def test_a_training_killed_while_it_writes_keeps_the_checkpoint_before(tmp_path, monkeypatch):
    """A checkpoint is moved into its place when it is whole."""
    fit(perceptron(), recipe=changed(epochs=1), checkpoints=tmp_path)
    before = (tmp_path / checkpoint.FILE).read_bytes()

    def half(value, path):
        path.write_bytes(b"half")
        raise Killed

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(Killed):
        checkpoint.save(tmp_path, {}, {})
    assert (tmp_path / checkpoint.FILE).read_bytes() == before


@pytest.mark.parametrize(
    ("module", "recipe", "n", "words"),
    [
        (perceptron, changed(seed=1), 64, r"differs in recipe\)"),
        (dropping, RECIPE, 64, r"differs in weights, network\)"),
        (perceptron, changed(symmetric=True), 64, r"differs in network\)"),
        (perceptron, RECIPE, 60, r"differs in examples\)"),
    ],
)
def test_the_checkpoint_of_another_training_is_refused(module, recipe, n, words, tmp_path):
    """Another recipe, network or data set: neither gone on from nor written over."""
    fit(perceptron(), checkpoints=tmp_path)
    before = (tmp_path / checkpoint.FILE).read_bytes()
    with pytest.raises(BuildError, match=f"qat.pt is the checkpoint of another training.*{words}; delete it, or"):
        fit(module(), recipe=recipe, checkpoints=tmp_path, n=n)
    assert (tmp_path / checkpoint.FILE).read_bytes() == before


def test_a_recipe_by_another_name_is_the_same_training(tmp_path):
    """A name decides nothing."""
    fit(perceptron(), checkpoints=tmp_path)
    fit(perceptron(), recipe=changed(name="mine"), checkpoints=tmp_path, progress=killed_in(1))


def test_a_part_of_the_examples_is_trained_on():
    """``samples`` of them make an epoch, and the notes say of how many."""
    (trained, *_) = fit(perceptron(), recipe=changed(epochs=1, samples=32)).notes
    assert "1 x 2 steps" in trained
    assert trained.endswith("trained on 32 of 64 examples")


# ---- one training for several engines --------------------------------------------------------------------------------


def shelf(folder):
    """What builds of one network share: files by what decides them, each made once."""
    files = []

    def shared(parts, make):
        file = folder / f"{hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()}.pt"
        if not file.exists():
            files.append(parts)
            make(file)
        return file

    return shared, files


def fit_on(engine, shared=None, recipe=RECIPE, *, checkpoints=None, progress=quiet):
    torch_ao.set_engine(engine)
    job = QuantizeJob(dropping(), engine, recipe, (images(1),), progress, shared)
    return qat.fit(fx, job, (images(),), labels(), checkpoints=checkpoints)


def test_engines_that_prepare_a_network_alike_train_it_once(tmp_path):
    """What another engine trained is bit for bit what this one would have trained, also once it is converted."""
    first, second = [name for name in torch_ao.ENGINES if name != "qnnpack"][:2]
    alone = fit_on(second)
    shared, files = shelf(tmp_path)
    fit_on(first, shared)
    said = []
    taken = fit_on(second, shared, progress=lambda text, share: said.append(text))
    assert (len(files), said, taken.notes) == (1, [], alone.notes)
    assert same_state(taken.prepared, alone.prepared)
    parts = [
        fx.convert_qat(QuantizeJob(fitted.prepared, second, RECIPE, (images(1),))).module for fitted in (taken, alone)
    ]
    with torch.no_grad():
        assert torch.equal(parts[0](images()), parts[1](images()))


@pytest.mark.parametrize("change", [{"reduce_range": True}, {"skip_layers": ("head",)}, {"epochs": 2}, {"samples": 32}])
def test_what_trains_otherwise_is_trained_apart(change, tmp_path):
    """Other ranges, layers or steps give another network."""
    shared, files = shelf(tmp_path)
    fit_on(ENGINE, shared)
    fit_on(ENGINE, shared, changed(**change))
    assert len(files) == 2


def test_a_killed_training_goes_on_in_the_build_of_another_engine(tmp_path):
    """Checkpoints of a training that engines share do not belong to one of them, and are gone when it is done."""
    first, second = [name for name in torch_ao.ENGINES if name != "qnnpack"][:2]
    shared, _ = shelf(tmp_path)
    unfinished = tmp_path / "unfinished"
    with pytest.raises(Killed):
        fit_on(first, shared, checkpoints=unfinished / "one", progress=killed_in(3))
    said = []
    fit_on(second, shared, checkpoints=unfinished / "other", progress=lambda text, share: said.append(text))
    assert [text[:11] for text in said] == ["QAT epoch 3"]
    assert not any(unfinished.iterdir())


def test_a_shared_file_without_a_network_is_refused(tmp_path):
    """A network that was not trained is never taken for one that was."""
    (tmp_path / "empty").touch()
    with pytest.raises(BuildError, match="empty holds no trained network; `qbench clean` and run again"):
        fit_on(ENGINE, lambda parts, make: tmp_path / "empty")


# ---- ranges follow ---------------------------------------------------------------------------------------------------


@FLOWS
def test_a_weight_is_quantized_on_its_own_range(flow):
    """A weight that grows 100-fold between two steps is rounded, not cut at a range of before."""
    x = images(32)
    prepared = flow.prepare_qat(QuantizeJob(perceptron(), ENGINE, RECIPE, (x[:1],)))
    qat.set_averaging(prepared, steps=1000)
    with torch.no_grad():
        prepared(x)
        for weight in prepared.parameters():
            weight.mul_(100)
        prepared(x)
    largest = {
        name: float(value.detach().abs().max()) for name, value in prepared.named_parameters() if value.dim() > 1
    }
    for site in fake_quant_sites.sites(prepared):
        if site.of == "weight":
            scale, _ = site.module.calculate_qparams()
            assert float(scale.max()) * 127.5 == pytest.approx(largest[f"{site.name}.weight"], rel=1e-3)


@pytest.mark.parametrize(("steps", "constant"), [(10, 0.3), (200, 0.1), (100_000, 0.01)])
def test_an_activation_is_averaged_over_a_twentieth_of_the_steps(steps, constant):
    """A short training cannot wait for torch's 100 steps; a long one has torch's own constant."""
    prepared = fx.prepare_qat(QuantizeJob(perceptron(), ENGINE, RECIPE, (images(1),)))
    qat.set_averaging(prepared, steps)
    constants = {
        site.module.activation_post_process.averaging_constant
        for site in fake_quant_sites.sites(prepared)
        if site.of != "weight"
    }
    assert list(constants) == pytest.approx([constant])


def test_the_frameworks_own_recipe_keeps_its_averages():
    """framework-default is torch's, untouched."""
    constants = []

    def finished(prepared, training):
        constants.extend(
            site.module.activation_post_process.averaging_constant for site in fake_quant_sites.sites(prepared)
        )
        fx.qat_modes(prepared, training)

    fit(perceptron(), spying(qat_modes=finished), changed(framework_default=True, epochs=1))
    assert set(constants) == {0.01}


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_a_diverging_training_is_stopped():
    """A loss that is no longer finite ends it with what to do."""
    recipe = changed(epochs=20, learning_rate=1e30)
    with pytest.raises(BuildError, match=r"QAT diverged: the loss is .* lower learning_rate \(it is 1e\+30\)"):
        fit(residual_cnn(), recipe=recipe)


@pytest.mark.parametrize("rate", [3.5e37, 1e38, 1e300])
def test_a_learning_rate_beyond_the_numbers_is_refused(rate):
    """Adam's first step is ten times the rate: torch would fail in the middle of it."""
    with pytest.raises(BuildError, match=r"learning_rate is [\d.e+]+, with which Adam's first step is.*lower it"):
        fit(perceptron(), recipe=changed(learning_rate=rate))


def test_the_largest_learning_rate_that_numbers_hold_diverges():
    """Below that end the training runs, and its weights are what is told."""
    with pytest.raises(BuildError, match="QAT diverged"):
        fit(residual_cnn(), recipe=changed(learning_rate=3e37))


def test_a_loss_that_is_no_number_from_the_start_is_not_blamed_on_the_rate():
    """Examples that are not finite: the message sends to the data."""
    x = images().fill_(math.nan)
    with pytest.raises(BuildError, match=r"QAT cannot begin: the loss of the first batch is nan.*check the data"):
        qat.fit(fx, QuantizeJob(perceptron(), ENGINE, RECIPE, (x[:1],)), (x,), labels())


def test_a_loss_that_becomes_nan_ends_the_training():
    """The 40th example is not finite: the second batch or a later one meets it."""
    x = images()
    x[int(torch.randperm(64, generator=torch.Generator().manual_seed(0))[40])] = math.nan
    with pytest.raises(BuildError, match="QAT diverged: the loss is nan in epoch 1"):
        qat.fit(fx, QuantizeJob(perceptron(), ENGINE, RECIPE, (x[:1],)), (x,), labels())


def test_a_training_whose_last_step_diverges_is_stopped():
    """Weights that are no numbers are found even where no loss was computed from them."""

    def prepare(*args):
        prepared = fx.prepare_qat(*args)
        next(prepared.parameters()).register_hook(lambda gradient: gradient * math.nan)
        return prepared

    with pytest.raises(BuildError, match="QAT diverged: the loss is nan in epoch 1"):
        fit(residual_cnn(), spying(prepare_qat=prepare), changed(epochs=1, batch_size=64))


def test_observers_without_fake_quantize_are_refused():
    """What get_default_qconfig and prepare give is plain fp32 training: no value is rounded."""

    def prepare(job):
        with torch_ao.known_warnings():
            mapping = torch_ao.get_default_qconfig_mapping(job.engine)
            return torch_ao.prepare_fx(copy.deepcopy(job.module).eval(), mapping, job.example).train()

    with pytest.raises(BuildError, match="no fake-quantize on any weight: this would be plain fp32 training"):
        fit(perceptron(), spying(prepare_qat=prepare))


def test_fake_quantize_that_is_off_is_refused():
    """A fake-quantize that only observes rounds nothing."""

    def prepare(*args):
        return fx.prepare_qat(*args).apply(torch_ao.disable_fake_quant)

    with pytest.raises(BuildError, match="no fake-quantize on any weight"):
        fit(perceptron(), spying(prepare_qat=prepare))


@FLOWS
def test_a_network_of_transposed_convolutions_is_a_skip_in_qat(flow):
    """torch trains none with fake quantization: no fault of the suite's, so no failed case; a skipped layer is one."""
    generator = nn.Sequential(nn.ConvTranspose2d(1, 2, 2), nn.ReLU()).train()
    with pytest.raises(ModeImpossible, match="has none; it has ConvTranspose2d; use static instead"):
        flow.prepare_qat(QuantizeJob(generator, ENGINE, RECIPE, (images(2),)))
    skipped = changed(skip_layers=("1",))
    network = nn.Sequential(nn.ConvTranspose2d(1, 2, 2), nn.Conv2d(2, 2, 3)).train()
    with pytest.raises(
        BuildError, match="has none that is not skipped; it has Conv2d, ConvTranspose2d; use static instead"
    ) as refused:
        flow.prepare_qat(QuantizeJob(network, ENGINE, skipped, (images(2),)))
    assert not isinstance(refused.value, ModeImpossible)


def test_a_layer_whose_kernel_is_wrong_is_none_that_the_user_skipped(monkeypatch):
    """A generator on an engine that computes its transposed convolutions wrongly is a skip, too."""
    monkeypatch.setattr(kernel_probe, "wrong_kernels", lambda module, names: {"0": "wrong"})
    with pytest.raises(ModeImpossible, match="has none; it has ConvTranspose2d; use static instead"):
        fx.prepare_qat(QuantizeJob(nn.Sequential(nn.ConvTranspose2d(1, 2, 2)).train(), ENGINE, RECIPE, (images(2),)))


@pytest.mark.parametrize("flow", [fx, eager], ids=["fx", "eager"])
def test_a_network_prepared_in_eval_mode_is_refused(flow):
    """BatchNorm would stand still without a word."""
    with pytest.raises(BuildError, match=r"prepared for QAT in eval mode.*call train\(\) before prepare_qat"):
        qat.require_trainable(flow.prepare_qat(QuantizeJob(residual_cnn(), ENGINE, RECIPE, (images(1),))).eval())


def test_a_network_without_anything_to_train_is_refused():
    """requires_grad off everywhere trains nothing."""
    with pytest.raises(BuildError, match="requires_grad is off for every parameter"):
        fit(perceptron().requires_grad_(False))


@pytest.mark.parametrize(
    ("module", "skipped", "kind", "none"),
    [
        (
            nn.Sequential(nn.PReLU(), nn.Sequential(nn.LayerNorm(3))),
            False,
            ModeImpossible,
            "none; it has LayerNorm, PReLU",
        ),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), True, BuildError, "none that is not skipped; it has Linear"),
        (nn.ReLU(), False, ModeImpossible, "none"),
    ],
)
def test_a_network_without_fake_quantize_is_told_what_it_has(module, skipped, kind, none):
    """A skip, unless the recipe left out what there was: then that is to be changed."""
    refusal = qat_modes.nothing_faked(module, skipped, "T trains Linear")
    assert type(refusal) is kind
    assert str(refusal) == (
        "prepare inserted no fake-quantize on any weight: this would be plain fp32 training; T trains Linear, and this "
        f"network has {none}; use static instead"
    )


def test_a_frozen_batch_norm_stays_frozen_in_train_mode():
    """The rest goes from one mode to the other, and so does a copy of it."""
    module = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Dropout())
    qat_modes.qat_modes(module, True)
    assert [part.training for part in module] == [True, True, True]
    qat_modes.freeze_batch_norm(module)
    assert [part.training for part in module] == [True, False, True]
    module = copy.deepcopy(module)
    for training in (True, False):
        qat_modes.qat_modes(module, training)
        assert [part.training for part in module] == [training, False, training]
    assert qat_modes.FROZEN not in " ".join(module.state_dict())


def test_no_examples_are_refused():
    """Training needs something to train on."""
    with pytest.raises(BuildError, match="QAT needs training examples"):
        fit(perceptron(), n=0)


def test_a_batch_too_small_for_batch_norm_is_explained():
    """One value a channel has no variance."""
    module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).eval()
    x, y = torch.rand(4, 8), torch.tensor([0, 1, 0, 1])
    with pytest.raises(BuildError, match="on a batch of 1 .*raise batch_size"):
        qat.fit(fx, QuantizeJob(module, ENGINE, changed(batch_size=1), (x[:1],)), (x,), y)


def test_another_failure_in_train_mode_is_not_blamed_on_the_batch():
    """What the network itself says is the reason; BatchNorm has nothing to do with it."""

    def fail(*_):
        raise ValueError("no such token")

    def prepare(job):
        prepared = fx.prepare_qat(job)
        prepared.register_forward_pre_hook(fail)
        return prepared

    with pytest.raises(BuildError, match=r"on a batch of \d+ \(ValueError: no such token at test_qat.py:\d+\)$"):
        fit(perceptron(), spying(prepare_qat=prepare))


# ---- learned scales --------------------------------------------------------------------------------------------------


def test_learned_scales_are_those_of_the_int8_network():
    """Weights per channel and outputs per tensor: what was learned is what ships."""
    trained = train(perceptron())
    by_site = {(scale.name, scale.of): scale for scale in fit_scales(perceptron())}
    for name in ("first", "second"):
        layer = trained.module.get_submodule(name)
        weight, output = by_site[name, "weight"], by_site[name, "activation"]
        assert weight.scale == tuple(layer.weight().q_per_channel_scales().float().tolist())
        assert (weight.axis, weight.low, weight.high, weight.dtype) == (0, -128, 127, "int8")
        assert set(weight.zero_point) == {0}
        assert output.scale == pytest.approx((layer.scale,), rel=1e-6)
        assert output.zero_point == (layer.zero_point,)
        assert (output.axis, output.low, output.dtype) == (None, 0, "uint8")
    assert by_site["x", "activation"].scale == pytest.approx(
        (float(images().max()) / by_site["x", "activation"].high,), rel=0.05
    )


def test_a_range_cut_by_a_clamp_is_learned_cut():
    """ReLU6 pulled into the convolution before it: its output ends at 6 whatever the values were."""
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU6(), nn.Flatten(), nn.Linear(144, 10)).eval()
    with torch.no_grad():
        module[0].bias.fill_(100.0)
    recipe = changed(learning_rate=1e-6, clip_ranges=True, reduce_range=False, symmetric=False)
    (output,) = [scale for scale in fit_scales(module, recipe) if scale.name == "0" and scale.of == "activation"]
    assert output.scale[0] * (output.high - output.zero_point[0]) == pytest.approx(6.0)


def fit_scales(module, recipe=RECIPE, flow=fx):
    return fake_quant_sites.learned_scales(fit(module, flow, recipe).prepared)


@FLOWS
def test_every_flow_names_what_it_learned(flow):
    """Each layer's weights and the network's input have a scale of their own name."""
    names = {(scale.name, scale.of) for scale in fit_scales(perceptron(), flow=flow)}
    assert {("first", "weight"), ("second", "weight")} <= names
    assert any(of == "activation" for _, of in names)


def test_a_parameter_times_an_input_is_an_activation():
    """Only what follows from parameters alone is a weight."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.gamma = nn.Parameter(torch.ones(4))
            self.inside, self.outside = torch_ao.FakeQuantize(), torch_ao.FakeQuantize()

        def forward(self, x):
            return self.outside(self.gamma * x) + self.inside(self.gamma * 2)

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, part, name):
            return True

    module = Scaled()
    graph = torch.fx.GraphModule(module, Tracer().trace(module))
    assert {(site.name, site.of) for site in fake_quant_sites.sites(graph)} == {
        ("mul", "activation"),
        ("gamma", "weight"),
    }


def test_a_layer_that_is_skipped_has_no_scale():
    """What stays float learns none."""
    names = {scale.name for scale in fit_scales(perceptron(), changed(skip_layers=("first",)))}
    assert "first" not in names
    assert "second" in names


def test_a_layer_that_nothing_reached_is_noted():
    """An unused branch has no range: no scale is made up for it, and the notes name it."""

    class Aside(Head):
        def __init__(self):
            super().__init__(3)
            self.aside = nn.Linear(4, 4)

    def prepare(job):
        copied = copy.deepcopy(job.module).train()
        with torch_ao.known_warnings():
            copied.qconfig = torch_ao.get_default_qat_qconfig(job.engine)
            return torch_ao.prepare_qat(copied)

    x, y = torch.rand(32, 4), torch.arange(32) % 3
    flow = spying(prepare_qat=prepare)
    fitted = qat.fit(flow, QuantizeJob(Aside().eval(), ENGINE, RECIPE, (x[:1],)), (x,), y)
    scales = {(scale.name, scale.of) for scale in fake_quant_sites.learned_scales(fitted.prepared)}
    assert scales == {(name, of) for name in ("trunk", "head") for of in ("weight", "activation")}
    assert fitted.notes[1:] == ("no training example reached aside: no range is known there",)


def test_recurrent_layers_stay_float_and_the_rest_trains():
    """An LSTM has no fake-quantize; the layer behind it has."""
    names = {scale.name for scale in fit_scales(lstm(), changed(epochs=1)) if scale.of == "weight"}
    assert names == {"head"}


def test_training_without_labels_follows_the_fp32_network():
    """QAT of data without labels was refused; distill is 1.0 there by itself, and a smaller share names the way out."""
    x = images(32)
    trained = qat.train(fx, QuantizeJob(residual_cnn(), ENGINE, changed(), (x[:1],)), (x,), None)
    assert trained.conversion.notes[0] == "trained on 100% distance to the fp32 network's outputs"
    with pytest.raises(BuildError, match=r"distill: 0\.5 needs labelled training examples.*or set it to 1\.0"):
        qat.train(fx, QuantizeJob(residual_cnn(), ENGINE, changed(distill=0.5), (x[:1],)), (x,), None)
    with pytest.raises(BuildError, match="distill: 0 needs labelled"):
        qat.train(fx, QuantizeJob(residual_cnn(), ENGINE, changed(distill=0.0), (x[:1],)), (x,), None)
