"""Rules of qbench/gating/accuracy.py, after the error rates of its verdict: simulated on whole sets of examples, with
the functions that the gate calls.

The sizes and powers are those that qbench/guide/evidence/accuracy.md has. Seeded, so a rate is one number; the bands
around it are what 20,000 simulated models leave open.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from judged_case import HEAD
from made_records import CASE, accuracy, fp32, info, int8

from qbench.evaluate import flips
from qbench.gating.baseline import Baseline
from qbench.gating.rules import judge_records
from qbench.gating.verdict import Verdict
from qbench.record.example_scores import ExampleScores
from qbench.record.schema import Accuracy, Record
from qbench.record.stored_run import MetricInfo
from qbench.stats import intervals, jackknife, mcnemar, multiple_testing, noninferiority, thresholds
from qbench.stats.interval_type import Interval
from qbench.stats.jackknife import FactScore
from qbench.suite import parse

N, FLIPS, MARGIN = 1000, 0.03, 0.01
MODELS = 20_000


@functools.cache
def outcome(gained: int, lost: int, n: int, margin: float) -> thresholds.Outcome:
    """The verdict on counts; each is asked for once, and not how many more examples would decide it."""
    with patch.object(noninferiority.examples_needed, "for_counts", lambda *counts: n):
        return noninferiority.assess_counts.__wrapped__(gained, lost, n, margin).outcome


def models(loss: float, *, n: int = N, share: float = FLIPS, count: int = MODELS) -> np.ndarray:
    """Gained and lost examples of many models that are truly worse by ``loss``, shape (count, 2)."""
    chances = [(share - loss) / 2, (share + loss) / 2, 1 - share]
    return np.random.default_rng(20260101).multinomial(n, chances, size=count)[:, :2]


def rates(loss: float, *, n: int = N, share: float = FLIPS, margin: float = MARGIN) -> dict[str, float]:
    """How often each verdict is given on models that are truly worse by ``loss``."""
    distinct, counts = np.unique(models(loss, n=n, share=share), axis=0, return_counts=True)
    shares = {"PASS": 0.0, "FAIL": 0.0, "INCONCLUSIVE": 0.0}
    for (gained, lost), count in zip(distinct.tolist(), counts.tolist(), strict=True):
        shares[outcome(gained, lost, n, margin)] += count / MODELS
    return shares


@pytest.mark.parametrize(("loss", "naive", "paired"), [(0.010, 0.54, 0.05), (0.015, 0.20, 0.006)])
def test_what_the_naive_rule_passes_and_this_one_does_not(loss: float, naive: float, paired: float) -> None:
    """Of models 1.0 and 1.5 points worse, "drop at most 1 point" passes 54 and 20 %, this test at most 5 and 0.6 %."""
    gained, lost = models(loss).T
    assert np.mean(lost - gained <= MARGIN * N) == pytest.approx(naive, abs=0.015)
    assert rates(loss)["PASS"] <= paired


@pytest.mark.parametrize(("n", "share", "margin"), [(450, 0.012, 0.01), (450, 0.03, 0.02), (4000, 0.02, 0.005)])
def test_exactly_on_the_margin_it_passes_at_most_one_in_twenty(n: int, share: float, margin: float) -> None:
    """A model that is worse by exactly the margin is nearly always left undecided, and passes at most 5 %."""
    shares = rates(margin, n=n, share=share, margin=margin)
    assert shares["PASS"] <= 0.05
    assert shares["INCONCLUSIVE"] > 0.85


@pytest.mark.parametrize("share", [0.01, 0.03, 0.10])
def test_a_model_that_lost_nothing_hardly_ever_fails(share: float) -> None:
    """Flips that even out fail a model without any loss in fewer than 1 of 200 cases; without flips it never fails."""
    assert rates(0.0, share=share)["FAIL"] <= 0.005
    assert outcome(0, 0, N, MARGIN) == "PASS"


def test_mcnemar_errs_in_one_of_twenty() -> None:
    """Of models without any change the mid-p value is at most 5 % in 3.5 to 5.2 % of the cases."""
    gained, lost = models(0.0).T
    share = np.mean(mcnemar.midps(lost, gained) <= 0.05)
    assert 0.035 <= share <= 0.052


def answered(right: np.ndarray, labels: np.ndarray) -> flips.Answers:
    """Answers that are the label where right, else the next class."""
    n = len(labels)
    return flips.Answers(
        classes=np.where(right, labels, (labels + 1) % 10),
        rank=np.zeros(n),
        ids=tuple(map(str, range(n))),
        labels=labels,
    )


@pytest.mark.parametrize(("lost", "least", "most"), [(0.0, 0.0, 0.05), (0.12, 0.80, 1.0)])
def test_a_class_is_said_to_have_changed_only_where_it_has(lost: float, least: float, most: float) -> None:
    """Where no class changed, one is named in at most 5 % of the runs; a class that loses 12 % of its right answers is
    named, and only as lost, in at least 80 % (10 classes of 200 examples, 3 % flips besides)."""
    rng = np.random.default_rng(7)
    labels = np.repeat(np.arange(10), 200)
    names = []
    for _ in range(200):
        was = rng.random(2000) < 0.9
        now = was ^ (rng.random(2000) < np.where(was, 0.0167, 0.15))
        now &= ~((labels == 3) & (rng.random(2000) < lost))
        shares = flips.by_class(answered(now, labels), answered(was, labels))
        expected = [change for change in shares if change.changed == "lost" and change.label == 3] if lost else shares
        names.append(any(change.changed for change in expected))
    assert least <= np.mean(names) <= most


def test_ten_models_on_the_margin_share_one_error() -> None:
    """Of ten models that are worse by exactly the margin, Holm fails none in at least 94 % of the gates; alone some
    model would fail in a third of them."""
    sample = models(MARGIN, count=5000)
    distinct, which = np.unique(sample, axis=0, return_inverse=True)
    each = [noninferiority.assess_counts(gained, lost, N, MARGIN).p_worse for gained, lost in distinct.tolist()]
    p_values = np.array(each)[which].reshape(500, 10)
    alone = np.mean((p_values <= 0.05).any(axis=1))
    together = np.mean([min(multiple_testing.adjust_by_holm(row.tolist())) <= 0.05 for row in p_values])
    assert alone > 0.3
    assert together <= 0.06


def skewed(loss: float, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Per-example values of a metric like a divergence: most examples lose nearly nothing, a few lose much."""
    lost = rng.lognormal(0.0, 1.0, n) - np.exp(0.5) + loss
    base = rng.normal(size=n)
    return base - lost, base


