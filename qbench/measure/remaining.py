"""What is being measured and what is left, for whoever watches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qbench.measure.protocol import Seconds, Tell

# Drawing costs the coordinator time that the workers would notice.
SAY_SECONDS = 1.0
STAYING = 0.5  # how much of a generation's time the arms take that a screening leaves in


def starting(case: str, number: int, processes: int, count: int) -> tuple[str, float]:
    """The text and the share done (0 to 1) where ``count`` processes of generation ``number`` start."""
    return f"{_where(case, number, processes)}: {count} processes start", number / processes


def measuring(case: str, number: int, processes: int, spent: Sequence[float], most: float) -> tuple[str, float]:
    """The same while cases are called: ``spent`` seconds of each open case in this generation, the first of them
    ``case``'s, of at most ``most``."""
    later = processes - number - 1
    left = sum(max(0.0, most - seconds) + later * most for seconds in spent)
    cases = "1 case" if len(spent) == 1 else f"{len(spent)} cases"
    share = (number + min(1.0, spent[0] / most)) / processes
    return f"{_where(case, number, processes)}: {cases} open here, at most {left:.0f} s left", share


def _where(case: str, number: int, processes: int) -> str:
    return f"{case}, process {number + 1} of {processes}"


@dataclass(kw_only=True)
class Remaining:
    """How long a race will still take, from how long its rounds and the starts of its processes took; told at most
    once a second."""

    clock: Seconds
    tell: Tell
    _began: float | None = None
    _started: float = 0.0
    _first_round: float | None = None
    _told: float = -math.inf
    _share: float = 0.0
    _generation: int = -1
    _plan: tuple[int, int, bool, int] = (0, 0, False, 0)

    def start(self, *, cases: int, rounds: int, screening: bool, later: int) -> None:
        """A generation of processes starts, ``later`` more are expected after it."""
        self._started, self._first_round = self.clock(), None
        self._began = self._started if self._began is None else self._began
        self._plan = (cases, rounds, screening, later)
        self._generation += 1
        self._told = self._started
        self.tell(f"{self._name()}: {cases} processes start", self._share)

    def advance(self, number: int) -> None:
        """Round ``number`` begins."""
        now = self.clock()
        if self._first_round is None:
            self._first_round = now
        _, rounds, screening, later = self._plan
        if number and now - self._told >= SAY_SECONDS:
            self._told = now
            a_round = (now - self._first_round) / number
            left = (rounds - number) * a_round
            a_generation = self._first_round - self._started + rounds * a_round
            left += later * a_generation * (STAYING if screening else 1.0)
            spent = now - (self._began or 0.0)
            self._share = max(self._share, spent / (spent + left) if spent + left > 0 else 0.0)
            self.tell(f"{self._name()}, round {number + 1} of {rounds}: about {left:.0f} s left", self._share)

    def _name(self) -> str:
        cases, _, screening, _ = self._plan
        counted = "1 case" if cases == 1 else f"{cases} cases"
        return f"screening {counted}" if screening else f"{counted} still in, generation {self._generation + 1}"
