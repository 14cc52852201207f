"""What else gains, where the advised change loses too much accuracy."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from made_trials import trial

from qbench.explain.advice import Alternative, find_alternative, list_alternatives
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
