"""Which causes are confirmed, and how the gap is shared among them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from made_trials import evaluate, loss_trial, trial
from made_trials import race as tried

from qbench.explain.change import Change
from qbench.explain.error_trials import LEAST_SHARE
from qbench.explain.explanation import (
    HIDING,
    LEAST_STEP,
    LEVEL,
    MOST_CAUSES,
    MOST_STEPS,
    Goal,
    Round,
    chain,
    choose,
    confirm,
    drop_idle_loss,
    explain_error,
    explain_time,
    goes_on,
    is_all_gone,
    list_layers,
    pair_layers,
)
from qbench.explain.trial import Trial

BEST = Goal(left=0.5, name="the fastest of the run")


def test_a_cause_is_confirmed_where_the_case_is_shown_to_be_slower_with_it():
    """The largest gain first; what is within the noise, or slower without, is not confirmed."""
    trials = tried(trial("small", 0.9), trial("large", 0.6), trial("none", 0.999), trial("worse", 1.2))
    assert [cause.counterfactual.cause for cause in confirm(trials)] == ["large", "small"]


def test_of_several_changes_for_one_cause_the_best_counts():
    """Two engines are one cause."""
    confirmed = confirm(tried(trial("engine", 0.9), trial("engine", 0.7)))
    assert [cause.share for cause in confirmed] == [pytest.approx(0.3)]


def race(*trials, case=1.0):
    """A round: what was tried, and what is chosen after no other one."""
    outcome = tried(*trials, case=case)
    return Round(tried=outcome, chosen=choose(outcome, ()))


def race_after(rounds, *trials):
    """A round on the case without what those before it have chosen."""
    outcome = tried(*trials)
    return Round(tried=outcome, chosen=choose(outcome, rounds))


def test_what_cannot_be_tried_confirms_nothing_and_is_told():
    """It has a reason in place of a time; once, however many rounds could not try it."""
    first = race(trial("broken", None), trial("large", 0.5))
    result = explain_time([first, race_after([first], trial("broken", None))], [BEST])
    assert [cause.trial.counterfactual.cause for cause in result.confirmed] == ["large"]
    assert [cause.reason for cause in result.untried] == ["it cannot be built"]


def test_what_a_later_round_could_measure_is_not_told_as_untried():
    """A change that could not be built beside one and could beside the next has a time."""
    first = race(trial("late", None), trial("large", 0.5))
    result = explain_time([first, race_after([first], trial("late", 0.99), trial("broken", None))], [BEST])
    assert [cause.counterfactual.cause for cause in result.untried] == ["broken"]


@given(st.lists(st.floats(0.3, 0.9), min_size=1, max_size=4), st.floats(0.001, 0.5))
def test_the_shares_and_what_is_not_explained_are_the_whole_gap(times, best):
    """Whatever each round gained, and however far the best known is away, but for a tie to the last bit."""
    reached = float(np.prod(times))
    assume(not np.isclose(best, reached, rtol=1e-12, atol=0.0))
    rounds = []
    for number, seconds in enumerate(times):
        rounds.append(Round(tried=tried(trial("c", seconds)), chosen=trial(f"cause{number}", seconds)))
    result = explain_time(rounds, [Goal(left=best, name="arithmetic")])
    total = sum(cause.share for cause in result.confirmed) + (result.unexplained or 0.0)
    assert total == pytest.approx(1.0)
    assert result.goal.left == pytest.approx(min(best, reached))
    assert (result.unexplained is None) == (best > reached)


def test_the_gap_is_the_one_to_the_first_that_is_not_undercut():
    """Else every explanation would close its own gap; where nothing faster is known, nothing is said of the rest."""
    result = explain_time([race(trial("large", 0.4))], [BEST, Goal(left=0.1, name="arithmetic")])
    assert (result.goal.name, result.unexplained) == ("arithmetic", pytest.approx(1 / 3))
    result = explain_time([race(trial("large", 0.4))], [BEST])
    assert (result.goal.left, result.unexplained) == (pytest.approx(0.4), None)


def test_the_second_cause_has_the_share_beyond_the_first():
    """0.8 alone, but 0.9 without the first one: 0.06 of the case, 0.12 of the gap; together they are both factors."""
    first = race(trial("first", 0.6), trial("second", 0.8))
    result = explain_time([first, race_after([first], trial("second", 0.9))], [BEST])
    assert [round(cause.share, 6) for cause in result.confirmed] == [0.8, 0.12]
    assert result.unexplained == pytest.approx(0.08)
    assert result.together.interval.value == pytest.approx(1 / 0.54)
    assert result.together.interval.low < result.together.interval.value < result.together.interval.high


def test_what_gains_nothing_without_the_first_is_hidden():
    """It is no part of the change that is advised."""
    first = race(trial("first", 0.6), trial("second", 0.8))
    result = explain_time([first, race_after([first], trial("second", 0.999))], [BEST])
    assert [cause.trial.counterfactual.cause for cause in result.confirmed] == ["first"]
    assert [cause.counterfactual.cause for cause in result.hidden] == ["second"]
    assert result.unconfirmed == ()


def test_a_cause_that_a_larger_one_hides_has_its_share():
    """Tried in vain beside the large one, confirmed without it, and not listed as tried in vain."""
    first = race(trial("large", 0.5), trial("small", 0.999))
    result = explain_time([first, race_after([first], trial("small", 0.8))], [Goal(left=0.3, name="arithmetic")])
    assert [cause.trial.counterfactual.cause for cause in result.confirmed] == ["large", "small"]
    assert result.confirmed[1].share == pytest.approx(1 / 7)
    assert result.unconfirmed == ()


def test_causes_are_looked_for_anew_where_another_may_show():
    """Where several gained, or one so much that it may have hidden others; not where nothing gained."""
    assert goes_on([race(trial("large", 0.5))])
    assert goes_on([race(trial("first", 0.8), trial("second", 0.9))])
    assert not goes_on([race(trial("small", 0.9), trial("none", 0.999))])
    assert not goes_on([race(trial("none", 0.999))])


def test_what_saves_less_than_a_hundredth_of_the_case_is_not_worth_a_change():
    """However sure it is: seven per cent of the fiftieth that is left are none."""
    first = race(trial("large", 0.02))
    assert race_after([first], trial("small", 0.93, error=0.001)).chosen is None
    assert race(trial("small", 0.93, error=0.001)).chosen is not None


def test_layers_in_float_go_after_what_saves_half_as_much():
    """They hide whatever makes them slow: what keeps them in int8 is taken away first, but where that is little."""
    given_up = trial("slower", 0.05)
    given_up = replace(given_up, counterfactual=replace(given_up.counterfactual, gives_up=True))
    assert race(given_up, trial("dynamic", 0.1)).chosen.counterfactual.cause == "dynamic"
    assert race(given_up, trial("little", 0.9)).chosen.counterfactual.cause == "slower"
    more = trial("batch", 0.1, change=Change(batch_size=8))  # which no layer in float hides
    assert race(given_up, more).chosen.counterfactual.cause == "slower"


def test_more_examples_a_call_come_after_all_that_single_requests_can_have():
    """However much they save; alone they are what is left."""
    batches, smaller = trial("batch", 0.2, change=Change(batch_size=8)), trial("conversions", 0.9)
    assert race(batches, smaller).chosen is smaller
    assert race(batches, trial("conversions", 0.999)).chosen is batches


def test_what_is_hidden_has_the_share_that_it_closes_alone():
    """Two ways to close the same gap: the shares of the confirmed stay the whole gap, the other one's is told apart."""
    first = race(trial("layers", 0.1), trial("denormals", 0.15))
    result = explain_time([first, race_after([first], trial("denormals", 0.999))], [Goal(left=0.05, name="arithmetic")])
    assert sum(cause.share for cause in result.confirmed) + result.unexplained == pytest.approx(1.0)
    assert result.share_alone(result.hidden[0]) == pytest.approx(0.85 / 0.95)
    assert result.share_alone(replace(result.hidden[0], beyond=True)) is None


