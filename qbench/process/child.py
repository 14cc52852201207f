"""Inside a child process: what it does first, how it answers, and what its errors become on the way home."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from qbench.errors import CaseError, CaseSkipped, MemoryExhausted, QbenchError, WorkerError, out_of_memory
from qbench.files.full_disk import is_full
from qbench.process import usage_reports
from qbench.process.free_memory import count_free_bytes
from qbench.process.guard import fork_under_guard
from qbench.process.imports import import_modules
from qbench.process.pipe import Inbox, pack, receive, send
from qbench.progress.callback import Progress

_sending = threading.Lock()


def serve(
    connection: Connection,
    log: Connection,
    report: Connection,
    folder: Path,
    memory_bytes: int | None,
    cores: tuple[int, ...] | None,
    imports: tuple[str, ...],
    environment: dict[str, str],
) -> None:
    """The child's life: set itself up, make the session, answer requests until the pipe closes.

    It leads a session, so that whatever it forks can be ended with it, below a guard that hears of its end. ``folder``
    is where its temporary files are, and nobody else's.

    ``imports`` are imported on any core, before it is pinned to ``cores``: several starting children then share all
    cores, and what is pinned (thread pools, memory) does not exist yet.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    fork_under_guard(report, folder, (connection, log))
    _use_folder(folder)
    os.environ.update(environment)
    usage_reports.turn_off()
    _quiet(log)
    _offer_to_the_oom_killer()
    _limit_memory(memory_bytes)
    import_modules(imports)
    if cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    session: Any = None
    inbox, answering = Inbox(), os.getpid()
    while True:
        try:
            message = receive(connection.fileno(), inbox)
        except (EOFError, ConnectionError):
            return
        try:
            if message[0] == "start":
                _, factory, args = message
                session = factory(*args)
                value = None
            else:
                method, args = message
                value = _invoke(session, method, args, connection)
            answer = pack(("result", value))
        except BaseException as error:  # a user's file may call sys.exit(), too
            answer = pack(("error", _portable(error)))
        if os.getpid() != answering:  # code of the model has forked, and comes back twice
            os._exit(1)
        try:
            _send(connection, answer)
        except ConnectionError:
            return


def _invoke(session: Any, method: str, args: tuple[Any, ...], connection: Connection) -> Any:
    function = getattr(session, method)
    if isinstance(session, Function):
        return function(*args, progress=lambda text, share: _send(connection, pack(("progress", (text, share)))))
    return function(*args)


def _send(connection: Connection, message: bytes) -> None:
    with _sending:  # progress can come from any thread
        send(connection.fileno(), message)


def _portable(error: BaseException) -> QbenchError:
    """The error in a form that travels: qbench's own as they are, any other as one line with its place."""
    if isinstance(error, CaseError | CaseSkipped):
        return type(error)(_writable(str(error)))
    if isinstance(error, QbenchError):
        return CaseError(_writable(str(error)))
    if out_of_memory(error):
        return MemoryExhausted(
            f"ran out of memory ({_first_line(error)}); free some, raise limits.memory_bytes, "
            "or ask for fewer samples or a smaller batch"
        )
    if not isinstance(error, OSError) and is_full(temporary := Path(tempfile.gettempdir())):
        return WorkerError(f"the disk of {temporary} is full: make room, or set TMPDIR ({_first_line(error)})")
    frames = traceback.extract_tb(error.__traceback__)
    place = f" (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return WorkerError(f"{type(error).__name__}: {_first_line(error)}{place}")


_INTERPRETER = "The following operation failed in the TorchScript interpreter"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return "no message"
    # What TorchScript says first is the same of every error; the cause stands last.
    cause = lines[-1] if lines[0].startswith(_INTERPRETER) else lines[0]
    return _writable(cause[:500])


def _writable(text: str) -> str:
    """The text as UTF-8, which a record is, can hold it: half characters are spelt out."""
    return text.encode(errors="backslashreplace").decode()


def _quiet(log: Connection) -> None:
    """Libraries write to stdout and stderr as they like: qbench reads it, and its end tells why a child died."""
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    log.close()
    # A text that is none (half of a pair, which a file name or a user's message can hold) must not end the child.
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False, errors="backslashreplace")
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False, errors="backslashreplace")
    faulthandler.enable()


def _use_folder(folder: Path) -> None:
    """Temporary files of this process and of what it starts lie there, those of qbench's own children, too."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    multiprocessing.current_process()._config["tempdir"] = str(folder)  # type: ignore[attr-defined]


def _offer_to_the_oom_killer() -> None:
    with contextlib.suppress(OSError):  # not Linux, or not allowed: the kernel then chooses by size
        Path("/proc/self/oom_score_adj").write_text("1000")


def _limit_memory(memory_bytes: int | None) -> None:
    """Private memory is limited, so that running out is an error message and not a killed machine."""
    if sys.platform != "linux":
        return
    import resource

    limit = memory_bytes if memory_bytes is not None else int(count_free_bytes() * 0.9)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


class Function:
    """The session of a one-shot call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def run(self, args: tuple[Any, ...], *, progress: Progress) -> Any:
        """What the function returns."""
        return self._function(*args, progress=progress)


def freeze_garbage_collector() -> None:
    """No collection inside a timed region; what exists is never scanned again."""
    gc.collect()
    gc.freeze()
    gc.disable()
