"""What Ray's own processes take of a node, and how they are kept off the cores that are timed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_SIGNS = (b"/ray/core/src/ray/", b"/ray/_private/", b"/ray/dashboard/", b"/ray/autoscaler/", b"ray::")
# In a process of its own, since the one that moved them may be killed: then its input ends, too. Were the cores not
# given back, whatever the raylet starts later would have those alone.
_GIVE_BACK = """
import json, os, sys
before = json.loads(sys.stdin.readline())
sys.stdin.read()
for thread, cores in before.items():
    try:
        os.sched_setaffinity(int(thread), cores)
    except OSError:
        pass
"""


@dataclass(kw_only=True)
class Load:
    """``cores``: the processor time of Ray's processes over the time that passed, in cores; None before the end, and
    where it cannot be read. ``moved``: how many of them were kept off the timed cores."""

    cores: float | None = None
    moved: int = 0


@contextlib.contextmanager
def keep_off(timed: tuple[int, ...]) -> Iterator[Load]:
    """Keeps Ray's processes of this machine off some cores meanwhile, as far as there are others and this user may,
    and says what they took."""
    load = Load()
    processes = list_processes()
    others = set(range(os.cpu_count() or 1)) - set(timed)
    before = {thread: cores for pid in processes for thread, cores in _read_affinities(pid).items()}
    with _giving_back(before):
        if others:
            load.moved = sum(_move(thread, others) for thread in before)
        started, spent = time.monotonic(), _read_seconds(processes)
        try:
            yield load
        finally:
            passed = time.monotonic() - started
            load.cores = max(0.0, _read_seconds(processes) - spent) / passed if processes and passed > 0 else None


@contextlib.contextmanager
def _giving_back(before: Mapping[int, set[int]]) -> Iterator[None]:
    """Threads have the cores of ``before`` again at the end, however this process ends."""
    line = json.dumps({thread: sorted(cores) for thread, cores in before.items()})
    command = [sys.executable, "-I", "-S", "-c", _GIVE_BACK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True) as keeper:
        assert keeper.stdin is not None
        keeper.stdin.write(f"{line}\n")
        keeper.stdin.flush()
        yield


def list_processes() -> list[int]:
    """Ray's processes on this machine, this one among them where it is a worker of Ray."""
    found = []
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            if any(sign in command for sign in _SIGNS):
                found.append(int(folder.name))
    return found


def _read_affinities(pid: int) -> dict[int, set[int]]:
    """The cores of each thread of a process."""
    cores: dict[int, set[int]] = {}
    with contextlib.suppress(OSError):
        for task in (_PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                cores[int(task.name)] = os.sched_getaffinity(int(task.name))
    return cores


def _move(thread: int, cores: set[int]) -> bool:
    try:
        os.sched_setaffinity(thread, cores)
    except OSError:  # another user's, or it ended, or the machine does not allow these cores
        return False
    return True


def _read_seconds(processes: list[int]) -> float:
    """The processor time that processes have taken, without that of their children."""
    ticks = 0
    for pid in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
