"""Rules of qbench/measure/remaining.py: what is told of a race while it runs."""

from __future__ import annotations

from qbench.measure.remaining import Remaining
from qbench.progress.forecast import Forecast


class Clock:
    """A clock that stands where it is put."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_is_left_is_never_zero_seconds() -> None:
    """Whole seconds from half a second on; below that it is less than one."""
    clock, told = Clock(), list[str]()
    remaining = Remaining(clock=clock, tell=lambda text, share: told.append(text))
    remaining.start(cases=2, rounds=40, screening=False, later=0)
    clock.now = 1.0
    remaining.advance(0)
    for number, seconds in ((20, 3.0), (39, 4.9)):
        clock.now = seconds
        remaining.advance(number)
    assert told[1:] == [
        "2 cases still in, generation 1, round 21 of 40: about 2 s left",
        "2 cases still in, generation 1, round 40 of 40: less than a second left",
    ]


# Quickstart on two busy cores, by the seconds of its stage: 17 cases, then 7. A generation starts (its cases), or a
# round of it begins (its number).
RECORDED: tuple[tuple[float, int, int | None], ...] = (
    (8.2, 17, None), (20.8, 17, 0), (21.2, 17, 1), (22.3, 17, 5),
    (24.0, 3, None), (25.6, 3, 0), (25.9, 3, 1), (27.6, 3, None), (28.6, 3, 0), (28.9, 3, 1),
    (30.2, 3, None), (31.2, 3, 0), (31.5, 3, 1),
    (36.9, 7, None), (42.9, 7, 0), (43.2, 7, 1),
    (45.1, 2, None), (46.4, 2, 0), (46.7, 2, 1), (47.8, 2, None), (49.2, 2, 0), (49.5, 2, 1),
    (50.7, 2, None), (51.7, 2, 0), (52.0, 2, 1),
)  # fmt: skip
ENDED = 53.8


def replay() -> list[tuple[float, str]]:
    """What was told of the run, and when, where a race is as much of its stage as it has cases."""
    clock = Clock()
    forecast = Forecast(clock)
    forecast.expect({"report": 0.0})
    forecast.begin("measure")
    told: list[tuple[float, str]] = []
    done = of_stage = 0.0

    def tell(text: str, share: float) -> None:
        forecast.reach(done + share * of_stage, "measure")
        if (left := forecast.text()) and (not told or told[-1][1] != left):
            told.append((clock.now, left))

    remaining, later = Remaining(clock=clock, tell=tell), 0
    for seconds, cases, number in RECORDED:
        clock.now = seconds
        screening = cases in (17, 7)
        if number is not None:
            remaining.advance(number)
            continue
        if screening:
            done, of_stage = (0.0, 17 / 24) if cases == 17 else (17 / 24, 7 / 24)
            remaining, later = Remaining(clock=clock, tell=tell), 3
        else:
            later -= 1
        remaining.start(cases=cases, rounds=6 if screening else 7, screening=screening, later=later)
    return told


def test_the_first_estimate_of_a_recorded_run_is_near_its_end() -> None:
    """A screening of 17 cases, of which 3 stay, was taken for 2 more of its kind, and 7 cases for as long as 17: "about
    2 min left" of 33 s."""
    told = replay()
    assert told[0] == (21.2, "about half a minute left")
    assert [text for _, text in told[1:]] == ["a few seconds left"]
    assert ENDED - told[1][0] < 30


def watch_race(*steps: tuple[float, int], **plan: object) -> list[tuple[str, float]]:
    """What is told of one generation of ten rounds whose rounds begin at those seconds."""
    clock, told = Clock(), list[tuple[str, float]]()
    remaining = Remaining(clock=clock, tell=lambda text, share: told.append((text, share)))
    remaining.start(**{"cases": 3, "rounds": 10, "screening": False, "later": 0, **plan})  # type: ignore[arg-type]
    for clock.now, number in steps:
        remaining.advance(number)
    return told


def test_the_first_round_tells_nothing_yet() -> None:
    """How long a round takes is known from the second on."""
    assert [text for text, _ in watch_race((5.0, 0))] == ["3 cases still in, generation 1: 3 processes start"]


def test_it_is_told_once_a_second_at_most() -> None:
    """A line costs the coordinator time that the workers would notice: a second after the last, not sooner."""
    told = watch_race((0.5, 0), (0.75, 1), (1.0, 2), (1.5, 4), (1.875, 5), (2.0, 6))
    assert [text.partition(", round ")[2] for text, _ in told[1:]] == [
        "3 of 10: about 2 s left",
        "7 of 10: about 1 s left",
    ]


def test_later_generations_start_their_processes_and_run_their_rounds() -> None:
    """Two seconds for the start and one a round: twelve for each further generation, half of it after a screening of
    six, which leaves three in, and all of it after one of no more; with the share of the whole that is over."""
    steps = ((2.0, 0), (6.0, 4))
    assert watch_race(*steps)[-1] == ("3 cases still in, generation 1, round 5 of 10: about 6 s left", 6 / 12)
    assert watch_race(*steps, later=2)[-1] == (
        "3 cases still in, generation 1, round 5 of 10: about 30 s left",
        6 / 36,
    )
    for cases, left in ((6, 18), (3, 30), (2, 30)):
        assert watch_race(*steps, later=2, screening=True, cases=cases)[-1] == (
            f"screening {cases} cases, round 5 of 10: about {left} s left",
            6 / (6 + left),
        )


def test_one_case_is_one() -> None:
    """No plural; the processes that start are more, since a control runs beside it."""
    assert watch_race(cases=1)[0][0].startswith("1 case still in, generation 1: ")
    assert watch_race(cases=1, screening=True)[0][0].startswith("screening 1 case: ")


def test_the_share_never_goes_back() -> None:
    """A second generation that was not expected: what was told stands until more of the whole is over; the time that
    is spent counts from the first."""
    clock, told = Clock(), list[tuple[str, float]]()
    remaining = Remaining(clock=clock, tell=lambda text, share: told.append((text, share)))
    clock.now = 100.0
    for later in (0, 3):
        remaining.start(cases=2, rounds=4, screening=False, later=later)
        remaining.advance(0)
        clock.now += 3.0
        remaining.advance(3)
        clock.now += 1.0
    assert told == [
        ("2 cases still in, generation 1: 2 processes start", 0.0),
        ("2 cases still in, generation 1, round 4 of 4: about 1 s left", 0.75),
        ("2 cases still in, generation 2: 2 processes start", 0.75),
        ("2 cases still in, generation 2, round 4 of 4: about 13 s left", 0.75),
    ]
