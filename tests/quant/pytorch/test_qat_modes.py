"""Rules of qbench/quant/pytorch/qat_modes.py: what stays frozen, and a network with nothing to train."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from qbench.errors import BuildError, ModeImpossible
from qbench.quant.pytorch import qat_modes

WORDS = (
    "prepare inserted no fake-quantize on any weight: this would be plain fp32 training; FX trains Linear, and this "
    "network has none{}; use static instead"
)


@pytest.mark.parametrize(
    ("module", "skipped", "kind", "said"),
    [
        (nn.Sequential(nn.ReLU()), False, ModeImpossible, ""),
        (nn.Sequential(nn.PReLU(), nn.LSTM(2, 2), nn.PReLU()), False, ModeImpossible, "; it has LSTM, PReLU"),
        (nn.Sequential(nn.Linear(2, 2)), True, BuildError, " that is not skipped; it has Linear"),
    ],
)
def test_a_network_with_nothing_to_train_is_a_skip_unless_it_was_left_out(module, skipped, kind, said):
    """With the kinds of layers that have weights, each once."""
    refusal = qat_modes.nothing_faked(module, skipped, "FX trains Linear")
    assert (type(refusal), str(refusal)) == (kind, WORDS.format(said))


def test_a_frozen_norm_stays_in_eval_mode_through_any_mode_and_copy():
    """Others follow; its statistics no longer move, and a checkpoint does not hold the mark."""
    module = nn.Sequential(nn.BatchNorm2d(2), nn.Dropout())
    module.train()
    names = set(module.state_dict())
    qat_modes.freeze_batch_norm(module)
    assert set(module.state_dict()) == names
    for each in (module, copy.deepcopy(module)):
        qat_modes.qat_modes(each, False)
        assert [part.training for part in each] == [False, False]
        qat_modes.qat_modes(each, True)
        assert [part.training for part in each] == [False, True]
        before = each[0].running_mean.clone()
        each(torch.ones(1, 2, 3, 3))
        assert torch.equal(each[0].running_mean, before)
