"""The contract of a cause: when it may be at work, and the change to a case that takes it away."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from qbench.explain.change import Change
from qbench.explain.where_time_goes import TimeShares
from qbench.plan.cases import Case
from qbench.quant.artifacts.coverage import Layer


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What a cause is judged from: the case with its recipe (no open choices), its layers, where its time goes (None:
    the runtime does not tell), the variables that hide instructions from engines, the page faults of a call (None: not
    known), and the backends that can be used here."""

    case: Case
    layers: tuple[Layer, ...]
    times: TimeShares | None
    hiding_variables: tuple[str, ...] = ()
    faults_per_call: float | None = None
    backends: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Counterfactual:
    """The case without a cause: ``change`` takes it away, ``text`` says what is done otherwise."""

    cause: str
    text: str
    change: Change


class Cause(ABC):
    """One cause. ``title`` says what is wrong where it is confirmed."""

    name: ClassVar[str]
    title: ClassVar[str]

    @abstractmethod
    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The changes to try, none where it cannot be at work."""

    def counterfactual(self, text: str, change: Change) -> Counterfactual:
        """One that takes this cause away."""
        return Counterfactual(cause=self.name, text=text, change=change)
