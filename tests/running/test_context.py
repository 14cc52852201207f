"""What stages share: where processes run, how things happen beside each other, and what becomes of them on an error."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.process.child_process import Limits
from qbench.process.cpu_slots import Slots
from qbench.process.memory_room import MemoryRoom
from qbench.process.place import Place
from qbench.running import context as contexts
from qbench.running.context import RunContext


class Heard:
    """What was noted and how far things were."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.steps: list[tuple[str, float | None]] = []

    def note(self, text: str) -> None:
        """Keeps it."""
        self.notes.append(text)

    def advance(self, text: str, share: float | None = None) -> None:
        """Keeps it."""
        self.steps.append((text, share))


def make_context(fleet: Any = None, jobs: int = 3) -> Any:
    """A run's context, with what it heard and kept."""
    heard, kept = Heard(), list[str]()
    return RunContext(
        directory=SimpleNamespace(write_note=kept.append, kept=kept),  # type: ignore[arg-type]
        tracker=SimpleNamespace(stopping=False),  # type: ignore[arg-type]
        limits=Limits(),
        cache=Path("cache"),
        cores=(0,),
        jobs=jobs,
        here=Place(slots=Slots(1)),
        memory=MemoryRoom(jobs),
        progress=heard,  # type: ignore[arg-type]
        train_qat=True,
        emulated_samples=1,
        fleet=fleet,
    )


class FakeFleet:
    """Nodes of one class; ``cancelled`` counts."""

    def __init__(self, cores: int = 2) -> None:
        self.own, self.cancelled = SimpleNamespace(cores=tuple(range(cores))), 0

    def find_class(self, host: str) -> Any:
        """The class of one host."""
        return SimpleNamespace(label="zen4") if host == "ray:zen4" else None

    def place(self, label: str) -> str:
        """Its name."""
        return f"place of {label}"

    def cancel(self) -> None:
        """Counts."""
        self.cancelled += 1


def test_a_hosts_processes_run_on_its_nodes_or_here() -> None:
    """Without a cluster, and for a host that no node is, on this machine."""
    alone, on_nodes = make_context(), make_context(FakeFleet())
    assert alone.find_place("ray:zen4") is alone.here
    assert on_nodes.find_place("native") is on_nodes.here
    assert on_nodes.find_place("ray:zen4") == "place of zen4"


def test_a_warning_is_shown_and_kept_and_a_missing_part_only_shown() -> None:
    """The latter not while the user interrupts: qbench itself ends children then."""
    context = make_context()
    context.warn("no labels")
    context.note_missing("a", "it hung")
    context.tracker.stopping = True
    context.note_missing("b", "ended")
    assert context.progress.notes == ["no labels", "a: it hung"]
    assert context.directory.kept == ["no labels"]


def test_a_child_reports_under_the_name_of_what_it_works_at() -> None:
    """Its own words are behind it."""
    context = make_context()
    context.report_under("a/static/x86")("epoch 2", 0.5)
    assert context.progress.steps == [("a/static/x86: epoch 2", 0.5)]


@pytest.mark.parametrize(("cores", "jobs", "here"), [(None, 9, 9), (2, 9, 2), (8, 3, 3)])
def test_what_happens_here_is_no_more_than_this_machines_cores(cores: int | None, jobs: int, here: int) -> None:
    """``jobs`` counts the nodes' places, too."""
    assert make_context(None if cores is None else FakeFleet(cores), jobs).jobs_here == here


def test_a_thread_that_waits_for_nodes_waits_for_a_core_of_its_own() -> None:
    """Where there are no nodes, each thread has one already."""
    for fleet, free in ((None, True), (FakeFleet(), False)):
        context = make_context(fleet)
        with context.occupy_core():
            assert context.here.slots.take_spare() is free
        if free:
            context.here.slots.give_back()
        assert context.here.slots.take_spare()


def test_results_come_in_the_order_of_the_items() -> None:
    """Whichever ends first; what shares a kind is done one after the other by one thread."""
    context, done, gate = make_context(jobs=2), list[int](), threading.Event()

    def work(item: int) -> tuple[int, int]:
        if item == 0:
            assert gate.wait(10)
        done.append(item)
        if len(done) == 3:
            gate.set()
        return item * 10, threading.get_ident()

    results = context.run_parallel("build", [0, 1, 2, 3], work, kind=lambda item: item == 0)
    assert [value for value, _ in results] == [0, 10, 20, 30]
    assert done == [1, 2, 3, 0]
    assert len({thread for _, thread in results[1:]}) == 1
    assert context.run_parallel("build", [], work) == []


@pytest.mark.parametrize(("jobs", "most"), [(None, 3), (1, 1)])
def test_so_many_things_happen_beside_each_other(jobs: int | None, most: int) -> None:
    """As many as the run's jobs, unless a stage has its own number."""
    context, threads = make_context(), set[int]()
    meeting = threading.Barrier(most)

    def work(item: int) -> None:
        meeting.wait(10)
        threads.add(threading.get_ident())

    context.run_parallel("prepare", list(range(2 * most)), work, jobs=jobs)
    assert len(threads) == most


@pytest.mark.parametrize("fleet", [None, FakeFleet()])
def test_an_error_ends_everything_that_happens_beside_it(monkeypatch: pytest.MonkeyPatch, fleet: Any) -> None:
    """Children are ended until the last thread is done, nothing more begins, and no case breaks by it."""
    context, begun, ended = make_context(fleet, jobs=2), list[int](), threading.Event()
    monkeypatch.setattr(contexts, "end_all", ended.set)
    waits, wait = list[float](), contexts.wait
    monkeypatch.setattr(contexts, "wait", lambda futures, timeout: waits.append(timeout) or wait(futures, timeout))
    started = threading.Event()

    def work(item: int) -> None:
        begun.append(item)
        if item == 0:
            assert started.wait(10)
            raise KeyboardInterrupt
        started.set()
        assert ended.wait(10)

    with pytest.raises(KeyboardInterrupt):
        context.run_parallel("build", [0, 1, 2, 3, 4, 5, 6, 7], work)
    assert context.tracker.stopping
    assert ended.is_set()
    assert set(waits) == {0.2}, "children that start meanwhile are ended soon, and no core is kept busy for it"
    assert len(begun) < 8
    assert fleet is None or fleet.cancelled == 1
