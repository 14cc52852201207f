"""Rules of decide/rank: which of several leads, where comparisons of two are no order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from made_records import int8

from qbench.decide.rank import sort_by_estimate

FIRST, SECOND, THIRD = (int8(f"net/static/{name}/t1/b1") for name in ("a", "b", "c"))


def order(**logs: float) -> list[str]:
    """The backends in order of cases whose values rise from a to c; ``ab``: ln(a / b) where both were compared."""

    def compare(record: Any, rival: Any) -> Any:
        pair = record.case.backend + rival.case.backend
        known = {**logs, **{name[::-1]: -log for name, log in logs.items()}}
        return SimpleNamespace(value=known[pair])

    objective: Any = SimpleNamespace(value=lambda record: "abc".index(record.case.backend) + 1.0, compare=compare)
    return [record.case.backend for record in sort_by_estimate([THIRD, FIRST, SECOND], objective)]


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        ({"ab": -0.1, "ac": -0.2, "bc": -0.1}, "abc"),
        ({"ab": 0.1, "ac": -0.1, "bc": -0.3}, "bac"),
        ({"ab": 0.1, "ac": 0.05, "bc": 0.2}, "cab"),
    ],
)
def test_the_leader_is_what_no_other_beats(logs: dict[str, float], expected: str) -> None:
    """Whatever has the least value by itself: who is beaten follows who beats it, the best first, and the rest is by
    how far it is behind the leader."""
    assert order(**logs) == [*expected]


def test_three_that_beat_each_other_in_a_circle_have_an_order_all_the_same() -> None:
    """a beats b, b beats c and c beats a: each stands there once."""
    assert sorted(order(ab=-0.1, bc=-0.1, ac=0.1)) == ["a", "b", "c"]
