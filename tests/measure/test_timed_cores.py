"""qbench.measure.timed_cores: the peak of the core where the canary tells, later on, that it was shared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from short_measurements import PEAK

from qbench.errors import CaseError
from qbench.machine.peak import Peak
from qbench.measure.timed_cores import TimedCores
from qbench.process.child_process import Limits

SHARED, CALM = replace(PEAK, canary_seconds=9e-6), replace(PEAK, canary_seconds=5.6e-6, int8_ops_per_second=5e11)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """With which calm level the peak was asked for; it is measured again as soon as one is told."""
    levels: list[float | None] = []

    def measure_peak(*args: Any, calm_seconds: float | None = None, **options: Any) -> Peak:
        levels.append(calm_seconds)
        return SHARED if calm_seconds is None else CALM

    monkeypatch.setattr("qbench.machine.peak.measure_peak", measure_peak)
    return levels


def look_at(folder: Path) -> TimedCores:
    """The core 1 and what is known of it."""
    return TimedCores.look_at((1,), folder, Limits())


def test_the_peak_is_measured_again_where_it_was_shared(tmp_path: Path, asked: list[float | None]) -> None:
    """Of three settings the second shows that the core was shared when the peak was measured: it and the third have
    the peak of the calm core, which is asked for once."""
    cores, peaks = look_at(tmp_path), []
    for level in (9e-6, 5.6e-6, 5.5e-6):
        cores.calm_ns = level * 1e9
        cores.mend_peak()
        peaks.append(cores.peak)
    assert peaks == [SHARED, CALM, CALM]
    assert asked == [None, 5.6e-6]


def test_the_peak_tells_at_which_level_the_canary_is_calm(tmp_path: Path, asked: list[float | None]) -> None:
    """Until something quicker is timed; what tells nothing leaves it."""
    cores = look_at(tmp_path)
    assert cores.calm_ns == pytest.approx(9e3)
    cores.learn([])
    assert cores.calm_ns == pytest.approx(9e3)


def test_a_core_where_no_kernel_runs_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no peak then, and nothing is measured again."""

    def measure_peak(*args: Any, **options: Any) -> Peak:
        raise CaseError("no kernel runs")

    monkeypatch.setattr("qbench.machine.peak.measure_peak", measure_peak)
    cores = look_at(tmp_path)
    cores.mend_peak()
    assert (cores.peak, cores.unknown, cores.calm_ns) == (None, "no kernel runs", None)


def test_a_peak_that_cannot_be_measured_again_stays(
    tmp_path: Path, asked: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured on the shared core is still a lower limit."""
    cores = look_at(tmp_path)

    def measure_peak(*args: Any, **options: Any) -> Peak:
        raise CaseError("ended by SIGKILL")

    monkeypatch.setattr("qbench.machine.peak.measure_peak", measure_peak)
    cores.calm_ns = 5.6e3
    cores.mend_peak()
    assert (cores.peak, cores.unknown) == (SHARED, None)
