"""Child processes: what they return, how they fail, and that nothing of them stays."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from qbench.errors import BuildError, CaseError, CaseSkipped, MemoryExhausted, WorkerError
from qbench.process import child, child_process, pipe
from qbench.process.child_process import Limits, Worker, call, end_all, peak_bytes
from qbench.process.start import CHILD_VARIABLES

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


def leave_well(*, progress):
    print("all is well")  # without a flush
    print("and here", file=sys.stderr)
    os._exit(0)


def hang(*, progress):
    while True:
        time.sleep(60)


def allocate(size, *, progress):
    return len(bytearray(size))


def fail_to_allocate(text, *, progress):
    raise RuntimeError(text)


def close_streams(*, progress):
    sys.stdout.close()
    sys.stderr.close()
    for descriptor in (1, 2):
        os.write(descriptor, b"C code goes on writing\n")
    raise ValueError("without a stream")


def come_back_twice(*, progress):
    return os.fork() != 0 and os.WEXITSTATUS(os.wait()[1]), os.getpid()


def throw_bad_alloc(*, progress):
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n")
    os.abort()


def take_memory(size, *, progress):
    block = bytearray(size)
    block[:: 2**12] = bytes(len(block[:: 2**12])).replace(b"\0", b"x")
    os.kill(os.getpid(), signal.SIGKILL)


def environment(names, *, progress):
    return {name: os.environ.get(name) for name in names}


def is_importable(name, *, progress):
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def tasks(*, progress):
    import torch  # noqa: F401

    return len(list(Path("/proc/self/task").iterdir())), sorted(os.sched_getaffinity(0)), "torch" in sys.modules


def write_into_pipes(data, seconds, *, progress):
    for folder in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if int(folder.name) > 2 and str(folder.readlink()).startswith("socket:"):
                os.write(int(folder.name), data)
    time.sleep(seconds)


def close_all(*, progress):
    os.closerange(3, 1000)
    time.sleep(60)


def list_open_files():
    for end in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            yield os.fstat(int(end.name)).st_ino


class Cycle:
    """Garbage that only the collector finds."""

    def __init__(self):
        self.itself = self


def look_at_oneself(*, progress):
    before, garbage = gc.get_freeze_count(), weakref.ref(Cycle())
    child.freeze_garbage_collector()
    return {
        "imported": "colorsys" in sys.modules,
        "ignores Ctrl-C": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
        "is killed first": Path("/proc/self/oom_score_adj").read_text(),
        "variable": os.environ.get("QBENCH_OF_ONE_CHILD"),
        "collector": (gc.isenabled(), gc.get_freeze_count() > before, garbage() is None),
        "ends of its log": [*list_open_files()].count(os.fstat(1).st_ino),
    }


class Chatty:
    def write(self, size):
        for _ in range(size // 1024):
            os.write(1, b"x" * 1023 + b"\n")
        return size


class Forking:
    """Starts processes that live on in various ways; each sleeps for a minute. A stranger has a session of its own, an
    empty environment, and no parent any more."""

    def fork(self, way):
        if way == "stranger":
            program = "import subprocess, sys; print(subprocess.Popen(['sleep', '60'], env={}, stdout=2).pid)"
            starter = [sys.executable, "-I", "-S", "-c", program]
            return int(subprocess.run(starter, env={}, start_new_session=True, stdout=-1, check=True).stdout)
        read, write = os.pipe()
        if os.fork() == 0:
            if way != "fork":
                os.setsid()
            if way != "twice" or os.fork() == 0:
                os.write(write, str(os.getpid()).encode())
                time.sleep(60)
            os._exit(0)
        return int(os.read(read, 100))

    def leave(self, way="fork"):
        print(f"forked {self.fork(way)}", flush=True)
        os._exit(7)


def qbench_with_forks(way, waits):
    """A program that has two children with a process below each; prints all four, then waits or ends. Its server
    imports nothing ahead: torch takes two seconds, and ends as the rest."""
    multiprocessing.set_forkserver_preload = lambda names: None
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what it starts in the background
    workers = [Worker(Forking, limits=QUICK, fresh=fresh) for fresh in (False, True)]
    for worker in workers:
        worker.ready()
    print(*[pid for worker in workers for pid in (worker.pid, worker.ask("fork", way))], flush=True)
    if waits:
        time.sleep(60)


def eventually(true, seconds=5.0):
    """Whether something becomes true within that time."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


