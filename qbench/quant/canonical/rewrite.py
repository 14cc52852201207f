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
    for one in rewrites:
        names.setdefault(one.what, []).append(one.name)
    return tuple(
        f"{what} ({len(found)}): {', '.join(found[:_SHOWN])}{', …' if len(found) > _SHOWN else ''}"
        for what, found in names.items()
    )