def test_later_rounds_are_held_to_a_stricter_level():
    """What would just be confirmed in the first is not in the second."""
    first, edge = race(trial("large", 0.6)), trial("edge", 0.9, error=0.035)
    assert race(edge).chosen is not None
    assert race_after([first], edge).chosen is None


def test_the_chain_takes_one_more_cause_away_at_each_step():
    """The last step has them all."""
    first = trial("mode", 0.5, change=Change(mode="static"))
    second = trial("batch", 0.8, change=Change(batch_size=8))
    steps = chain((first, second))
    assert [step.change for step in steps] == [Change(mode="static"), Change(mode="static", batch_size=8)]


def test_causes_that_are_not_there_are_seldom_confirmed():
    """Of 2,000 explanations with five changes without effect, about as many name one as the level says: the differences
    are drawn as a race has them, from the means of three generations."""
    random, wrong, count = np.random.default_rng(0), 0, 2000
    for _ in range(count):
        trials = []
        for number in range(5):
            generations = random.normal(0.0, 0.02, 3)
            mean, error = generations.mean(), generations.std(ddof=1) / np.sqrt(3)
            trials.append(trial(f"cause{number}", float(np.exp(mean)), error=float(error), freedom=2.0))
        wrong += bool(confirm(tried(*trials)))
    assert wrong / count <= LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / count)


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


