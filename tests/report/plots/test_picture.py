"""Rules of qbench/report/plots/picture.py: words of captions."""

from __future__ import annotations

import pytest

from qbench.report.plots.picture import be, count_of, minus, plural, span, upper


@pytest.mark.parametrize(
    ("count", "total", "said"),
    [
        (1, 1, "The one variant is"),
        (0, 1, "Not the one variant is"),
        (0, 2, "None of 2 variants is"),
        (1, 2, "1 of 2 variants is"),
        (2, 2, "2 of 2 variants are"),
    ],
)
def test_a_count_is_said_in_words_where_it_is_none_or_all_of_one(count: int, total: int, said: str) -> None:
    """And the verb agrees with it."""
    assert f"{count_of(count, total, 'variant')} {be(count)}" == said


def test_words_of_a_caption() -> None:
    """Numbers with their thousands, a beginning in capitals, true minus signs, from the least to the most."""
    assert [plural(count, "case") for count in (0, 1, 2000)] == ["0 cases", "1 case", "2,000 cases"]
    assert [upper(text) for text in ("", "x", "of the")] == ["", "X", "Of the"]
    assert minus("-1 to -2") == "\N{MINUS SIGN}1 to \N{MINUS SIGN}2"
    assert [span(values) for values in ((), (5.0,), (1000.0, 200.0), (3.0, 3.0))] == [
        "\u2014",
        "5",
        "200 to 1,000",
        "3",
    ]
