"""The callback by which work tells how far it is: one type, wherever the work runs."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float], None]  # what is in hand; how far that is, from 0 to 1


def tell_nobody(text: str, share: float) -> None:
    """For work whose progress nobody asked for."""
