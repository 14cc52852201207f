"""Rules of qbench/report/case_line.py: what a row of the table of cases is linked to and found by."""

from __future__ import annotations

from typing import Any

import pytest
from made_records import int8

from qbench.report.case_line import CaseLine
from qbench.report.ruling import Ruling


def line(outcome: Any = None) -> CaseLine:
    """The row of an int8 case."""
    return CaseLine(
        record=int8(), color="", marker="", ruling=Ruling(word="Ship"), group="", cells={}, facts=(), outcome=outcome
    )


@pytest.mark.parametrize(
    ("outcome", "sign"),
    [(None, ""), ("PASS", "\u2713 OK"), ("INCONCLUSIVE", "? open"), ("FAIL", "\u2717 loses too much")],
)
def test_an_outcome_is_a_symbol_and_a_word(outcome: Any, sign: str) -> None:
    """Nothing where it was not judged."""
    assert line(outcome).accuracy_sign == sign


def test_a_row_is_found_by_all_its_names() -> None:
    """In small letters."""
    assert line().anchor == "case/net/static/onednn/t1/b1"
    assert line().findable == "net/static/onednn/t1/b1 static \u00b7 onednn static int8 on onednn (pytorch) ship"
