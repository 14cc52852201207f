"""What a terminal is given: text without control characters."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from qbench.foreign_text import CONTROL

if TYPE_CHECKING:
    from typing import TextIO


@contextmanager
def plain_output() -> Iterator[None]:
    """Both standard streams plain while inside."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = PlainStream(sys.stdout), PlainStream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class PlainStream:
    """A text stream in which a control character arrives as ``\\u001b``: visible, and in JSON the same string.

    Everything that a command prints goes through it, so a label, a file's name or an error of some library cannot
    command the terminal. ``stream`` is the one behind it, for what draws on purpose (a progress bar).
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Writes the text with its control characters escaped; returns the length of what was given."""
        self.stream.write(CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
