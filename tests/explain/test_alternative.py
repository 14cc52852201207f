"""What else gains, where the advised change loses too much accuracy."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from made_trials import trial

from qbench.explain.alternative import list_alternatives
from qbench.explain.change import Change
from qbench.explain.mended import assess_loss
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval

STATIC, FLOAT, BATCH = Change(mode="static"), Change(recipe={"skip_layers": ("a",)}), Change(batch_size=8)


def test_other_artifacts_are_offered_the_largest_gain_first():
    """Each alone, not the advised one, nor one that keeps the artifact, nor one that was shown beyond another."""
    hidden = (
        trial("channels", 0.9, change=Change(recipe={"per_channel": False})),
        trial("float", 0.2, change=FLOAT),
        trial("batch", 0.3, change=BATCH),
        replace(trial("target", 0.1, change=Change(recipe={"target": ("native",)})), beyond=True),
    )
    explanation = SimpleNamespace(
        confirmed=(SimpleNamespace(trial=trial("dynamic", 0.1, change=STATIC)),), hidden=hidden, change=STATIC
    )
    assert [each.counterfactual.cause for each in list_alternatives(explanation)] == ["float", "channels"]


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(-0.08, -0.03, "FAIL"), (-0.02, 0.01, "INCONCLUSIVE"), (-0.004, 0.001, "PASS")],
)
def test_a_loss_is_held_against_the_margin_of_the_suite(low, high, outcome):
    """In the metric's own scale: one point of a hundred."""
    metric = MetricInfo(name="top1")
    opened = SimpleNamespace(suite=SimpleNamespace(gate=SimpleNamespace(accuracy=SimpleNamespace(margin=1.0))))
    delta = Interval(value=(low + high) / 2, low=low, high=high)
    assert assess_loss(delta, opened, metric) == outcome
    assert assess_loss(None, opened, metric) is None
