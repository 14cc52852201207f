"""How much of the whole change came with the candidate that is named; pure."""

from __future__ import annotations

import math

from qbench.bisect.answer import Answer
from qbench.bisect.question import Question
from qbench.bisect.search import Judged


def find_share(question: Question, answer: Answer) -> float | None:
    """The part of the whole change of time or score that comes with the candidate that is named, as far as estimates
    tell."""
    bracket, judged = answer.bracket, answer.judged
    if question.on not in ("latency", "accuracy") or bracket is None or len(bracket.candidates) != 1:
        return None
    sizes = [_list_sizes(question, judged[place]) for place in (bracket.last_good, bracket.first_bad, question.last)]
    before, behind, whole = (None if size is None else size[1] for size in sizes)
    if behind is None or not whole or (before is None and bracket.last_good):
        return None
    return (behind - (before or 0.0)) / whole


def _list_sizes(question: Question, judged: Judged) -> tuple[float, float, float] | None:
    """The least, the estimated and the largest change for the worse from the good end: logarithms of time, or of the
    score; None where nothing was measured."""
    value = judged.value
    if value is None:
        return None
    low, high = (value.value if end is None else end for end in (value.low, value.high))
    if question.on == "latency":
        return math.log(low), math.log(value.value), math.log(high)
    return -high, -value.value, -low


def limit_whole(question: Question, answer: Answer) -> tuple[float, float] | None:
    """The limits of the change from the good end to the bad one, for the worse."""
    sizes = _list_sizes(question, answer.judged[question.last])
    return None if sizes is None else (sizes[0], sizes[2])


def limit_step(question: Question, answer: Answer) -> tuple[float, float] | None:
    """The limits of the change that came with the candidate that is named. Scores are of the same examples, so that the
    widest limits are more than wide enough."""
    bracket, judged = answer.bracket, answer.judged
    assert bracket is not None
    behind = _list_sizes(question, judged[bracket.first_bad])
    before = _list_sizes(question, judged[bracket.last_good]) if bracket.last_good else (0.0, 0.0, 0.0)
    if behind is None or before is None:
        return None
    if question.on == "accuracy":
        return behind[0] - before[2], behind[2] - before[0]
    middle, half = behind[1] - before[1], math.hypot((behind[2] - behind[0]) / 2, (before[2] - before[0]) / 2)
    return middle - half, middle + half
