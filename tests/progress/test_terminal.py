"""Plain output: no control character reaches the terminal."""

from __future__ import annotations

import io
import json

from hypothesis import given
from hypothesis import strategies as st

from qbench.foreign_text import CONTROL
from qbench.progress.terminal import PlainStream


@given(st.text())
def test_a_plain_stream_passes_text_and_shows_controls(text: str) -> None:
    """Nothing that a label, a path or a library's error holds can command the terminal; JSON stays the same value."""
    stream = io.StringIO()
    plain = PlainStream(stream)
    assert plain.write(text) == len(text)
    assert not CONTROL.search(stream.getvalue())
    assert CONTROL.search(text) or stream.getvalue() == text
    told = io.StringIO()
    PlainStream(told).write(json.dumps({"name": text}, ensure_ascii=False))
    assert json.loads(told.getvalue()) == {"name": text}
