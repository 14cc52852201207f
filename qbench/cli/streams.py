"""Standard streams that may be closed, full, or read by nobody any more."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.errors import QbenchError

if TYPE_CHECKING:
    from typing import TextIO

MOST_LETTERS = 16_000  # of one message: what a person may scroll through
_TAIL = 4_000  # of a longer one, since the advice stands at its end


class OutputLost(QbenchError):
    """What a command prints has nowhere to go: the disk is full, or the device gone."""


def open_closed_streams() -> None:
    """Opens what was closed (``>&-``) to nowhere: the next file would get its number, and what libraries print."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115  # a stream of the process


@contextlib.contextmanager
def guarded_streams() -> Iterator[None]:
    """Both outputs guarded while inside; leaving it writes out what they still hold."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = GuardedStream(before[0], 1), GuardedStream(before[1], 2, most=MOST_LETTERS)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class GuardedStream:
    """A text stream that goes nowhere once nobody reads it: ``qbench … | head -1`` ends as the command does, with its
    files and its exit code. Raises ``OutputLost`` for standard output that cannot be written; where messages go, there
    is nobody to tell. ``most``: letters of one text, beyond which its middle is left out."""

    def __init__(self, stream: TextIO, number: int, *, most: int | None = None) -> None:
        self.stream, self._number, self._most = stream, number, most

    def write(self, text: str) -> int:
        """Writes the text; returns the length of what was given."""
        with self._guard():
            self.stream.write(text if self._most is None else cut(text, self._most))
        return len(text)

    def flush(self) -> None:
        """Writes out what is held."""
        with self._guard():
            self.stream.flush()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), self._number)  # what is still held goes there, too, when Python ends
            if self._number == 1 and not isinstance(error, BrokenPipeError):
                raise OutputLost(f"standard output cannot be written: {error.strerror or error}") from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def cut(text: str, most: int = MOST_LETTERS) -> str:
    """The text, or the beginning and the end of one that is longer than ``most``, with how much was left out."""
    if len(text) <= most:
        return text
    head = most - _TAIL
    return f"{text[:head]}\n… {len(text) - most:,} letters left out …\n{text[-_TAIL:]}"
