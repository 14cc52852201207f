"""Which causes are confirmed, and how the gap is shared among them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_trials import trial, tried

from qbench.explain.change import Change
from qbench.explain.explanation import LEVEL, chain, confirm, drop_idle, explain, may_hide

BEST = (0.5, "the fastest of the run")


def test_a_cause_is_confirmed_where_the_case_is_shown_to_be_slower_with_it():
    """The largest gain first; what is within the noise, or slower without, is not confirmed."""
    found = tried(trial("small", 0.9), trial("large", 0.6), trial("none", 0.999), trial("worse", 1.2))
    assert [cause.counterfactual.cause for cause in confirm(found)] == ["large", "small"]


def test_of_several_changes_for_one_cause_the_best_counts():
    """Two engines are one cause."""
    confirmed = confirm(tried(trial("engine", 0.9), trial("engine", 0.7)))
    assert [cause.seconds for cause in confirmed] == [0.7]


def test_what_cannot_be_tried_confirms_nothing_and_is_told():
    """It has a reason in place of a time."""
    outcome = tried(trial("broken", None))
    result = explain(outcome, confirm(outcome), None, [BEST])
    assert result.confirmed == ()
    assert [cause.reason for cause in result.untried] == ["it cannot be built"]


@given(st.lists(st.floats(0.3, 0.99), min_size=1, max_size=5))
def test_the_shares_and_what_is_not_explained_are_the_whole_gap(times):
    """Whatever the steps gained, and however far the best known is away."""
    trials = [trial(f"cause{number}", seconds) for number, seconds in enumerate(times)]
    left = np.minimum.accumulate(times)
    steps = tried(*(trial(f"cause{number}", float(seconds)) for number, seconds in enumerate(left)))
    result = explain(tried(*trials), trials, steps if len(times) > 1 else None, [BEST])
    total = sum(cause.share for cause in result.confirmed) + (result.unexplained or 0.0)
    assert total == pytest.approx(1.0)
    assert (result.unexplained is None) == (BEST[0] > float(left[-1]))
    assert result.best_seconds == pytest.approx(min(BEST[0], float(left[-1])))


def test_the_gap_is_the_one_to_the_first_that_is_not_undercut():
    """Else every explanation would close its own gap; where nothing faster is known, nothing is said of the rest."""
    outcome = tried(trial("large", 0.4))
    bound = (0.1, "arithmetic")
    result = explain(outcome, confirm(outcome), None, [BEST, bound])
    assert (result.best, result.unexplained) == ("arithmetic", pytest.approx(1 / 3))
    result = explain(outcome, confirm(outcome), None, [BEST])
    assert (result.best_seconds, result.unexplained) == (pytest.approx(0.4), None)


def test_the_second_cause_has_the_share_beyond_the_first():
    """0.8 alone, but together with the first one only 0.55 of 0.6: a twentieth of the case, a tenth of the gap."""
    outcome = tried(trial("first", 0.6), trial("second", 0.8))
    steps = tried(trial("first", 0.6), trial("second", 0.55))
    result = explain(outcome, confirm(outcome), steps, [BEST])
    assert [round(cause.share, 6) for cause in result.confirmed] == [0.8, 0.1]
    assert result.unexplained == pytest.approx(0.1)
    assert result.together.value == pytest.approx(1 / 0.55)


def test_what_gains_nothing_beyond_those_before_it_is_hidden():
    """It is no part of the change that is advised; the first one always is."""
    outcome = tried(trial("first", 0.6), trial("second", 0.8))
    kept = drop_idle(confirm(outcome), tried(trial("first", 0.6), trial("second", 0.599)))
    assert [cause.counterfactual.cause for cause in kept] == ["first"]
    result = explain(outcome, kept, None, [BEST])
    assert [cause.counterfactual.cause for cause in result.hidden] == ["second"]
    assert result.unconfirmed == ()


def test_one_idle_cause_is_dropped_at_a_time():
    """What comes behind it was measured with it, and may gain without it."""
    alone = (trial("first", 0.5), trial("idle", 0.6), trial("third", 0.8))
    steps = tried(trial("first", 0.5), trial("idle", 0.7), trial("third", 0.7))
    assert [cause.counterfactual.cause for cause in drop_idle(alone, steps)] == ["first", "third"]
    steps = tried(trial("first", 0.5), trial("third", 0.4))
    kept = (alone[0], alone[2])
    assert drop_idle(kept, steps) == kept


def test_the_chain_takes_one_more_cause_away_at_each_step():
    """The last step has them all."""
    first = trial("mode", 0.5, change=Change(mode="static"))
    second = trial("batch", 0.8, change=Change(batch_size=8))
    steps = chain((first.counterfactual, second.counterfactual))
    assert [step.change for step in steps] == [Change(mode="static"), Change(mode="static", batch_size=8)]


def test_causes_are_looked_for_anew_where_a_large_one_may_have_hidden_them():
    """Where the case takes less than 0.7 of its time without those confirmed."""
    large, small = tried(trial("large", 0.5)), tried(trial("small", 0.9))
    assert may_hide(large, confirm(large), None)
    assert not may_hide(small, confirm(small), None)
    assert not may_hide(tried(trial("none", 0.999)), (), None)


def test_a_cause_that_shows_beyond_the_first_ones_has_its_share():
    """Tried in vain beside the large one, confirmed without it, and not listed as tried in vain."""
    outcome = tried(trial("large", 0.5), trial("small", 0.999))
    again = tried(trial("small", 0.8))
    both = (*confirm(outcome), *confirm(again))
    steps = tried(trial("large", 0.5), trial("small", 0.4))
    result = explain(outcome, both, steps, [(0.3, "arithmetic")], again)
    assert [cause.trial.counterfactual.cause for cause in result.confirmed] == ["large", "small"]
    assert result.confirmed[1].share == pytest.approx(1 / 7)
    assert result.unconfirmed == ()


def test_causes_that_are_not_there_are_seldom_confirmed():
    """Of 2,000 explanations with five changes without effect, about as many name one as the level says: the differences
    are drawn as a race has them, from the means of three generations."""
    random, wrong, count = np.random.default_rng(0), 0, 2000
    for _ in range(count):
        trials = []
        for number in range(5):
            generations = random.normal(0.0, 0.02, 3)
            mean, error = generations.mean(), generations.std(ddof=1) / np.sqrt(3)
            drawn = trial(f"cause{number}", float(np.exp(mean)), error=float(error))
            object.__setattr__(drawn.difference, "freedom", 2.0)
            trials.append(drawn)
        wrong += bool(confirm(tried(*trials)))
    assert wrong / count <= LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / count)