def test_what_tells_goes_before_what_does_all_otherwise():
    """qbench's own recipe takes away whatever is wrong in another: what takes half as much is why; less is not."""
    whole = loss_trial("framework-default", 0.9)
    whole = replace(whole, counterfactual=replace(whole.counterfactual, change=Change(own_recipe=True)))
    for share, first in ((0.5, "joined-ranges"), (0.95, "joined-ranges"), (0.4, "framework-default")):
        confirmed = confirm(evaluate(whole, loss_trial("joined-ranges", share), loss_trial("layers", 0.7, part="a")))
        assert confirmed[0].counterfactual.cause == first
        assert len(confirmed) == 3


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
    assert is_all_gone([loss_trial("layers", 0.985)])
    assert is_all_gone([loss_trial("layers", 0.3), loss_trial("layers", None), loss_trial("layers", 0.985)])
    assert not is_all_gone([loss_trial("layers", 0.985), loss_trial("layers", None)])
    assert not is_all_gone([])


def stub(cause, share, *, p_value=0.0, change=None, gives_up=False):
    """A trial of exactly that share and p-value."""
    plain = trial(cause, None, change=change)
    saving = SimpleNamespace(share=share, lasts=True, p_nothing=lambda: p_value)
    return Trial(counterfactual=replace(plain.counterfactual, gives_up=gives_up), saving=saving)


def test_a_cause_is_confirmed_below_the_level_and_where_its_gain_lasts():
    """At the level it is not shown; nor is what one race alone shows, which another may not."""
    assert confirm(tried(stub("at", 0.5, p_value=LEVEL))) == ()
    assert len(confirm(tried(stub("below", 0.5, p_value=0.99 * LEVEL)))) == 1
    brief = trial("brief", 0.98, error=0.001)
    assert brief.saving.p_nothing() < LEVEL / 2
    assert confirm(tried(brief)) == ()


def test_the_least_share_is_enough_and_of_equal_changes_the_first_counts():
    """A cause must take so much away, not more."""
    assert len(confirm(evaluate(loss_trial("least", LEAST_SHARE, error=1e-4)))) == 1
    equal = [loss_trial("calibrator", 0.3), loss_trial("calibrator", 0.3)]
    assert confirm(evaluate(*equal))[0] is equal[0]


def test_what_tells_half_as_much_goes_before_what_does_all_otherwise():
    """Exactly half is enough."""
    whole = loss_trial("framework-default", 0.8)
    whole = replace(whole, counterfactual=replace(whole.counterfactual, change=Change(own_recipe=True)))
    assert [each.counterfactual.cause for each in confirm(evaluate(whole, loss_trial("joined-ranges", 0.4)))] == [
        "joined-ranges",
        "framework-default",
    ]


@pytest.mark.parametrize(("share", "chosen"), [(0.4, "dynamic"), (0.35, "slower")])
def test_what_keeps_layers_in_int8_must_save_half_of_what_giving_them_up_saves(share, chosen):
    """Half is enough; less is another cause."""
    given_up = stub("slower", 0.8, gives_up=True)
    assert choose(tried(given_up, stub("dynamic", share)), ()).counterfactual.cause == chosen


def test_a_hundredth_of_the_case_is_worth_a_change():
    """Less is not."""
    assert choose(tried(stub("least", LEAST_STEP)), ()).counterfactual.cause == "least"
    assert choose(tried(stub("less", 0.99 * LEAST_STEP)), ()) is None


