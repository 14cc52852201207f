"""Rules of qbench/formatting.py: texts that stay texts in Markdown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rendered_markdown import foreign, text_nodes, words_of

from qbench import formatting
from qbench.stats.interval_type import Interval

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=1>",
    "a|b|c",
    "`code` ``more``",
    "**bold** __bold__ *i* _i_ ~~s~~",
    "$x^2$ and $$y$$ costs $5",
    "$`x`$",
    "@octocat @org/team a@b.example",
    "#1 owner/name#2 GH-3 gh-4",
    "https://evil.example/x www.evil.example mailto:a@b.example ftp://x.example",
    "[text](https://evil.example) ![i](x.png) [a][b] [c]: d",
    "[ ] task [x] done",
    "[^1] note [^1]: text",
    ":tada: :red_circle: :+1:",
    "&lt;b&gt; &#36; &amp;",
    "\\$ \\` \\| \\<",
    "line\nbreak\r\nand\u2028more\x0bmore",
    "# heading",
    "- item",
    "+ item",
    "1. item",
    "2) item",
    "> quote",
    "===",
    "---",
    "| --- | --- |",
    "name #",
    "\u202eabc\u202c \u2066x\u2069",
    "日本語 🎉 é",
    "<!-- comment -->",
    "</details><details>",
    "=cmd|' /C calc'!A0",
    "C:\\path\\name_with_underscores.py",
)
PLACES = ("{}", "- {}", "- **{}**: words", "# qbench: {}", "| a | b |\n|---|---:|\n| {} | 2 |", "**{}**\n\nmore")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_inert_in_markdown(text: str, place: str) -> None:
    """Wherever a name stands, an independent parser finds its words and nothing else in it."""
    drawn = place.format(formatting.markdown(text))
    assert foreign(drawn) == []
    assert formatting.one_line(text) in words_of(drawn)
    if "|---" in place:
        assert words_of(drawn) == f"a b {formatting.one_line(text)} 2"


@given(st.text(alphabet=st.sampled_from("ab1 \\`*_~|<>[]()!#@$:/.-+=&;^{}\n\"'"), max_size=30))
def test_any_text_is_inert_in_markdown(text: str) -> None:
    """Also where the signs of Markdown meet in an order that nobody thought of."""
    for place in PLACES[:5]:
        drawn = place.format(formatting.markdown(text))
        assert foreign(drawn) == []
        assert formatting.one_line(text) in words_of(drawn)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_piece_of_text_is_a_mention_or_a_formula(text: str) -> None:
    """GitHub looks for mentions, issues, emoji and mathematics in each piece of text between two elements."""
    pieces = text_nodes(formatting.markdown(text))
    signs = r"@\w|#\w|\$.*\$|:[\w+-]+:|://|(?i:www\.|\bGH-\d)"
    assert [piece for piece in pieces if re.search(signs, piece)] == []
    assert "$" not in formatting.markdown(text)


def test_figures_and_limits_stay_readable_in_the_source() -> None:
    """A reader of the plain file sees numbers as they are."""
    for text in ("2.53 [2.41, 2.66]", "+0.2 [-0.6, +1.2]", "static · onnxruntime", "-0.4", "365 kB (26 % of fp32)"):
        assert formatting.markdown(text) == text


@pytest.mark.parametrize(
    ("text", "short"), [("abc", "abc"), ("01234", "01234"), ("0123456789", "01…89"), ("a\nb", "a b")]
)
def test_a_long_text_keeps_both_ends(text: str, short: str) -> None:
    """The middle is left out, since names differ at their ends."""
    assert formatting.shorten(text, 5) == short


@pytest.mark.parametrize(
    ("value", "low", "high", "places"),
    [
        (10.0, 8.0, 12.0, 0),
        (10.0, 8.5, 11.5, 1),
        (1.0, 0.0, 8.0, 0),
        (0.5, 0.0, 8.0, 1),
        (0.0, 0.0, 8.0, 0),
        (1.5, 1.5, 1.5, 2),
        (123.4, None, None, 0),
        (12.34, 12.0, None, 1),
        (1e-9, None, None, 6),
        (0.0, None, None, 1),
        (float("inf"), None, None, 1),
    ],
)
def test_digits_follow_the_half_width(value: float, low: float | None, high: float | None, places: int) -> None:
    """To its first digit, the second where that is a 1; of a limit that is nearer than a quarter of it to that one's.
    Without limits three significant digits, at most six behind the point."""
    assert formatting.decimals(Interval(value=value, low=low, high=high)) == places
    assert formatting.decimals(Interval(value=value, low=low, high=high), -1.0) == places


@pytest.mark.parametrize(
    ("values", "places"),
    [([None, 1.0], 1), ([0.94], 1), ([0.96], 2), ([1.004, 0.9], 3), ([1 + 1e-9], 6)],
)
def test_no_value_reads_like_a_bound_that_it_is_not(values: list[float | None], places: int) -> None:
    """With six decimals at most."""
    assert formatting.places_beside(values, 1.0, 1) == places


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1.0, ("1.00e+00", "1.00e+00")), (1.0004, ("1.0004e+00", "1.0000e+00")), (1 + 1e-12, ("1.00000000e+00",) * 2)],
)
def test_a_value_beside_its_bound_has_the_digits_that_tell_them_apart(value: float, shown: tuple[str, str]) -> None:
    """Three, and up to nine."""
    assert formatting.beside(value, 1.0, lambda amount, digits: f"{amount:.{digits - 1}e}") == shown


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        (" \n=x", "' \n=x"),
        ("\uff1dx", "'\uff1dx"),
        ("-x", "'-x"),
        ("-1.5", "-1.5"),
        ("+1e3", "+1e3"),
        ("a=1", "a=1"),
        ("", ""),
    ],
)
def test_a_cell_is_no_formula(text: str, cell: str) -> None:
    """However it begins; numbers stay numbers."""
    assert formatting.cell(text) == cell


def test_a_unit_is_the_largest_that_the_amount_reaches() -> None:
    """From one of it on; the smallest for less than that."""
    times = [formatting.time_unit(seconds)[1] for seconds in (-2.0, 1.0, 0.999, 1e-3, 1e-6, 1e-9, 1e-12)]
    assert times == ["s", "s", "ms", "ms", "µs", "ns", "ns"]
    sizes = [formatting.byte_unit(count) for count in (999, 1e3, 1e6, 1e9)]
    assert sizes == [(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")]


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.003, 0.4, "+0.03 [0.00, +0.40]"),
        (-0.4, 0.4, "0.0 [-0.4, +0.4]"),
    ],
)
def test_the_digits_of_a_lopsided_interval_follow_its_nearer_limit(low: float, high: float, shown: str) -> None:
    """An estimate beside a limit that is far nearer than half the width does not read as 0."""
    interval = Interval(value=0.0325, low=low, high=high)
    assert formatting.with_limits(interval, signed=True) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, formatting.DASH),
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.12345, "12.3 %"),
        (0.5, "50.0 %"),
        (1e-9, "0.1 %"),
        (1 - 1e-9, "99.9 %"),
        (1.25, "125 %"),
    ],
)
def test_a_share_is_all_or_nothing_only_where_it_is(value: float | None, shown: str) -> None:
    """One digit behind the point in between; what is nearly all is not 100 %, and hardly anything is not 0 %."""
    assert formatting.share(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, formatting.DASH),
        (0.0, "0 s"),
        (9.994e-6, "9.99 µs"),
        (9.996e-6, "10.0 µs"),
        (99.97e-6, "100 µs"),
        (1e-3, "1.00 ms"),
        (119.9, "120 s"),
        (120.0, "2 min 0 s"),
        (185.7, "3 min 5 s"),
    ],
)
def test_a_duration_has_three_digits(seconds: float | None, shown: str) -> None:
    """Also where rounding takes it to the next power of ten; minutes from two on."""
    assert formatting.duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(None, formatting.DASH), (0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (9_996, "10.0 kB"), (99_970, "100 kB")],
)
def test_a_size_has_three_digits(count: float | None, shown: str) -> None:
    """Bytes below 1,000 are exact."""
    assert formatting.size(count) == shown


@pytest.mark.parametrize(
    ("interval", "options", "shown"),
    [
        (Interval(value=10.0, low=8.0, high=12.0), {}, "10 [8, 12]"),
        (Interval(value=10.0, low=8.0, high=12.0), {"least": 2}, "10.00 [8.00, 12.00]"),
        (Interval(value=0.0123, low=0.0121, high=0.0125), {"scale": 100.0}, "1.23 [1.21, 1.25]"),
        (Interval(value=0.0123, low=0.0121, high=0.0125), {"scale": -100.0}, "-1.23 [-1.21, -1.25]"),
        (Interval(value=0.5, low=0.2, high=0.8), {"signed": True}, "+0.5 [+0.2, +0.8]"),
        (Interval(value=12.34, low=12.0), {}, "12.3"),
        (Interval(value=12.34, high=13.0), {}, "12.3"),
        (None, {}, formatting.DASH),
    ],
)
def test_an_estimate_stands_before_its_limits(interval: Interval | None, options: dict, shown: str) -> None:
    """With the same digits; alone where one limit is missing. No more places and no plus unless they are asked for."""
    value, _, limits = shown.partition(" ")
    assert formatting.number(interval, **options) == value
    assert formatting.limits(interval, **options) == limits
    assert formatting.with_limits(interval, **options) == shown


@pytest.mark.parametrize(
    ("value", "places", "shown"),
    [(0.5, 0, "50 %"), (1e-9, 0, "1 %"), (1 - 1e-9, 0, "99 %"), (0.5, 2, "50.00 %"), (1e-12, 8, "0.00000001 %")],
)
def test_a_share_has_the_digits_that_are_asked_for(value: float, places: int, shown: str) -> None:
    """And is never rounded to nothing, or to all."""
    assert formatting.share(value, places) == shown


def test_a_duration_and_a_size_may_have_other_digits() -> None:
    """As a bound beside a value needs them."""
    assert (formatting.duration(1.23456e-3, 5), formatting.size(1_234_567, 4)) == ("1.2346 ms", "1.235 MB")
