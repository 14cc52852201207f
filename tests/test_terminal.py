"""qbench.terminal: a table that is folded, never cut."""

from __future__ import annotations

import io
import json
import re

from hypothesis import given
from hypothesis import strategies as st

from qbench.terminal import CONTROL, PlainStream, blocks

COLUMNS = ("case", "p50, ms", "speed-up", "notes")
ROWS = (
    ("digits-cnn/static/onednn/t1/b1", "0.131 [0.129, 0.134]", "2.51 [2.46, 2.57]", ""),
    ("digits-cnn/fp32/torch/t1/b1", "0.33", "\N{EM DASH}", "the control was off"),
)


def test_a_row_is_its_name_and_its_titled_cells() -> None:
    """The name stands alone, what belongs to it is indented, and empty cells are left out."""
    assert blocks(COLUMNS, ROWS, 50) == (
        "digits-cnn/static/onednn/t1/b1\n"
        "  p50, ms 0.131 [0.129, 0.134] · speed-up 2.51\n"
        "  [2.46, 2.57]\n"
        "digits-cnn/fp32/torch/t1/b1\n"
        "  p50, ms 0.33 · speed-up \N{EM DASH} · notes the control\n"
        "  was off"
    )


WORDS = st.text(st.characters(categories=("Lu", "Ll", "Nd", "Ps", "Pe", "Sm")), min_size=1, max_size=50)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=4), st.integers(1, 120))
def test_no_line_is_too_wide_and_no_character_is_lost(rows: list[tuple[str, str, str]], width: int) -> None:
    """Whatever the cells and the width: lines fit (20 characters are the least), and every cell is there."""
    text = blocks(("case", "a", "b"), rows, width)
    assert max(map(len, text.splitlines())) <= max(width, 20)
    squeezed = re.sub(r"\s", "", text)
    assert squeezed == "".join(f"{name}a{one}·b{two}" for name, one, two in rows)


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
