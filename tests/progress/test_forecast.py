"""qbench.progress.forecast: what is left of a run, said no finer than it is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moved_clock import Clock

from qbench.progress.forecast import STAGES, Forecast, say_coarsely

EARLIER = {"prepare": 10.0, "build": 60.0, "evaluate": 20.0, "measure": 90.0}


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
        (14.9, "a few seconds"),
        (15, "about half a minute"),
        (44.9, "about half a minute"),
        (45, "about 1 min"),
        (89, "about 1 min"),
        (91, "about 2 min"),
        (569, "about 9 min"),
        (571, "about 10 min"),
        (660, "about 10 min"),
        (749, "about 10 min"),
        (800, "about 15 min"),
        (3440, "about 55 min"),
        (3451, "about 1 h"),
        (4400, "about 1 h"),
        (4600, "about 1.5 h"),
        (7200, "about 2 h"),
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


def test_the_report_counts_for_a_run_that_was_never_measured(clock: Clock) -> None:
    """Five seconds, unless an earlier run says otherwise."""
    for earlier, told in (({}, "a few seconds left"), ({"report": 20.0}, "about half a minute left")):
        forecast = Forecast(clock)
        forecast.expect(earlier)
        forecast.begin("report")
        assert forecast.text() == told


def start(clock: Clock, expected: float | None, *, share: float, seconds: float) -> Forecast:
    """A forecast of a run whose measuring is that far after so many seconds."""
    forecast = Forecast(clock)
    forecast.expect({} if expected is None else {"measure": expected})
    clock.now = 1000.0
    forecast.begin("measure")
    clock.now += seconds
    forecast.reach(share, "measure")
    return forecast


@pytest.mark.parametrize(
    ("share", "seconds", "told"),
    [
        (0.099, 60.0, ""),
        (0.1, 60.0, "about 9 min left"),
        (0.5, 2.9, ""),
        (0.5, 3.0, "a few seconds left"),
        (0.5, 9.9, "a few seconds left"),
        (0.5, 10.0, "about half a minute left"),
        (1.0, 60.0, "a few seconds left"),
    ],
)
def test_the_pace_of_a_stage_tells_from_a_tenth_and_three_seconds_on(
    clock: Clock, share: float, seconds: float, told: str
) -> None:
    """Before, it says nothing; ten seconds and the report's five are a quarter of a minute."""
    assert start(clock, None, share=share, seconds=seconds).text() == told


@pytest.mark.parametrize(
    ("expected", "share", "seconds", "told"),
    [
        (600.0, 0.0, 300.0, "about 5 min left"),  # as long as the earlier run
        (600.0, 0.05, 700.0, "about 1 min left"),  # longer than it: a tenth of its 95 % are left
        (6000.0, 0.05, 7000.0, "about 10 min left"),
        (3000.0, 0.09, 9000.0, "about 5 min left"),
        (1200.0, 0.5, 2400.0, "about 20 min left"),  # half of the pace's 40 min and of the tenth of 10 min
        (1200.0, 0.25, 600.0, "about 15 min left"),  # a quarter of 30 min and three of 10 min
    ],
)
def test_the_earlier_run_and_the_pace_are_weighed_by_how_far_the_stage_is(
    clock: Clock, expected: float, share: float, seconds: float, told: str
) -> None:
    """The pace counts as much as the share that it was seen for; a stage that takes longer than before is not over."""
    assert start(clock, expected, share=share, seconds=seconds).text() == told


def test_steps_count_towards_the_pace_and_never_back(clock: Clock) -> None:
    """Of the stage in hand and of a known number; more steps than there were to be are all of them."""
    forecast = start(clock, None, share=0.0, seconds=0.0)
    forecast.begin("measure")
    clock.now += 60.0
    for done, total, stage in ((8, None, "measure"), (8, 10, "build"), (1, 0, "measure")):
        forecast.count(done, total, stage)
        assert forecast.text() == ""
    for done, told in ((5, "about 1 min left"), (2, "about 1 min left"), (12, "a few seconds left")):
        forecast.count(done, 10, "measure")
        assert forecast.text() == told
    forecast.reach(0.1, "measure")
    assert forecast.text() == "a few seconds left"
    forecast.expect({"report": 20.0})
    assert forecast.text() == "about half a minute left"


def test_nothing_is_left_of_a_run_that_has_no_stage_yet(clock: Clock) -> None:
    """Reports of before the first stage count for none."""
    forecast = Forecast(clock)
    forecast.expect(EARLIER)
    clock.now = 60.0
    forecast.reach(0.5, "measure")
    forecast.count(5, 10, "measure")
    assert forecast.text() == ""
    forecast.begin("measure")
    assert forecast.text() == "about 2 min left"


def test_a_new_stage_starts_at_nothing(clock: Clock) -> None:
    """Neither the share nor the seconds of the one before count, and its steps do again."""
    forecast = start(clock, None, share=0.9, seconds=90.0)
    forecast.begin("measure")
    clock.now += 50.0
    assert forecast.text() == ""
    forecast.count(5, 10, "measure")
    assert forecast.text() == "about 1 min left"


def test_more_than_all_of_a_stage_is_all_of_it(clock: Clock) -> None:
    """A share above one leaves no time below zero."""
    forecast = start(clock, 100.0, share=3.0, seconds=60.0)
    assert forecast.text() == "a few seconds left"
    forecast.expect({"measure": 100.0, "report": 60.0})
    assert forecast.text() == "about 1 min left"