def test_the_test_of_a_mean_holds_on_skewed_losses() -> None:
    """Per-example values whose losses have a long tail: of models on the margin at most 5 % pass with 1,000 examples,
    and of models within a third of it at least 45 % do; the plain t test passes 7 % of the former."""
    rng = np.random.default_rng(11)
    passed = {
        loss: np.mean(
            [noninferiority.assess_examples(*skewed(loss, N, rng), 0.3).outcome == "PASS" for _ in range(600)]
        )
        for loss in (0.3, 0.1)
    }
    assert passed[0.3] <= 0.05
    assert passed[0.1] >= 0.45


# --- what is judged, and how that is told ---------------------------------------------------------------------------

Keep = Callable[[Record], ExampleScores | None]
TOP1 = MetricInfo(name="top1")


def judge(
    rules: str,
    now: Accuracy,
    before: Accuracy | None = None,
    *,
    metric: MetricInfo = TOP1,
    held: Keep = lambda record: None,
    kept: Keep = lambda record: None,
    score: FactScore | None = None,
) -> dict[str, Verdict]:
    """The verdicts on the metric of the int8 case by the name of their rule; ``before``: the score of another artifact
    in the baseline. ``held`` and ``kept``: what the baseline and the run keep of each example."""
    suite = parse(f"{HEAD}gate: {{accuracy: {{{rules}}}}}\n", file="s.yaml")
    described, baseline = info(metric=metric), None
    if before is not None:
        base = int8(accuracy=before)
        assert base.artifact is not None
        base = replace(base, artifact=replace(base.artifact, sha256="b" * 64))
        examples = {CASE: scores} if (scores := held(base)) is not None else {}
        baseline = Baseline(info=described, records=(fp32(), base), examples=examples)
    verdicts = judge_records(
        (fp32(), int8(accuracy=now)),
        described,
        suite.gate,
        place=suite.place,
        baseline=baseline,
        examples=kept,
        score_of_facts=score,
    )
    return {verdict.rule: verdict for verdict in verdicts if verdict.kind == "metric"}


@pytest.mark.parametrize(
    ("rules", "measured", "rule", "reason"),
    [
        ("margin: 1.0", "top1", "top1", None),
        ("margin: 1.0", "top1_agreement", "top1_agreement", None),
        ("metric: top1", "top1_agreement", "top1", "the run measured top1_agreement, the suite gates top1"),
        ("margin: 1.0", "f1", "top1", "the run measured f1, the suite gates top1"),
        ("metric: f1", "f1", "f1", None),
    ],
)
def test_a_suite_gates_the_metric_that_it_names(rules: str, measured: str, rule: str, reason: str | None) -> None:
    """One that names none gates what its data decided on: with labels, or without."""
    verdict = judge(rules, replace(accuracy(), metric=measured), metric=MetricInfo(name=measured))[rule]
    assert (verdict.outcome, verdict.reason) == ("PASS" if reason is None else "INVALID", reason)


@pytest.mark.parametrize(
    ("rules", "limits", "text"),
    [
        ("metric: sqnr, at_least: 30", (-62.2, -61.8), "38.0 dB [37.8, 38.2] (95 %)  at least 30 dB"),
        ("metric: sqnr, at_least: 30", (None, None), "38.0 dB  at least 30 dB"),
        ("metric: sqnr, margin: 70", (-62.2, -61.8), "100.0 -> 38.0  -62.0 dB [-62.2, -61.8] (95 %)  margin 70"),
        ("metric: sqnr, margin: 70", (None, None), "100.0 -> 38.0  -62.0 dB  margin 70"),
    ],
)
def test_a_level_stands_behind_limits_only(rules: str, limits: tuple[float | None, float | None], text: str) -> None:
    """Without limits there is nothing that it is the level of."""
    sqnr = MetricInfo(name="sqnr", percent=False, against="fp32", perfect=100.0, own_unit="dB")
    delta = Interval(value=-62.0, low=limits[0], high=limits[1])
    now = Accuracy(metric="sqnr", value=38.0, low=None, high=None, n=1000, delta=delta)
    assert judge(rules, now, metric=sqnr)["sqnr"].text == text


