"""Which variants wait for which while a run builds; nothing is built."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from qbench.errors import CaseError
from qbench.plan.planner import Variant
from qbench.quant.recipe import Recipe
from qbench.running import build_stage
from qbench.running.context import RunContext

WAITING_SECONDS = 20.0


class Tracker:
    """Remembers which variants could not be built."""

    def __init__(self):
        self.broken = {}

    def open_cases(self):
        return self.planned

    def list_cases(self, variant):
        return [variant]

    def break_cases(self, cases, stage, error, artifacts=None):
        self.broken |= dict.fromkeys(cases, str(error))


def make_context(*ids):
    """Two threads, and open cases of these variants."""
    tracker = Tracker()
    tracker.planned = []
    for name in ids:
        model, mode, backend = name.split("/")
        variant = Variant(model=SimpleNamespace(name=model), mode=mode, backend=backend, recipe=Recipe())
        assert variant.id == name
        tracker.planned.append(SimpleNamespace(case=SimpleNamespace(variant=variant)))
    context = SimpleNamespace(
        tracker=tracker, jobs=2, fleet=None, progress=SimpleNamespace(stage=lambda *_: None, advance=lambda *_: None)
    )
    context.run_parallel = lambda *args, **options: RunContext.run_parallel(context, *args, **options)
    return context


def build(monkeypatch, context, act):
    """The ids of what was built where ``act(id)`` is what building one takes."""
    artifact = SimpleNamespace(repair=None, built=SimpleNamespace(fixed_batch=None))

    def make(context, prepared, variant, data, name):
        act(name)
        return artifact

    monkeypatch.setattr(build_stage, "_build", make)
    prepared = SimpleNamespace(data=SimpleNamespace(other_subsets=()))
    return set(build_stage.build_variants(context, prepared))


def test_a_variant_waits_for_its_own_baseline_alone(monkeypatch):
    """int8 of one network begins while fp32 of another is still being built."""
    context = make_context("slow/fp32/torch", "fast/fp32/torch", "fast/dynamic/onednn", "slow/dynamic/onednn")
    begun, order = threading.Event(), []

    def act(name):
        if name == "slow/fp32/torch":
            assert begun.wait(WAITING_SECONDS)
        if name == "fast/dynamic/onednn":
            begun.set()
        order.append(name)

    assert build(monkeypatch, context, act) == set(order)
    assert order.index("slow/fp32/torch") < order.index("slow/dynamic/onednn")


@pytest.mark.parametrize("error", [CaseError("no room"), None])
def test_without_its_baseline_a_variant_is_not_built(monkeypatch, error):
    """Where fp32 fails, and where it is no part of the run; others are built."""
    fp32 = ["bad/fp32/torch"] if error else []
    context = make_context(*fp32, "bad/dynamic/onednn", "good/fp32/torch", "good/dynamic/onednn")

    def act(name):
        if name == "bad/fp32/torch":
            raise error

    assert build(monkeypatch, context, act) == {"good/fp32/torch", "good/dynamic/onednn"}
    assert context.tracker.broken["bad/dynamic/onednn"] == "its baseline bad/fp32/torch could not be built"
