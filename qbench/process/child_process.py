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
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import connection
from types import MappingProxyType
from typing import Any

from qbench.errors import MemoryExhausted, WorkerError, out_of_memory
from qbench.process import child, inheritance, pipe, reaper, start
from qbench.process.free_memory import count_free_bytes
from qbench.process.guard import NUMBER
from qbench.process.offspring import offspring
from qbench.progress.callback import Progress

_CHUNK = 1 << 16
_LOG_BYTES = 1 << 18  # kept of what a child writes: a fatal error lists every thread and every module
_END_SECONDS = 5.0  # for a process that closed its pipe to end, and for a guard to end what is below it
_starting = threading.Lock()
_peaks: dict[str, int] = {}
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
        self._report, their_report = context.Pipe(duplex=False)
        self._told: list[int] = []  # by the guard
        self._ended = False  # the guard
        variables = inheritance.restore_path() | dict(environment)
        far_ends = (theirs, their_output, their_report)
        try:
            with _starting:
                settings = (offspring().name_folder(), limits.memory_bytes, cores, imports, variables)
                self._process = context.Process(target=child.serve, args=(*far_ends, *settings), name=name, daemon=True)
                start.start(self._process, fresh=fresh)
                _alive.add(self)
        except (OSError, EOFError) as error:  # no more processes, no more files, or no memory for another one
            kind = MemoryExhausted if out_of_memory(error) else WorkerError
            raise kind(f"a child process cannot be started: {start.explain(error)}") from error
        finally:
            for end in far_ends:
                end.close()
        self._selector = selectors.DefaultSelector()
        for end in (self._connection, self._output, self._report):
            os.set_blocking(end.fileno(), False)
            self._selector.register(end, selectors.EVENT_READ)

    def ready(self) -> None:
        """Has the session made and waits for it; raises what making it raised."""
        self._send(("start", *self._session))
        self._receive(None)

    def ask(self, method: str, *args: Any, progress: Progress | None = None) -> Any:
        """What the session's method returns; raises ``CaseError`` (or ``CaseSkipped``) with the reason."""
        self._send((method, args))
        return self._receive(progress)

    def count_room(self) -> int:
        """How many more such processes fit in half of the memory that is free."""
        import psutil

        try:
            return int(count_free_bytes() // (2 * psutil.Process(self.pid).memory_info().rss))
        except (psutil.Error, ZeroDivisionError):
            return 0

    def close(self) -> None:
        """Ends the child, kindly if it listens, and every process below it."""
        with contextlib.suppress(OSError):
            self._connection.close()
        self._await_end(1.0)
        self._kill()
        self._output.close()
        self._report.close()
        self._selector.close()
        with _starting:
            _alive.discard(self)
            if len(self._told) > 2:
                _peaks[self._name] = max(self._told[2], _peaks.get(self._name, 0))

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process number of the child, and of its group; None before it is ready."""
        self._hear_guard()
        return self._told[0] if self._told else None

    def end(self) -> None:
        """Has the child and all below it ended at once; whoever waits for it hears of its death. A guard that has ended
        is sent nothing: its number may be another process's by now."""
        gone = self._ended or bool(connection.wait([self._process.sentinel], 0.0))
        if not gone and self._process.pid is not None:
            for number in (signal.SIGTERM, signal.SIGCONT):  # a guard that the model has stopped goes on, and hears it
                reaper.kill(self._process.pid, number)

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

    def _receive(self, progress: Progress | None) -> Any:
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
        while True:
            ended = self._ended
            remaining = deadline - time.monotonic()
            events = {key.fileobj: mask for key, mask in self._selector.select(max(remaining, 0.0))}
            if self._output in events:
                self._read_output()
            if self._report in events:
                self._hear_guard()
            if events.get(self._connection, 0) & event:
                return
            if ended:  # it was seen before this look: all that it sent has been read
                raise self._died()
            if remaining <= 0 and not self._ended:
                self._kill()
                raise WorkerError(
                    f"took longer than {self._limits.seconds:g} s and was stopped; "
                    "raise limits.stage_seconds if it needs more"
                )

    def _hear_guard(self) -> None:
        """Takes what the guard has told so far: the child's number, how it ended; its silence is its end."""
        while not self._ended:
            try:
                data = os.read(self._report.fileno(), NUMBER.size)
            except BlockingIOError:
                return
            if data:
                self._told += NUMBER.unpack(data)
            else:
                self._ended = True
                self._selector.unregister(self._report)

    def _await_end(self, seconds: float) -> None:
        """Waits until the guard has ended, or for so long."""
        deadline = time.monotonic() + seconds
        while not self._ended and (remaining := deadline - time.monotonic()) > 0:
            connection.wait([self._report], remaining)
            self._hear_guard()

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
        self._await_end(_END_SECONDS)
        alone = self._ended and len(self._told) < 2
        self._kill()
        self._read_output()
        log = self._log.decode(errors="replace")
        last_words = _last_words(log)
        if alone:
            return WorkerError(
                "the process was ended with the one above it, which is qbench's; code of the model must not signal "
                f"processes that it has not started{last_words}"
            )
        if len(self._told) < 2:
            return WorkerError(f"the process closed its connection to qbench and was stopped{last_words}")
        code = os.waitstatus_to_exitcode(self._told[1])
        if code >= 0:
            return WorkerError(f"the process ended with exit code {code}{last_words}")
        name, kind, cause = signal.Signals(-code).name, WorkerError, ""
        if name == "SIGKILL":
            kind, cause = MemoryExhausted, " (most often: the system ran out of memory)"
        elif out_of_memory(WorkerError(log)):  # C++ says so, and aborts
            kind, cause = MemoryExhausted, " (it ran out of memory)"
        return kind(f"the process was ended by {name}{cause}{last_words}")

    def _kill(self) -> None:
        """Has the child and all below it ended, and waits until they are gone; a guard that does not do it is killed,
        and what is below it."""
        if not self._ended:
            self.end()
            self._await_end(_END_SECONDS)
        if not self._ended and self._process.pid is not None:
            for pid in (*reaper.descendants(self._process.pid), self._process.pid):
                reaper.kill(pid)
        self._process.join(timeout=_END_SECONDS)


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
    progress: Progress | None = None,
    cores: tuple[int, ...] | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """What ``function(*args, progress=...)`` returns when it runs in a child of its own."""
    name = function.__name__
    with Worker(child.Function, function, limits=limits, cores=cores, environment=environment, name=name) as worker:
        worker.ready()
        return worker.ask("run", args, progress=progress)


def peak_bytes(function: Callable[..., Any]) -> int | None:
    """The most memory that any call of a function has had in a child of its own, with what it shares with others; None
    before the first one has ended."""
    return _peaks.get(function.__name__)


def end_all() -> None:
    """Kills every living child of this process; for an interrupt, after which nobody wants their answers."""
    with _starting:
        alive = list(_alive)
    for worker in alive:
        worker.end()
