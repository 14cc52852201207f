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
import signal
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench import child
from qbench.errors import WorkerError

# Read once by OpenMP, MKL and OpenBLAS when they are imported; more threads are asked for by their own calls later.
THREAD_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",  # an idle worker must not spin on the core of the one that is measured
}
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
    up and imports ``imports``, beside other starting children. ``ask("name", ...)`` calls a method of the session.
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
        name: str = "worker",
    ) -> None:
        self._limits = limits
        self._name = name
        descriptor, log = tempfile.mkstemp(prefix="qbench-", suffix=".log")
        os.close(descriptor)
        self._log = Path(log)
        context: Any = multiprocessing.get_context("spawn" if fresh else "forkserver")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=child.serve, args=(theirs, log, limits.memory_bytes, cores, fresh, imports), name=name, daemon=True
        )
        with _starting, _environment(THREAD_VARIABLES), _without_main():
            if not fresh:
                multiprocessing.set_forkserver_preload(["qbench.preload"])
            self._process.start()
        theirs.close()
        _alive.add(self)
        self._waiting = False
        self._session = (factory, args)

    def ready(self) -> None:
        """Has the session made and waits for it; raises what making it raised."""
        self._send(("start", *self._session))
        self._receive(None)

    def ask(self, method: str, *args: Any, progress: Callable[[str, float], None] | None = None) -> Any:
        """What the session's method returns; raises ``CaseError`` (or ``CaseSkipped``) with the reason."""
        self._send((method, args))
        return self._receive(progress)

    def close(self) -> None:
        """Ends the child, kindly if it listens, and removes its log."""
        with contextlib.suppress(OSError):
            self._connection.close()
        self._process.join(timeout=1.0)
        self._kill()
        self._log.unlink(missing_ok=True)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process number of the child."""
        pid: int | None = self._process.pid
        return pid

    def end(self) -> None:
        """Kills the child at once; whoever waits for it hears of its death."""
        self._process.kill()

    def _send(self, message: Any) -> None:
        if self._waiting:
            raise WorkerError(f"{self._name} still works on what it was asked before")
        try:
            self._connection.send(message)
            self._waiting = True
        except (BrokenPipeError, ConnectionError) as error:
            raise self._died() from error

    def _receive(self, progress: Callable[[str, float], None] | None) -> Any:
        deadline = time.monotonic() + self._limits.seconds
        while True:
            try:
                if not self._connection.poll(max(0.0, deadline - time.monotonic())):
                    self._kill()
                    raise WorkerError(
                        f"took longer than {self._limits.seconds:g} s and was stopped; "
                        "raise limits.stage_seconds if it needs more"
                    )
                kind, value = self._connection.recv()
            except (EOFError, ConnectionError) as error:
                raise self._died() from error
            if kind == "progress":
                if progress is not None:
                    progress(*value)
                continue
            self._waiting = False
            if kind == "error":
                raise value
            return value

    def _died(self) -> WorkerError:
        self._process.join(timeout=5.0)
        code = self._process.exitcode
        said = _last_words(self._log)
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            cause = " (most often: the system ran out of memory)" if name == "SIGKILL" else ""
            return WorkerError(f"the process was ended by {name}{cause}{said}")
        return WorkerError(f"the process ended with exit code {code}{said}")

    def _kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
            self._process.join(timeout=5.0)


def _last_words(log: Path) -> str:
    """What a dead child wrote last; of a fatal error where in Python it was, not the list of modules behind it."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
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
) -> Any:
    """What ``function(*args, progress=...)`` returns when it runs in a child of its own."""
    with Worker(child.Function, function, limits=limits, cores=cores, name=function.__name__) as worker:
        worker.ready()
        return worker.ask("run", args, progress=progress)


def end_all() -> None:
    """Kills every living child of this process; for an interrupt, after which nobody wants their answers."""
    for worker in list(_alive):
        worker.end()


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """The variables as a starting child inherits them, for this moment only."""
    saved = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Children must not run the caller's script again, as multiprocessing would have them do."""
    main = sys.modules["__main__"]
    saved = {name: getattr(main, name) for name in ("__spec__", "__file__") if hasattr(main, name)}
    main.__spec__ = None
    if "__file__" in saved:
        del main.__file__
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(main, name, value)
