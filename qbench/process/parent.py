"""Child processes: start one, ask it things, time it out, learn why it died.

Everything that holds process-global state (the quantized engine, thread pools, the allocator) lives in a child.
A child is forked from a server that has imported the heavy libraries while no thread pool had started
(``fresh=False``: ready in 18 ms with 7 MB of its own; medians of 9 on 2 cores, torch and onnxruntime loaded), or is a
fresh interpreter (``fresh=True``: 0.93 s and 151 MB; one memory layout is one sample).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import selectors
import signal
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from qbench.errors import WorkerError
from qbench.process import child, inheritance, pipe, reaper
from qbench.process.offspring import offspring

FLOAT_VARIABLES = ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
# Of every child. Read once by OpenMP, MKL and OpenBLAS when they are imported (more threads are asked for by their own
# calls later), and by oneDNN: where the user's own setting of its math mode were left, torch's convolutions and
# OpenVINO would compute fp32 in bfloat16 on a CPU that can (off by 0.17 of 60), and OpenVINO would still say f32.
CHILD_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",  # an idle worker must not spin on the core of the one that is measured
    **dict.fromkeys(FLOAT_VARIABLES, "STRICT"),
}
_CHUNK = 1 << 16
_LOG_BYTES = 1 << 18  # kept of what a child writes: a fatal error lists every thread and every module
_LOOK_SECONDS = 1.0  # between two looks at a process whose end is not told, since what it forked holds its pipes
_END_SECONDS = 5.0  # for a process that closed its pipe to end, before it is killed
_starting = threading.Lock()
_alive: weakref.WeakSet[Worker] = weakref.WeakSet()


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one request to a child may take: wall seconds, and bytes of private memory (None: what is free)."""

    seconds: float = 600.0
    memory_bytes: int | None = None


