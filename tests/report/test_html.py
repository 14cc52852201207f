"""Rules of qbench/report/html.py: what a filter does to names and numbers."""

from __future__ import annotations

import re

import pytest

from qbench.report.html import cut_name, write_minus, write_prose


@pytest.mark.parametrize(
    "name",
    [
        "resnet-18",
        "net-1/static/onednn/t1/b1",
        "AVX-512",
        "2026-11-25",
        "2-3",
        "v1.-2",
        "stage-1.conv",
        "mid-p",
        "a_-1",
    ],
)
def test_a_name_is_never_altered(name: str) -> None:
    """Also in a sentence, in brackets and before a comma, so that it can be pasted."""
    for text in (name, f"of {name}, [{name}] and ({name})."):
        assert write_minus(text) == text


@pytest.mark.parametrize(
    "number", ["-1", "-0.25", "-65 dB", "-11 %", "[-17, -5]", "(limit -1.0)", "to -2.", "-1,024.5", "-1e-05"]
)
def test_a_number_has_a_true_minus_sign(number: str) -> None:
    """Wherever it stands alone; that of an exponent stays."""
    shown = write_minus(number)
    assert shown == re.sub(r"(?<!e)-", "\N{MINUS SIGN}", number)


def test_a_long_name_is_cut_and_whole() -> None:
    """Its title and its text are the whole name; a short one stays as it is, and neither can break out."""
    long = "a<b>" * 20
    shown = cut_name(long)
    assert re.sub(r"<[^>]*>", "", shown) == "a&lt;b&gt;" * 20
    assert f'title="{"a&lt;b&gt;" * 20}"' in shown
    assert cut_name("net-18") == "net-18"


def test_commands_in_a_sentence_are_code_and_stay_text() -> None:
    """What stands between backticks can be copied as it is; nothing in it opens an element; a lone one is itself."""
    assert str(write_prose("`run -1 <b>` again, -2 points")) == (
        "<code>run -1 &lt;b&gt;</code> again, \N{MINUS SIGN}2 points"
    )
    assert write_prose("a lone ` and -1") == "a lone ` and \N{MINUS SIGN}1"


@pytest.mark.parametrize(("length", "cut"), [(44, False), (45, True)])
def test_a_name_is_cut_where_it_is_longer_than_the_longest(length: int, cut: bool) -> None:
    """One of just that length fits."""
    assert ("<span" in cut_name("x" * length)) is cut


def test_the_last_twenty_letters_of_a_cut_name_stand_apart() -> None:
    """The style cuts what is before them; the title has all."""
    name = "a" * 25 + "b" * 20
    assert str(cut_name(name)) == f'<span class="cut" title="{name}"><span>{"a" * 25}</span>{"b" * 20}</span>'
