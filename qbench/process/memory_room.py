"""How many processes may work beside each other by the memory that is free, and who gets it alone where it ran out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from qbench.errors import MemoryExhausted
from qbench.process.child_process import peak_bytes
from qbench.process.free_memory import count_free_bytes

Result = TypeVar("Result")
UNKNOWN_BYTES = 2**30  # what work may need of which none has ended yet
_LOOK_SECONDS = 0.5  # between two looks at the memory: others take it and give it back without telling


def count_beside(budget_bytes: int, need_bytes: int, most: int) -> int:
    """How many pieces of work may be done at one time: as many as the memory holds that was free when none was, at
    least one, at most ``most``."""
    return max(1, min(most, budget_bytes // max(1, need_bytes)))


class _Member:
    """One piece of work, and whether there has been another one beside it."""

    def __init__(self) -> None:
        self.has_company = False


class MemoryRoom:
    """Work enters while there is memory for it; ``most`` is what may be done at one time where there is enough.
    ``on_nodes``: children run on the nodes of a cluster, which have memory of their own."""

    def __init__(self, most: int, read_free: Callable[[], int] = count_free_bytes, *, on_nodes: bool = False) -> None:
        self._most, self._read_free, self._on_nodes = most, read_free, on_nodes
        self._members: set[_Member] = set()
        self._alone = 0
        self._budget = 0  # free when nothing was done
        self._changed = threading.Condition()

    def work(
        self, act: Callable[[bool], Result], *, need: Callable[[], int] = lambda: 0, shared: bool = False
    ) -> Result:
        """What ``act(False)`` returns; where memory ran out while others worked beside it (or ``shared``: processes of
        its own), what ``act(True)`` returns once nobody does."""
        with self._enter(need) as member:
            try:
                return act(False)
            except MemoryExhausted:
                if not (shared or member.has_company):
                    raise
        with self._enter_alone():
            return act(True)

    def call(self, function: Callable[..., Any], act: Callable[[], Result]) -> Result:
        """What ``act`` returns, which runs ``function`` in a child: as soon as there is memory for what earlier calls
        took, and once more alone where it ran out."""
        return self.work(
            lambda alone: act(), need=lambda: 0 if self._on_nodes else peak_bytes(function) or UNKNOWN_BYTES
        )

    @contextmanager
    def _enter(self, need: Callable[[], int]) -> Iterator[_Member]:
        member = _Member()
        with self._changed:
            while not self._fits(need()):
                self._changed.wait(_LOOK_SECONDS)
            if not self._members:
                self._budget = self._read_free()
            self._members.add(member)
            for each in self._members if len(self._members) > 1 else ():
                each.has_company = True
        try:
            yield member
        finally:
            with self._changed:
                self._members.remove(member)
                self._changed.notify_all()

    def _fits(self, need_bytes: int) -> bool:
        if self._alone:
            return False
        if not self._members:
            return True
        room = len(self._members) < count_beside(self._budget, need_bytes, self._most)
        return room and self._read_free() >= need_bytes

    @contextmanager
    def _enter_alone(self) -> Iterator[None]:
        """Nobody enters any more, and those that are there leave; several that wait for it go one after the other."""
        member = _Member()
        with self._changed:
            self._alone += 1
            self._changed.wait_for(lambda: not self._members)
            self._members.add(member)
        try:
            yield
        finally:
            with self._changed:
                self._alone -= 1
                self._members.remove(member)
                self._changed.notify_all()
