"""On which side a candidate's answers lie, by those of the same examples at both ends; pure.

**bits**: whether every output is that of the good end, bit by bit; answers that are neither end's are changed ones.

**accuracy**: the score of each example against the mean of what both ends score on it, by the paired test of the
accuracy gate (``stats.noninferiority``) with a margin of 0: above it is the good side. A candidate that answers as one
end does on every example is decided as surely as the ends differ; more surely, since which end it answers like is no
matter of samples. A score that no example has alone is judged by the jackknife, as the gate judges it. Of several
outputs the one that is judged is that which lost most between the ends (``choose_output``).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.bisect.search import Judged, Side
from qbench.metrics.base import ANSWERS, list_outputs
from qbench.stats import jackknife, noninferiority, thresholds
from qbench.stats.interval_type import Interval
from qbench.stats.jackknife import FactScore
from qbench.stats.noninferiority import LEVEL, Bounds

Array = NDArray[Any]
_DIGEST = 16  # bytes: of a billion examples no two share one


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What a metric says of each example, better being higher: ``values`` (n), or facts (n x …) of which ``score``
    makes the score of several; ``bounds`` are those of the value of one."""

    values: Array
    score: FactScore | None = None
    bounds: Bounds = (None, None)

    @property
    def total(self) -> float:
        """The score of all of them."""
        return float(self.values.mean()) if self.score is None else self.score(self.values)


def judge_scores(candidate: Scored, good: Scored, bad: Scored) -> Judged:
    """A candidate between the ends; its value is the change of the score from the good end's, with 90 % limits."""
    change, size = compare_scores(candidate, good), len(good.values)
    for end, side in ((good, "good"), (bad, "bad")):
        if np.array_equal(candidate.values, end.values):
            known: Side = "good" if side == "good" else "bad"
            return Judged(side=known, p_bad=float(side == "bad"), value=change, size=size)
    beyond = _limit_beyond_middle(candidate, good, bad, change)
    outcome = thresholds.decide(beyond, 0.0, wanted="above")
    sides: dict[str, Side] = {"PASS": "good", "FAIL": "bad", "INCONCLUSIVE": "open"}
    p_bad = 1 - thresholds.p_value_beyond(beyond, 0.0, side="below", level=LEVEL)
    p_bad = 0.5 if beyond.low is None else p_bad
    return Judged(side=sides[outcome], p_bad=p_bad, value=change, size=size)


def choose_output(good: Mapping[str, Scored], bad: Mapping[str, Scored]) -> str | None:
    """The name of the output whose score the bad end is shown to lower by most, or is nearest to being shown to; None
    where no output was judged at both ends."""
    names = [name for name in good if name in bad]
    if len(names) < 2:
        return next(iter(names), None)

    def find_least_loss(name: str) -> float:
        if np.array_equal(good[name].values, bad[name].values):
            return math.inf
        change = compare_scores(bad[name], good[name], _share_level(len(names)))
        return change.value if change.high is None else change.high

    return min(names, key=find_least_loss)


def _share_level(count: int) -> float:
    """The level of the limits of each of so many outputs that share one error (Bonferroni)."""
    return 1 - (1 - LEVEL) / count


def judge_score_end(good: Scored, bad: Scored, outputs: int = 1) -> Judged:
    """The bad end: ``good`` where it is not shown to score lower than the good one, by a one-sided test at 5 %, which
    so many ``outputs`` share."""
    change = compare_scores(bad, good, _share_level(outputs))
    worse = change.high is not None and change.high < 0
    return Judged(side="bad" if worse else "good", p_bad=float(worse), value=change, size=len(good.values))


def compare_scores(new: Scored, old: Scored, level: float = LEVEL) -> Interval:
    """The change of the score, better being positive, with limits; none where no example changed."""
    if np.array_equal(new.values, old.values):
        return Interval(value=0.0)
    if new.score is None:
        return noninferiority.assess_examples(new.values, old.values, 0.0, level, new.bounds).delta
    after, before = jackknife.align_facts(new.values, old.values)
    return jackknife.limit_change(new.score, after, before, level)


def _limit_beyond_middle(candidate: Scored, good: Scored, bad: Scored, change: Interval) -> Interval:
    """How far the candidate scores above the middle of both ends, with the limits of its change where the score is none
    of single examples."""
    if candidate.score is not None:
        half = (bad.total - good.total) / 2
        low, high = (None if end is None else end - half for end in (change.low, change.high))
        return Interval(value=change.value - half, low=low, high=high)
    middle = (good.values.astype(float) + bad.values) / 2
    return noninferiority.assess_examples(candidate.values.astype(float), middle, 0.0, LEVEL).delta


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What a file of answers says, in few bytes: which ``examples``, the ``form`` of all outputs, and a digest of what
    each example got (n x 16)."""

    examples: bytes
    form: str
    rows: Array


def digest_answers(predictions: Mapping[str, Array]) -> Answered:
    """The digests of a file of predictions: of all outputs, and of what a postprocess made of them."""
    names = [*list_outputs(predictions), *([ANSWERS] if ANSWERS in predictions else [])]
    arrays = [np.ascontiguousarray(predictions[name]) for name in names]
    count = max(map(len, arrays))
    rows = np.zeros((count, _DIGEST), dtype=np.uint8)
    for place in range(count):  # of large outputs only the first examples' are kept
        digest = hashlib.blake2b(digest_size=_DIGEST)
        for array in arrays:
            digest.update(array[place].tobytes() if place < len(array) else b"")
        rows[place] = np.frombuffer(digest.digest(), dtype=np.uint8)
    contents = predictions.get("contents")
    return Answered(
        examples=str(count).encode() if contents is None else np.ascontiguousarray(contents).tobytes(),
        form="; ".join(f"{name} {array.dtype} {array.shape[1:]}" for name, array in zip(names, arrays, strict=True)),
        rows=rows,
    )


def judge_bits(candidate: Answered, good: Answered) -> Judged:
    """Whether a candidate gives what the good end gives; its value is the share of examples that differ."""
    share, size = share_changed(candidate, good), len(good.rows)
    return Judged(side="bad" if share else "good", p_bad=float(share > 0), value=Interval(value=share), size=size)


def share_changed(new: Answered, old: Answered) -> float:
    """The share of examples of which some output is another, bit by bit; all of them where the outputs have another
    form."""
    if new.form != old.form or new.rows.shape != old.rows.shape:
        return 1.0
    return float((new.rows != old.rows).any(axis=1).mean())
