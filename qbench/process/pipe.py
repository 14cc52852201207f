"""Messages over the pipe between qbench and a child: a mark, the length, and a pickled value.

The child runs code of the user's, which may write to any file descriptor, stop half way or die: nothing that comes is
waited for without an end, and a length that cannot be is never believed.
"""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

MAGIC = b"qbm1"
HEADER = struct.Struct("!4sQ")
# The outputs of one part of an evaluation are the longest: 32 parts of 5,000 masks of 21 x 520 x 520 have 3.5 GB each.
MOST_BYTES = 2**32
CHUNK = 1 << 20


class NoMessage(Exception):
    """What came is no message; the text says what it is."""


def pack(value: Any) -> bytes:
    """A message's bytes."""
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(MAGIC, len(body)) + body


class Inbox:
    """Bytes as they come, until they are a message."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        """More bytes; raises ``NoMessage`` where they cannot begin one."""
        self._bytes += data
        begin = bytes(self._bytes[: len(MAGIC)])
        if not MAGIC.startswith(begin):
            raise NoMessage(f"begins with {bytes(self._bytes[:16])!r}")
        if (length := self._length()) is not None and length > MOST_BYTES:
            raise NoMessage(f"has {length:.3g} bytes, the most is {MOST_BYTES:.3g}")

    def take(self) -> tuple[Any] | None:
        """The first whole message as a tuple of one, or None; raises ``NoMessage`` where it cannot be read."""
        length = self._length()
        if length is None or len(self._bytes) < HEADER.size + length:
            return None
        with memoryview(self._bytes) as view:
            try:
                value = pickle.loads(view[HEADER.size : HEADER.size + length])
            except MemoryError:
                raise
            except Exception as error:  # bytes that nobody pickled can break unpickling in any way
                raise NoMessage(f"cannot be read ({type(error).__name__}: {str(error)[:200]})") from error
        del self._bytes[: HEADER.size + length]
        return (value,)

    def _length(self) -> int | None:
        if len(self._bytes) < HEADER.size:
            return None
        length: int = HEADER.unpack_from(self._bytes)[1]
        return length


def receive(descriptor: int, inbox: Inbox) -> Any:
    """The next message, however long that takes; raises ``EOFError`` where the other end is closed."""
    while (message := inbox.take()) is None:
        data = os.read(descriptor, CHUNK)
        if not data:
            raise EOFError
        inbox.add(data)
    return message[0]


def send(descriptor: int, message: bytes) -> None:
    """Writes a packed message, however long that takes; raises ``BrokenPipeError`` where nobody reads."""
    rest = memoryview(message)
    while rest:
        rest = rest[os.write(descriptor, rest[:CHUNK]) :]
