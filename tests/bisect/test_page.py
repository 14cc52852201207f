"""Rules of qbench/bisect/page.py: the answer, a row for each look, nothing that is loaded or runs."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
from made_bisections import ANSWERS, METRIC, ask, make_question

from qbench.bisect import page, text
from qbench.bisect.answer import Answer
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


def test_names_are_escaped() -> None:
    """A layer may be called anything."""
    question = make_question("latency", way="layers", candidates=("all in float", "<script>alert(1)</script>", "b"))
    judged = {0: ANSWERS["named"][1].judged[0], 1: ANSWERS["named"][1].judged[8], 2: ANSWERS["named"][1].judged[8]}
    answer = Answer(kind="named", judged=judged, bracket=Bracket(last_good=0, first_bad=1, chance=1.0))
    assert "<script" not in page.render(question, answer, METRIC)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("named", ("Time of a call", "24 and 48 pairs share an error of 5 %", "Bars: 99 % limits; dashed: half of")),
        ("named by accuracy", ("Score", "by the paired test of the accuracy gate", "Bars: 90 % limits; dashed")),
        ("named by failure", ("Does it run", "loaded the artifact in a fresh process and was called", "")),
        ("named by bits", ("Examples that differ", "were held bit by bit against the good end", "")),
    ],
)
def test_the_page_tells_how_candidates_were_judged(name: str, words: tuple[str, str, str]) -> None:
    """By what was asked, and how many of them."""
    asked, answer = ANSWERS[name]
    written = html.unescape(page.render(ask(asked), answer, METRIC))
    assert f"{len(answer.judged)} of 9 releases were looked at." in written
    for word in words:
        assert word in written
    assert words[2] or "Bars:" not in written


def test_the_page_tells_when_a_look_is_repeated() -> None:
    """By the looks that there are, and the chance that is asked for."""
    asked, answer = ANSWERS["named"]
    written = html.unescape(page.render(ask(asked), answer, METRIC))
    assert "looks after 3, 6, 12, 24 and 48 pairs share" in written
    assert "below 95 %, the looks beside the answer were repeated" in written
