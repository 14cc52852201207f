"""The answer of a bisection as JSON, for programs; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from qbench.bisect.answer import Answer
from qbench.bisect.question import Question
from qbench.bisect.search import Judged
from qbench.bisect.step_size import find_share
from qbench.bisect.text import sum_up
from qbench.record.stored_run import MetricInfo


def as_json(question: Question, answer: Answer, files: Mapping[str, str], metric: MetricInfo | None = None) -> str:
    """The answer for a program. ``named``: the candidate, null where none is named; ``candidates``: of which it is one;
    ``chance``: that it is among these; ``looks``: what is known of each that was looked at."""
    bracket = answer.bracket
    places = [] if bracket is None else list(bracket.candidates)
    places = [place - 1 for place in places] if question.mended else places
    said: dict[str, Any] = {
        "answer": answer.kind.replace(" ", "_"),
        "exit_code": answer.exit_code,
        "text": sum_up(question, answer, metric),
        "case": question.case,
        "on": question.on,
        "way": question.way,
        "of": question.of,
        "good": question.candidates[0],
        "bad": question.candidates[question.last],
        "mended": question.mended,
        "named": question.candidates[places[0]] if answer.kind == "named" else None,
        "candidates": [question.candidates[place] for place in sorted(places)],
        "chance": None if bracket is None else bracket.chance,
        "share": find_share(question, answer),
        "looks": [_look_as_json(question, place, judged) for place, judged in sorted(answer.judged.items())],
        **files,
    }
    return json.dumps(said, indent=1, ensure_ascii=False, allow_nan=False)


def _look_as_json(question: Question, place: int, judged: Judged) -> dict[str, Any]:
    value = judged.value
    return {
        "candidate": question.candidates[place],
        "side": judged.side,
        "value": None if value is None else {"value": value.value, "low": value.low, "high": value.high},
        "size": judged.size or None,
        "p_bad": judged.p_bad,
        "output": judged.output,
        "reason": judged.reason,
    }
