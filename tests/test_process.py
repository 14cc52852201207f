"""Child processes: what they return, how they fail, and that nothing of them stays."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from qbench.errors import BuildError, CaseError, CaseSkipped, WorkerError
from qbench.process import THREAD_VARIABLES, Limits, Worker, call

QUICK = Limits(seconds=60)


# --- functions that run in children ---------------------------------------------------------------------------


def double(x, *, progress):
    progress("half way", 0.5)
    return 2 * x


def fail(kind, text, *, progress):
    raise kind(text)


def kill_self(*, progress):
    print("about to die", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def segfault(*, progress):
    ctypes.string_at(0)


def leave(*, progress):
    print("goodbye", flush=True)
    os._exit(3)


def hang(*, progress):
    while True:
        time.sleep(60)


def allocate(size, *, progress):
    return len(bytearray(size))


def environment(names, *, progress):
    return {name: os.environ.get(name) for name in names}


def tasks(*, progress):
    import torch  # noqa: F401

    return len(list(Path("/proc/self/task").iterdir())), sorted(os.sched_getaffinity(0)), "torch" in sys.modules


class Counter:
    def __init__(self, start):
        if start < 0:
            raise BuildError("counts from zero")
        self.value = start

    def add(self, number):
        self.value += number
        return self.value


# --- rules ----------------------------------------------------------------------------------------------------


def test_a_call_returns_the_value_and_reports_progress():
    """A function's value and its progress reach the caller."""
    heard = []
    assert call(double, 21, limits=QUICK, progress=lambda text, share: heard.append((text, share))) == 42
    assert heard == [("half way", 0.5)]


@pytest.mark.parametrize("kind", [BuildError, CaseSkipped, WorkerError])
def test_qbench_errors_travel_as_they_are(kind):
    """qbench's own errors keep class and text across the process border."""
    with pytest.raises(kind, match="^the reason$"):
        call(fail, kind, "the reason", limits=QUICK)


def test_other_errors_become_one_line_with_their_place():
    """Any other exception becomes a WorkerError that names type, message and the file and line it came from."""
    with pytest.raises(WorkerError, match=r"^KeyError: 'lost' \(at test_process.py:\d+\)$"):
        call(fail, KeyError, "lost", limits=QUICK)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (kill_self, r"ended by SIGKILL \(most often: the system ran out of memory\); its last words: about to die"),
        (segfault, r"ended by SIGSEGV; its last words: Fatal Python error: Segmentation fault File .*ctypes"),
        (leave, r"ended with exit code 3; its last words: goodbye"),
    ],
)
def test_a_dead_child_says_how_it_died(function, words):
    """A child that dies is an error with the signal or exit code, and the last line that it wrote."""
    with pytest.raises(WorkerError, match=words):
        call(function, limits=QUICK)


def test_a_hanging_child_is_stopped_at_its_limit():
    """A child that takes longer than its limit is ended, and the message names the key to raise."""
    with pytest.raises(WorkerError, match=r"took longer than 0\.3 s and was stopped; raise limits\.stage_seconds"):
        call(hang, limits=Limits(seconds=0.3))


def test_running_out_of_memory_is_a_message():
    """A child over its memory limit raises instead of taking the machine with it."""
    with pytest.raises(WorkerError, match="ran out of memory"):
        call(allocate, 8 * 2**30, limits=Limits(seconds=60, memory_bytes=2 * 2**30))


def test_children_inherit_one_thread_and_the_parent_keeps_its_environment(monkeypatch):
    """OMP_NUM_THREADS and its kin are set for children only."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert call(environment, list(THREAD_VARIABLES), limits=QUICK) == THREAD_VARIABLES
    assert "OMP_WAIT_POLICY" not in os.environ


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and sets affinity, which Linux has")
def test_no_thread_pool_runs_in_a_fresh_child_and_it_is_pinned():
    """The server forks before any pool has started, so a child has one task; it runs on the cores it was given."""
    core = sorted(os.sched_getaffinity(0))[-1]
    assert call(tasks, limits=QUICK, cores=(core,)) == (1, [core], True)


def test_a_worker_keeps_its_session_between_requests():
    """The session made at the start answers every later request."""
    with Worker(Counter, 1, limits=QUICK) as worker:
        worker.ready()
        assert [worker.ask("add", 2), worker.ask("add", 3)] == [3, 6]


def test_a_session_that_cannot_be_made_says_why():
    """The error of the session's constructor is raised by ready()."""
    with Worker(Counter, -1, limits=QUICK) as worker, pytest.raises(CaseError, match="counts from zero"):
        worker.ready()


def test_an_error_in_a_request_leaves_the_worker_usable():
    """A failed request ends that request only."""
    with Worker(Counter, 0, limits=QUICK) as worker:
        worker.ready()
        with pytest.raises(WorkerError, match="TypeError"):
            worker.ask("add", "text")
        assert worker.ask("add", 1) == 1


def test_closing_ends_the_child_and_removes_its_log():
    """After the context nothing of the child is left."""
    with Worker(Counter, 0, limits=QUICK) as worker:
        worker.ready()
        pid, log = worker.pid, worker._log
        assert log.exists()
    assert not log.exists()
    assert not Path(f"/proc/{pid}").exists()


def test_a_fresh_interpreter_serves_too():
    """``fresh=True`` starts a new interpreter, with the same variables."""
    with Worker(Counter, 5, limits=QUICK, fresh=True) as worker:
        worker.ready()
        assert worker.ask("add", 1) == 6
