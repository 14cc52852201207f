"""Rules of qbench/measure/remaining.py: what is told of a race while it runs."""

from __future__ import annotations

from qbench.measure.remaining import Remaining


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
