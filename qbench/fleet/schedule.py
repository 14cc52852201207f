"""Which node works next: the least busy one of a class, or, to measure, a machine on which nothing else of the run is.

Pure but for waiting; thread-safe. A step takes time by the logarithm of the number of nodes.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from qbench.errors import CaseError

_STALE = 16  # entries for each node, of which all but one no longer hold


@dataclass(frozen=True, kw_only=True)
class FleetNode:
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
        self._nodes: dict[str, FleetNode] = {}
        self._on_machine: defaultdict[str, set[str]] = defaultdict(set)  # the nodes of each
        self._running: Counter[str] = Counter()  # by node
        self._of_machine: Counter[str] = Counter()
        self._measured: set[str] = set()  # machines
        # By class: nodes by how busy they were, and those whose machine was idle, when that was listed. What has
        # changed since is listed once more, so an entry that does not hold is dropped when it comes up.
        self._by_load: defaultdict[str, list[tuple[float, int, str]]] = defaultdict(list)
        self._idle: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._numbers = itertools.count()
        self._last: dict[tuple[str, str], str] = {}  # the node of each class that did some shared work last
        self._changed = threading.Condition()
        self._closed = False

    def add(self, node: FleetNode) -> None:
        """A node that may work from now on."""
        with self._changed:
            self._nodes[node.name] = node
            self._on_machine[node.machine].add(node.name)
            self._list(node)
            self._changed.notify_all()

    def lose(self, name: str) -> bool:
        """A node that works no more; whether it was there until now."""
        with self._changed:
            known = self._nodes.pop(name, None)
            if known is not None:
                self._on_machine[known.machine].discard(name)
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

    def take_place(self, group: str, *, beyond: bool = False, near: str = "") -> FleetNode:
        """The least busy node of a class, once one has a place free, or, ``beyond``, at once: for whoever holds places
        already and would otherwise wait for itself after a node was lost. Where it has a place free, the node that was
        last taken for the same ``near``, which has in its cache what such work shares. ``give_back`` returns it. Raises
        ``CaseError`` where the class has no node left."""
        return self._wait(group, functools.partial(self._find_free, beyond=beyond, near=near))

    def take_machine(self, group: str) -> FleetNode:
        """A node of a class whose machine is idle, and stays so until ``give_machine_back``."""
        return self._wait(group, self._find_idle)

    def give_back(self, node: FleetNode) -> None:
        """Returns a place."""
        with self._changed:
            self._running[node.name] -= 1
            self._of_machine[node.machine] -= 1
            if self._of_machine[node.machine]:
                self._list(node)
            else:
                self._list_machine(node.machine)
            self._changed.notify_all()

    def give_machine_back(self, node: FleetNode) -> None:
        """Returns a machine."""
        with self._changed:
            self._measured.discard(node.machine)
            self._list_machine(node.machine)
            self._changed.notify_all()

    def _wait(self, group: str, find: Callable[[str], FleetNode | None]) -> FleetNode:
        chosen: FleetNode | None = None

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

    def _list_machine(self, machine: str) -> None:
        for name in self._on_machine[machine]:
            self._list(self._nodes[name])

    def _list(self, node: FleetNode) -> None:
        """Lists a node by what it does now."""
        heap = self._by_load[node.group]
        heapq.heappush(heap, (self._load(node), next(self._numbers), node.name))
        if len(heap) > _STALE * len(self._nodes):
            heap[:] = [(self._load(each), next(self._numbers), each.name) for each in self._free(node.group)]
            heapq.heapify(heap)
        if not self._of_machine[node.machine]:
            self._idle[node.group][node.name] = None

    def _free(self, group: str) -> list[FleetNode]:
        return [node for node in self._nodes.values() if node.group == group and node.machine not in self._measured]

    def _load(self, node: FleetNode) -> float:
        return self._running[node.name] / node.places

    def _find_free(self, group: str, *, beyond: bool = False, near: str = "") -> FleetNode | None:
        node = self._find_last(group, near) or self._find_least_busy(group)
        if node is None or (self._load(node) >= 1 and not beyond):
            return None
        self._running[node.name] += 1
        self._of_machine[node.machine] += 1
        self._list(node)
        if near:
            self._last[group, near] = node.name
        return node

    def _find_last(self, group: str, near: str) -> FleetNode | None:
        """The node that did such work last, if it has a place free."""
        node = self._nodes.get(self._last.get((group, near), ""))
        free = node is not None and node.machine not in self._measured and self._load(node) < 1
        return node if free else None

    def _find_least_busy(self, group: str) -> FleetNode | None:
        heap = self._by_load[group]
        while heap:
            load, _, name = heap[0]
            node = self._nodes.get(name)
            if node is not None and node.machine not in self._measured and self._load(node) == load:
                return node
            heapq.heappop(heap)
        return None

    def _find_idle(self, group: str) -> FleetNode | None:
        idle = self._idle[group]
        while idle:
            name = next(iter(idle))
            del idle[name]
            node = self._nodes.get(name)
            if node is not None and not self._of_machine[node.machine] and node.machine not in self._measured:
                self._measured.add(node.machine)
                return node
        return None
