"""What came of a whole run, in one sentence; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from qbench.decide import text as decide_text
from qbench.decide.decision import Decision
from qbench.decide.judged import Judged

_DONE = {
    "ship": "ship int8",
    "either": "ship either of two",
    "incomplete": "incomplete",
    "undecided": "undecided",
    "keep fp32": "keep fp32",
    "none qualifies": "no int8 qualifies",
    "no answer": "no answer",
}


def describe_run(decisions: Sequence[Decision], judged: Judged) -> str:
    """The answer with its figures where there is one setting, else how many settings have which answer."""
    if not decisions:
        return "No answer: the run has no record yet."
    if len(decisions) == 1:
        (only,) = decisions
        return f"{only.headline} {decide_text.facts(only, judged)}".rstrip()
    counts = Counter(decision.status for decision in decisions)
    parts = [f"{_DONE[verdict]} in {count}" for verdict, count in counts.items()]
    return f"Of {len(decisions):,} settings: {', '.join(parts)}."