def gone(pid, seconds=5.0):
    """Whether a process has ended, or ends within that time; one that nobody has waited for yet has."""

    def ended():
        try:
            return ") Z " in Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True

    return eventually(ended, seconds)


def remove_temporary_folder(*, progress):
    Path(tempfile.gettempdir(), "a file").write_text("x")
    shutil.rmtree(tempfile.gettempdir())
    return tempfile.gettempdir()


def remove_all_temporary_folders(*, progress):
    shutil.rmtree(Path(tempfile.gettempdir()).parent)


def fill_temporary_folder(end, *, progress):
    Path(tempfile.gettempdir(), "a file").write_text("x")
    Path(os.environ["TMPDIR"], "another file").write_text("x")
    print(f"folder {tempfile.gettempdir()}", flush=True)
    if end is not None:
        os.kill(os.getpid(), end)
    return tempfile.gettempdir()


def signal_above(number, *, progress):
    os.kill(os.getppid(), number)
    time.sleep(60)


class Stopping(Forking):
    """Stops the process above it."""

    def stop_above(self, number):
        os.kill(os.getppid(), number)


class Counter:
    def __init__(self, start):
        if start < 0:
            raise BuildError("counts from zero")
        self.value = start

    def add(self, number):
        self.value += number
        return self.value

    def measure(self, data):
        return len(data)


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
    with pytest.raises(WorkerError, match=r"^KeyError: 'lost' \(at test_child_process.py:\d+\)$"):
        call(fail, KeyError, "lost", limits=QUICK)


def test_an_error_without_a_text_that_can_be_written_is_an_error():
    """Half a character, which no record can hold, and streams that the model has closed."""
    with pytest.raises(WorkerError, match=r"^ValueError: half \\udcff \(at"):
        call(fail, ValueError, "half \udcff", limits=QUICK)
    with pytest.raises(BuildError, match=r"^half \\udcff$"):
        call(fail, BuildError, "half \udcff", limits=QUICK)
    with pytest.raises(WorkerError, match=r"^ValueError: without a stream \(at"):
        call(close_streams, limits=QUICK)


def test_a_child_that_forks_answers_once():
    """What code of a model forks may come back, too: its answer would be that to the next request."""
    with Worker(child.Function, come_back_twice, limits=QUICK) as worker:
        worker.ready()
        assert [worker.ask("run", ()) for _ in range(2)] == [(1, worker.pid)] * 2


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (kill_self, r"ended by SIGKILL \(most often: the system ran out of memory\); its last words: about to die"),
        (segfault, r"ended by SIGSEGV; its last words: Fatal Python error: Segmentation fault File .*ctypes"),
        (leave, r"ended with exit code 3; its last words: goodbye"),
        (leave_well, r"ended with exit code 0; its last words: and here"),
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


def test_any_allocator_that_runs_out_of_memory_is_a_message():
    """An error of any type that says so counts, with the texts of ``errors.out_of_memory``: "bad allocation" is how
    ONNX Runtime's C++ says it."""
    with pytest.raises(WorkerError, match=r"ran out of memory \(bad allocation\); free some"):
        call(fail_to_allocate, "bad allocation", limits=Limits(seconds=60))


@pytest.mark.parametrize(
    ("function", "args"), [(kill_self, ()), (fail_to_allocate, ("std::bad_alloc",)), (throw_bad_alloc, ())]
)
def test_memory_that_ran_out_is_an_error_of_its_own(function, args):
    """What the system kills, what says so, and C++ that ends the process with it: such work may be tried once more."""
    with pytest.raises(MemoryExhausted):
        call(function, *args, limits=QUICK)


