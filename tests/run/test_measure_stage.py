"""qbench.run.measure_stage: the peak of the core where the canary tells, later on, that it was shared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from short_measurements import PEAK

from qbench.machine.peak import Peak
from qbench.measure import setting
from qbench.measure.setting import measure_setting
from qbench.progress.live import Silent
from qbench.run import measure_stage

SHARED, CALM = replace(PEAK, canary_seconds=9e-6), replace(PEAK, canary_seconds=5.6e-6, int8_ops_per_second=5e11)


class Measurer:
    """Measures nothing; each setting shows what the canary takes on this core alone, from ``LEVELS``."""

    LEVELS = (9e-6, 5.6e-6, 5.5e-6)

    def __init__(self, *, calm_ns: float | None, **rest: Any) -> None:
        self.calm_seconds = None if calm_ns is None else calm_ns / 1e9
        self._levels = iter(self.LEVELS)

    def measure(self, *args: Any, **options: Any) -> dict[str, Any]:
        self.calm_seconds = next(self._levels)
        return {}

    def remove_checkpoints(self) -> None:
        pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """With which calm level the peak was asked for; it is measured again as soon as one is told."""
    levels: list[float | None] = []

    def measure_peak(*args: Any, calm_seconds: float | None = None, **options: Any) -> Peak:
        levels.append(calm_seconds)
        return SHARED if calm_seconds is None else CALM

    monkeypatch.setattr("qbench.machine.peak.measure_peak", measure_peak)
    monkeypatch.setattr(measure_stage, "GroupMeasurer", Measurer)
    monkeypatch.setattr(setting, "GroupMeasurer", Measurer)
    return levels


def test_a_run_measures_the_peak_again_where_it_was_shared(tmp_path: Path, asked: list[float | None]) -> None:
    """Of three settings the second shows that the core was shared when the peak was measured: its cases and the third's
    have the peak of the calm core, which is asked for once."""
    context: Any = SimpleNamespace(
        suite=None,
        cores=(1,),
        directory=SimpleNamespace(path=tmp_path),
        limits=None,
        cache=tmp_path,
        progress=Silent(),
        tracker=SimpleNamespace(done=()),
    )
    settings = [(name, []) for name in "abc"]
    prepared: Any = SimpleNamespace(data=None)
    measured = list(measure_stage._measure_here(context, prepared, {}, settings, lambda planned: []))
    assert [each.peak for each in measured] == [SHARED, CALM, CALM]
    assert asked == [None, 5.6e-6]


def test_a_node_measures_the_peak_again_where_it_was_shared(
    tmp_path: Path, asked: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting on a node of a cluster comes back with the peak of the calm core, likewise."""
    job: Any = SimpleNamespace(suite=None, data=None, arms=(), cases={}, artifacts={}, done=(), stored={}, limits=None)
    monkeypatch.setattr(Measurer, "LEVELS", (5.6e-6,))
    assert measure_setting(job, tmp_path, root=tmp_path, cores=(1,)).peak == CALM
    assert asked == [None, 5.6e-6]
    (tmp_path / "samples").rmdir()
    monkeypatch.setattr(Measurer, "LEVELS", (8e-6,))
    assert measure_setting(job, tmp_path, root=tmp_path, cores=(1,)).peak == SHARED
    assert asked == [None, 5.6e-6, None]
