"""Error rates of the accuracy verdict: simulated on whole sets of examples, with the functions that the gate calls.

The sizes and powers are those that qbench/guide/evidence/accuracy.md has. Seeded, so a rate is one number; the bands
around it are what 20,000 simulated models leave open.
"""

from __future__ import annotations

import functools
from unittest.mock import patch

import numpy as np
import pytest

from qbench.evaluate import flips
from qbench.stats import mcnemar, multiple_testing, noninferiority, thresholds

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
