"""Plain output: no control character reaches the terminal."""

from __future__ import annotations

import io
import json
import re

from hypothesis import given
from hypothesis import strategies as st

from qbench.foreign_text import CONTROL
from qbench.progress.terminal import PlainStream

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
    """A line may be written piece by piece."""
    stream = io.StringIO()
    plain = PlainStream(stream)
    for part in parts:
        plain.write(part)
    assert not any(COMMAND.search(line) for line in stream.getvalue().split("\n"))
