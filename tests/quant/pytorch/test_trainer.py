"""Rules of qbench/quant/pytorch/trainer.py beside those of ``test_qat``: defaults, what is told, and when."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from qbench.errors import BuildError
from qbench.quant.pytorch import loss, torch_ao
from qbench.quant.pytorch.distillation import Aim
from qbench.quant.pytorch.trainer import QatTrainer
from qbench.quant.recipe import Recipe


class Flow:
    """Notes what is frozen, and at which step."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.trainer: Any = None

    def freeze_observers(self, prepared: Any) -> None:
        self.asked.append(("observers", self.trainer.step))

    def freeze_batch_norm(self, prepared: Any) -> None:
        self.asked.append(("batch norm", self.trainer.step))

    def qat_modes(self, prepared: Any, training: bool) -> None:
        self.asked.append(training)
        prepared.train(training)


def linear() -> nn.Linear:
    """Two classes of three numbers."""
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def make(recipe: Recipe, examples: int = 130, network: Any = None, flow: Any = None, **changes: Any) -> QatTrainer:
    """A trainer of a linear layer; labels are 0 and 1 by turns."""
    inputs = torch.rand(examples, 3, generator=torch.Generator().manual_seed(1))
    targets = torch.arange(examples) % 2
    fitting = loss.choose(torch.zeros(2, 2), targets)
    chosen = Aim(loss=SimpleNamespace(**vars(fitting) | changes), distill=0.0, teacher=None)  # type: ignore[arg-type]
    flow = flow or Flow()
    flow.trainer = trainer = QatTrainer(network or linear(), flow, recipe, (inputs,), chosen)
    return trainer


def run(trainer: QatTrainer) -> list[tuple[str, float]]:
    """What is told of all epochs."""
    lines: list[tuple[str, float]] = []
    while trainer.epoch < trainer.epochs:
        trainer.run_epoch(lambda text, share: lines.append((text, share)))
    return lines


def weights(trainer: QatTrainer) -> torch.Tensor:
    """The trained weights."""
    trained: torch.Tensor = trainer._prepared.weight.detach().clone()
    return trained


def test_what_a_recipe_leaves_open() -> None:
    """One epoch of batches of 64 by seed 0."""
    plain, named, other = make(Recipe()), make(Recipe(epochs=1, batch_size=64, seed=0)), make(Recipe(seed=1))
    assert (plain.epoch, plain.step, plain.epochs, plain.total) == (0, 0, 1, 3)
    for trainer in (plain, named, other):
        run(trainer)
    assert torch.equal(weights(plain), weights(named))
    assert not torch.equal(weights(plain), weights(other))
    assert make(Recipe(), 128).total == 2
    several = make(Recipe(epochs=3, batch_size=10))
    assert (several.epochs, several.total) == (3, 39)


def test_the_seed_draws_what_is_held_out_and_in_which_order() -> None:
    """The held-out examples as well as the order of the others are those of the recipe's seed, or of 0."""
    plain, named, other = (make(Recipe(seed=seed), 1000) for seed in (None, 0, 1))
    assert torch.equal(plain._held_out, named._held_out)
    assert not torch.equal(plain._held_out, other._held_out)


@pytest.mark.parametrize(("batches", "observers", "batch_norm"), [(10, 8, 9), (7, 6, 7), (1, 1, 1), (3, 3, 3)])
def test_what_a_short_training_does_not_reach_is_frozen_at_its_end(
    batches: int, observers: int, batch_norm: int
) -> None:
    """After 80 % and 90 % of the steps, rounded up; then the network is in eval mode."""
    flow = Flow()
    trainer = make(Recipe(batch_size=2), 2 * batches, flow=flow)
    run(trainer)
    assert trainer.step == batches
    trainer.finish()
    assert flow.asked == [("observers", observers), ("batch norm", batch_norm), False]


def test_each_step_follows_the_schedule() -> None:
    """The rate of the optimizer falls from step to step."""
    trainer = make(Recipe(schedule="linear", learning_rate=0.4, batch_size=65, epochs=2))
    rates = []
    optimizer = trainer._state.optimizer
    optimizer.register_step_pre_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
    run(trainer)
    assert rates == pytest.approx([0.4, 0.3, 0.2, 0.1])


def test_losses_are_told_without_an_accuracy_where_there_is_none() -> None:
    """Four digits; the title is the flow's, or QAT."""
    flow: Any = Flow()
    flow.TITLE = "own"
    trainer = make(Recipe(batch_size=130), flow=flow, right=None, of=lambda outputs, targets: outputs.sum() * 0 + 1.25)
    assert run(trainer) == [("own epoch 1/1: loss 1.25", pytest.approx(0.8))]
    assert trainer.notes() == ("own: Adam, cosine from 0.001, 1 x 1 steps, last epoch: loss 1.25",)
    assert run(make(Recipe(batch_size=130)))[0][0].startswith("QAT epoch 1/1: loss 0.")


def test_only_a_part_is_told_as_one() -> None:
    """What is held out is no example that was left out."""
    assert "trained on" not in make(Recipe(), 1000).notes()[0]
    assert make(Recipe(samples=949), 1000).notes()[0].endswith("; trained on 949 of 1000 examples")
    assert "trained on" not in make(Recipe(samples=950), 1000).notes()[0]


