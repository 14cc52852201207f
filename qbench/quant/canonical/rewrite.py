"""One thing that canonicalization changed, and the words for many of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """``what`` was done, in words that fit any number of layers, to the layer called ``name``."""

    what: str
    name: str


def in_words(rewrites: Iterable[Rewrite]) -> tuple[str, ...]:
    """One line for each kind of rewrite, in the order of their first layers: ``BatchNorm2d folded into Conv2d
    (49): stem, body.0, body.1, …``."""
    names: dict[str, list[str]] = {}
    for rewrite in rewrites:
        names.setdefault(rewrite.what, []).append(rewrite.name)
    return tuple(
        f"{what} ({len(layer_names)}): {', '.join(layer_names[:_SHOWN])}{', …' if len(layer_names) > _SHOWN else ''}"
        for what, layer_names in names.items()
    )
