"""The process above a child: what it and the child do where qbench is gone."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from qbench.process import guard

BEGINS = """
import multiprocessing, sys
from pathlib import Path
from qbench.process import guard

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
    assert done.stderr == said
    assert not folder.exists()


@pytest.mark.parametrize(("system", "told"), [("linux", [(36, 1, 0, 0, 0)]), ("darwin", [])])
def test_only_linux_is_asked_for_orphans(monkeypatch: pytest.MonkeyPatch, system: str, told: list[object]) -> None:
    """By prctl(2), which others do not have."""
    asked: list[object] = []
    monkeypatch.setattr(guard.sys, "platform", system)
    library = SimpleNamespace(prctl=lambda *words: asked.append(words))
    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: library)
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
