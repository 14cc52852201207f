"""Rules of qbench/quant/pytorch/training_state.py: a training goes on as if it had never stopped; means of an epoch."""

from __future__ import annotations

import copy

import torch
from torch import nn

from qbench.quant.pytorch.training_state import EpochMeans, TrainingState


def make_state() -> TrainingState:
    """A network with its optimizer, in a schedule that halves the rate."""
    torch.manual_seed(0)
    network = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    return TrainingState(
        network=network, optimizer=optimizer, schedule=schedule, order=torch.Generator().manual_seed(1)
    )


def step(state: TrainingState) -> list[float]:
    """One step on random examples in a random order; what it came to."""
    inputs = torch.rand(8, 3)[torch.randperm(8, generator=state.order)[:4]]
    state.optimizer.zero_grad()
    loss = state.network(inputs).square().mean()
    loss.backward()
    state.optimizer.step()
    state.schedule.step()
    return [float(loss.detach()), *state.network.weight.flatten().tolist(), *state.schedule.get_last_lr()]


def test_steps_behind_a_state_are_the_same_whenever_they_are_made() -> None:
    """Weights, moments, rate, order and random numbers are those of the state."""
    state = make_state()
    step(state)
    kept = copy.deepcopy(state.capture())
    expected = [step(state) for _ in range(2)]
    torch.rand(5)
    state.restore(copy.deepcopy(kept))
    assert [step(state) for _ in range(2)] == expected
    other = make_state()
    other.restore(copy.deepcopy(kept))
    assert [step(other) for _ in range(2)] == expected


def test_means_are_of_examples_not_of_batches() -> None:
    """A smaller batch counts less; without an example they are 0."""
    means = EpochMeans()
    assert (means.mean_loss, means.accuracy) == (0.0, 0.0)
    means.add(1.0, 2, 3)
    means.add(3.0, 0, 1)
    assert (means.mean_loss, means.accuracy) == (1.5, 0.5)


def test_without_right_and_wrong_there_is_no_accuracy() -> None:
    """Of no batch, once one has none."""
    means = EpochMeans(right=None)
    means.add(1.0, 1, 2)
    assert means.accuracy is None
    mixed = EpochMeans()
    mixed.add(1.0, 1, 2)
    mixed.add(1.0, None, 2)
    assert (mixed.accuracy, mixed.mean_loss) == (None, 1.0)
