"""What a terminal is given: text without control characters."""

from __future__ import annotations

import re
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


# What the runners of GitHub, Azure and TeamCity take for a command to themselves where it begins a line, after any
# space, and what they take for one anywhere in it.
_BEGINS_COMMAND = re.compile(r"^([^\S\n]*:):", re.MULTILINE)  # the first colon may be written already
_COMMAND = re.compile(r"#(?=#\w*\[)")


class PlainStream:
    """A text stream in which a control character arrives as ``\\u001b``: visible, and in JSON the same string. So does
    a sign of what a log of CI would obey, such as ``::error::``.

    Everything that a command prints goes through it, so a label, a file's name or an error of some library can command
    neither the terminal nor a runner. ``stream`` is the one behind it, for what does so on purpose (a progress bar).
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._begun = ""  # the line in hand as long as it can become a command

    def write(self, text: str) -> int:
        """Writes the text, escaped; returns the length of what was given."""
        plain = _COMMAND.sub(_escape, CONTROL.sub(_escape, text))
        begun = self._begun
        line = (begun + plain).rpartition("\n")[2]
        self._begun = line if line.strip() in ("", ":") else "x"
        self.stream.write(_BEGINS_COMMAND.sub(r"\1\\u003a", begun + plain)[len(begun) :])
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
