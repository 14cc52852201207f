"""Where child processes run: on this machine, or on others that take the same requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qbench.process.cpu_slots import Slots
from qbench.process.parent import Worker, call


@dataclass(frozen=True, kw_only=True)
class Place:
    """One machine, or several that are alike: ``slots`` is how many processes may work there beside each other,
    ``run_child`` and ``start_worker`` do there what ``parent.call`` and ``parent.Worker`` do on this machine."""

    slots: Slots
    run_child: Callable[..., Any] = call
    start_worker: Callable[..., Any] = Worker
