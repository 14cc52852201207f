"""How long a run will still take, coarsely: from what its stages took before and how far the one in hand is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

# The stages that count, in their order, and what belongs to them.
STAGES = ("prepare", "build", "evaluate", "measure", "report")
_PART_OF = {"runtimes": "evaluate", "layers": "evaluate"}
REPORT_SECONDS = 5.0  # it depends on little, so that it needs no earlier run
_LEAST_SHARE = 0.1  # before that, and before as many seconds, the pace of a stage says nothing
_LEAST_SECONDS = 3.0


class Forecast:
    """What is left of a run, and of the stage in hand where no earlier run tells how long the later ones take.

    Silent until ``expect`` says that this is a run. The seconds of the stage in hand come from its pace, the more so
    the further it is, and from what it took before.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._expected: dict[str, float] | None = None
        self.begin("")

    def expect(self, seconds: Mapping[str, float]) -> None:
        """What the stages will take, as far as that is known."""
        self._expected = {"report": REPORT_SECONDS, **seconds}

    def begin(self, stage: str) -> None:
        """A stage begins; a part of one goes on with it."""
        if stage not in _PART_OF:
            self._stage, self._began, self._share, self._reached = stage, self._clock(), 0.0, False

    def reach(self, share: float, stage: str) -> None:
        """The stage in hand is that far, 0 to 1; it never goes back."""
        if stage == self._stage:
            self._share, self._reached = max(self._share, min(1.0, share)), True

    def count(self, done: int, total: int | None, stage: str) -> None:
        """So many steps of the stage are done; no matter where ``reach`` tells better."""
        if stage == self._stage and total and not self._reached:
            self._share = max(self._share, min(1.0, done / total))

    def text(self) -> str:
        """``about 2 min left``, ``about 1 min of build left`` where the later stages are not known; else empty."""
        if self._expected is None or self._stage not in STAGES:
            return ""
        here = self._of_stage(self._expected.get(self._stage))
        later = [self._expected.get(stage) for stage in STAGES[STAGES.index(self._stage) + 1 :]]
        if here is None:
            return ""
        told = [seconds for seconds in later if seconds is not None]
        if len(told) < len(later):
            return f"{say_coarsely(here)} of {self._stage} left"
        return f"{say_coarsely(here + sum(told))} left"

    def _of_stage(self, expected: float | None) -> float | None:
        """The seconds left of the stage in hand; None where nothing tells."""
        spent, share = self._clock() - self._began, self._share
        pace = None
        if share >= _LEAST_SHARE and spent >= _LEAST_SECONDS:
            pace = spent * (1 - share) / share
        if expected is None:
            return pace
        rest = max(expected - spent, expected * (1 - share) * _LEAST_SHARE)
        return rest if pace is None else share * pace + (1 - share) * rest


def say_coarsely(seconds: float) -> str:
    """``a few seconds``, ``half a minute``, whole minutes, from ten on in steps of five, half hours."""
    if seconds < 15:
        return "a few seconds"
    if seconds < 45:
        return "about half a minute"
    minutes = round(seconds / 60)
    if minutes < 10:
        return f"about {minutes} min"
    if minutes < 58:
        return f"about {5 * round(minutes / 5)} min"
    return f"about {round(minutes / 30) / 2:g} h"
