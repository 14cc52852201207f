"""JSON as the standard has it: what is refused, and where that stands."""

from __future__ import annotations

import pytest

from qbench.files import strict_json


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[1,\n 2,]", (2, 4)),
        ("[1,\n NaN]", (0, 0)),
        ("[1, -Infinity]", (0, 0)),
        ("[1e999]", (0, 0)),
        ("[" * 100_000, (0, 0)),
        ("1" * 5000, (0, 0)),
    ],
)
def test_what_is_no_json_has_its_place_or_zero(text: str, place: tuple[int, int]) -> None:
    """Lines and columns count from 1, so 0 is none."""
    with pytest.raises(strict_json.NotJson) as refused:
        strict_json.parse(text)
    assert (refused.value.line, refused.value.column) == place


@pytest.mark.parametrize(
    ("text", "value"),
    [('{"a": [1, -2.5, 1e3, true, null]}', {"a": [1, -2.5, 1000.0, True, None]}), ("1e308", 1e308), ('"NaN"', "NaN")],
)
def test_what_is_json_is_read(text: str, value: object) -> None:
    """Numbers as far as a float goes, and words in quotes."""
    assert strict_json.parse(text) == value


def test_a_number_that_no_float_holds_is_shown_by_its_beginning() -> None:
    """However long it is."""
    with pytest.raises(strict_json.NotJson, match=f"^the number {'9' * 40} is beyond what a float holds$"):
        strict_json.parse(f"{'9' * 400}.5")
    with pytest.raises(strict_json.NotJson, match="^NaN is no number of JSON; null stands for what is not known$"):
        strict_json.parse("NaN")
