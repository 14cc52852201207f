"""The process that ends what a qbench leaves behind, however that one ended: its children and their files.

It is started as a script with nothing but Python's own library. When its standard input ends, qbench is gone, for
whatever reason; one that ends by itself says so before. Until then it names the folders that it has elsewhere. Guards
end by themselves, with all below them (see ``guard``): this process asks the rest to, kills what does not, and removes
their files.
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
from typing import BinaryIO

ENDING, SEPARATOR = b"ending", b"\0"
MARK = "QBENCH_PROCESS"  # in the environment of every process below one qbench
_PROC = Path("/proc")
# SIGTERM so often, with which a guard ends all below it, before SIGKILL, with which it could not.
_KIND_SWEEPS, _SWEEPS, _BETWEEN_SECONDS = 40, 80, 0.05
# It ends by itself once all others have, and then removes what they have shared.
_TRACKER = b"multiprocessing.resource_tracker"


def main(messages: BinaryIO, folder: Path, mark: str) -> None:
    """Waits until ``messages`` ends, then ends every process with the mark, and removes the folder of a qbench that was
    killed, with those that it has named."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the end of qbench is its only end
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    *named, last = messages.read().split(SEPARATOR)
    for look in range(_SWEEPS):
        alive = list(marked(f"{MARK}={mark}".encode()))
        if not alive:
            break
        for pid in alive:
            kill(pid, signal.SIGTERM if look < _KIND_SWEEPS else signal.SIGKILL)
        time.sleep(_BETWEEN_SECONDS)
    if last != ENDING:  # else multiprocessing, whose folder it then is, removes it
        named.append(os.fsencode(folder))
    for each in named:
        shutil.rmtree(os.fsdecode(each), ignore_errors=True)


def kill_group(group: int) -> None:
    """Ends all processes of a group, if there are any; 0 and 1, which stand for the own group and for every process,
    are none."""
    if group <= 1:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Ends a process, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


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
    main(sys.stdin.buffer, Path(sys.argv[1]), sys.argv[2])
