"""Which node works next: the least busy one of a class, or, to measure, a machine on which nothing else of the run is.

Pure but for waiting; thread-safe.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from qbench.errors import CaseError


@dataclass(frozen=True, kw_only=True)
class Node:
    """``places``: how many processes may work on it at once; ``machine``: what it shares cores with others of."""

    name: str
    group: str
    machine: str
    places: int


class Schedule:
    """The nodes of a run. A node that is lost leaves; whoever waits for its class takes another, or one that joins
    within ``patience_seconds``."""

    def __init__(self, *, patience_seconds: float = 60.0) -> None:
        self._patience = patience_seconds
        self._nodes: dict[str, Node] = {}
        self._running: Counter[str] = Counter()  # by node
        self._of_machine: Counter[str] = Counter()
        self._measured: set[str] = set()  # machines
        self._changed = threading.Condition()
        self._closed = False

    def add(self, node: Node) -> None:
        """A node that may work from now on."""
        with self._changed:
            self._nodes[node.name] = node
            self._changed.notify_all()

    def lose(self, name: str) -> bool:
        """A node that works no more; whether it was there until now."""
        with self._changed:
            known = self._nodes.pop(name, None)
            self._changed.notify_all()
            return known is not None

    def close(self) -> None:
        """Ends all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def count(self, group: str) -> int:
        """The places of a class."""
        with self._changed:
            return sum(node.places for node in self._nodes.values() if node.group == group)

    def names(self) -> set[str]:
        """The nodes that may work."""
        with self._changed:
            return set(self._nodes)

    def machines(self, group: str) -> int:
        """On how many machines the nodes of a class are."""
        with self._changed:
            return len({node.machine for node in self._nodes.values() if node.group == group})

    def take_place(self, group: str, *, beyond: bool = False) -> Node:
        """The least busy node of a class, once one has a place free, or, ``beyond``, at once: for whoever holds places
        already and would otherwise wait for itself after a node was lost. ``give_back`` returns it. Raises
        ``CaseError`` where the class has no node left."""
        return self._wait(group, functools.partial(self._find_free, beyond=beyond))

    def take_machine(self, group: str) -> Node:
        """A node of a class whose machine is idle, and stays so until ``give_machine_back``."""
        return self._wait(group, self._find_idle)

    def give_back(self, node: Node) -> None:
        """Returns a place."""
        with self._changed:
            self._running[node.name] -= 1
            self._of_machine[node.machine] -= 1
            self._changed.notify_all()

    def give_machine_back(self, node: Node) -> None:
        """Returns a machine."""
        with self._changed:
            self._measured.discard(node.machine)
            self._changed.notify_all()

    def _wait(self, group: str, find: Callable[[str], Node | None]) -> Node:
        chosen: Node | None = None

        def ready() -> bool:
            nonlocal chosen
            chosen = find(group)
            return chosen is not None or self._closed

        with self._changed:
            while not self._changed.wait_for(ready, timeout=self._patience):
                if not any(node.group == group for node in self._nodes.values()):
                    raise CaseError(
                        f"no node of the class {group} is left, and none joined within {self._patience:g} s; start one "
                        "and go on with --resume"
                    )
            if chosen is None:
                raise CaseError("the run was ended")
        return chosen

    def _find_free(self, group: str, *, beyond: bool = False) -> Node | None:
        free = [
            node
            for node in self._nodes.values()
            if node.group == group
            and node.machine not in self._measured
            and (beyond or self._running[node.name] < node.places)
        ]
        node = min(free, key=lambda node: self._running[node.name] / node.places, default=None)
        if node is not None:
            self._running[node.name] += 1
            self._of_machine[node.machine] += 1
        return node

    def _find_idle(self, group: str) -> Node | None:
        for node in self._nodes.values():
            idle = self._of_machine[node.machine] == 0 and node.machine not in self._measured
            if node.group == group and idle:
                self._measured.add(node.machine)
                return node
        return None
