"""Rules of qbench/fleet/lost_work.py: how often work that was lost with a node is done again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from qbench.errors import CaseError, NodeLost
from qbench.fleet.lost_work import ATTEMPTS, repeat, repeat_begun


class Work:
    """Loses so many nodes before it is done."""

    def __init__(self, losses: int) -> None:
        self.losses, self.tries = losses, 0

    def __call__(self) -> str:
        self.tries += 1
        if self.tries <= self.losses:
            raise NodeLost("a node is gone")
        return "done"

    def before_it_begins(self, begin: Callable[[], None]) -> str:
        """Loses its nodes before anything of it runs there."""
        result = self()
        begin()
        return result


@pytest.mark.parametrize("losses", [0, 1, ATTEMPTS - 1])
def test_what_a_few_nodes_lose_is_done_by_the_next(losses: int) -> None:
    """Each node is tried once."""
    work = Work(losses)
    assert (repeat(work, threading.Event()), work.tries) == ("done", losses + 1)


def test_what_was_lost_with_three_nodes_may_be_what_ended_them() -> None:
    """It fails as a case does, and is given to no fourth node."""
    work = Work(ATTEMPTS)
    with pytest.raises(CaseError, match="lost with 3 nodes, one after the other: a node is gone"):
        repeat(work, threading.Event())
    assert work.tries == ATTEMPTS


def test_nodes_that_were_dead_before_it_began_do_not_count() -> None:
    """However many there are."""
    work = Work(7)
    assert (repeat_begun(work.before_it_begins, threading.Event()), work.tries) == ("done", 8)


def test_a_run_that_ends_repeats_nothing() -> None:
    """Its nodes are let go on purpose."""
    ending, work = threading.Event(), Work(1)
    ending.set()
    with pytest.raises(NodeLost):
        repeat(work, ending)
    assert work.tries == 1
