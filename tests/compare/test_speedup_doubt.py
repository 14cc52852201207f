"""Rules of compare/speedup_doubt: what makes a stored speed-up doubtful, by how far a control may be off."""

from __future__ import annotations

import math
from typing import Any

import pytest
from made_records import int8, speedup

from qbench.compare.speedup_doubt import find_doubt, find_unsteadiness, is_coarse, room_to_promise
from qbench.stats.interval_type import Interval


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"protocol": "race"}, None),
        ({"protocol": "sequential", "control": None}, "protocol sequential has no control"),
        ({"control": None}, "was not measured"),
        ({"control": Interval(value=1.01)}, "was not measured"),
        ({"control": Interval(value=1.01, low=1.0)}, "was not measured"),
        ({"control": Interval(value=1.01, high=1.02)}, "was not measured"),
        ({"control": Interval(value=1.0, low=0.98, high=1.024)}, None),
        ({"control": Interval(value=1.0, low=0.98, high=1.026)}, "must lie within half the tolerance, 2.5 %"),
        ({"control": Interval(value=1.0, low=0.97, high=1.01)}, "must lie within half the tolerance, 2.5 %"),
        ({"steady": False}, "not steady"),
        ({"steady": None}, "cannot be told from so few blocks"),
        ({"stopped": "screened", "processes": 1, "control": None, "steady": None}, None),
        ({"stopped": "screened", "processes": 3, "control": None, "steady": None}, "was not measured"),
        ({"stopped": "screened", "processes": 3, "steady": None}, None),
        ({"stopped": "left", "processes": 2, "steady": None}, None),
        ({"stopped": "left", "processes": 3, "steady": None}, "cannot be told"),
        ({"stopped": "max_seconds", "processes": 2, "steady": None}, "cannot be told"),
    ],
)
def test_a_speed_up_is_doubted_for_its_control_and_its_drift(changes: dict[str, Any], said: str | None) -> None:
    """A control that may be off by more than the room, none at all, and a series that moved; a case that left the
    race after one or two processes has neither, and limits that allow for both."""
    doubt = find_doubt(speedup(**changes), 0.025, "half the tolerance")
    assert doubt is None if said is None else said in str(doubt)


@pytest.mark.parametrize(("stopped", "coarse"), [("screened", True), ("left", False), (None, False)])
def test_what_left_the_race_after_the_screening_is_coarse(stopped: str | None, coarse: bool) -> None:
    """What was not measured is not."""
    assert is_coarse(int8(speedup=speedup(stopped=stopped))) is coarse
    assert not is_coarse(int8(speedup=None))


@pytest.mark.parametrize("steady", [True, False, None])
def test_one_call_after_the_other_is_asked_for_no_steadiness(steady: bool | None) -> None:
    """Nor is a screening: what they store of it says nothing."""
    assert find_unsteadiness(speedup(protocol="sequential", steady=steady)) is None
    assert find_unsteadiness(speedup(stopped="screened", steady=steady)) is None


def test_the_room_is_half_the_way_to_the_promise() -> None:
    """On a logarithmic scale, on either side."""
    assert room_to_promise(4.0, 2.0) == pytest.approx(math.log(2) / 2)
    assert room_to_promise(1.0, 2.0) == pytest.approx(math.log(2) / 2)
