"""Work that is lost with a node is done again on another one, but not for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from qbench.errors import CaseError, NodeLost

ATTEMPTS = 3  # nodes that one piece of work may lose before it is what ends them
T = TypeVar("T")


def repeat_begun(work: Callable[[Callable[[], None]], T], ending: threading.Event) -> T:
    """What work gives, which is done again where a node is lost with it, until the run is ``ending``; it says that it
    begins by calling its argument.

    Raises ``CaseError`` once ``ATTEMPTS`` nodes were lost with work that had begun: what was lost before that is not
    what ended the node."""
    begun = 0

    def begin() -> None:
        nonlocal begun
        begun += 1

    while True:
        try:
            return work(begin)
        except NodeLost as error:
            if ending.is_set():
                raise
            if begun >= ATTEMPTS:
                raise CaseError(f"it was lost with {begun} nodes, one after the other: {error}") from error


def repeat(work: Callable[[], T], ending: threading.Event) -> T:
    """As ``repeat_begun``, for work that begins at once."""

    def begin_and_work(begin: Callable[[], None]) -> T:
        begin()
        return work()

    return repeat_begun(begin_and_work, ending)
