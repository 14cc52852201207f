"""The process that keeps Ray off the timed cores of a machine, and gives them back when its input ends.

It is started as a script with nothing but Python's own library: who measures may be killed, and a raylet that kept the
few cores would start every later worker there. One at a time for a user and machine: the next one waits until the cores
are given back, or it would take the few for all that there are; one that has waited for long enough moves nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from pathlib import Path
from typing import IO

PROC = Path("/proc")
_LOOK_SECONDS = 0.05
_SIGNS = (b"/ray/core/src/ray/", b"/ray/_private/", b"/ray/dashboard/", b"/ray/autoscaler/", b"ray::")


def main(lock: str, timed: set[int], patience_seconds: float) -> None:
    """Moves what may be moved, says how many threads that were, and moves them back at the end of the input."""
    with Path(lock).open("w", encoding="utf-8") as file:
        processes = list_processes() if _take(file, patience_seconds) else []
        before = {thread: cores for pid in processes for thread, cores in _read_affinities(pid).items()}
        others = set(range(os.cpu_count() or 1)) - timed
        moved = sum(_move(thread, others) for thread in before) if others else 0
        sys.stdout.write(f"{moved}\n")
        sys.stdout.flush()
        sys.stdin.read()
        for thread, cores in before.items():
            _move(thread, cores)


def _take(file: IO[str], patience_seconds: float) -> bool:
    """Whether the lock could be had in time."""
    end = time.monotonic() + patience_seconds
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() > end:
            return False
        time.sleep(_LOOK_SECONDS)


def list_processes() -> list[int]:
    """Ray's processes on this machine, this one among them where it is a worker of Ray."""
    processes = []
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            if any(sign in command for sign in _SIGNS):
                processes.append(int(folder.name))
    return processes


def _read_affinities(pid: int) -> dict[int, set[int]]:
    """The cores of each thread of a process."""
    cores: dict[int, set[int]] = {}
    with contextlib.suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                cores[int(task.name)] = os.sched_getaffinity(int(task.name))
    return cores


def _move(thread: int, cores: set[int]) -> bool:
    try:
        os.sched_setaffinity(thread, cores)
    except OSError:  # another user's, or it ended, or the machine does not allow these cores
        return False
    return True


if __name__ == "__main__":
    if os.fork():  # Ray kills the children of a worker that ends, but not what these have started
        os._exit(0)
    main(sys.argv[1], {int(core) for core in sys.argv[2].split(",")}, float(sys.argv[3]))
