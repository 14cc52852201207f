"""Rules of qbench/process/pipe.py: messages arrive whole, in order and however they are cut; nothing else is one."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.process import pipe
from qbench.process.pipe import HEADER, MAGIC, Inbox, NoMessage, pack, receive, send

VALUES = st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=50), st.binary(max_size=50)), max_size=4)


def take_all(inbox: Inbox) -> list[Any]:
    """The messages that are whole."""
    messages = []
    while (message := inbox.take()) is not None:
        messages += message
    return messages


@given(VALUES, st.integers(1, 40))
def test_messages_come_as_they_were_sent_however_they_are_cut(values: list[Any], size: int) -> None:
    """Also None, which is a message like any other; a part of one is none."""
    stream, inbox, taken = b"".join(map(pack, values)), Inbox(), []
    for start in range(0, len(stream), size):
        inbox.add(stream[start : start + size])
        taken += take_all(inbox)
    assert taken == values
    assert inbox.take() is None


@pytest.mark.parametrize("begin", [b"x", b"qbm2", b"hello world", b"qbx"])
def test_what_begins_otherwise_is_no_message(begin: bytes) -> None:
    """From the first byte on, with what it was."""
    with pytest.raises(NoMessage, match=f"begins with b'{begin[:16].decode()}'"):
        Inbox().add(begin)
    inbox = Inbox()
    for byte in MAGIC:
        inbox.add(bytes([byte]))
    assert inbox.take() is None


def test_a_length_that_cannot_be_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as it is told; the longest that may be is waited for."""
    monkeypatch.setattr(pipe, "MOST_BYTES", 1000)
    with pytest.raises(NoMessage, match=r"has 1e\+03 bytes, the most is 1e\+03"):
        Inbox().add(HEADER.pack(MAGIC, 1001))
    inbox = Inbox()
    inbox.add(HEADER.pack(MAGIC, 1000))
    inbox.add(b"x" * 999)
    assert inbox.take() is None


def test_bytes_that_nobody_pickled_are_no_message() -> None:
    """However reading them fails; running out of memory is not their fault."""
    inbox = Inbox()
    inbox.add(HEADER.pack(MAGIC, 3) + b"abc")
    with pytest.raises(NoMessage, match=r"^cannot be read \(\w+: "):
        inbox.take()

    inbox = Inbox()
    inbox.add(pack(Greedy()))
    with pytest.raises(MemoryError):
        inbox.take()


def exhaust() -> None:
    raise MemoryError


class Greedy:
    """Takes more memory than there is when it is read."""

    def __reduce__(self) -> Any:
        return exhaust, ()


def test_a_long_message_goes_through_a_pipe_and_its_end_is_told() -> None:
    """In pieces, since a pipe holds less; behind the last one the end is an error, and so is writing to nobody."""
    reading, writing = os.pipe()
    value = os.urandom(3 * pipe.CHUNK + 7)

    def write() -> None:
        for message in (value, "next"):
            send(writing, pack(message))
        os.close(writing)

    thread = threading.Thread(target=write)
    thread.start()
    inbox = Inbox()
    assert [receive(reading, inbox), receive(reading, inbox)] == [value, "next"]
    thread.join()
    with pytest.raises(EOFError):
        receive(reading, inbox)
    os.close(reading)
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        send(writing, pack(1))
    os.close(writing)


def test_what_is_no_message_is_shown_by_its_beginning() -> None:
    """16 bytes of it, and 200 letters of why it cannot be read; 4 GiB is the longest that may be."""
    with pytest.raises(NoMessage, match=f"^begins with b'{'x' * 16}'$"):
        Inbox().add(b"x" * 300)
    inbox = Inbox()
    inbox.add(pack(Odd()))
    with pytest.raises(NoMessage, match=rf"^cannot be read \(ValueError: {'x' * 200}\)$"):
        inbox.take()
    Inbox().add(HEADER.pack(MAGIC, 2**32))
    with pytest.raises(NoMessage, match=r"the most is 4\.29e\+09"):
        Inbox().add(HEADER.pack(MAGIC, 2**32 + 1))


def fail_at_length() -> None:
    raise ValueError("x" * 300)


class Odd:
    """Says a lot when it is read."""

    def __reduce__(self) -> Any:
        return fail_at_length, ()
