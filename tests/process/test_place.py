"""Rules of qbench/process/place.py: where a child runs that shares something with others."""

from __future__ import annotations

from typing import Any

from qbench.process.child_process import Worker, call
from qbench.process.cpu_slots import Slots
from qbench.process.place import Place


def test_one_machine_runs_every_child_alike() -> None:
    """What they share makes no difference there, and work is done once."""
    here = Place(slots=Slots(1))
    assert (here.run_child, here.start_worker) == (call, Worker)
    assert here.run_child_near("weights") is call
    assert here.repeat(lambda: 3) == 3


def test_of_several_machines_the_one_that_has_it_is_asked() -> None:
    """By what is shared, before all that the child is given."""
    asked: list[Any] = []
    there = Place(slots=Slots(1), run_near=lambda *given, **keys: asked.append((given, keys)))
    there.run_child_near("weights")("function", 1, limits=None)
    assert asked == [(("weights", "function", 1), {"limits": None})]
