"""Which causes of lost accuracy are confirmed, and which share each has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_trials import evaluate, loss_trial

from qbench.explain.error_trials import LEAST_SHARE
from qbench.explain.explanation import confirm, drop_idle_loss, explain_error, is_all_gone, list_layers, pair_layers


def test_each_part_is_a_cause_of_its_own_and_of_alternatives_the_best_counts():
    """Two layers are both named, two calibrators are one cause."""
    confirmed = confirm(
        evaluate(
            loss_trial("layers", 0.2, part="a"), loss_trial("layers", 0.5, part="b"),
            loss_trial("calibrator", 0.1), loss_trial("calibrator", 0.3),
        )
    )  # fmt: skip
    assert [(each.counterfactual.part, each.share) for each in confirmed] == [("", 0.3), ("b", 0.5), ("a", 0.2)]


def test_why_goes_before_where():
    """A layer in float hides what is wrong in it; a cause that takes less than half as much is another one."""
    confirmed = confirm(
        evaluate(loss_trial("layers", 0.9, part="a"), loss_trial("scale", 0.5), loss_trial("calibrator", 0.4))
    )
    assert [each.counterfactual.cause for each in confirmed] == ["scale", "layers", "calibrator"]


def test_what_is_not_shown_or_too_small_is_not_confirmed():
    """Within its error, below the least share, or worse without."""
    trials = (
        loss_trial("noise", 0.1, error=0.1),
        loss_trial("small", LEAST_SHARE / 2, error=1e-4),
        loss_trial("worse", -0.4),
    )
    result = explain_error(evaluate(*trials, loss_trial("broken", None)), (), ())
    assert confirm(evaluate(*trials)) == ()
    assert result.confirmed == ()
    assert result.unconfirmed == trials
    assert [each.reason for each in result.untried] == ["it cannot be built"]
    assert result.change is None


def test_what_another_draw_would_do_is_no_cause():
    """Three times what other draws of the calibration examples change is the least that a cause takes away."""
    trials = evaluate(loss_trial("chance", 0.08, error=1e-3), loss_trial("calibrator", 0.5))
    drawn = replace(trials, draws=(0.03, -0.03, 0.03))
    assert [each.counterfactual.cause for each in confirm(trials)] == ["calibrator", "chance"]
    assert [each.counterfactual.cause for each in confirm(drawn)] == ["calibrator"]


def test_shares_and_what_is_left_are_the_whole_error():
    """Each beyond those before it."""
    alone = (loss_trial("layers", 0.5, part="a"), loss_trial("layers", 0.4, part="b"))
    steps = (loss_trial("layers", 0.5, part="a"), loss_trial("layers", 0.7, part="b"))
    result = explain_error(evaluate(*alone), alone, steps)
    assert [loss.share for loss in result.confirmed] == [pytest.approx(0.5), pytest.approx(0.2)]
    assert result.unexplained == pytest.approx(0.3)
    assert sum(loss.share for loss in result.confirmed) + result.unexplained == pytest.approx(1.0)


def test_what_takes_nothing_beyond_those_before_it_is_hidden():
    """It is no part of the advice."""
    alone = (loss_trial("layers", 0.5, part="a"), loss_trial("calibrator", 0.4))
    kept = drop_idle_loss(alone, (loss_trial("layers", 0.5, part="a"), loss_trial("calibrator", 0.505)))
    assert kept == alone[:1]
    assert explain_error(evaluate(*alone), kept, (alone[0],)).hidden == alone[1:]


def test_layers_are_paired_with_what_they_take_away_together():
    """The one that takes most alone first, however few were tried together; a step that cannot be built has nothing."""
    known = evaluate(loss_trial("layers", 0.1, part="a"), loss_trial("scale", 0.5), loss_trial("layers", 0.4, part="b"))
    layers = list_layers(known)
    assert [each.counterfactual.part for each in layers] == ["b", "a"]
    paired = pair_layers(layers, (loss_trial("layers", 0.4, part="b"), loss_trial("layers", None)))
    assert [each.together for each in paired] == [0.4, None]
    assert [each.together for each in pair_layers(layers, ())] == [None, None]


def test_nothing_is_added_once_the_error_is_gone():
    """A step that could not be built leaves all of it."""
    assert is_all_gone([loss_trial("layers", 0.3), loss_trial("layers", 0.985)])
    assert not is_all_gone([loss_trial("layers", 0.985), loss_trial("layers", None)])
    assert not is_all_gone([])
