"""The process above a child: what it and the child do where qbench is gone."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace

import pytest

from qbench.process import guard

BEGINS = """
import multiprocessing, signal, sys
from pathlib import Path
from qbench.process import guard

signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM))  # as a user's program may have it
reading, report = multiprocessing.Pipe(duplex=False)
if sys.argv[2] == "gone":
    reading.close()
guard.fork_under_guard(report, Path(sys.argv[1]), ())
print("the child", file=sys.stderr)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child does not look who is above it")
@pytest.mark.parametrize(("qbench", "said"), [("there", "the child\n"), ("gone", "")])
def test_a_child_that_begins_as_qbench_ends_goes_without_a_word(tmp_path: Path, qbench: str, said: str) -> None:
    """Ctrl-C may come while children start: nobody hears of them any more, and a traceback of one would be the last
    that the terminal shows. What lies in its folder goes with it."""
    folder = tmp_path / "of the child"
    folder.mkdir()
    done = subprocess.run([sys.executable, "-c", BEGINS, folder, qbench], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == (said, 0 if said else 1)
    assert not folder.exists()


LOOKS = """
import multiprocessing, os, signal, sys
from pathlib import Path
from qbench.process import guard

reading, report = multiprocessing.Pipe(duplex=False)
before = len(os.listdir("/proc/self/fd"))
guard.fork_under_guard(report, Path(sys.argv[1]), ())
names = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP)
print([signal.getsignal(name) == signal.SIG_DFL for name in names], signal.set_wakeup_fd(-1), file=sys.stderr)
print([os.getsid(pid) == pid for pid in (os.getpid(), os.getppid())], file=sys.stderr)
print(before - len(os.listdir("/proc/self/fd")), file=sys.stderr)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which Linux has")
def test_a_child_begins_as_any_process(tmp_path: Path) -> None:
    """With the usual signals, in a session of its own as its guard is, and without the ends of pipes that the guard
    reads; a folder that it never made is no error."""
    done = subprocess.run([sys.executable, "-c", LOOKS, tmp_path / "none"], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines() == ["[True, True, True] -1", "[True, True]", "1"]
    assert done.returncode == 0


@pytest.mark.parametrize("holds", [True, False])
def test_the_lifeline_of_the_server_is_let_go_once(monkeypatch: pytest.MonkeyPatch, holds: bool) -> None:
    """It ends when no one has it any more; whoever was started otherwise has none."""
    reading, writing = os.pipe()
    server = SimpleNamespace(_forkserver_alive_fd=writing) if holds else SimpleNamespace()
    monkeypatch.setattr(forkserver, "_forkserver", server)
    for _ in range(2):
        guard._let_server_end()
    if not holds:
        os.close(writing)
    assert os.read(reading, 1) == b"", "nobody has the other end"
    os.close(reading)


def test_what_does_not_end_is_looked_for_a_hundred_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """For two seconds: its disk hangs."""
    slept: list[float] = []
    monkeypatch.setattr(guard.os, "waitpid", lambda pid, options: (0, 0))
    monkeypatch.setattr(guard.time, "sleep", slept.append)
    monkeypatch.setattr(guard.reaper, "descendants", lambda pid: [])
    monkeypatch.setattr(guard.reaper, "kill_group", lambda group: None)
    guard._sweep(7)
    assert slept == [0.02] * 100


def test_linux_counts_memory_in_kibibytes() -> None:
    """macOS in bytes: getrusage(2)."""
    assert (guard._MAXRSS_BYTES == 1024) is (sys.platform != "darwin")


@pytest.mark.parametrize(("system", "told"), [("linux", [(36, 1, 0, 0, 0)]), ("darwin", [])])
def test_only_linux_is_asked_for_orphans(monkeypatch: pytest.MonkeyPatch, system: str, told: list[object]) -> None:
    """By prctl(2), which others do not have."""
    asked: list[object] = []
    monkeypatch.setattr(guard.sys, "platform", system)
    library = SimpleNamespace(prctl=lambda *words: asked.append(words))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    guard._prctl(guard._PR_SET_CHILD_SUBREAPER, 1)
    assert asked == told


@pytest.mark.parametrize(("system", "groups"), [("linux", []), ("darwin", [7])])
def test_what_is_below_is_killed_until_nothing_is(
    monkeypatch: pytest.MonkeyPatch, system: str, groups: list[int]
) -> None:
    """All that has ended is waited for before others are looked for; where orphans are not handed on, the child's group
    ends with it."""
    ended = iter([(5, 0), (0, 0), (6, 0), (0, 0)])
    killed: list[int] = []
    killed_groups: list[int] = []

    def waitpid(pid: int, options: int) -> tuple[int, int]:
        assert (pid, options) == (-1, os.WNOHANG)
        for answer in ended:
            return answer
        raise ChildProcessError

    monkeypatch.setattr(guard.sys, "platform", system)
    monkeypatch.setattr(guard.os, "waitpid", waitpid)
    monkeypatch.setattr(guard.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(guard.reaper, "descendants", lambda pid: [8, 9])
    monkeypatch.setattr(guard.reaper, "kill", killed.append)
    monkeypatch.setattr(guard.reaper, "kill_group", killed_groups.append)
    guard._sweep(7)
    assert (killed, killed_groups) == ([8, 9, 8, 9], groups)


def test_the_end_of_the_child_is_told_among_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the most memory that it had, in bytes; None while it lives."""
    ends = iter([(5, 1, 10), (7, 2, 30), (8, 3, 20), (0, 0, 0), (5, 0, 1)])

    def wait4(pid: int, options: int) -> tuple[int, int, SimpleNamespace]:
        assert (pid, options) == (-1, os.WNOHANG)
        for number, status, most in ends:
            return number, status, SimpleNamespace(ru_maxrss=most)
        raise ChildProcessError

    monkeypatch.setattr(guard.os, "wait4", wait4)
    monkeypatch.setattr(guard, "_MAXRSS_BYTES", 1024)
    assert guard._reap(7) == (2, 30 * 1024)
    assert guard._reap(7) is None
