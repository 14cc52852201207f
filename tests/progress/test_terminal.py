"""Plain output: no control character reaches the terminal."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.foreign_text import CONTROL
from qbench.progress.terminal import PlainStream, plain_output

# What a runner of CI takes for a command: at the begin of a line after space, or anywhere.
COMMAND = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)
PARTS = ("::", ":", "\n", " ", "\u3000", "\r", "##", "#[", "vso[", "error::x")
texts = st.text() | st.lists(st.sampled_from(PARTS)).map("".join)


@given(texts)
def test_a_plain_stream_passes_text_and_shows_what_commands(text: str) -> None:
    """Nothing that a label, a path or a library's error holds can command the terminal or a runner; JSON stays the same
    value."""
    stream = io.StringIO()
    plain = PlainStream(stream)
    assert plain.write(text) == len(text)
    assert not CONTROL.search(stream.getvalue())
    assert not any(COMMAND.search(line) for line in stream.getvalue().split("\n"))
    assert CONTROL.search(text) or COMMAND.search(text) or stream.getvalue() == text
    told = io.StringIO()
    PlainStream(told).write(json.dumps({"name": text}, ensure_ascii=False))
    assert json.loads(told.getvalue()) == {"name": text}


@given(st.lists(st.sampled_from([":", "::", "\n", " ", "x", ""])))
def test_a_command_does_not_arise_from_parts(parts: list[str]) -> None:
    """A line may be written piece by piece: it reads as if it had been written at once, but for the escaped sign."""
    stream = io.StringIO()
    plain = PlainStream(stream)
    for part in parts:
        plain.write(part)
    assert stream.getvalue().replace("\\u003a", ":") == "".join(parts)
    assert not any(COMMAND.search(line) for line in stream.getvalue().split("\n"))


def test_both_streams_are_plain_within_and_themselves_again_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where what is within fails; whoever draws on purpose finds the stream behind."""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)

    def fail() -> None:
        with plain_output():
            print("\x1b[2J")
            print("\x1b[0m", file=sys.stderr)
            assert sys.stdout.stream is out  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (out.getvalue(), err.getvalue()) == ("\\u001b[2J\n", "\\u001b[0m\n")
    assert (sys.stdout, sys.stderr) == (out, err)
