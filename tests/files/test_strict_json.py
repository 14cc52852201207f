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
