"""A network in floats of 16 bits that takes and gives fp32: nothing is calibrated or trained."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import torch
from torch import nn

from qbench.errors import ModeImpossible
from qbench.modes import Precision
from qbench.quant import model_call
from qbench.torch_private import pytree

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Half(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """``network`` with its weights and activations in 16 bits; of a network with 2-D convolutions images are channels
    last, as the kernels for 16 bits take them (one thread, AVX512-BF16: ResNet-18 12.2 ms, else 18.5, fp32 22 to 26).

    ``whole``: every weight is cast, as ``network.to(torch.bfloat16)`` does; else ``torch.autocast`` casts those that
    meet in products, for a network that makes fp32 values of its own on the way.
    """

    def __init__(self, network: Any, precision: Precision, *, whole: bool) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)
        self._type = _TYPES[precision]
        self._whole = whole
        if whole:
            self.network = self.network.to(self._type)
        self._channels_last = any(isinstance(part, nn.Conv2d) for part in self.network.modules())
        if self._channels_last:
            self.network = self.network.to(memory_format=torch.channels_last)

    def forward(self, *inputs: Any) -> Any:
        """The network's outputs, those in 16 bits as fp32."""
        cast = contextlib.nullcontext() if self._whole else torch.autocast("cpu", self._type, cache_enabled=False)
        with cast:
            outputs = self.network(*map(self._take, inputs))
        return pytree.tree_map_only(torch.Tensor, self._give, outputs)

    def _take(self, value: Any) -> Any:
        if self._whole and value.is_floating_point():
            value = value.to(self._type)
        if self._channels_last and value.dim() == 4:
            value = value.contiguous(memory_format=torch.channels_last)
        return value

    def _give(self, value: Any) -> Any:
        return value.float() if value.dtype == self._type else value


def to_half(network: Any, example: tuple[Any, ...], precision: Precision) -> tuple[Half, str | None]:
    """The network in 16 bits, in eval mode, and a note where not all of it is: cast as a whole where it runs so, else
    by ``torch.autocast``. Raises ``ModeImpossible`` where it runs in neither way."""
    refusals = []
    for whole in (True, False):
        half = Half(network, precision, whole=whole).eval()
        try:
            with torch.inference_mode():
                half(*example)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            refusals.append(model_call.reason(error))
            continue
        note = f"by torch.autocast: as a whole it does not run in {precision} ({refusals[0]})" if refusals else None
        return half, note
    raise ModeImpossible(f"this network does not run in {precision}: {'; '.join(dict.fromkeys(refusals))}")
