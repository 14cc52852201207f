"""What Ray's own processes take of a node, and how they are kept off the cores that are timed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(kw_only=True)
class Load:
    """``cores``: the processor time of Ray's processes over the time that passed, in cores; None before the end, and
    where it cannot be read. ``moved``: how many of their threads were kept off the timed cores."""

    cores: float | None = None
    moved: int = 0


@contextlib.contextmanager
def keep_off(timed: tuple[int, ...], *, patience_seconds: float = 60.0) -> Iterator[Load]:
    """Keeps Ray's processes of this machine off some cores meanwhile, as far as there are others and this user may,
    and says what they took. However this process ends, they have all their cores again. Where another run of this user
    keeps them off its own for longer than ``patience_seconds``, they stay where they are: ``moved`` is 0."""
    if not hasattr(os, "sched_setaffinity"):
        yield Load()
        return
    from qbench.fleet.core_keeper import list_processes

    with _keeper(timed, patience_seconds) as moved:
        load, processes = Load(moved=moved), list_processes()
        started, spent = time.monotonic(), _read_seconds(processes)
        try:
            yield load
        finally:
            passed = time.monotonic() - started
            load.cores = max(0.0, _read_seconds(processes) - spent) / passed if processes and passed > 0 else None


@contextlib.contextmanager
def _keeper(timed: tuple[int, ...], patience_seconds: float) -> Iterator[int]:
    """How many threads the process that keeps them off has moved; it ends with this one, and gives the cores back."""
    script = str(Path(__file__).with_name("core_keeper.py"))
    given = [str(find_lock()), ",".join(map(str, timed)), str(patience_seconds)]
    command = [sys.executable, "-I", "-S", script, *given]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        try:
            yield int(keeper.stdout.readline() or 0)
        finally:
            keeper.stdin.close()
            keeper.stdout.read()  # until it has ended, too


def find_lock() -> Path:
    """The file that whoever keeps Ray off cores of this machine has locked, in a folder that is this user's own."""
    return Path(tempfile.gettempdir()) / f"qbench-{os.getuid()}" / "cores.lock"


def _read_seconds(processes: list[int]) -> float:
    """The processor time that processes have taken, without that of their children."""
    ticks = 0
    for pid in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
