"""The process above each child: it waits for the child's end, ends whatever the child has forked, removes its folder.

Whatever the child forks, in whatever session and with whatever environment, is below this process, in which no code of
a model runs. Linux hands it orphans (a subreaper needs no right), so something is left as long as it has a child. It
also ends the child where qbench asks for that (SIGTERM), and where qbench is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import struct
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from qbench.process import reaper

# What ``report`` is told: the child's process number, then what waitpid() says of its end, and the most memory it had.
NUMBER = struct.Struct("!q")
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
_SWEEPS, _BETWEEN_SECONDS = 100, 0.02  # a killed process is gone within milliseconds, unless its disk hangs


def fork_under_guard(report: Connection, folder: Path, belongings: Sequence[Connection]) -> None:
    """Returns in a new process, and in that alone: the caller becomes its guard and never returns. ``belongings`` are
    the new one's alone."""
    _let_server_end()
    os.setsid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    guard, wake = os.getpid(), _hear_signals()
    child = os.fork()
    if child == 0:
        _begin(guard, wake, report)
        return
    code = 1
    try:
        _stand_back(belongings)
        end = _watch(child, wake[0])
        shutil.rmtree(folder, ignore_errors=True)
        for number in end or ():
            os.write(report.fileno(), NUMBER.pack(number))
        code = 0
    finally:
        os._exit(code)


def _begin(guard: int, wake: tuple[int, int], report: Connection) -> None:
    """The new process: a session and a group of its own, the signals that any process has; it dies with its guard."""
    signal.set_wakeup_fd(-1)
    for name in ("SIGCHLD", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    for end in wake:
        os.close(end)
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # it has died meanwhile
        os._exit(1)
    try:
        os.write(report.fileno(), NUMBER.pack(os.getpid()))
    except BrokenPipeError:  # so has qbench, and what this process raised would be the last that its terminal shows
        os._exit(1)
    report.close()


def _let_server_end() -> None:
    """The server of children ends when no one holds its lifeline any more; multiprocessing hands that to every child,
    so that it could start children of its own there. Ours never do, and let go of it."""
    from multiprocessing import forkserver

    server: Any = forkserver._forkserver
    if getattr(server, "_forkserver_alive_fd", None) is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None


def _hear_signals() -> tuple[int, int]:
    """A pipe whose first end can be read once a child has ended or SIGTERM has come, as numbers of signals."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    signal.set_wakeup_fd(ends[1], warn_on_full_buffer=False)
    for name in ("SIGCHLD", "SIGTERM"):
        signal.signal(getattr(signal, name), lambda *_: None)
    for name in ("SIGINT", "SIGHUP"):  # of a terminal: they are qbench's to handle
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD, signal.SIGTERM))
    return ends


def _stand_back(belongings: Sequence[Connection]) -> None:
    """Holds nothing that others wait for the end of."""
    for each in belongings:
        each.close()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    os.close(nothing)


def _watch(child: int, wake: int) -> tuple[int, int] | None:
    """How the child ended, as ``waitpid`` says it, and the bytes that it had at most, once nothing is left below this
    process; None where it was ended from here, for qbench or without it."""
    above = multiprocessing.parent_process()
    lifeline = [] if above is None else [above.sentinel]
    end = None
    while end is None:
        ready = wait([wake, *lifeline])
        if wake not in ready or signal.SIGTERM in os.read(wake, 4096):
            break
        end = _reap(child)
    _sweep(child)
    return end


def _reap(child: int) -> tuple[int, int] | None:
    """Waits for what has ended by now; how the child did, if it has, and its memory."""
    end = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.wait4(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                end = ended[1], ended[2].ru_maxrss * _MAXRSS_BYTES
    return end


def _sweep(child: int) -> None:
    """Kills what is below this process until nothing is. Where the system hands it no orphans, the child's group."""
    if sys.platform != "linux":
        reaper.kill_group(child)
    for _ in range(_SWEEPS):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in reaper.descendants(os.getpid()):
            reaper.kill(pid)
        time.sleep(_BETWEEN_SECONDS)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
