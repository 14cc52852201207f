"""Memory that many share: how many may work in it, and what is tried once more alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import MemoryExhausted
from qbench.process import memory_room
from qbench.process.memory_room import MemoryRoom, count_beside

GIB = 2**30


@given(budget=st.integers(0, 2**50), need=st.integers(0, 2**45), most=st.integers(1, 512))
def test_as_many_as_fit_at_least_one(budget: int, need: int, most: int) -> None:
    """Whatever the numbers, one may work; more of them never need more than there is."""
    count = count_beside(budget, need, most)
    assert 1 <= count <= most
    assert count == 1 or count * need <= budget


@pytest.mark.parametrize(
    ("budget", "need", "most", "count"),
    [(10, 3, 8, 3), (9, 3, 8, 3), (8, 3, 8, 2), (2, 3, 8, 1), (100, 3, 8, 8), (10, 0, 99, 10), (10, 1, 99, 10)],
)
def test_no_memory_is_left_that_would_hold_another(budget: int, need: int, most: int, count: int) -> None:
    """Work of which nothing is known to need any counts as a byte."""
    assert count_beside(budget, need, most) == count


class Killed:
    """Work that runs out of memory so many times; it waits for ``begins`` before it does."""

    def __init__(self, times: int, begins: threading.Barrier | None = None) -> None:
        self.times, self.begins, self.heard = times, begins, list[bool]()

    def __call__(self, alone: bool) -> str:
        self.heard.append(alone)
        if self.begins is not None and not alone:
            self.begins.wait(30)
        if len(self.heard) <= self.times:
            raise MemoryExhausted("killed")
        return "done"


def test_what_ran_out_of_memory_beside_others_is_tried_alone() -> None:
    """Once the others have ended: nobody works meanwhile, and nobody begins."""
    room, begins, ends = MemoryRoom(8), threading.Barrier(3), threading.Event()
    works: list[str] = []

    def neighbour(alone: bool) -> None:
        begins.wait(30)
        assert ends.wait(30)
        works.append("neighbour")

    def killed(alone: bool) -> str:
        if not alone:
            begins.wait(30)
            raise MemoryExhausted("killed")
        works.append("alone")
        return "done"

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(room.work, neighbour), pool.submit(room.work, killed)]
        begins.wait(30)
        ends.set()
        assert futures[1].result(30) == "done"
    assert works == ["neighbour", "alone"]


def test_several_are_tried_alone_one_after_the_other() -> None:
    """Two that the system kills at one time do not meet again."""
    room, begins = MemoryRoom(8), threading.Barrier(2)
    works = [Killed(1, begins), Killed(1, begins)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(room.work, works)) == ["done", "done"]
    assert [work.heard for work in works] == [[False, True], [False, True]]


def test_what_runs_out_of_memory_alone_has_failed() -> None:
    """Nothing is tried more than once more, and nothing where there was no company."""
    room, lonely, hopeless = MemoryRoom(8), Killed(1), Killed(9)
    with pytest.raises(MemoryExhausted):
        room.work(lonely)
    assert lonely.heard == [False]
    with pytest.raises(MemoryExhausted):
        room.work(hopeless, shared=True)
    assert hopeless.heard == [False, True]
    assert room.work(Killed(0)) == "done"


def test_work_waits_for_memory() -> None:
    """With room for two of three, the third begins when one has ended, and sees no more than one beside it."""
    room, at_once, most = MemoryRoom(8, lambda: 5 * GIB), 0, 0
    lock, both = threading.Lock(), threading.Barrier(2)

    def act(alone: bool) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        both.wait(30)
        with lock:
            at_once -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: room.work(act, need=lambda: 2 * GIB), range(4)))
    assert most == 2


def test_one_works_where_there_is_no_memory() -> None:
    """It may need less than is thought, or fail with a message; nobody waits for ever."""
    room = MemoryRoom(8, lambda: 0)
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda _: room.work(Killed(0), need=lambda: GIB), range(3))) == ["done"] * 3


@pytest.mark.parametrize(("most", "free", "fits"), [(2, 100, True), (2, 1, True), (2, 0, False), (1, 100, False)])
def test_company_takes_room_in_the_budget_and_memory_that_is_free(most: int, free: int, fits: bool) -> None:
    """Both: as many as may be, and memory now; without company neither is asked for."""
    room = MemoryRoom(most, lambda: free * GIB)
    assert room._fits(GIB)
    room._budget = 100 * GIB
    room._members.add(memory_room._Member())
    assert room._fits(GIB) is fits


def test_whoever_waits_is_told_each_time_somebody_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside others or alone: those that wait to be alone look at nothing else."""
    room, told = MemoryRoom(8), list[str]()
    monkeypatch.setattr(room._changed, "notify_all", lambda: told.append("told"))
    room.work(Killed(0))
    assert len(told) == 1
    room.work(Killed(1), shared=True)
    assert len(told) == 3


def test_work_that_needs_no_memory_waits_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside others, where they have taken all that was free; work that needs some looks again every half second."""
    free = iter([100, 0, 0])
    room, waits = MemoryRoom(8, lambda: next(free)), list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        raise TimeoutError

    monkeypatch.setattr(room._changed, "wait", wait)
    assert room.work(lambda alone: room.work(lambda alone: "done")) == "done"
    free = iter([100, 0, 0])
    with pytest.raises(TimeoutError):
        room.work(lambda alone: room.work(lambda alone: "done", need=lambda: 1))
    assert waits == [0.5]


@pytest.mark.parametrize(
    ("known", "on_nodes", "need"), [(None, False, 2**30), (5, False, 5), (None, True, 0), (5, True, 0)]
)
def test_a_call_needs_what_earlier_ones_took(
    monkeypatch: pytest.MonkeyPatch, known: int | None, on_nodes: bool, need: int
) -> None:
    """A gibibyte where none has ended yet, and nothing of this machine where it runs on a node."""
    room, asked = MemoryRoom(8, on_nodes=on_nodes), list[int]()
    monkeypatch.setattr(memory_room, "peak_bytes", {count_beside: known}.__getitem__)
    monkeypatch.setattr(room, "_fits", lambda bytes_: asked.append(bytes_) or True)
    assert room.call(count_beside, lambda: "done") == "done"
    assert asked == [need]
