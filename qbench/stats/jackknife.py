"""Limits on a score that no example has alone, such as F1, and on the change of one; pure.

Each example gets its share of the score: how the score falls when the example is left out (Tukey's pseudo-values, whose
mean is the score but for bias). Their mean is then limited like any mean of values of unknown shape (``mean_limits``),
the score of an example that was not seen among them: the label that occurs least, given the wrong answer or the right
one. So a loss in a rare class counts for what it would cost.

A bootstrap of few changed examples shows nothing of those that were not drawn: where a change of macro F1 is judged at
its true value, percentile limits at 95 % missed 5 to 25 % with 50 examples, and BCa limits missed more than percentile
limits with 200 to 1,000 (``tests/benchmarks/interval_coverage.py``).

A score that moves in steps, such as the precision at 101 recalls, hardly changes or jumps by a whole step where one
example is left out: a real change of ap50 on 100 and 300 images got limits of -1.06 to -0.97 and of -15 to 11 points.
There many are left out at once (Shao and Wu, Annals of Statistics 17 (1989), 1176-1197): ``FactScore.groups``.

Source: Miller, Biometrika 61 (1974), 1-15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.stats.interval_type import Interval
from qbench.stats.mean_limits import WeightedMean

Array = NDArray[Any]
# More distinct examples than this are left out in groups: each takes a score of all the others.
MOST_DISTINCT = 1000
RAREST_LABELS = 10


@dataclass(frozen=True, kw_only=True)
class FactScore:
    """A score as a function of examples' facts. ``groups``: how many parts of the examples are left out, one after the
    other, where the score moves in steps (None: each example)."""

    of: Callable[[Array], float]
    groups: int | None = None

    def __call__(self, facts: Array) -> float:
        """The score of examples with these facts."""
        return self.of(facts)

    def turn(self, sign: float) -> FactScore:
        """The score times 1 or -1."""
        return replace(self, of=lambda facts: sign * self.of(facts))


def limit_score(score: FactScore, facts: Array, level: float = 0.95) -> Interval:
    """``score`` of ``facts`` (one row an example), with limits."""
    return _limit(FactScore(of=lambda rows: score(rows[:, 0]), groups=score.groups), facts[:, None], level)


def limit_change(score: FactScore, new: Array, old: Array, level: float = 0.95) -> Interval:
    """``score`` of the facts ``new`` minus that of ``old`` on the same examples, with limits; None where no example
    changed and none that could is known."""
    change = FactScore(of=lambda rows: score(rows[:, 0]) - score(rows[:, 1]), groups=score.groups)
    return _limit(change, np.stack([new, old], axis=1), level)


def align_facts(new: Array, old: Array) -> tuple[Array, Array]:
    """Facts of two variants (n, rows, …) with as many rows for each example, those that are missing filled with -1: a
    detector finds more boxes in one than in the other."""
    if new.ndim != 3 or old.ndim != 3 or new.shape[1] == old.shape[1]:
        return new, old
    rows = max(new.shape[1], old.shape[1])
    filled = [np.pad(x, [(0, 0), (0, rows - x.shape[1]), (0, 0)], constant_values=-1) for x in (new, old)]
    return filled[0], filled[1]


def _limit(function: FactScore, rows: Array, level: float) -> Interval:
    """``rows``: (n, variants, facts of an example …)."""
    n, value = len(rows), function(rows)
    shares, counts, size = _share_out(function, rows, value)
    shares = shares + (value - float((shares * counts).sum()) / counts.sum())
    unseen = [
        value + ((n + 1) * (function(np.concatenate([rows, row[None]])) - value)) / size for row in _add_unseen(rows)
    ]
    sample = WeightedMean.of(np.repeat(shares, counts))
    if unseen:
        sample = WeightedMean(
            values=sample.values,
            counts=sample.counts,
            lowest=min(*unseen, float(sample.values[0])),
            highest=max(*unseen, float(sample.values[-1])),
        )
    limits = sample.interval(level)
    return Interval(value=value, low=limits.low, high=limits.high)


def _share_out(function: FactScore, rows: Array, value: float) -> tuple[Array, Array, float]:
    """The share of each distinct example, or of each part, how often it occurs, and how many examples it stands for."""
    n = len(rows)
    if n < 2:
        return np.array([value]), np.array([1]), 1.0
    _, first, counts = np.unique(rows.reshape(n, -1), axis=0, return_index=True, return_counts=True)
    most = MOST_DISTINCT if function.groups is None else function.groups
    if function.groups is None and len(first) <= most:
        groups = [np.array([place]) for place in first]
        group_count = n
    else:
        groups = np.array_split(np.random.default_rng(0).permutation(n), min(n, most))
        counts, group_count = np.ones(len(groups), dtype=int), len(groups)
    left_in = np.ones(n, dtype=bool)
    without = []
    for group in groups:
        left_in[group] = False
        without.append(function(rows[left_in]))
        left_in[group] = True
    return group_count * value - (group_count - 1) * np.array(without), counts, n / group_count


def _add_unseen(rows: Array) -> Iterator[Array]:
    """Examples that one variant has wrong and the other has right, of the labels that occur least; none where facts are
    not an answer and a label."""
    if rows.ndim != 3 or rows.shape[2] != 2 or rows.dtype.kind not in "iu":
        return
    labels, counts = np.unique(rows[:, 0, 1], return_counts=True)
    answers, answer_counts = np.unique(rows[:, 0, 0], return_counts=True)
    for label in labels[np.argsort(counts, kind="stable")[:RAREST_LABELS]]:
        other_answers = answers[np.argsort(answer_counts, kind="stable")]
        other_answers = other_answers[other_answers != label]
        wrong = [int(other_answers[0]) if len(other_answers) else int(label) + 1, int(label)]
        right = [int(label), int(label)]
        pair = (wrong, right) if rows.shape[1] == 2 else (wrong,)
        yield np.array(pair, dtype=rows.dtype)
        yield np.array(pair[::-1] if rows.shape[1] == 2 else (right,), dtype=rows.dtype)