def test_what_is_held_out_is_predicted_in_eval_mode_once_an_epoch() -> None:
    """In batches of the same size; the network goes on in train mode."""
    flow, modes = Flow(), []
    network = linear()
    network.register_forward_pre_hook(lambda part, args: modes.append((part.training, len(args[0]))))
    trainer = make(Recipe(batch_size=40), 1000, network, flow)
    lines = run(trainer)
    assert flow.asked[-2:] == [False, True]
    assert [size for training, size in modes if not training] == [40, 10]
    assert [part for part in modes if part[0]] == [(True, size) for size in [40] * 14 + [39] * 10]
    assert "held out" not in lines[-2][0]
    assert "; held out: loss 0." in lines[-1][0]


def test_a_first_loss_that_is_none_is_told_by_its_cause() -> None:
    """Of the user's own loss by its name, of another by the data; later the learning rate is to blame."""

    def diverging(first: float, later: float = 0.0) -> Any:
        calls: list[int] = []

        def of(outputs: Any, targets: Any) -> Any:
            calls.append(1)
            return outputs.sum() * (first if len(calls) == 1 else later)

        return of

    with pytest.raises(BuildError, match=r"^QAT cannot begin: the loss of the first batch is nan before any step"):
        run(make(Recipe(), of=diverging(math.nan)))
    with pytest.raises(BuildError, match=r"^QAT cannot begin: the loss own is -?inf on the first batch"):
        run(make(Recipe(), of=diverging(math.inf), whole=True, name="own"))
    with pytest.raises(BuildError, match=r"^QAT diverged: .* in epoch 1; lower learning_rate \(it is 0.001\)$"):
        run(make(Recipe(), of=diverging(1.0, math.nan)))
    with pytest.raises(BuildError, match=r"in epoch 2; .*\(it is 0.5\), or mend the loss own$"):
        run(
            make(
                Recipe(learning_rate=0.5, epochs=2, batch_size=130),
                of=diverging(1.0, math.nan),
                whole=True,
                name="own",
            )
        )


def test_weights_that_are_no_numbers_in_the_end_are_refused() -> None:
    """The last step may have made them; the epoch told is the last one."""
    trainer = make(Recipe(epochs=2))
    run(trainer)
    with torch.no_grad():
        trainer._prepared.bias[1] = math.inf
    with pytest.raises(BuildError, match="^QAT diverged: the loss is nan in epoch 2; lower"):
        trainer.finish()


@pytest.mark.parametrize(
    ("words", "advised"),
    [("Expected more than 1 value per channel when training, got 1", True), ("no such thing", False)],
)
def test_a_failure_in_train_mode_is_told_with_the_size_of_the_batch(words: str, advised: bool) -> None:
    """Only what BatchNorm says of small batches is told to be one; a lack of memory is no fault of the network's."""

    class Failing(nn.Linear):
        def forward(self, x: Any) -> Any:
            raise error

    error: Exception = ValueError(words)
    trainer = make(Recipe(batch_size=50), 100, Failing(3, 2))
    with pytest.raises(BuildError, match=r"^QAT: the network failed in train mode on a batch of 50 \(") as caught:
        run(trainer)
    assert ("raise batch_size" in str(caught.value)) == advised
    error = MemoryError("no room")
    with pytest.raises(MemoryError):
        run(make(Recipe(), 100, Failing(3, 2)))


def test_a_state_holds_where_the_training_was() -> None:
    """Epoch, step and what was told last; from None it begins."""
    trainer, again = make(Recipe(epochs=2), 1000), make(Recipe(epochs=2), 1000)
    trainer.run_epoch(lambda text, share: None)
    again.resume(None)
    assert (again.epoch, again.step) == (0, 0)
    again.resume(copy.deepcopy(trainer.state()))
    assert (again.epoch, again.step) == (1, 15)
    assert again.notes() == trainer.notes()
    assert "held out" in again.notes()[0]
    run(trainer)
    run(again)
    assert torch.equal(weights(trainer), weights(again))


def test_the_mode_is_train_again_where_a_prediction_fails() -> None:
    """And the weights and statistics are what they were."""
    flow = Flow()
    network = nn.Sequential(nn.BatchNorm1d(3), linear())
    trainer = make(Recipe(batch_size=950), 1000, network, flow)
    before = network[0].running_mean.clone()

    def fail(*_: Any) -> None:
        if not network.training:
            network[0].running_mean.fill_(9)
            raise KeyboardInterrupt

    network.register_forward_pre_hook(fail)
    with pytest.raises(KeyboardInterrupt):
        run(trainer)
    assert network.training
    assert float(network[0].running_mean.max()) < 1
    assert not torch.equal(network[0].running_mean, before)


def test_places_that_no_example_reached_are_named() -> None:
    """Five of them by name, in order, and how many more; of those that were reached nothing is said."""
    network = nn.Module()
    for name in "gfedcba":
        part = nn.Module()
        part.activation_post_process = torch_ao.FakeQuantize()
        part.weight_fake_quant = torch_ao.FakeQuantize()
        network.add_module(name, part)
    network.a.weight_fake_quant(torch.ones(2))
    network.a.activation_post_process(torch.ones(2))
    network.b.weight_fake_quant(torch.ones(2))
    network.linear = nn.Linear(3, 2)
    trainer = make(Recipe(), network=network)
    assert trainer.notes()[1:] == (
        "no training example reached b, c, d, e, f and 1 more: no range is known there",
    )  # fmt: skip
