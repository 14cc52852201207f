"""Rules of qbench/bisect/page.py and picture.py: the answer, a row for each look, nothing that is loaded or runs."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
from made_bisections import ANSWERS, METRIC, ask, make_question

from qbench.bisect import page, picture, text
from qbench.bisect.answer import Answer
from qbench.bisect.picture import list_rows
from qbench.bisect.search import Bracket


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_has_a_page(name: str, tmp_path: Path) -> None:
    """With its words, its policy, and a picture that says what it shows."""
    asked, answer = ANSWERS[name]
    question = ask(asked)
    file = page.write_page(question, answer, tmp_path, METRIC)
    written = file.read_text()
    assert file.name == "bisect.html"
    assert "default-src 'none'" in html.unescape(written)
    assert "<script" not in written
    assert 'role="img"' in written
    assert page.render(question, answer, METRIC) == written, "equal answers give equal bytes"
    assert text.sum_up(question, answer, METRIC)[:20] in html.unescape(written)


def test_rows_follow_the_candidates_and_tell_what_was_left_out() -> None:
    """From the good end to the bad one; the one that is named stands out."""
    asked, answer = ANSWERS["named"]
    rows = list_rows(ask(asked), answer)
    assert [row.label for row in rows] == ["1.20.0", "… 2 more", "1.23.0", "1.24.0", "… 3 more", "1.28.0"]
    assert [row.label for row in rows if row.is_named] == ["1.24.0"]


def test_names_are_escaped() -> None:
    """A layer may be called anything."""
    question = make_question("latency", way="layers", candidates=("all in float", "<script>alert(1)</script>", "b"))
    judged = {0: ANSWERS["named"][1].judged[0], 1: ANSWERS["named"][1].judged[8], 2: ANSWERS["named"][1].judged[8]}
    answer = Answer(kind="named", judged=judged, bracket=Bracket(last_good=0, first_bad=1, chance=1.0))
    assert "<script" not in page.render(question, answer, METRIC)


def test_the_threshold_is_drawn_where_there_is_one() -> None:
    """Half of the whole change, beside the good end's level."""
    asked, answer = ANSWERS["named"]
    (axes,) = picture.draw(ask(asked), answer, METRIC).axes
    lines = [line for line in axes.lines if line.get_linestyle() != "-" and len(line.get_xdata()) == 2]
    assert [round(float(line.get_xdata()[0]), 2) for line in lines] == [2.47]
