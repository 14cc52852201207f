"""What is being measured and what is left, for whoever watches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from qbench.measure.protocol import Seconds
from qbench.progress.callback import Progress

# Drawing costs the coordinator time that the workers would notice.
SAY_SECONDS = 1.0
STAYING = 3  # arms that a screening leaves in, beside the control: of 17 arms 3, of 7 arms 2 (quickstart)


@dataclass(kw_only=True)
class Remaining:
    """How long a race will still take, from how long its rounds and the starts of its processes took; told at most
    once a second."""

    clock: Seconds
    tell: Progress
    _began: float | None = None
    _started: float = 0.0
    _first_round: float | None = None
    _told: float = -math.inf
    _share: float = 0.0
    _generation: int = -1
    _plan: tuple[int, int, bool, int] = field(init=False)

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
        cases, rounds, screening, later = self._plan
        if number and now - self._told >= SAY_SECONDS:
            self._told = now
            a_round = (now - self._first_round) / number
            left = (rounds - number) * a_round
            a_generation = self._first_round - self._started + rounds * a_round
            left += later * a_generation * (min(1.0, STAYING / cases) if screening else 1.0)
            spent = now - (self._began or 0.0)
            self._share = max(self._share, spent / (spent + left) if spent + left > 0 else 0.0)
            seconds = f"about {left:.0f} s" if left >= 0.5 else "less than a second"
            self.tell(f"{self._name()}, round {number + 1} of {rounds}: {seconds} left", self._share)

    def _name(self) -> str:
        cases, _, screening, _ = self._plan
        counted = "1 case" if cases == 1 else f"{cases} cases"
        return f"screening {counted}" if screening else f"{counted} still in, generation {self._generation + 1}"