def test_the_most_memory_of_earlier_calls_is_known():
    """Of those of the same function, also of one that was killed."""
    assert peak_bytes(take_memory) is None
    with pytest.raises(MemoryExhausted):
        call(take_memory, 300 * 2**20, limits=QUICK)
    most = peak_bytes(take_memory)
    assert 300 * 2**20 < most < 3 * 2**30
    with pytest.raises(MemoryExhausted):
        call(take_memory, 2**20, limits=QUICK)
    assert peak_bytes(take_memory) == most
    call(environment, [], limits=QUICK)
    assert peak_bytes(environment) > 2**20, "one that ended well had some, too"


FATAL = "Fatal Python error: Aborted"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", ""),
        ("\n \n", ""),
        ("first\nlast\n\n", "; its last words: last"),
        ("x" * 400, f"; its last words: {'x' * 300}"),
        (
            f"before\n{FATAL}\n\nThread 1:\n  File a.py, line 1\n  File b.py\n\nExtension modules: c",
            "File a.py, line 1",
        ),
        (f"Fatal Python error: first\n  File a.py\n{FATAL}\n  File b.py\n", "File b.py"),
        (f"  File a.py\n{FATAL}\nExtension modules: c\n", ""),
        (f"{FATAL}\n  File {'y' * 400}\n", f"File {'y' * 400}"),
    ],
)
def test_the_last_words_of_a_fatal_error_are_where_it_was(log, words):
    """Not the list of modules behind it; of anything else the last line, of either no more than a line holds."""
    if FATAL in log:
        words = f"; its last words: {FATAL} {words}".rstrip()[:300]
    assert child_process._last_words(log) == words


@pytest.mark.parametrize(("free", "rss", "room"), [(1000, 100, 5), (999, 100, 4), (199, 100, 0), (1000, 0, 0)])
def test_as_many_more_fit_as_half_of_what_is_free_holds(monkeypatch, free, rss, room):
    """Whole ones; of one that tells no size none."""
    monkeypatch.setattr(child_process, "count_free_bytes", lambda: free)
    of_process = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=rss))
    monkeypatch.setattr(psutil, "Process", lambda pid: of_process)
    assert Worker.count_room(SimpleNamespace(pid=7)) == room


def test_none_fits_beside_a_process_that_has_ended(monkeypatch):
    """Nothing is known of it."""

    def end(pid):
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(psutil, "Process", end)
    assert Worker.count_room(SimpleNamespace(pid=7)) == 0


def test_children_inherit_one_thread_and_the_parent_keeps_its_environment(monkeypatch):
    """OMP_NUM_THREADS and its kin are set for children only, forked ones and fresh ones."""
    for name in CHILD_VARIABLES:
        monkeypatch.setenv(name, "ours")
    assert call(environment, list(CHILD_VARIABLES), limits=QUICK) == CHILD_VARIABLES
    with Worker(child.Function, environment, limits=QUICK, fresh=True) as worker:
        worker.ready()
        assert worker.ask("run", (list(CHILD_VARIABLES),)) == CHILD_VARIABLES
    assert {os.environ[name] for name in CHILD_VARIABLES} == {"ours"}


def test_no_child_can_import_what_sends_reports():
    """A library that would is as if its sender were not installed, in forked children and in fresh ones."""
    assert (call(is_importable, "json", limits=QUICK), call(is_importable, "openvino_telemetry", limits=QUICK)) == (
        True,
        False,
    )
    with Worker(child.Function, is_importable, limits=QUICK, fresh=True) as worker:
        worker.ready()
        assert not worker.ask("run", ("openvino_telemetry",))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which Linux has")
def test_a_child_sets_itself_up_before_it_is_asked():
    """Ctrl-C is its parent's, it is the first to go where memory ends, and it has its own variables; what it froze no
    collector looks at again."""
    variables = {"QBENCH_OF_ONE_CHILD": "1"}
    with Worker(child.Function, look_at_oneself, limits=QUICK, environment=variables, imports=("colorsys",)) as worker:
        worker.ready()
        answer = worker.ask("run", ())
    assert answer == {
        "imported": True,
        "ignores Ctrl-C": True,
        "is killed first": "1000\n",
        "variable": "1",
        "collector": (False, True, True),
        "ends of its log": 2,
    }


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


