"""qbench.progress.forecast: what is left of a run, said no finer than it is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.progress.forecast import STAGES, Forecast, say_coarsely

EARLIER = {"prepare": 10.0, "build": 60.0, "evaluate": 20.0, "measure": 90.0}


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        """What the test set."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """At 0."""
    return Clock()


def test_nothing_is_said_of_what_is_no_run(clock: Clock) -> None:
    """A gate or a training has other stages; nobody told what they take."""
    forecast = Forecast(clock)
    forecast.begin("build")
    clock.now = 10
    forecast.reach(0.5, "build")
    assert forecast.text() == ""


def test_an_earlier_run_tells_the_whole_from_the_start(clock: Clock) -> None:
    """The sum of its stages; what is over no longer counts."""
    forecast = Forecast(clock)
    forecast.expect(EARLIER)
    forecast.begin("prepare")
    assert forecast.text() == "about 3 min left"
    clock.now = 10
    forecast.begin("build")
    clock.now = 60
    assert forecast.text() == "about 2 min left"
    clock.now = 90
    forecast.begin("measure")
    assert forecast.text() == "about 2 min left"
    clock.now = 150
    assert forecast.text() == "about half a minute left"


def test_without_an_earlier_run_the_stage_in_hand_is_told_alone(clock: Clock) -> None:
    """Nobody knows how long the later ones take; the last of them is the whole."""
    forecast = Forecast(clock)
    forecast.expect({})
    forecast.begin("build")
    assert forecast.text() == ""
    clock.now = 60
    forecast.reach(0.5, "build")
    assert forecast.text() == "about 1 min of build left"
    forecast.begin("measure")
    clock.now = 180
    forecast.reach(0.5, "measure")
    assert forecast.text() == "about 2 min left"


def test_the_pace_outweighs_the_earlier_run_the_further_a_stage_is(clock: Clock) -> None:
    """A machine that is four times slower today is seen."""
    forecast = Forecast(clock)
    forecast.expect({"measure": 60.0})
    forecast.begin("measure")
    clock.now = 180
    forecast.reach(0.75, "measure")
    assert forecast.text() == "about 1 min left"


def test_a_stage_never_goes_back_and_others_do_not_count(clock: Clock) -> None:
    """Reports come from several threads; a late one of an earlier stage says nothing of this one."""
    forecast = Forecast(clock)
    forecast.expect({})
    forecast.begin("measure")
    clock.now = 60
    forecast.reach(0.5, "measure")
    forecast.reach(0.1, "measure")
    forecast.reach(1.0, "build")
    assert forecast.text() == "about 1 min left"


def test_steps_do_not_count_where_the_stage_says_how_far_it_is(clock: Clock) -> None:
    """A stage of few long steps knows better than their number."""
    forecast = Forecast(clock)
    forecast.expect({})
    forecast.begin("measure")
    clock.now = 60
    forecast.reach(0.25, "measure")
    forecast.count(8, 10, "measure")
    assert forecast.text() == "about 3 min left"
    forecast.begin("report")
    forecast.begin("build")
    clock.now = 120
    forecast.count(5, 10, "build")
    assert forecast.text() == "about 1 min of build left"


def test_a_part_of_a_stage_goes_on_with_it(clock: Clock) -> None:
    """The runtimes are compared within the evaluation: its clock is not set back."""
    forecast = Forecast(clock)
    forecast.expect(EARLIER)
    forecast.begin("evaluate")
    clock.now = 19
    before = forecast.text()
    forecast.begin("runtimes")
    assert forecast.text() == before


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "a few seconds"),
        (20, "about half a minute"),
        (50, "about 1 min"),
        (130, "about 2 min"),
        (560, "about 9 min"),
        (900, "about 15 min"),
        (3600, "about 1 h"),
        (5400, "about 1.5 h"),
    ],
)
def test_what_is_left_is_said_coarsely(seconds: float, told: str) -> None:
    """No finer than a forecast can be."""
    assert say_coarsely(seconds) == told


@given(spent=st.floats(0, 1e5), share=st.floats(0, 1), stage=st.sampled_from(STAGES), known=st.booleans())
def test_any_state_gives_a_text(spent: float, share: float, stage: str, known: bool) -> None:
    """No pace, however odd, breaks the display."""
    clock = Clock()
    forecast = Forecast(clock)
    forecast.expect(EARLIER if known else {})
    forecast.begin(stage)
    clock.now = spent
    forecast.reach(share, stage)
    assert forecast.text() == "" or forecast.text().endswith(" left")
