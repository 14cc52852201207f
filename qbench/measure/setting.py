"""A setting (one model, threads, batch size and host, on all runtimes): what is to be measured, and what was.

Measured here or on a node of a cluster: the same values go in and come out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from qbench.build import Artifact
from qbench.data import Data
from qbench.machine.peak import Peak
from qbench.measure.race_rules import Arm
from qbench.models.postprocess import Postprocess
from qbench.plan.planner import Case
from qbench.process.child_process import Limits
from qbench.record.schema import ColdStart, Fastest, Interference, Latency, Memory, Sequential, Speedup
from qbench.suite import Suite


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is raced, ``cases`` and ``artifacts`` by case id; cases that are ``done`` are recorded already and race so
    that others have somebody to be held against. ``timed``: what belongs to the calls of a case beside its network, by
    case id. ``stored``: for another machine, the samples that an earlier part of
    the run has, by file name."""

    suite: Suite
    data: Data
    arms: tuple[Arm, ...]
    cases: Mapping[str, Case]
    artifacts: Mapping[str, Artifact]
    limits: Limits
    done: Collection[str] = ()
    timed: Mapping[str, Postprocess] = field(default_factory=dict)
    stored: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CaseLatency:
    """What a record says of one case's latency, by the record's names; ``reason`` is set where measuring failed."""

    reason: str | None
    observed: dict[str, Any] | None = None
    latency: Latency | None = None
    speedup: Speedup | None = None
    speedup_fastest: Fastest | None = None
    sequential: Sequential | None = None
    interference: Interference | None = None
    throughput_per_second: float | None = None
    cold_start: ColdStart | None = None
    memory: Memory | None = None
    samples: str | None = None


@dataclass(frozen=True, kw_only=True)
class MeasuredSetting:
    """The latency of each case by id; the peak of the core that they were measured on (None where ``unknown_peak`` says
    why); the seconds that it took. On which ``node`` of a cluster, and what Ray's own processes took of it (None: on
    this machine)."""

    latencies: Mapping[str, CaseLatency]
    peak: Peak | None = None
    unknown_peak: str | None = None
    seconds: float = 0.0
    node: str | None = None
    cluster_load: float | None = None
