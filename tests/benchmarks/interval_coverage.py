"""How often the intervals that qbench prints hold the truth, and how often the tests on them err, by simulation.

    python tests/benchmarks/interval_coverage.py [SAMPLES [PART]]

A row a setting: the interval, what was drawn, the share of 95 % intervals that hold the truth, and of models exactly on
the margin (or the limit) the shares that pass and that fail the one-sided test at 5 %. ``before`` is how it was done
before: percentile bootstrap, Hall's straightened t, Student's t. SAMPLES: 400 by default, where a share of 5 % is known
to 1.1 %. Seeded; about 3 minutes of processor time.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import skew

from qbench.gating.error_rates import traces
from qbench.measure.paired_difference import difference_over_generations
from qbench.metrics.base import WholeMetric
from qbench.metrics.classes import F1
from qbench.metrics.detection import AP50, MAP, BoxScore
from qbench.metrics.next_token import NLL
from qbench.metrics.regression import R2, RMSE, SPEARMAN
from qbench.metrics.segmentation import MIOU
from qbench.metrics.texts import CER
from qbench.stats import intervals, jackknife, mcnemar, noninferiority
from qbench.stats.interval_type import Interval
from qbench.stats.jackknife import FactScore
from qbench.stats.mean_limits import UNSEEN, WeightedMean

Array = NDArray[Any]
Draw = Callable[[np.random.Generator], Array]
LEVELS = (0.95, 0.90)


@dataclass
class Tally:
    """Of the samples of one way in one setting: how many intervals held the truth, passed and failed on it."""

    samples: int = 0
    covered: int = 0
    passed: int = 0
    failed: int = 0

    def add(self, truth: float, limits: tuple[Interval, Interval], *, passes: bool = True) -> None:
        """One sample: its 95 % and its 90 % interval; ``passes`` False: too few examples to pass."""
        wide, narrow = limits
        self.samples += 1
        self.covered += not (_above(wide, truth) or _below(wide, truth))
        self.passed += _above(narrow, truth) and passes
        self.failed += _below(narrow, truth)

    def describe(self) -> str:
        """``95.2  3.1  4.0``: per cent."""
        return "".join(f"{100 * count / self.samples:7.1f}" for count in (self.covered, self.passed, self.failed))


def _above(interval: Interval, truth: float) -> bool:
    return interval.low is not None and interval.low > truth + 1e-12


def _below(interval: Interval, truth: float) -> bool:
    return interval.high is not None and interval.high < truth - 1e-12


@dataclass(frozen=True)
class Row:
    """One row of the table: what is estimated, from what, and the tallies by way."""

    interval: str
    setting: str
    now: Tally
    before: Tally | None = None


# --- means of values -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Losses:
    """A shape of per-example changes whose mean is 0."""

    name: str
    draw: Callable[[np.random.Generator, int], Array]


SHAPES = (
    Losses("normal", lambda rng, n: rng.normal(0, 1, n)),
    Losses("lognormal 1", lambda rng, n: math.exp(0.5) - rng.lognormal(0, 1, n)),
    Losses("lognormal 1.5", lambda rng, n: math.exp(1.125) - rng.lognormal(0, 1.5, n)),
    Losses("lognormal 2", lambda rng, n: math.exp(2) - rng.lognormal(0, 2, n)),
    Losses("1 % huge", lambda rng, n: 1 - 100 * (rng.random(n) < 0.01) + rng.normal(0, 0.1, n)),
    Losses("10 % lose", lambda rng, n: 0.1 * math.exp(0.5) - (rng.random(n) < 0.1) * rng.lognormal(0, 1, n)),
)


def hall(values: Array, level: float) -> Interval:
    """The t interval straightened by the skewness (Hall 1992), as it was before."""
    from scipy.special import stdtrit

    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
    bend, reach = float(skew(values)) / math.sqrt(len(values)), float(stdtrit(len(values) - 1, (1 + level) / 2))

    def find(x: float) -> float:
        return x if abs(bend) < 1e-6 else 3 / bend * (math.cbrt(1 + bend * (x - bend / 6)) - 1)

    return Interval(value=mean, low=mean - error * find(reach), high=mean - error * find(-reach))


def means(samples: int) -> Iterator[Row]:
    """The mean change of per-example values (mae, kl, sqnr, your own)."""
    rng = np.random.default_rng(1)
    for shape in SHAPES:
        for n in (100, 300, 1000):
            now, before = Tally(), Tally()
            for _ in range(samples):
                values = shape.draw(rng, n)
                sample = WeightedMean.of(values)
                enough = n >= UNSEEN
                now.add(0.0, (sample.interval(LEVELS[0]), sample.interval(LEVELS[1])), passes=enough)
                before.add(0.0, (hall(values, LEVELS[0]), hall(values, LEVELS[1])))
            yield Row("mean change", f"{shape.name}, n {n}", now, before)


# --- right or wrong --------------------------------------------------------------------------------------------------


def shares(samples: int) -> Iterator[Row]:
    """Accuracy by Wilson and by Clopper-Pearson; its paired change by Tango."""
    rng = np.random.default_rng(2)
    for n in (50, 450, 2000):
        for share in (0.8, 0.97):
            counts, wilson, exact = rng.binomial(n, share, 10 * samples), Tally(), Tally()
            for count in counts.tolist():
                wilson.add(share, _both(partial(intervals.proportion, count, n)))
                exact.add(share, _both(partial(intervals.clopper_pearson, count, n)))
            yield Row("accuracy, Wilson", f"{share:.0%}, n {n}", wilson)
            yield Row("error rate, Clopper-Pearson", f"{share:.0%}, n {n}", exact)
    for n in (50, 450, 2000):
        for flips, change in ((0.02, 0.0), (0.04, -0.01)):
            now = Tally()
            for lost, gained, _ in rng.multinomial(n, [(flips - change) / 2, (flips + change) / 2, 1 - flips], samples):
                wide = intervals.paired_proportions(int(gained), int(lost), n, LEVELS[0])
                narrow = noninferiority.assess_counts(int(gained), int(lost), n, -change).delta
                now.add(change, (wide, narrow))
            yield Row("change of accuracy, Tango", f"{flips:.0%} flips, {100 * change:+.0f} points, n {n}", now)


def _both(limits: Callable[[float], Interval]) -> tuple[Interval, Interval]:
    return limits(LEVELS[0]), limits(LEVELS[1])


# --- scores that no example has alone --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Classes:
    """A population: how often each class occurs, how often fp32 is right, how many answers flip, and how many more of
    these lose (1: all, 0: as many gain)."""

    name: str
    prevalence: tuple[float, ...]
    right: float
    flips: float
    bias: float

    def cells(self) -> tuple[Array, Array]:
        """Each label, fp32's answer and int8's (m, 3), with its probability."""
        size, cells, chances = len(self.prevalence), [], []
        harm = self.flips * (1 + self.bias) / 2 / self.right
        good = self.flips * (1 - self.bias) / 2 / (1 - self.right)
        for label, share in enumerate(self.prevalence):
            for old in range(size):
                chance = share * (self.right if old == label else (1 - self.right) / (size - 1))
                for new in range(size):
                    if old == label:
                        factor = 1 - harm if new == old else harm / (size - 1)
                    else:
                        factor = 1 - good if new == old else good * (new == label)
                    cells.append((label, old, new))
                    chances.append(chance * factor)
        kept = np.array(chances) > 0
        return np.array(cells)[kept], np.array(chances)[kept]


POPULATIONS = (
    Classes("5 equal classes", (0.2,) * 5, 0.9, 0.04, 0.5),
    Classes("rarest class 5 %", (0.5, 0.3, 0.15, 0.05), 0.9, 0.04, 0.5),
    Classes("rarest class 5 %, 1 % flips", (0.5, 0.3, 0.15, 0.05), 0.95, 0.01, 1.0),
    Classes("10 % positive", (0.9, 0.1), 0.8, 0.08, 0.25),
)


def macro_f1(cells: Array, weights: Array, column: int) -> float:
    """F1 of a population."""
    each = []
    for label in np.unique(cells[:, 0]):
        is_label, is_answer = cells[:, 0] == label, cells[:, column] == label
        each.append(2 * weights[is_label & is_answer].sum() / (weights[is_label].sum() + weights[is_answer].sum()))
    return float(np.mean(each))


def f1(samples: int) -> Iterator[Row]:
    """Macro F1, and its change on the same examples."""
    rng = np.random.default_rng(3)
    for population in POPULATIONS:
        cells, chances = population.cells()
        true = [macro_f1(cells, chances, column) for column in (1, 2)]
        for n in (50, 200, 1000):
            score, change, change_before = Tally(), Tally(), Tally()
            for _ in range(samples // 2):
                drawn = cells[rng.choice(len(cells), size=n, p=chances / chances.sum())]
                old, new = drawn[:, [1, 0]], drawn[:, [2, 0]]
                score.add(true[1], _both(partial(jackknife.limit_score, F1.fact_score, new)))
                change.add(
                    true[1] - true[0],
                    _both(partial(jackknife.limit_change, F1.fact_score, new, old)),
                )
                change_before.add(true[1] - true[0], percentile_limits(new, old, rng))
            yield Row("macro F1", f"{population.name}, n {n}", score)
            yield Row("change of macro F1", f"{population.name}, n {n}", change, change_before)


def percentile_limits(
    new: Array, old: Array, rng: np.random.Generator, resamples: int = 200
) -> tuple[Interval, Interval]:
    """The percentile bootstrap of the change, as it was before, of fewer resamples."""
    drawn = np.array(
        [
            F1.of_facts(new[index]) - F1.of_facts(old[index])
            for index in rng.integers(0, len(new), size=(resamples, len(new)))
        ]
    )
    value = F1.of_facts(new) - F1.of_facts(old)

    def limits(level: float) -> Interval:
        low, high = np.quantile(drawn, ((1 - level) / 2, (1 + level) / 2))
        return Interval(value=value, low=float(low), high=float(high))

    return _both(limits)


def regression(samples: int) -> Iterator[Row]:
    """The change of rmse, r2 and spearman, where int8 adds noise to fp32's outputs, more to some examples."""
    for metric in (RMSE, R2, SPEARMAN):
        rng = np.random.default_rng(4)
        for n in (100, 500):
            draws = [outputs_of(rng, 200_000 if metric is not SPEARMAN else 40_000) for _ in range(4)]
            truth = float(np.mean([_score_change(metric, *draw) for draw in draws]))
            now = Tally()
            for _ in range(samples // 4):
                labels, old, new = outputs_of(rng, n)
                facts = [metric.facts(outputs, labels) for outputs in (new, old)]
                sign = 1.0 if metric.higher_is_better else -1.0
                oriented = partial(_orient, metric, sign)
                limits = _both(partial(jackknife.limit_change, FactScore(of=oriented), *facts))
                now.add(sign * truth, limits)
            yield Row(f"change of {metric.name}", f"n {n}", now)


def outputs_of(rng: np.random.Generator, n: int) -> tuple[Array, Array, Array]:
    """Labels, fp32's outputs and int8's."""
    labels = rng.normal(0, 1, n)
    old = labels + rng.normal(0, 0.4, n)
    return labels, old, old + rng.normal(0, 0.05, n) * rng.lognormal(0, 1, n)


def _orient(metric: WholeMetric, sign: float, facts: Array) -> float:
    return sign * metric.of_facts(facts)


def _score_change(metric: WholeMetric, labels: Array, old: Array, new: Array) -> float:
    return float(metric.value(new, labels) - metric.value(old, labels))


PAIRS = 20_000  # of the population that samples are drawn from


def pairs(samples: int) -> Iterator[Row]:
    """spearman of the cosines of pairs against grades from 0 to 5, and its change where int8 adds noise to them, more
    to some pairs; ``halves``: grades in steps of a half, else of a fifth."""
    rng = np.random.default_rng(11)
    for name, steps, noise in (("fifths", 5, 0.05), ("halves", 2, 0.05), ("fifths, much noise", 5, 0.3)):
        alike = rng.beta(1.2, 1.0, PAIRS)
        grades = np.round(5 * np.clip(alike + rng.normal(0, 0.08, PAIRS), 0, 1) * steps) / steps
        old = alike + rng.normal(0, 0.15, PAIRS)
        new = old + noise * rng.normal(0, 1, PAIRS) * rng.lognormal(-0.5, 0.7, PAIRS)
        facts = [SPEARMAN.facts(outputs, grades) for outputs in (new, old)]
        truth = [SPEARMAN.of_facts(each) for each in facts]
        for n in (50, 200, 500, 1000):
            score, change = Tally(), Tally()
            for _ in range(samples // (1 if n < 500 else 2)):
                drawn = rng.integers(0, PAIRS, n)
                ours, theirs = (SPEARMAN.facts(outputs[drawn], grades[drawn]) for outputs in (new, old))
                score.add(truth[0], _both(partial(jackknife.limit_score, SPEARMAN.fact_score, ours)))
                change.add(
                    truth[0] - truth[1], _both(partial(jackknife.limit_change, SPEARMAN.fact_score, ours, theirs))
                )
            yield Row("spearman of pairs", f"{name}, {truth[0]:.3f}, n {n}", score)
            yield Row("change of spearman of pairs", f"{name}, {truth[0] - truth[1]:+.4f}, n {n}", change)


# --- scenes ----------------------------------------------------------------------------------------------------------

SCENES = DOCUMENTS = 5000  # of the population that samples are drawn from


def scenes(samples: int) -> Iterator[Row]:
    """map, ap50 and miou of images drawn from a population of scenes, and their change where int8 moves boxes, drops
    some objects, and gives some pixels another class; boxes of three classes, and of one."""
    rng = np.random.default_rng(7)
    of_boxes = [
        (metric, f"{classes} classes", found_boxes(rng, metric, classes))
        for classes in (3, 1)
        for metric in (MAP, AP50)
    ]
    for metric, kind, (old, new) in (*of_boxes, (MIOU, "4 classes", counted_pixels(rng))):
        truth = [metric.of_facts(facts) for facts in (old, new)]
        for n in (50, 200, 500):
            score, change = Tally(), Tally()
            for _ in range(samples // (2 if n < 500 else 4)):
                drawn = rng.integers(0, SCENES, n)
                score.add(truth[1], _both(partial(jackknife.limit_score, metric.fact_score, new[drawn])))
                limits = _both(partial(jackknife.limit_change, metric.fact_score, new[drawn], old[drawn]))
                change.add(truth[1] - truth[0], limits)
            yield Row(metric.name, f"{truth[1]:.2f}, n {n}, {kind}", score)
            drawn_change = f"{100 * (truth[1] - truth[0]):+.1f} points, n {n}, {kind}"
            yield Row(f"change of {metric.name}", drawn_change, change)


def found_boxes(rng: np.random.Generator, metric: BoxScore, classes: int) -> tuple[Array, Array]:
    """Facts of fp32's boxes and of int8's on scenes of 1 to 5 objects of one class, or of three, the third in one of
    ten."""
    shares = (0.5, 0.4, 0.1) if classes == 3 else (1.0,)
    scale = rng.normal(0, 1, SCENES)  # scenes are easy or hard as a whole
    outputs: list[list[Array]] = [[], []]
    labels = []
    for hardness in scale:
        count = int(rng.integers(1, 6))
        corners = np.stack([np.arange(count) * 100.0, np.zeros(count)], axis=1)
        kinds = rng.choice(classes, size=(count, 1), p=shares)
        labels.append(np.concatenate([corners, corners + 40, kinds, np.zeros((count, 1))], axis=1))
        shift = np.abs(rng.normal(0, 2.5 * math.exp(0.4 * hardness), (count, 1)))
        score = 1 / (1 + np.exp(-rng.normal(1.5 - hardness, 1, (count, 1))))
        detected = rng.random(count) < 0.93
        false = int(rng.poisson(1.5))
        away = np.stack([np.arange(false) * 100.0, np.full(false, 500.0)], axis=1)
        others = np.concatenate([rng.beta(1.2, 5, (false, 1)), rng.choice(classes, size=(false, 1))], axis=1)
        for place, moved, lost in ((0, 0.0, 0.0), (1, 0.6, 0.02)):
            beside = np.abs(shift + moved * rng.normal(0, 1, (count, 1)))
            kept = detected & (rng.random(count) >= lost)
            boxes = np.concatenate([corners + beside, corners + beside + 40, score, kinds], axis=1)[kept]
            nothing = np.concatenate([away, away + 40, others], axis=1)
            rows = np.full((16, 6), -1.0)
            rows[: len(boxes) + false] = np.concatenate([boxes, nothing])[:16]
            rows[:, 4] += place * rng.normal(0, 0.02, 16)
            outputs[place].append(rows)
    joined = np.full((SCENES, 5, 6), -1.0)
    for row, label in zip(joined, labels, strict=True):
        row[: len(label)] = label
    old, new = (metric.facts(np.stack(rows), joined) for rows in outputs)
    return jackknife.align_facts(old, new)


def counted_pixels(rng: np.random.Generator) -> tuple[Array, Array]:
    """Facts of masks of four classes, one of them in one scene of twenty: right, chosen and labelled pixels."""
    facts = np.zeros((2, SCENES, 3, 4))
    for number in range(SCENES):
        present = np.array([1, rng.random() < 0.7, rng.random() < 0.4, rng.random() < 0.05], dtype=bool)
        labelled = np.where(present, rng.lognormal(6, 0.8, 4), 0).astype(int)
        share = 1 / (1 + np.exp(-rng.normal(2, 0.7, 4)))
        for place in (0, 1):
            right = np.minimum(labelled, (labelled * share * np.exp(place * rng.normal(-0.005, 0.02, 4))).astype(int))
            wrong = int((labelled - right).sum())
            chosen = right + np.floor(wrong * np.array([0.55, 0.2, 0.15, 0.1])).astype(int)
            facts[place, number] = right, chosen, labelled
    return facts[0], facts[1]


# --- documents -------------------------------------------------------------------------------------------------------


def documents(samples: int) -> Iterator[Row]:
    """token_flips, nll, token_kl and the change of nll by document: tokens of one flip together, and some documents are
    three times as long as others. Turned round, so that a model on the margin passes above it."""
    rng = np.random.default_rng(8)
    facts = count_tokens(rng)

    def score(rows: Array) -> float:
        return -NLL.of_facts(rows)

    for n in (20, 50, 100, 300):
        for name in ("token_flips", "token_kl", "nll", "change of nll"):
            now, (old, new) = Tally(), facts[name]
            truth = score(new) - score(old)
            for _ in range(samples):
                drawn = rng.integers(0, DOCUMENTS, n)
                if name == "change of nll":
                    limits = _both(partial(jackknife.limit_change, FactScore(of=score), new[drawn], old[drawn]))
                else:
                    limits = _both(partial(jackknife.limit_score, FactScore(of=score), new[drawn]))
                now.add(truth, limits)
            yield Row(name, f"{-truth:.3g}, n {n}", now)


def count_tokens(rng: np.random.Generator) -> dict[str, tuple[Array, Array]]:
    """Of each document the sum over its tokens and their number, for fp32 and int8."""
    counts = rng.lognormal(5.8, 0.6, DOCUMENTS).astype(int) + 2
    hard = rng.normal(0, 1, DOCUMENTS)  # a document is hard as a whole
    surprise = counts * (4.5 + 0.5 * hard) + rng.normal(0, 1, DOCUMENTS) * np.sqrt(counts) * 2.5
    more = counts * rng.normal(0.004, 0.006, DOCUMENTS) + rng.normal(0, 1, DOCUMENTS) * np.sqrt(counts) * 0.05
    flips = rng.binomial(counts, (0.025 * np.exp(0.5 * hard - 0.125)).clip(max=1))
    divergence = counts * 3e-4 * np.exp(0.8 * rng.normal(0, 1, DOCUMENTS) - 0.32)
    none = np.zeros(DOCUMENTS)
    pairs = {
        "token_flips": (none, flips),
        "token_kl": (none, divergence),
        "nll": (none, surprise),
        "change of nll": (surprise, surprise + more),
    }
    return {name: tuple(np.stack([sums, counts], axis=1) for sums in pair) for name, pair in pairs.items()}  # type: ignore[misc]


# --- texts -----------------------------------------------------------------------------------------------------------

LINES = 20_000  # of the population that samples are drawn from


def texts(samples: int) -> Iterator[Row]:
    """The error rate of recognized texts, edits over letters, and its change where int8 reads a few lines otherwise:
    some letters, or nothing of the line."""
    rng = np.random.default_rng(8)
    oriented = partial(_orient, CER, -1.0)
    for wrong, changed in ((0.05, 0.03), (0.15, 0.06)):
        old, new = read_lines(rng, wrong, changed)
        truth = [oriented(facts) for facts in (old, new)]
        for n in (50, 200, 500, 2000):
            score, change = Tally(), Tally()
            for _ in range(samples):
                drawn = rng.integers(0, LINES, n)
                score.add(truth[1], _both(partial(jackknife.limit_score, FactScore(of=oriented), new[drawn])))
                limits = _both(partial(jackknife.limit_change, FactScore(of=oriented), new[drawn], old[drawn]))
                change.add(truth[1] - truth[0], limits)
            yield Row("cer", f"{-truth[1]:.1%}, n {n}", score)
            yield Row("change of cer", f"{100 * (truth[0] - truth[1]):+.2f} points, n {n}", change)


def read_lines(rng: np.random.Generator, wrong: float, changed: float) -> tuple[Array, Array]:
    """Edits and letters of each line, fp32's and int8's: some lines have a few wrong letters, one in four of these is
    not read at all; of those that int8 changes two of three get worse."""
    letters = np.ceil(rng.lognormal(2.3, 0.5, LINES))
    few = 1 + rng.geometric(0.5, (2, LINES))
    lost = rng.random((2, LINES)) < 0.25
    old = np.where(rng.random(LINES) < wrong, np.where(lost[0], letters, np.minimum(few[0], letters)), 0)
    worse = np.where(lost[1], letters, np.minimum(old + few[1], letters))
    better = np.maximum(old - few[1], 0)
    other = np.where(rng.random(LINES) < 2 / 3, worse, better)
    new = np.where(rng.random(LINES) < changed, other, old)
    return np.stack([old, letters], axis=1), np.stack([new, letters], axis=1)


# --- times -----------------------------------------------------------------------------------------------------------


def speedups(samples: int) -> Iterator[Row]:
    """The speed-up over 1 to 9 processes: normal ones that differ by 2 %, their blocks by 1.5 %, and recorded ones."""
    rng = np.random.default_rng(5)
    for processes in (1, 2, 3, 6, 9):
        now = Tally()
        for _ in range(4 * samples):
            blocks = {at: rng.normal(0, 0.02) + rng.normal(0, 0.015, 12) for at in range(processes)}
            now.add(0.0, limit_speedup(blocks))
        yield Row("speed-up", f"{processes} processes, normal", now)
        for trace in traces():
            now, truth = Tally(), float(np.median(trace.ratios, axis=1).mean())
            for _ in range(4 * samples):
                drawn = rng.integers(0, len(trace.ratios), processes)
                now.add(truth, limit_speedup(dict(enumerate(trace.ratios[drawn]))))
            yield Row("speed-up", f"{processes} processes, recorded ({trace.name})", now)


def limit_speedup(blocks: dict[int, Array]) -> tuple[Interval, Interval]:
    """The interval that a record holds, as logarithms."""
    difference = difference_over_generations(blocks)
    assert difference is not None
    limits = (difference.limits(level) for level in LEVELS)
    wide, narrow = (Interval(value=difference.value, low=low, high=high) for low, high in limits)
    return wide, narrow


# --- p-values --------------------------------------------------------------------------------------------------------


def p_values(samples: int) -> Iterator[str]:
    """How often "no change" is rejected at 5 % where nothing changed, by the mid-p value of McNemar's test."""
    rng = np.random.default_rng(6)
    for flips in (5, 10, 20, 50, 200):
        lost = rng.binomial(flips, 0.5, 20 * samples)
        rejected = 100 * float((mcnemar.midps(lost, flips - lost) <= 0.05).mean())
        yield f"mid-p McNemar, {flips} flips: rejects {rejected:.1f} % where nothing changed"


PARTS: dict[str, Callable[[int], Iterator[Row]]] = {
    "means": means,
    "shares": shares,
    "f1": f1,
    "regression": regression,
    "pairs": pairs,
    "scenes": scenes,
    "documents": documents,
    "texts": texts,
    "speedups": speedups,
}


def main(samples: int, only: str | None = None) -> None:
    """Prints the table."""
    print(f"{'interval':28}{'drawn':44}  holds   PASS   FAIL | before: holds  PASS   FAIL")
    for name, part in PARTS.items():
        if only in (None, name):
            for row in part(samples):
                earlier = f" |      {row.before.describe()}" if row.before else ""
                print(f"{row.interval:28}{row.setting:44}{row.now.describe()}{earlier}", flush=True)
    for line in p_values(samples) if only is None else ():
        print(line)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400, sys.argv[2] if len(sys.argv) > 2 else None)
