"""Ranges that one calibration found, kept so that no other build of the same network on the same data finds them again.

The engines differ in their kernels and weights, not in what they watch: with the same recipe, fbgemm, x86, onednn and
qnnpack prepare the same graph with the same observers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from qbench.quant.flow import Shared
from qbench.quant.pytorch import drop_observers, torch_ao

_SETTINGS = (bool, int, float, str, torch.dtype, torch.qscheme)


def calibrate(prepared: Any, run: Callable[[], None], shared: Shared | None) -> None:
    """Calibrates ``prepared`` by ``run``, or gives its observers the ranges that such a calibration found before.

    Scales and zero points are then the very same tensors, so the int8 network is bit for bit the same.
    """
    if shared is None:
        run()
        return
    watching = {name: part for name, part in prepared.named_modules() if isinstance(part, torch_ao.ObserverBase)}
    has_run = False

    def find(file: Path) -> None:
        nonlocal has_run
        run()
        torch.save({name: _found(part) for name, part in watching.items()}, file)
        has_run = True

    decided = {"graph": prepared.code, "observers": {name: _settings(part) for name, part in watching.items()}}
    file = shared(decided, find)
    if not has_run:
        for name, stored in torch.load(file, weights_only=True).items():
            _take(watching[name], stored)


def _settings(observer: Any) -> list[str]:
    plain = {key: value for key, value in vars(observer).items() if isinstance(value, _SETTINGS)}
    return [type(observer).__name__, *(f"{key}={value}" for key, value in sorted(plain.items()))]


def _found(observer: Any) -> dict[str, Any]:
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
