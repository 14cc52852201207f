"""The flow of an fp32 twin: what QAT trains, without fake quantization; a flow for ``qat.fit`` as fx, eager and pt2e.

Schedule, order of the examples, loss, distillation and the freeze of BatchNorm are those of ``qat.fit``. What differs
is what is to be told apart from the training: nothing is rounded, and there are no ranges.
"""

from __future__ import annotations

import copy
from typing import Any

from qbench.errors import BuildError
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch.qat_modes import FROZEN
from qbench.quant.pytorch.qat_modes import qat_modes as qat_modes

TITLE = "fp32 twin"  # in place of "QAT" in what a training says


def prepare_qat(job: QuantizeJob) -> Any:
    """A copy of the network in train mode."""
    return copy.deepcopy(job.module).train()


def require_trainable(prepared: Any) -> None:
    """Raises ``BuildError`` for a network of which no parameter is trained."""
    if not any(weight.requires_grad for weight in prepared.parameters()):
        raise BuildError(
            "the fp32 twin cannot train: requires_grad is off for every parameter of the network; leave it on for "
            "those to train"
        )


def freeze_observers(prepared: Any) -> None:
    """Nothing: there are no ranges."""


def freeze_batch_norm(prepared: Any) -> None:
    """BatchNorm statistics stay as they are from here on, as in QAT."""

    from qbench.torch_private import BatchNorm

    for part in prepared.modules():
        if isinstance(part, BatchNorm):
            setattr(part, FROZEN, True)
            part.eval()