class Worker:
    """A child process that holds one session object and answers one request at a time.

    ``factory(*args)`` makes the session inside the child, once ``ready`` asks for it: until then the child sets itself
    up and imports ``imports``, beside other starting children. ``environment`` are variables that it has from then on:
    libraries read theirs when they are first used, also those that the server has imported. ``ask("name", ...)`` calls
    a method of the session.
    A context manager: leaving it ends the child.
    """

    def __init__(
        self,
        factory: Callable[..., Any],
        *args: Any,
        limits: Limits,
        cores: tuple[int, ...] | None = None,
        fresh: bool = False,
        imports: tuple[str, ...] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
        name: str = "worker",
    ) -> None:
        self._limits = limits
        self._name = name
        self._log = bytearray()
        self._inbox = pipe.Inbox()
        self._waiting = False
        self._session = (factory, args)
        context: Any = multiprocessing.get_context("spawn" if fresh else "forkserver")
        self._connection, theirs = context.Pipe()
        self._output, their_output = context.Pipe(duplex=False)
        variables = inheritance.restore_path() | dict(environment)
        self._process = context.Process(
            target=child.serve,
            args=(theirs, their_output, limits.memory_bytes, cores, fresh, imports, variables),
            name=name,
            daemon=True,
        )
        self._offspring = offspring()
        try:
            with _starting, inheritance.pass_on(CHILD_VARIABLES | self._offspring.environment()):
                if not fresh:
                    multiprocessing.set_forkserver_preload(["qbench.process.preload"])
                self._process.start()
                _alive.add(self)
        except (OSError, EOFError) as error:  # no more processes, no more files, or no memory for another one
            raise WorkerError(f"a child process cannot be started: {_why_not(error)}") from error
        finally:
            theirs.close()
            their_output.close()
        self._offspring.begins(self.pid)
        self._selector = selectors.DefaultSelector()
        for end in (self._connection, self._output):
            os.set_blocking(end.fileno(), False)
            self._selector.register(end, selectors.EVENT_READ)
        self._selector.register(self._process.sentinel, selectors.EVENT_READ)

    def ready(self) -> None:
        """Has the session made and waits for it; raises what making it raised."""
        self._send(("start", *self._session))
        self._receive(None)

    def ask(self, method: str, *args: Any, progress: Callable[[str, float], None] | None = None) -> Any:
        """What the session's method returns; raises ``CaseError`` (or ``CaseSkipped``) with the reason."""
        self._send((method, args))
        return self._receive(progress)

    def count_room(self) -> int:
        """How many more such processes fit in half of the memory that is free."""
        import psutil

        try:
            return int(psutil.virtual_memory().available // (2 * psutil.Process(self.pid).memory_info().rss))
        except (psutil.Error, ZeroDivisionError):
            return 0

    def close(self) -> None:
        """Ends the child, kindly if it listens, and every process below it."""
        below = reaper.descendants(self.pid) if self.pid is not None else []
        with contextlib.suppress(OSError):
            self._connection.close()
        self._process.join(timeout=1.0)
        self._kill(below)
        self._output.close()
        self._selector.close()
        self._offspring.ended(self.pid)
        with _starting:
            _alive.discard(self)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process number of the child, and of its group."""
        pid: int | None = self._process.pid
        return pid

    def end(self) -> None:
        """Kills the child and what it forked at once; whoever waits for it hears of its death."""
        if self.pid is None:
            return
        below = reaper.descendants(self.pid)
        if hasattr(os, "killpg"):
            reaper.kill_group(self.pid)
        self._process.kill()  # also one that does not lead its group yet
        for pid in below:
            reaper.kill(pid)

    def _send(self, message: Any) -> None:
        if self._waiting:
            raise WorkerError(f"{self._name} still works on what it was asked before")
        deadline = time.monotonic() + self._limits.seconds
        rest = memoryview(pipe.pack(message))
        self._waiting = True
        self._selector.modify(self._connection, selectors.EVENT_WRITE)
        try:
            while rest:
                self._wait(deadline, selectors.EVENT_WRITE)
                with contextlib.suppress(BlockingIOError):
                    rest = rest[os.write(self._connection.fileno(), rest[:_CHUNK]) :]
        except ConnectionError as error:
            raise self._died() from error
        finally:
            self._selector.modify(self._connection, selectors.EVENT_READ)

    def _receive(self, progress: Callable[[str, float], None] | None) -> Any:
        """The answer to what was asked; one deadline for all of it, however it comes."""
        deadline = time.monotonic() + self._limits.seconds
        while True:
            try:
                kind, value = self._message(deadline)
            except pipe.NoMessage as error:
                self._kill()
                raise WorkerError(
                    f"what it sent is no answer of qbench's ({error}), so it was stopped; code of the model must not "
                    "write to file descriptors that it has not opened"
                ) from error
            if kind == "progress":
                if progress is not None:
                    progress(*value)
                continue
            self._waiting = False
            if kind == "error":
                raise value
            return value

    def _message(self, deadline: float) -> tuple[str, Any]:
        while (message := self._inbox.take()) is None:
            self._wait(deadline, selectors.EVENT_READ)
            try:
                data = os.read(self._connection.fileno(), pipe.CHUNK)
            except BlockingIOError:
                continue
            except ConnectionError as error:
                raise self._died() from error
            if not data:
                raise self._died()
            self._inbox.add(data)
        answer = message[0]
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise pipe.NoMessage(f"is {type(answer).__name__}, a pair was expected")
        return answer

    def _wait(self, deadline: float, event: int) -> None:
        """Returns once the pipe can be read or written; keeps the child's output meanwhile. Raises ``WorkerError`` for
        a child that died or that took too long."""
        ended = False
        while True:
            remaining = deadline - time.monotonic()
            events = {key.fileobj: mask for key, mask in self._selector.select(min(max(remaining, 0.0), _LOOK_SECONDS))}
            if self._output in events:
                self._read_output()
            if events.get(self._connection, 0) & event:
                return
            if ended:
                raise self._died()
            # One more look: what it sent before it ended is still to be read.
            ended = self._process.sentinel in events or not self._process.is_alive()
            if remaining <= 0 and not ended:
                self._kill()
                raise WorkerError(
                    f"took longer than {self._limits.seconds:g} s and was stopped; "
                    "raise limits.stage_seconds if it needs more"
                )

    def _read_output(self) -> None:
        """Takes what the child has written so far, and keeps the end of it."""
        try:
            while data := os.read(self._output.fileno(), _CHUNK):
                self._log += data
                del self._log[:-_LOG_BYTES]
                if len(data) < _CHUNK:
                    return
        except BlockingIOError:
            return
        with contextlib.suppress(KeyError):  # it closed it, or is gone
            self._selector.unregister(self._output)

    def _died(self) -> WorkerError:
        self._process.join(timeout=_END_SECONDS)
        code = self._process.exitcode
        self._kill()
        self._read_output()
        last_words = _last_words(self._log.decode(errors="replace"))
        if code is None:
            return WorkerError(f"the process closed its connection to qbench and was stopped{last_words}")
        if code < 0:
            name = signal.Signals(-code).name
            cause = " (most often: the system ran out of memory)" if name == "SIGKILL" else ""
            return WorkerError(f"the process was ended by {name}{cause}{last_words}")
        return WorkerError(f"the process ended with exit code {code}{last_words}")

    def _kill(self, below: Sequence[int] = ()) -> None:
        """Kills the child and what it forked, and waits until the child is gone."""
        self.end()
        for pid in below:
            reaper.kill(pid)
        self._process.join(timeout=5.0)


def _last_words(log: str) -> str:
    """What a dead child wrote last; of a fatal error where in Python it was, not the list of modules behind it."""
    lines = log.strip().splitlines()
    fatal = [i for i, line in enumerate(lines) if line.startswith("Fatal Python error")]
    if fatal:
        place = next((line.strip() for line in lines[fatal[-1] :] if line.strip().startswith("File ")), "")
        return f"; its last words: {lines[fatal[-1]]} {place}".rstrip()[:300]
    return f"; its last words: {lines[-1][:300]}" if lines else ""


def call(
    function: Callable[..., Any],
    *args: Any,
    limits: Limits,
    progress: Callable[[str, float], None] | None = None,
    cores: tuple[int, ...] | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """What ``function(*args, progress=...)`` returns when it runs in a child of its own."""
    name = function.__name__
    with Worker(child.Function, function, limits=limits, cores=cores, environment=environment, name=name) as worker:
        worker.ready()
        return worker.ask("run", args, progress=progress)


def end_all() -> None:
    """Kills every living child of this process; for an interrupt, after which nobody wants their answers."""
    with _starting:
        alive = list(_alive)
    for worker in alive:
        worker.end()


def _why_not(error: OSError | EOFError) -> str:
    """Why no process starts. Its socket lies in the temporary folder, and its path may have 107 characters."""
    if "AF_UNIX path too long" in str(error):
        return f"the path of the temporary folder, {tempfile.gettempdir()}, is too long; set TMPDIR to a shorter one"
    return str(error) or type(error).__name__
