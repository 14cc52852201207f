"""The process that ends what a qbench leaves behind, however that one ended: its children's groups and their files.

It is started as a script with nothing but Python's own library, and is told on its standard input, line by line, of
process groups that begin (``+123``) and that have ended (``-123``), and last that qbench ends by itself. When the
input ends, qbench is gone, for whatever reason. Killed children cannot clean up after themselves, and the processes
that a model has forked do not know that their time is over.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

ENDING = "ending\n"
MARK = "QBENCH_PROCESS"  # in the environment of every process below one qbench
_PROC = Path("/proc")
_SWEEPS, _BETWEEN_SECONDS = 40, 0.05  # a killed process is gone within milliseconds, unless its disk hangs
# It ends by itself once all others have, and then removes what they have shared.
_TRACKER = b"multiprocessing.resource_tracker"


def main(messages: IO[str], folder: Path, mark: str) -> None:
    """Waits until ``messages`` ends, then kills every group it named and every process with the mark, and removes the
    folder of a qbench that was killed."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the end of qbench is its only end
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    groups: set[int] = set()
    by_itself = False
    for line in messages:
        by_itself = line == ENDING
        # The last line of a killed qbench can be cut, and what is left of a number is the number of something else.
        if line[0] in "+-" and line[1:-1].isdecimal() and line.endswith("\n"):
            (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        kill_group(group)
    for _ in range(_SWEEPS):
        alive = list(marked(f"{MARK}={mark}".encode()))
        if not alive:
            break
        for pid in alive:
            kill(pid)
        time.sleep(_BETWEEN_SECONDS)
    if not by_itself:  # else multiprocessing, whose folder it is, removes it
        shutil.rmtree(folder, ignore_errors=True)


def kill_group(group: int) -> None:
    """Ends all processes of a group, if there are any; 0 and 1, which stand for the own group and for every process,
    are none."""
    if group <= 1:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def kill(pid: int) -> None:
    """Ends a process, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """The processes below one, nearest first; none where the system does not list them.

    ``task/*/children`` would list them, too, but must not be read: what was looked up of a thread is taken away by the
    thread when it ends, and whoever reaps the process meanwhile waits for that in a loop of the kernel
    (``shrink_dcache_parent`` of Linux 6.18). On a node of one core it kept the threads off it, for up to a second a
    process.
    """
    children: dict[int, list[int]] = {}
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):  # gone meanwhile
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    listed = [pid]
    for parent in listed:
        listed += children.get(parent, [])
    return listed[1:]


def marked(setting: bytes) -> Iterator[int]:
    """The processes whose environment has the setting, but for the one that keeps count of what is shared."""
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or gone meanwhile
            ours = setting in (folder / "environ").read_bytes().split(b"\0")
            if ours and _TRACKER not in (folder / "cmdline").read_bytes():
                yield int(folder.name)


if __name__ == "__main__":
    if os.fork():  # Ray kills the children of a worker that ends, but not what these have started
        os._exit(0)
    main(sys.stdin, Path(sys.argv[1]), sys.argv[2])
