"""Rules of decide/sensitivity: what the answer would be under another rule, in two words."""

from __future__ import annotations

import pytest
from made_records import fp32, int8

from qbench.decide import sensitivity
from qbench.decide.choose import Choice, Verdict


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ("ship", "static · onednn"),
        ("undecided", "undecided on static · onednn"),
        ("keep fp32", "fp32 on torch"),
        ("none qualifies", "fp32 on torch"),
    ],
)
def test_a_choice_is_named_by_what_it_ships(verdict: Verdict, told: str) -> None:
    """Only an open choice is called undecided; where fp32 stays, the int8 that comes nearest is not named."""
    assert sensitivity._name(Choice(verdict=verdict, pick=int8(), fp32=fp32(), measured=(int8(),))) == told
