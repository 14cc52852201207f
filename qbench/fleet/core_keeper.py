"""The process that keeps Ray off the timed cores of a machine, and gives them back when its input ends.

It is started as a script with nothing but Python's own library: who measures may be killed, and a raylet that kept the
few cores would start every later worker there. One at a time for a user and machine: the next one waits until the cores
are given back, or it would take the few for all that there are; one that has waited for long enough moves nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
_LOOK_SECONDS = 0.05
_ATTEMPTS = 100
_SIGNS = (b"/ray/core/src/ray/", b"/ray/_private/", b"/ray/dashboard/", b"/ray/autoscaler/", b"ray::")


def main(lock: str, timed: set[int], patience_seconds: float) -> None:
    """Moves what may be moved, says how many threads that were, and moves them back at the end of the input."""
    with hold_lock(Path(lock), patience_seconds) as is_held:
        processes = list_processes() if is_held else []
        before = {thread: cores for pid in processes for thread, cores in _read_affinities(pid).items()}
        others = set(range(os.cpu_count() or 1)) - timed
        moved = sum(_move(thread, others) for thread in before) if others else 0
        sys.stdout.write(f"{moved}\n")
        sys.stdout.flush()
        sys.stdin.read()
        for thread, cores in before.items():
            _move(thread, cores)


@contextlib.contextmanager
def hold_lock(file: Path, patience_seconds: float) -> Iterator[bool]:
    """Whether the lock could be had in time: a file in a folder of this user alone, both of which are gone afterwards.
    Nothing is written, no link is followed, and what somebody else has put under these names is no lock."""
    end = time.monotonic() + patience_seconds
    while (descriptor := _open_own(file)) is not None:
        try:
            if _lock(descriptor, file):
                try:
                    yield True
                finally:
                    with contextlib.suppress(OSError):
                        file.unlink()
                        file.parent.rmdir()  # not where another one's file is in it
                return
        finally:
            os.close(descriptor)
        if time.monotonic() > end:
            break
        time.sleep(_LOOK_SECONDS)
    yield False


def _lock(descriptor: int, file: Path) -> bool:
    """Whether the open file is locked now, and still is the one of that name: its last holder removes it."""
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), file.lstat())
    return False


def _open_own(file: Path) -> int | None:
    """The open file, made if need be; None where it or its folder is not this user's own."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileExistsError):
            file.parent.mkdir(mode=0o700)
        try:
            folder = file.parent.lstat()
            if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != os.getuid() or folder.st_mode & 0o077:
                return None
            return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # its last holder has just removed the folder
            continue
        except OSError:
            return None
    return None


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
