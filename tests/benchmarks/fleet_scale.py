"""What a fleet's scheduler costs its coordinator, by the number of nodes and cases; no node is started.

    python tests/benchmarks/fleet_scale.py [NODES] [CASES]

Every case takes a place of the schedule that a run uses and gives it back, in a random order of ends, with all places
taken; one node in a hundred is lost on the way and another joins. Then every case takes a machine, as measuring does.
It prints microseconds a case, the memory that the schedule holds, and what a thread for each place would take, which a
run has: its stages wait in one thread for each process that works.
"""

from __future__ import annotations

import random
import resource
import sys
import threading
import time
import tracemalloc

from qbench.fleet.schedule import Node, Schedule

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


def make_node(number: int) -> Node:
    return Node(name=f"n{number}", group="a", machine=f"m{number}", places=PLACES)


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