def test_closing_ends_the_child():
    """After the context nothing of the child is left."""
    call(double, 21, limits=QUICK)  # what is opened once is open
    before = len([*list_open_files()])
    with Worker(Counter, 0, limits=QUICK) as worker:
        worker.ready()
        pid = worker.pid
        assert worker in child_process._alive
    assert not Path(f"/proc/{pid}").exists()
    assert worker not in child_process._alive
    del worker
    assert len([*list_open_files()]) == before


def test_a_guard_that_does_not_end_is_killed_with_what_is_below_it(monkeypatch):
    """Asked first, and waited for; one that has ended is left alone."""
    done = []
    monkeypatch.setattr("qbench.process.reaper.descendants", lambda pid: [pid + 1, pid + 2])
    monkeypatch.setattr("qbench.process.reaper.kill", done.append)
    process = SimpleNamespace(pid=7, join=lambda timeout: done.append(f"joined {timeout:g}"))
    guard = SimpleNamespace(
        end=lambda: done.append("end"), _await_end=lambda seconds: done.append(seconds), _process=process
    )
    Worker._kill(SimpleNamespace(**vars(guard), _ended=False))
    assert done == ["end", 5.0, 8, 9, 7, "joined 5"]
    done.clear()
    Worker._kill(SimpleNamespace(**vars(guard), _ended=True))
    assert done == ["joined 5"]


def test_a_long_question_is_heard():
    """It takes as many parts as the pipe takes at once."""
    with Worker(Counter, 0, limits=QUICK) as worker:
        worker.ready()
        assert worker.ask("measure", bytes(32 * 2**20)) == 32 * 2**20


def test_a_worker_answers_one_question_at_a_time():
    """What comes next would be the answer to the first."""
    with Worker(Counter, 0, limits=QUICK) as worker:
        worker.ready()
        worker._send(("add", (1,)))
        with pytest.raises(WorkerError, match="^worker still works on what it was asked before$"):
            worker.ask("add", 1)
        assert worker._receive(None) == 1
        assert worker.ask("add", 1) == 2


def test_a_request_has_ten_minutes_and_what_memory_is_free():
    """Where nothing else is asked for; and a child comes from the server, which is ready sooner."""
    assert (Limits().seconds, Limits().memory_bytes) == (600.0, None)
    with Worker(Counter, 0, limits=Limits()) as worker:
        assert type(worker._process).__name__ == "ForkServerProcess"


def test_of_what_a_child_writes_only_the_end_is_kept():
    """A child that writes for ever fills neither the disk nor the memory of qbench."""
    with Worker(Chatty, limits=QUICK) as worker:
        worker.ready()
        assert worker.ask("write", 16 * 2**20) == 16 * 2**20
        assert len(worker._log) <= 2**18
        assert worker._log.endswith(b"x\n")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"garbage", "no answer of qbench's .begins with b'garbage.*must not write to file descriptors"),
        (pipe.MAGIC + b"\xff" * 8, r"no answer of qbench's .has 1\.84e\+19 bytes"),
        (pipe.HEADER.pack(pipe.MAGIC, 3) + b"abc", "no answer of qbench's .cannot be read .UnpicklingError"),
        (pipe.pack(3), "no answer of qbench's"),
        (pipe.pack(("result",)), "no answer of qbench's"),
    ],
)
def test_garbage_on_the_pipe_is_an_error_at_once(data, words):
    """Whatever a child writes into qbench's own pipe, nobody waits for what it seems to announce."""
    with pytest.raises(WorkerError, match=words):
        call(write_into_pipes, data, 0.0, limits=QUICK)


@pytest.mark.parametrize("begun", [b"", pipe.MAGIC, pipe.HEADER.pack(pipe.MAGIC, 1000) + b"half"])
def test_the_limit_holds_inside_a_message(begun):
    """A child that stops while it sends is ended like one that sends nothing."""
    with pytest.raises(WorkerError, match=r"took longer than 0\.5 s and was stopped"):
        call(write_into_pipes, begun, 60.0, limits=Limits(seconds=0.5))


def test_the_limit_holds_while_a_child_does_not_listen():
    """A child that is stopped before it has read what it is asked is ended, too."""
    with Worker(Counter, 0, limits=QUICK) as worker:
        worker.ready()
        os.kill(worker.pid, signal.SIGSTOP)
        worker._limits = Limits(seconds=0.5)
        with pytest.raises(WorkerError, match=r"took longer than 0\.5 s"):
            worker.ask("add", bytes(32 * 2**20))


