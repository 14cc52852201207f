"""The next step of a bisection, or its answer, from what is known of each candidate; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from qbench.bisect.question import Question
from qbench.bisect.search import Bracket, Judged, Look, find_bracket, search

# named: one candidate, surely enough. several: one of these. doubtful: one, and not surely enough. same, better: the
# ends do not differ, or the bad one is the better. open: the ends cannot be told apart. good unusable, bad unusable:
# that end cannot be looked at, or is bad itself. cut: the time that may be spent is over.
Kind = Literal["named", "several", "doubtful", "same", "better", "open", "good unusable", "bad unusable", "cut"]
# As the gate's: 0 an answer, 3 nothing to search for, 4 not decided.
EXIT_CODES: Mapping[Kind, int] = {
    "named": 0,
    "several": 4,
    "doubtful": 4,
    "open": 4,
    "cut": 4,
    "same": 3,
    "better": 3,
    "good unusable": 3,
    "bad unusable": 3,
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a bisection gives. ``bracket``: where the first bad one is, None where the ends are no ends; ``judged``:
    what is known of each candidate that was looked at, by number."""

    kind: Kind
    judged: Mapping[int, Judged]
    bracket: Bracket | None = None

    @property
    def exit_code(self) -> int:
        """Of the command."""
        return EXIT_CODES[self.kind]


def choose_step(question: Question, judged: Mapping[int, Judged]) -> Look | Answer:
    """Which candidate to look at next, or the answer: first the good end, then the bad one, then those between."""
    last = question.last
    for place in (0, last):
        if place not in judged or (judged[place].side == "open" and judged[place].more):
            return Look(candidate=place)
        if (refusal := _refuse_end(question, judged, place)) is not None:
            return refusal
    step = search(judged, last)
    if isinstance(step, Look):
        return step
    return Answer(kind=_name_kind(step), judged=judged, bracket=step)


def cut_short(question: Question, judged: Mapping[int, Judged]) -> Answer:
    """The answer where no more time may be spent: the bracket so far, if the ends are known."""
    known = {place: judged[place].side for place in (0, question.last) if place in judged}
    if known != {0: "good", question.last: "bad"}:
        return Answer(kind="cut", judged=judged)
    return Answer(kind="cut", judged=judged, bracket=find_bracket(judged, question.last))


def _refuse_end(question: Question, judged: Mapping[int, Judged], place: int) -> Answer | None:
    end = judged[place]
    if place == 0:
        return None if end.side == "good" else Answer(kind="good unusable", judged=judged)
    kinds: Mapping[str, Kind] = {"open": "open", "skipped": "bad unusable"}
    if end.side == "good":
        return Answer(kind="better" if _is_better(question, end) else "same", judged=judged)
    return Answer(kind=kinds[end.side], judged=judged) if end.side in kinds else None


def _is_better(question: Question, end: Judged) -> bool:
    """Whether the bad end is shown to be the better one."""
    value = end.value
    if value is None or value.low is None or value.high is None:
        return False
    return value.high < 1 if question.on == "latency" else question.on == "accuracy" and value.low > 0


def _name_kind(bracket: Bracket) -> Kind:
    if len(bracket.candidates) > 1:
        return "several"
    return "named" if bracket.is_named else "doubtful"
