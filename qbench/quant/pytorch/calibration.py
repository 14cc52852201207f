"""Static calibration of a network with observers, and the proof that it reached them; for fx, eager and pt2e."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from qbench.errors import BuildError, first_names
from qbench.progress.callback import Progress
from qbench.quant.flow import Batches, Converted
from qbench.quant.pytorch import drop_observers

_SHOWN = 5  # names in a message


def run_batches(prepared: Any, batches: Iterable[tuple[Any, ...]], progress: Progress) -> bool:
    """Shows the observers every batch; whether all outputs were numbers."""
    examples, finite = 0, True
    with torch.no_grad():
        for batch in batches:
            finite &= drop_observers.finite(prepared(*batch))
            examples += len(batch[0])
            progress(f"calibrate, {examples} examples", 0.2 + 0.4 * examples / (examples + 100))
    return finite


def require_observed(
    observers: Iterable[tuple[str, Any]], *, passes: Callable[[Any], bool] = lambda observer: False
) -> None:
    """Raises ``BuildError`` for an observer (by the name of its place) that saw nothing, whose layer would return
    zeros, or that saw values that are no numbers, unless it ``passes``; those that keep no ends are not asked."""
    blind: dict[str, None] = {}
    endless: dict[str, None] = {}
    for name, observer in observers:
        if not hasattr(observer, "min_val"):
            continue
        low, high = observer.min_val, observer.max_val
        if low.numel() == 0 or bool((low > high).any()):
            blind[name] = None
        elif not bool(torch.isfinite(low).all() and torch.isfinite(high).all()) and not passes(observer):
            endless[name] = None
    if blind:
        raise BuildError(
            f"calibration observed nothing at {first_names(blind, _SHOWN)}: is that part of the network unused? "
            "Name it in quantize.*.skip_layers"
        )
    if endless:
        raise BuildError(
            f"calibration met infinite values or NaN at {first_names(endless, _SHOWN)}: the fp32 network gives no "
            "number on these examples; check their preprocessing"
        )


def first_examples(batches: Batches, count: int) -> tuple[Any, ...]:
    """The first examples of the first batch, at most ``count``: a tensor per input."""
    return tuple(tensor[:count] for tensor in next(iter(batches())))


def leave_out_wrong(
    convert: Callable[[dict[str, str]], tuple[Converted, Mapping[str, str]]], float_layers: dict[str, str]
) -> Converted:
    """What ``convert`` gives for the layers that stay float (name -> why), once the layers with a wrong kernel that it
    names, too, are among them: what a layer before them gives is then quantized no longer."""
    while True:
        converted, wrong = convert(float_layers)
        if wrong.keys() <= float_layers.keys():
            return converted
        float_layers |= wrong