@pytest.mark.parametrize("fresh", [False, True])
def test_the_exit_code_is_told_though_a_fork_holds_the_pipe(fresh):
    """A child that leaves while something that it forked lives on is dead, not slow."""
    with Worker(Forking, limits=QUICK, fresh=fresh) as worker:
        worker.ready()
        with pytest.raises(WorkerError, match=r"ended with exit code 7; its last words: forked \d+"):
            worker.ask("leave")
    assert all(gone(int(pid)) for pid in re.findall(rb"forked (\d+)", worker._log))


def test_a_closed_pipe_is_not_a_crash(monkeypatch):
    """A model that closes every file descriptor ends itself, and the message does not blame the memory."""
    monkeypatch.setattr("qbench.process.child_process._END_SECONDS", 0.2)
    with pytest.raises(WorkerError, match="closed its connection to qbench and was stopped"):
        call(close_all, limits=QUICK)


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc, which Linux has")
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("way", ["fork", "session", "twice", "stranger"])
def test_what_a_child_forked_ends_with_it(way, fresh):
    """Also at a good end, also in a session of its own, also where its parent has gone before it."""
    with Worker(Forking, limits=QUICK, fresh=fresh) as worker:
        worker.ready()
        pid = worker.ask("fork", way)
        assert not gone(pid, seconds=0.0)
    assert gone(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans to the guard")
@pytest.mark.parametrize("fresh", [False, True])
def test_what_a_child_forked_ends_with_its_crash(fresh):
    """Also where nothing but the guard leads to it: no session, no environment, no parent."""
    with Worker(Forking, limits=QUICK, fresh=fresh) as worker:
        worker.ready()
        with pytest.raises(WorkerError, match="ended with exit code 7"):
            worker.ask("leave", "stranger")
    (pid,) = re.findall(rb"forked (\d+)", worker._log)
    assert gone(int(pid), seconds=0.0)


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc, which Linux has")
@pytest.mark.parametrize(
    ("way", "end"),
    [
        ("fork", signal.SIGKILL),
        ("session", signal.SIGKILL),
        ("twice", signal.SIGKILL),
        ("twice", signal.SIGTERM),
        ("twice", signal.SIGINT),
        ("twice", None),
        ("stranger", signal.SIGKILL),
        ("stranger", signal.SIGTERM),
        ("stranger", None),
    ],
)
def test_what_a_child_forked_ends_with_qbench(way, end, tmp_path):
    """However qbench ends, no process below it lives on, and nothing is left in the temporary folder."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent)}
    program = f"import test_child_process; test_child_process.qbench_with_forks({way!r}, {end is not None})"
    running = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment)
    pids = [int(pid) for pid in running.stdout.readline().split()]
    assert len(pids) == 4
    if end is not None:
        assert not any(gone(pid, seconds=0.0) for pid in pids)
        running.send_signal(end)
    running.stdout.close()
    running.wait(30)
    assert all(gone(pid) for pid in pids)
    assert eventually(lambda: not list(tmp_path.iterdir()))


def test_an_interrupt_ends_what_children_forked():
    """Ctrl-C kills every child with its group at once."""
    with Worker(Forking, limits=QUICK) as worker:
        worker.ready()
        pid = worker.ask("fork", "fork")
        end_all()
        assert gone(pid)
        assert gone(worker.pid)


def test_a_guard_that_has_ended_is_sent_nothing(monkeypatch):
    """Its number may be another process's by now, also before qbench has read what it told last."""
    worker = Worker(child.Function, double, limits=QUICK)
    worker.ready()
    os.kill(worker.pid, signal.SIGKILL)
    assert multiprocessing.connection.wait([worker._process.sentinel], 60)
    sent = []
    monkeypatch.setattr("qbench.process.reaper.kill", lambda *signals: sent.append(signals))
    worker.end()
    assert sent == []
    monkeypatch.undo()
    worker.close()


def test_a_system_without_room_for_processes_is_a_message(monkeypatch):
    """Too many processes, files or too little memory: one case fails with the reason."""

    def refuse(self):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", refuse)
    with pytest.raises(WorkerError, match="a child process cannot be started: .*Resource temporarily unavailable"):
        Worker(Counter, 0, limits=QUICK)


def test_a_fresh_interpreter_serves_too():
    """``fresh=True`` starts a new interpreter, with the same variables."""
    with Worker(Counter, 5, limits=QUICK, fresh=True) as worker:
        worker.ready()
        assert worker.ask("add", 1) == 6


def test_a_temporary_folder_with_too_long_a_path_is_named(tmp_path):
    """A socket's path is limited by the system, whatever TMPDIR says: the message says which folder, and what to do."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    program = "from qbench.process.child_process import Limits, Worker\nimport test_child_process\n"
    program += "Worker(test_child_process.Forking, limits=Limits()).ready()"
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path(__file__).parent)}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "a child process cannot be started: the path of the temporary folder" in ended.stderr
    assert "set TMPDIR to a shorter one" in ended.stderr


def test_a_child_has_a_temporary_folder_of_its_own():
    """What it removes is nobody else's; the next child starts as ever, and none has what another left there."""
    with Worker(Counter, 0, limits=QUICK) as worker:
        worker.ready()
        first = call(remove_temporary_folder, limits=QUICK)
        second = call(remove_temporary_folder, limits=QUICK)
        assert worker.ask("add", 1) == 1
    assert first != second


@pytest.mark.parametrize("fresh", [False, True])
def test_its_temporary_folder_ends_with_a_child(fresh):
    """Also where it was killed."""
    with Worker(child.Function, fill_temporary_folder, limits=QUICK, fresh=fresh) as worker:
        worker.ready()
        folder = worker.ask("run", (None,))
        assert Path(folder, "another file").exists()
    assert not Path(folder).exists()
    with Worker(child.Function, fill_temporary_folder, limits=QUICK, fresh=fresh) as worker:
        worker.ready()
        with pytest.raises(WorkerError, match="SIGKILL"):
            worker.ask("run", (signal.SIGKILL,))
    (folder,) = re.findall(rb"folder (\S+)", worker._log)
    assert not Path(os.fsdecode(folder)).exists()


def test_the_server_of_children_is_started_anew():
    """Where a model has removed its socket, or ended it: those that it had started live on, and others start."""
    with Worker(Counter, 0, limits=QUICK) as worker:
        worker.ready()
        call(remove_all_temporary_folders, limits=QUICK)
        assert call(double, 21, limits=QUICK) == 42
        assert worker.ask("add", 1) == 1
        server = multiprocessing.forkserver._forkserver._forkserver_pid
        os.kill(server, signal.SIGKILL)
        assert eventually(lambda: gone(server))
        assert call(double, 21, limits=QUICK) == 42
        assert worker.ask("add", 1) == 2
        pid = worker.pid
    assert gone(pid, seconds=0.0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_child_that_signals_its_parent_ends_itself(number, fresh):
    """The process above a model is its guard: nobody else's child ends, and the reason says what the model did."""
    with (
        Worker(Counter, 0, limits=QUICK) as neighbour,
        Worker(child.Function, signal_above, limits=QUICK, fresh=fresh) as worker,
    ):
        neighbour.ready()
        worker.ready()
        with pytest.raises(WorkerError, match="ended with the one above it.*must not signal processes"):
            worker.ask("run", (number,))
        assert neighbour.ask("add", 1) == 1
    assert gone(worker.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_guard_hears_no_signal_of_a_terminal(number):
    """Those are qbench's to handle."""
    with Worker(Stopping, limits=QUICK) as worker:
        worker.ready()
        worker.ask("stop_above", number)
        assert worker.ask("fork", "fork") > 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans to the guard")
def test_a_guard_that_is_stopped_does_its_work():
    """A model that stops the process above it gains nothing: what it forked ends with it."""
    with Worker(Stopping, limits=QUICK) as worker:
        worker.ready()
        pid = worker.ask("fork", "stranger")
        worker.ask("stop_above", signal.SIGSTOP)
    assert gone(pid, seconds=0.0)
