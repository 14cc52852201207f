"""Static calibration of a network with observers, and the proof that it reached them; for fx, eager and pt2e."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from qbench.errors import BuildError, first_names
from qbench.progress.callback import Progress
from qbench.quant.flow import Batches, Converted, Shared
from qbench.quant.pytorch import drop_observers, torch_ao

_SHOWN = 5  # names in a message
_SETTINGS = (bool, int, float, str, torch.dtype, torch.qscheme)  # of an observer


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


def calibrate_once(prepared: Any, run: Callable[[], None], shared: Shared | None) -> None:
    """Calibrates ``prepared`` by ``run``, or gives its observers the ranges that such a calibration found before.

    Scales and zero points are then the very same tensors, so the int8 network is bit for bit the same. The engines
    differ in their kernels and weights, not in what they watch: by one recipe fbgemm, x86, onednn and qnnpack prepare
    the same graph with the same observers.
    """
    if shared is None:
        run()
        return
    watching = {name: part for name, part in prepared.named_modules() if isinstance(part, torch_ao.ObserverBase)}
    has_run = False

    def find(file: Path) -> None:
        nonlocal has_run
        run()
        torch.save({name: _read_observer(part) for name, part in watching.items()}, file)
        has_run = True

    decided = {"graph": prepared.code, "observers": {name: _settings(part) for name, part in watching.items()}}
    file = shared(decided, find)
    if not has_run:
        for name, stored in torch.load(file, weights_only=True).items():
            _take(watching[name], stored)


def _settings(observer: Any) -> list[str]:
    plain = {key: value for key, value in vars(observer).items() if isinstance(value, _SETTINGS)}
    return [type(observer).__name__, *(f"{key}={value}" for key, value in sorted(plain.items()))]


def _read_observer(observer: Any) -> dict[str, Any]:
    """Scale and zero point, and the ends of what was seen where the observer keeps them. Of infinite values there is no
    scale: whoever converts leaves them float."""
    ends = {key: getattr(observer, key) for key in ("min_val", "max_val") if hasattr(observer, key)}
    if drop_observers.met_infinity(observer):
        return {"scale": torch.ones(1), "zero_point": torch.zeros(1, dtype=torch.int64), **ends}
    with torch_ao.known_warnings():
        scale, zero_point = observer.calculate_qparams()
    return {"scale": scale, "zero_point": zero_point, **ends}


def _take(observer: Any, stored: Mapping[str, Any]) -> None:
    for key in ("min_val", "max_val"):
        if key in stored:
            setattr(observer, key, stored[key])
    observer.calculate_qparams = lambda: (stored["scale"], stored["zero_point"])
