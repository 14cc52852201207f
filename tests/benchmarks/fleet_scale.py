"""What a fleet costs its coordinator, by the number of nodes and cases; no node is started.

    python tests/benchmarks/fleet_scale.py [NODES] [CASES]

Every case takes a place of the schedule that a run uses and gives it back, in a random order of ends, with all places
taken; one node in a hundred is lost on the way and another joins. Then every case takes a machine, as measuring does.
Then a suite of so many cases is read and planned, tracked, and its cases are worked at as a run does it, in one thread
for each place of all nodes, each through the schedule; what a node would do takes no time. Last all cases fail with
their baselines. It prints microseconds a case and the memory of this process.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from qbench import suite as suites
from qbench.errors import CaseError
from qbench.fleet.schedule import FleetNode, Schedule
from qbench.plan.planner import Plan, PlannedCase, make_plan
from qbench.running.case_tracker import CaseTracker
from qbench.running.context import RunContext
from qbench.running.directory import RunDirectory

PLACES = 4


def main(nodes: int, cases: int) -> None:
    """Prints the figures."""
    tracemalloc.start()
    schedule = Schedule()
    for number in range(nodes):
        schedule.add(make_node(number))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    print(f"{nodes:,} nodes, {cases:,} cases; the schedule holds {held / 2**20:.2f} MiB")
    print(f"taking a place: {take_places(schedule, nodes, cases):.0f} us a case")
    print(f"taking a machine: {take_machines(schedule, cases):.0f} us a case")
    print(f"a waiting thread: {measure_thread():.0f} KiB resident; a run has {nodes * PLACES:,}")
    coordinate(schedule, nodes * PLACES, cases)


def make_node(number: int) -> FleetNode:
    return FleetNode(name=f"n{number}", group="a", machine=f"m{number}", places=PLACES)


def take_places(schedule: Schedule, nodes: int, cases: int) -> float:
    """Microseconds a case with every place taken."""
    order, busy, lost = random.Random(0), [], 0
    started = time.perf_counter()
    for number in range(cases):
        if len(busy) >= (nodes - 1) * PLACES:
            schedule.give_back(busy.pop(order.randrange(len(busy))))
        if number % 100 == 99 and lost < nodes // 100:
            schedule.lose(f"n{lost}")
            schedule.add(make_node(nodes + lost))
            lost += 1
        busy.append(schedule.take_place("a"))
    seconds = time.perf_counter() - started
    for node in busy:
        schedule.give_back(node)
    return seconds / cases * 1e6


def take_machines(schedule: Schedule, cases: int) -> float:
    """Microseconds a case with half of the machines measuring."""
    order, busy = random.Random(0), []
    half = schedule.machines("a") // 2
    started = time.perf_counter()
    for _ in range(cases):
        if len(busy) >= max(1, half):
            schedule.give_machine_back(busy.pop(order.randrange(len(busy))))
        busy.append(schedule.take_machine("a"))
    return (time.perf_counter() - started) / cases * 1e6


def coordinate(schedule: Schedule, places: int, cases: int) -> None:
    """Prints what each part of a run of so many cases takes here."""
    with tempfile.TemporaryDirectory() as folder:
        plan, seconds = timed(lambda: make_large_plan(Path(folder), cases))
    report("reading and planning", seconds, len(plan.cases))
    directory = Mock(spec=RunDirectory)
    directory.records.return_value = []
    tracker, seconds = timed(lambda: CaseTracker(plan, directory, [], started=""))
    report("tracking", seconds, len(plan.cases))
    context = Mock(spec=RunContext, jobs=places, fleet=None, tracker=tracker)

    def work(planned: PlannedCase) -> str:
        shared = planned.case.variant.model.name
        node = schedule.take_place("a", near=shared)
        tracker.list_cases(planned.case.variant.id)
        schedule.give_back(node)
        return shared

    kind = lambda planned: planned.case.variant.id.rpartition("/")[0]  # noqa: E731
    _, seconds = timed(lambda: RunContext.run_parallel(context, "build", plan.cases, work, kind=kind))
    report(f"working in {places:,} threads", seconds, len(plan.cases))
    baselines = [planned.case for planned in plan.cases if planned.reference is None]
    _, seconds = timed(lambda: tracker.break_cases(baselines, "build", CaseError("no such layer")))
    report("failing", seconds, directory.write_record.call_count)


def report(what: str, seconds: float, cases: int) -> None:
    """One line."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what}: {seconds:.1f} s, {seconds / cases * 1e6:.0f} us a case of {cases:,}; {peak:.0f} MiB at most so far")


def timed(act: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and the seconds that it took."""
    started = time.perf_counter()
    return act(), time.perf_counter() - started


def make_large_plan(folder: Path, cases: int) -> Plan:
    """The plan of a suite of networks that are never built, a hundred cases each."""
    models = [f"  - {{name: m{number}, source: {{python: 'm.py:f'}}}}" for number in range(cases // 100)]
    matrix = f"{{modes: [fp32, dynamic, static, qat], backends: [fake], batch_sizes: {list(range(1, 26))}}}"
    (folder / "m.py").write_text("def f():\n    raise NotImplementedError\n")
    lines = ["suite: large", "models:", *models, "data: {dataset: digits}", f"matrix: {matrix}"]
    (folder / "large.yaml").write_text("\n".join(lines))
    suite = suites.read(folder / "large.yaml")
    return make_plan(suite, cores=2, memory_bytes=None)


def measure_thread(count: int = 500) -> float:
    """KiB that a thread takes that waits."""
    end = threading.Event()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    threads = [threading.Thread(target=end.wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    end.set()
    for thread in threads:
        thread.join()
    return (after - before) / count


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:3]]
    main(*given, *(1_000, 100_000)[len(given) :])
