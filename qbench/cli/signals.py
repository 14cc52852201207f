"""The signals that end a command: Ctrl-C, SIGTERM, and SIGHUP, which comes when its terminal is closed.

The first raises ``KeyboardInterrupt`` where the main thread is, so that every stage ends what it started, here and on
nodes, and keeps what is known. Those that come while it does are ignored: they would break off just that. A signal that
was ignored when qbench started (by nohup, or by a shell that starts it in the background) stays ignored.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_SHELL = 128  # a shell adds it to the number of the signal that ended a command
_AGAIN_SECONDS = 0.05  # after which an interrupt that was lost, or put off, is raised once more
# Raised between the taking of a lock and what would release it, an interrupt leaves the lock of all imports taken, and
# the next thread that imports waits for ever. A signal that comes while the main thread waits for that lock hits there.
_IMPORTING = "<frozen importlib"


class EndingSignals:
    """What has come of them; there is one for a process, as there is one handler for a signal."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._ignoring = False
        self._terminals: list[int] = []
        self._hook = sys.unraisablehook

    @property
    def exit_code(self) -> int:
        """Of a command that was interrupted: by the first signal, or by an interrupt that was no signal."""
        return _SHELL + (self._first or signal.SIGINT)

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Signals raise meanwhile; if one has, the rest of them is ignored until the process ends."""
        self._first, self._ignoring = None, False
        self._terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]
        handlers = {number: signal.getsignal(number) for number in ENDING}
        before = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
        for number in before:
            signal.signal(number, self._interrupt)
        self._hook, sys.unraisablehook = sys.unraisablehook, self._send_again
        try:
            yield
        finally:
            sys.unraisablehook = self._hook
            if self._first is None:
                for number, handler in before.items():
                    signal.signal(number, handler)
            self._ignoring = True

    def raise_again(self) -> None:
        """From here on a signal raises once more: what the first one had to end has ended."""
        self._ignoring = False

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._ignoring:
            return
        if frame is not None and frame.f_code.co_filename.startswith(_IMPORTING):
            _send_later(number)
            return
        self._first, self._ignoring = self._first or number, True
        self._leave_closed_terminals()
        raise KeyboardInterrupt

    def _send_again(self, lost: UnraisableHookArgs) -> None:
        """Python drops what is raised in a finalizer or a callback, of which an import has many: an interrupt, too."""
        if self._first is None or not issubclass(lost.exc_type, KeyboardInterrupt):
            self._hook(lost)
            return
        self._ignoring = False
        _send_later(self._first)

    def _leave_closed_terminals(self) -> None:
        """What is written to a terminal that was closed goes nowhere; each line would be an error otherwise."""
        for descriptor in self._terminals:
            if not os.isatty(descriptor):
                with Path(os.devnull).open("wb") as nowhere:
                    os.dup2(nowhere.fileno(), descriptor)


def _send_later(number: int) -> None:
    again = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


ending_signals = EndingSignals()