def test_causes_are_looked_for_until_so_many_are_gone():
    """However much each takes; and not where the last one left just what hides nothing."""
    rounds = [race(stub("large", 0.5))] * MOST_CAUSES
    assert goes_on(rounds[1:])
    assert not goes_on(rounds)
    assert not goes_on([race(stub("edge", 0.3))])
    assert HIDING == 1 - 0.3


@pytest.mark.parametrize(("before", "level"), [(0, LEVEL), (1, LEVEL / 2), (2, LEVEL / 4), (3, LEVEL / 8)])
def test_each_later_round_has_half_of_the_level(before, level):
    """So that all of them together err in twice the level at most."""
    rounds = [race(stub("large", 0.5))] * before
    assert choose(tried(stub("below", 0.5, p_value=0.99 * level)), rounds).counterfactual.cause == "below"
    assert choose(tried(stub("at", 0.5, p_value=1.01 * level)), rounds) is None


def test_four_causes_of_time_and_six_of_an_error_are_taken_away_together():
    """Each takes a race, or a build."""
    assert (MOST_CAUSES, MOST_STEPS) == (4, 6)


def test_what_all_save_together_is_as_unsure_as_all_of_them():
    """Each was measured in a race of its own: errors add up as squares, and the fewest degrees of freedom count."""
    first, second = trial("first", 0.5, error=0.03, freedom=7.0), trial("second", 0.8, error=0.04, generations=5)
    rounds = [Round(tried=tried(first), chosen=first), Round(tried=tried(second), chosen=second)]
    saving = explain_time(rounds, [Goal(left=0.1, name="arithmetic")]).together.saving
    lasting = [each.saving.lasting for each in (first, second)]
    assert saving.difference == saving.lasting
    assert saving.lasting.value == pytest.approx(np.log(0.4))
    assert saving.lasting.error == pytest.approx(np.hypot(lasting[0].error, lasting[1].error))
    assert saving.lasting.freedom == min(each.freedom for each in lasting)
    assert saving.lasting.generations == 3


def test_a_goal_that_is_just_reached_is_the_goal():
    """Nothing of the gap is left then."""
    result = explain_time([race(trial("large", 0.5))], [BEST])
    assert (result.goal, result.unexplained) == (BEST, pytest.approx(0.0, abs=1e-9))


def test_without_a_gap_nothing_is_shared():
    """A case that nothing betters, whether no goal is known or it is at its goal."""
    for goals in ([], [Goal(left=1.0, name="the case itself")]):
        result = explain_time([race(trial("none", 1.0))], goals)
        assert (result.goal.left, result.unexplained, result.confirmed) == (1.0, None, ())
        assert result.share_alone(trial("none", 0.9)) is None


def test_the_race_that_others_disturbed_most_tells_how_far_they_did():
    """Of those where the system told."""
    rounds = [Round(tried=tried(trial("none", 1.0), off_core=share), chosen=None) for share in (0.1, 0.3, None)]
    assert explain_time(rounds, [BEST]).tried.off_core == 0.3
    assert explain_time(rounds[-1:], [BEST]).tried.off_core is None


def test_a_step_that_could_not_be_evaluated_takes_nothing():
    """What is left without all of them is not known then."""
    alone = (loss_trial("layers", 0.5, part="a"), loss_trial("layers", 0.4, part="b"))
    result = explain_error(evaluate(*alone), alone, (alone[0], loss_trial("layers", None)))
    assert [loss.saved for loss in result.confirmed] == [pytest.approx(0.5), 0.0]
    assert result.unexplained is None


def test_layers_that_could_not_be_evaluated_are_in_no_list():
    """They have no share to be ordered by."""
    layers = list_layers(evaluate(loss_trial("layers", None, part="a"), loss_trial("layers", 0.1, part="b")))
    assert [layer.counterfactual.part for layer in layers] == ["b"]


def test_the_first_cause_stays_however_little_it_takes():
    """It is beyond nothing."""
    alone = (loss_trial("layers", 0.5, part="a"), loss_trial("calibrator", 0.4))
    assert drop_idle_loss(alone, (loss_trial("layers", 0.01), loss_trial("layers", 0.5))) == alone
