"""Where the time of a call goes: the nodes that a runtime ran, how long each took, and what kind of work it is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["int8 product", "float product", "conversion", "other"]
KINDS: tuple[Kind, ...] = ("int8 product", "float product", "conversion", "other")
WARMUP_CALLS = 10
# Calls that are watched within some seconds, and the length of one from which on watching it costs next to nothing: a
# node takes some microseconds more, of which a call of so long has few enough.
_MOST_CALLS, _FEWEST_CALLS, _LONG_SECONDS = 20, 3, 0.1
_WARMUP_SECONDS = 0.3


@dataclass(frozen=True, kw_only=True)
class NodeTime:
    """One executed node: ``layer`` is what a reader knows it by, ``operator`` what the runtime calls it, ``seconds``
    the median over the watched calls."""

    layer: str
    operator: str
    kind: Kind
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CallProfile:
    """The nodes of one call in order. ``call_seconds``: the median of calls that nobody watched, in the same process;
    ``watched_seconds``: of those whose nodes were timed. Watching costs time, which falls on small nodes most.
    ``scale``: what the seconds of the nodes were multiplied by, so that they fit into a call."""

    nodes: tuple[NodeTime, ...]
    call_seconds: float
    watched_seconds: float
    scale: float = 1.0

    @property
    def node_seconds(self) -> float:
        """All nodes together."""
        return sum(node.seconds for node in self.nodes)

    @property
    def overhead_seconds(self) -> float | None:
        """What a call takes beside its nodes; None where watching costs more than that, so that it is not known."""
        left = self.call_seconds - self.node_seconds
        return left if left >= 0 and self.scale == 1.0 else None

    @property
    def watching_seconds(self) -> float:
        """What watching adds to a call."""
        return max(0.0, self.watched_seconds - self.call_seconds)

    def fit_into_call(self) -> CallProfile:
        """The profile with nodes that take no longer together than a call that nobody watches, each shortened by the
        same factor; itself where they do not."""
        if self.node_seconds <= self.call_seconds:
            return self
        factor = self.call_seconds / self.node_seconds
        nodes = tuple(replace(node, seconds=factor * node.seconds) for node in self.nodes)
        return replace(self, nodes=nodes, scale=factor * self.scale)

    def seconds_by_kind(self) -> dict[Kind, float]:
        """The seconds of the nodes of each kind, those that there are."""
        sums = {kind: sum(node.seconds for node in self.nodes if node.kind == kind) for kind in KINDS}
        return {kind: seconds for kind, seconds in sums.items() if seconds}


@dataclass(frozen=True, kw_only=True)
class WatchedCalls:
    """How a runtime is watched: so many ``calls`` after so many ``warmups``; ``apart``: calls that nobody watches are
    timed as well, since watching would lengthen them."""

    calls: int
    warmups: int
    apart: bool


def plan_watching(call: Callable[[], object], seconds: float) -> WatchedCalls:
    """How to watch for about ``seconds``, by a second call, whose first one warms up."""
    call()
    before = time.perf_counter()
    call()
    once = max(time.perf_counter() - before, 1e-9)
    calls = max(_FEWEST_CALLS, min(_MOST_CALLS, round(seconds / once)))
    warmups = min(WARMUP_CALLS, round(_WARMUP_SECONDS / once))
    return WatchedCalls(calls=calls, warmups=warmups, apart=once < _LONG_SECONDS)


def time_calls(call: Callable[[], object], count: int, warmups: int = WARMUP_CALLS) -> float:
    """The median seconds of that many calls, after a warm-up."""
    for _ in range(warmups):
        call()
    durations = []
    for _ in range(count):
        before = time.perf_counter_ns()
        call()
        durations.append(time.perf_counter_ns() - before)
    return statistics.median(durations) / 1e9


def median_of_calls(calls: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median over the calls of what each node took, by node, in the order of the first call; a node that a call
    left out took nothing in it."""
    names: Iterable[str] = dict.fromkeys(name for call in calls for name in call)
    return {name: statistics.median(call.get(name, 0.0) for call in calls) for name in names}