def keep(values: np.ndarray, *, facts: bool = False) -> Keep:
    """These values of the examples 0, 1, …"""
    return lambda record: ExampleScores(values=values, facts=facts, contents=np.arange(len(values), dtype=np.uint64))


@pytest.mark.parametrize(
    ("held", "kept", "said"),
    [
        (True, False, "no predictions of this run can be paired with the baseline's examples"),
        (False, True, "the baseline keeps no examples of it"),
        (False, False, "neither the baseline nor this run keeps examples of it"),
    ],
)
def test_scores_that_cannot_be_paired_say_whose_examples_are_missing(held: bool, kept: bool, said: str) -> None:
    """So that one knows what to do about it."""
    sides = [keep(np.ones(1000)) if there else lambda record: None for there in (held, kept)]
    verdict = judge("margin: 1.0", accuracy(), accuracy(), held=sides[0], kept=sides[1])["top1 regression"]
    assert f"so the interval is wide: {said}" in verdict.text


MAE = MetricInfo(name="mae", percent=False, higher_is_better=False)
ERROR = Accuracy(metric="mae", value=3.5, low=3.4, high=3.6, n=100)


def test_equal_values_leave_the_room_that_so_few_examples_may_hide() -> None:
    """Of an example that changes, as much as an example is large: the root of the mean square."""
    values = np.tile([3.0, 4.0], 50)
    verdict = judge("metric: mae, margin: 0.2", ERROR, ERROR, metric=MAE, held=keep(values), kept=keep(values))
    expected = intervals.widen_for_unseen(Interval(value=0.0), 100, math.sqrt(12.5), noninferiority.LEVEL)
    told = verdict["mae regression"]
    assert (told.low, told.high) == pytest.approx((expected.low, expected.high))
    assert told.outcome == "PASS"


@pytest.mark.parametrize("swap", [False, True])
def test_flips_are_told_where_both_sides_are_right_or_wrong(swap: bool) -> None:
    """Where one of them is a number of each example, on either side, no example flips."""
    answers, numbers = np.tile([0.0, 1.0], 50), np.tile([0.0, 0.5], 50)
    held, kept = (numbers, answers) if swap else (answers, numbers)
    verdict = judge("metric: mae, margin: 1.0", ERROR, ERROR, metric=MAE, held=keep(held), kept=keep(kept))
    assert verdict["mae regression"].mcnemar_p is None
    both = judge("metric: mae, margin: 1.0", ERROR, ERROR, metric=MAE, held=keep(answers), kept=keep(1 - answers))
    assert both["mae regression"].mcnemar_p == mcnemar.midp(50, 50)


@pytest.mark.parametrize("changed", [0, intervals.FEW_CHANGED - 1, intervals.FEW_CHANGED])
def test_few_changes_of_a_score_of_all_examples_leave_room_for_those_that_were_not_drawn(changed: int) -> None:
    """Limits of fewer than 30 changed examples are widened, as far as an example may move the score; of 30 they stand
    as they are."""
    score = FactScore(of=lambda facts: float(facts[:, 0].mean()))
    old = np.random.default_rng(0).normal(5.0, 0.01, (100, 1))
    new = old.copy()
    new[:changed] += 0.001 * (1 + np.arange(changed))[:, None]
    verdict = judge(
        "metric: mae, margin: 1.0", ERROR, ERROR, metric=MAE,
        held=keep(old, facts=True), kept=keep(new, facts=True), score=score,
    )["mae regression"]  # fmt: skip
    expected = jackknife.limit_change(score.turn(-1.0), new, old, noninferiority.LEVEL)
    if changed < intervals.FEW_CHANGED:
        expected = intervals.widen_for_unseen(expected, 100, score(old), noninferiority.LEVEL)
    assert expected.low is not None
    assert (verdict.low, verdict.high) == pytest.approx((expected.low, expected.high), rel=1e-4)


def test_a_change_without_limits_gets_those_of_what_was_not_seen() -> None:
    """Each example's share is the same, so that the shares alone have no spread."""
    score = FactScore(of=lambda facts: float(facts[:, 0].mean()))
    old = np.full((64, 1), 5.0)
    sides = {"held": keep(old, facts=True), "kept": keep(old + 0.5, facts=True)}
    verdict = judge("metric: mae, margin: 1.0", ERROR, ERROR, metric=MAE, score=score, **sides)
    assert jackknife.limit_change(score, old + 0.5, old, noninferiority.LEVEL).low is None
    expected = intervals.widen_for_unseen(Interval(value=-0.5), 64, 5.0, noninferiority.LEVEL)
    assert verdict["mae regression"].low == pytest.approx(expected.low)
