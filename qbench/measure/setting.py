"""The cases of one setting measured on a machine that has no folder of the run: as a value in, as a value out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qbench.build import Artifact
from qbench.data import Data
from qbench.errors import CaseError
from qbench.machine import peak
from qbench.machine.peak import Peak
from qbench.measure.measure import CaseLatency, GroupMeasurer
from qbench.measure.protocol import Tell
from qbench.measure.race_rules import Arm
from qbench.plan.planner import Case
from qbench.process.parent import Limits
from qbench.suite import Suite


@dataclass(frozen=True, kw_only=True)
class SettingJob:
    """What is to be measured, by case id; ``done`` are the cases that are recorded already, ``stored`` the samples that
    an earlier part of the run has, by file name."""

    suite: Suite
    data: Data
    arms: tuple[Arm, ...]
    cases: Mapping[str, Case]
    artifacts: Mapping[str, Artifact]
    done: frozenset[str]
    stored: Mapping[str, bytes]
    limits: Limits


@dataclass(frozen=True, kw_only=True)
class SettingDone:
    """The latency of each case by id, and the peak of the core that they were measured on; ``unknown_peak`` says why
    that is None."""

    latencies: Mapping[str, CaseLatency]
    peak: Peak | None
    unknown_peak: str | None = None


def measure_setting(
    job: SettingJob,
    folder: Path,
    *,
    root: Path,
    cores: tuple[int, ...],
    tell: Tell = lambda text, share: None,
) -> SettingDone:
    """Measures on these cores; the samples lie in ``folder/samples`` then. ``root`` is this machine's open cache."""
    (folder / "samples").mkdir(exist_ok=True)
    for name, content in job.stored.items():
        (folder / "samples" / Path(name).name).write_bytes(content)
    core_peak, unknown = _measure_peak(root, job.limits, cores, None)
    calm = core_peak.canary_seconds if core_peak else None
    measurer = GroupMeasurer(
        suite=job.suite,
        data=job.data,
        cores=cores,
        folder=folder,
        limits=job.limits,
        calm_ns=calm * 1e9 if calm else None,
    )
    latencies = measurer.measure(job.arms, job.cases, job.artifacts, tell=tell, done=job.done)
    measurer.remove_checkpoints()
    if core_peak is not None and core_peak.is_shared(measurer.calm_seconds):
        core_peak = _measure_peak(root, job.limits, cores, measurer.calm_seconds)[0] or core_peak
    return SettingDone(latencies=latencies, peak=core_peak, unknown_peak=unknown)


def _measure_peak(
    root: Path, limits: Limits, cores: tuple[int, ...], calm_seconds: float | None
) -> tuple[Peak | None, str | None]:
    """The peak of a core, or why it is not known."""
    try:
        return peak.measure_peak(root, limits=limits, cores=cores, calm_seconds=calm_seconds), None
    except CaseError as error:
        return None, str(error)
