"""Where child processes run: on this machine, or on others that take the same requests."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qbench.process.child_process import Worker, call
from qbench.process.cpu_slots import Slots


@dataclass(frozen=True, kw_only=True)
class Place:
    """One machine, or several that are alike: ``slots`` is how many processes may work there beside each other,
    ``run_child`` and ``start_worker`` do there what ``call`` and ``Worker`` of ``child_process`` do on this machine.
    What children find and keep on one machine serves others there: ``run_near`` is told what they share (None: there is
    one machine). ``repeat`` does work again that was lost with a machine, on another."""

    slots: Slots
    run_child: Callable[..., Any] = call
    start_worker: Callable[..., Any] = Worker
    run_near: Callable[..., Any] | None = None
    repeat: Callable[[Callable[[], Any]], Any] = operator.call

    def run_child_near(self, shared: str) -> Callable[..., Any]:
        """``run_child`` where children that share the same have run before, if that machine is free."""
        return self.run_child if self.run_near is None else functools.partial(self.run_near, shared)
