"""What else gains, where the advised change loses too much accuracy."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from made_trials import trial

from qbench.errors import CaseError
from qbench.explain import advice
from qbench.explain.advice import (
    MOST,
    Alternative,
    MendedAccuracy,
    evaluate_mended,
    find_alternative,
    list_alternatives,
)
from qbench.explain.change import Change
from qbench.explain.open_case import OpenCase
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval

STATIC, FLOAT, BATCH = Change(mode="static"), Change(recipe={"skip_layers": ("a",)}), Change(batch_size=8)
CHANNELS = Change(recipe={"per_channel": False})


def explanation(*alone, change):
    """What ``list_alternatives`` reads of one."""
    return SimpleNamespace(alone=alone, change=change)


def test_other_artifacts_are_offered_the_largest_gain_first():
    """Each alone, not the advised one, nor one that keeps the artifact."""
    alone = (
        trial("dynamic", 0.1, change=STATIC),
        trial("float", 0.2, change=FLOAT),
        trial("batch", 0.3, change=BATCH),
        trial("channels", 0.9, change=CHANNELS),
    )
    offered = list_alternatives(explanation(*alone, change=STATIC))
    assert [each.counterfactual.cause for each in offered] == ["float", "channels"]


def test_single_requests_are_offered_all_but_more_examples_a_call():
    """Also what leaves the artifact as it is, such as a variable of the process."""
    cores = Change(environment={"CORES": "1"})
    others = (trial("cores", 0.7, change=cores), trial("channels", 0.9, change=CHANNELS))
    offered = list_alternatives(
        explanation(trial("batch", 0.3, change=BATCH), *others, change=BATCH.then(cores)), single=True
    )
    assert [each.counterfactual.cause for each in offered] == ["cores", "channels"]


@pytest.mark.parametrize(("first", "single"), [(BATCH, True), (BATCH.then(STATIC), True), (STATIC, False)])
def test_something_else_is_offered_where_all_was_measured_with_more_examples_a_call(first, single):
    """What keeps the artifact keeps its answers, so that none are evaluated."""
    cores = trial("cores", 0.7, change=Change(environment={"CORES": "1"}))
    explained = SimpleNamespace(
        confirmed=(SimpleNamespace(trial=trial("first", 0.3, change=first)),), alone=(cores,), change=first
    )
    opened = SimpleNamespace(case=SimpleNamespace(variant=SimpleNamespace(mode="static")))
    offered = find_alternative(opened, explained, None)
    assert offered == (Alternative(trial=cores, accuracy=None, single=True) if single else None)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(-0.08, -0.03, "FAIL"), (-0.02, 0.01, "INCONCLUSIVE"), (-0.004, 0.001, "PASS")],
)
def test_a_loss_is_held_against_the_margin_of_the_suite(low, high, outcome):
    """In the metric's own scale: one point of a hundred."""
    accuracy = SimpleNamespace(margin=1.0)
    opened = SimpleNamespace(
        suite=SimpleNamespace(gate=SimpleNamespace(accuracy=accuracy)), metric_info=MetricInfo(name="top1")
    )
    delta = Interval(value=(low + high) / 2, low=low, high=high)
    assert OpenCase.assess_loss(opened, delta) == outcome
    assert OpenCase.assess_loss(opened, None) is None


def judge_by_name(monkeypatch, *outcomes):
    """A suite by which changes come out so, one after the other; those that are evaluated are kept."""
    left, evaluated = list(outcomes), []

    def evaluate(opened, change):
        evaluated.append(change)
        return SimpleNamespace(against_fp32=left.pop(0))

    monkeypatch.setattr(advice, "evaluate_mended", evaluate)
    return SimpleNamespace(assess_loss=lambda outcome: outcome), evaluated


def explain(*alone):
    """An explanation whose advised change is a static artifact."""
    confirmed = (SimpleNamespace(trial=trial("first", 0.3, change=STATIC)),)
    return SimpleNamespace(confirmed=confirmed, alone=alone, change=STATIC)


REBUILT = [
    trial(f"float {number}", 0.4 + number / 10, change=Change(recipe={"skip_layers": (str(number),)}))
    for number in range(MOST + 1)
]


@pytest.mark.parametrize(
    ("outcomes", "place"),
    [
        (["PASS"], 0), (["INCONCLUSIVE"], 0), (["FAIL", "PASS"], 1), ([None, "INCONCLUSIVE"], 1),
        (["FAIL"] * MOST, None),
    ],
)  # fmt: skip
def test_what_is_not_shown_to_lose_too_much_is_offered_in_place_of_what_is(outcomes, place, monkeypatch):
    """The largest gain first; no more are evaluated than three."""
    assert MOST == 3
    opened, evaluated = judge_by_name(monkeypatch, *outcomes)
    offered = find_alternative(opened, explain(*REBUILT), SimpleNamespace(against_fp32="FAIL"))
    assert len(evaluated) == len(outcomes)
    if place is None:
        assert offered is None
    else:
        assert offered.trial == REBUILT[place]
        assert (offered.accuracy.against_fp32, offered.single) == (outcomes[-1], False)


@pytest.mark.parametrize("outcome", ["PASS", "INCONCLUSIVE", None])
def test_nothing_else_is_offered_where_the_advice_is_not_shown_to_lose_too_much(outcome, monkeypatch):
    """Nor where it is the same artifact, or nothing is confirmed."""
    opened, evaluated = judge_by_name(monkeypatch)
    assert find_alternative(opened, explain(*REBUILT), SimpleNamespace(against_fp32=outcome)) is None
    assert find_alternative(opened, SimpleNamespace(confirmed=(), alone=REBUILT, change=None), None) is None
    assert evaluated == []


@pytest.mark.parametrize(
    ("mode", "change", "batch_size"),
    [
        ("static", BATCH, None),
        ("static", Change(environment={"A": "1"}), None),
        ("dynamic", Change(threads=2), None),
        ("dynamic", BATCH, 8),
        ("static", STATIC.then(BATCH), 1),
        ("dynamic", Change(mode="dynamic"), 1),
        ("dynamic", Change(mode="static"), 1),
    ],
)
def test_a_change_is_evaluated_where_it_may_change_answers(mode, change, batch_size, monkeypatch):
    """Another artifact does, and another batch that dynamic ranges are of; what cannot be built costs nothing."""
    sizes = []

    class Evaluation:
        def __init__(self, opened, folder, size):
            sizes.append(size)

        def score_artifact(self, artifact):
            return SimpleNamespace(n=9, delta="against case"), SimpleNamespace(n=8, delta="against fp32")

    def apply(asked):
        return SimpleNamespace(variant=SimpleNamespace(mode=asked.mode or mode), batch_size=asked.batch_size or 1)

    monkeypatch.setattr(advice, "Evaluation", Evaluation)
    opened = SimpleNamespace(
        case=apply(Change()), apply=apply, build=lambda variant: None, metric=SimpleNamespace(name="top1")
    )
    expected = MendedAccuracy(metric="top1", n=9, against_case="against case", against_fp32="against fp32")
    assert evaluate_mended(opened, change) == (None if batch_size is None else expected)
    assert sizes == ([] if batch_size is None else [batch_size])

    def fail(variant):
        raise CaseError("no compiler")

    opened.build = fail
    assert evaluate_mended(opened, change) is None
