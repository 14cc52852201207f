"""Rules of decision_error: how often the decision errs, small and seeded."""

from __future__ import annotations

import numpy as np
from decision_error import (
    Rate,
    normal_noise,
    rate_false_gains,
    rate_missed_truths,
    rate_split_copies,
    rate_wrong_choices,
    simulate_decision,
)

NOISE = normal_noise(0.02, 0.015)


def is_shown_above(rate: Rate) -> bool:
    """Whether these few runs show a rate above the wanted one."""
    assert rate.share.low is not None
    return rate.share.low > rate.most


def test_what_is_shipped_is_rarely_more_than_the_tie_slower_than_the_best() -> None:
    """Nine variants, 0 to 25 % apart, three generations of processes that differ by 2 %."""
    wrong, _ = rate_wrong_choices(NOISE, runs=40, seed=3)
    assert not is_shown_above(wrong)


def test_copies_of_one_artifact_are_tied() -> None:
    """A tie is what cannot be shown to be further off."""
    split = rate_split_copies(NOISE, runs=40, seed=3)
    assert not is_shown_above(split)


def test_the_fastest_of_nine_equals_is_no_gain() -> None:
    """Trying nine variants that are as fast as fp32 makes none of them faster."""
    gains = rate_false_gains(NOISE, runs=60, seed=3)
    assert not is_shown_above(gains)


def test_the_limits_beside_the_pick_hold_its_truth() -> None:
    """Though it was picked for its estimate among nine that are close."""
    missed = rate_missed_truths(NOISE, runs=40, seed=3)
    assert not is_shown_above(missed)


def test_a_simulated_run_is_decided_by_rounds() -> None:
    """Simulated blocks of one round are held against each other as measured ones are."""
    truth = {"net/static/a/t1/b1": -0.9, "net/static/b/t1/b1": -0.4}
    decision = simulate_decision(truth, NOISE, np.random.default_rng(0))
    assert decision.headline == "Ship static int8 on a."
    assert decision.over_fp32 is not None
    assert decision.over_fp32.evidence == "rounds"
    assert abs(decision.over_fp32.value + 0.9) < 0.1


def test_a_rate_has_exact_limits() -> None:
    """Clopper and Pearson's."""
    share = rate_split_copies(NOISE, runs=10).share
    assert share.low == 0
    assert share.high is not None
    assert 0.3 < share.high < 0.31
