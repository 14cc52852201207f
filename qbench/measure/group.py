"""A group is measured: one process per case, the protocol's rounds, and what each process said of itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from qbench import registry
from qbench.errors import CaseError
from qbench.measure.arm import ArmFacts, ArmSpec, LocalArm
from qbench.measure.protocol import CONTROL, Earlier, Keep, Protocol, Tell, Watch
from qbench.measure.samples import Samples, Seen
from qbench.process import Limits, Worker

# Two thirds of the free memory may be held by the arms that are alive at once.
MEMORY_SHARE = 0.67
ARM_BASE_BYTES = 150 * 2**20  # a process of its own, measured: 61 MB forked, up to 150 MB once a runtime has run
ARM_FILE_FACTOR = 4  # weights as read, as unpacked, as prepacked by the kernels, and work space


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What measuring gave for one case: samples, or the error that ended it; the facts of each of its processes."""

    samples: Samples | None
    error: CaseError | None
    facts: tuple[ArmFacts, ...]
    peak_rss_bytes: int | None


class RemoteArm:
    """An arm in a process of its own; what it says of itself is kept when it closes."""

    def __init__(self, spec: ArmSpec, *, limits: Limits, fresh: bool) -> None:
        self.facts: ArmFacts | None = None
        self.peak_rss_bytes: int | None = None
        imports = ("qbench.measure.arm", *registry.load("backend", spec.backend).modules)
        self._worker = Worker(
            LocalArm, spec, limits=limits, cores=spec.cores, fresh=fresh, imports=imports, name=spec.case
        )

    def load(self) -> None:
        """Loads the artifact and keeps what that showed; raises ``CaseError`` where it cannot be, or is not as set."""
        self._worker.ready()
        self.facts = self._worker.ask("facts")

    def block(self, calls: int) -> Seen:
        """That many calls."""
        seen: Seen = self._worker.ask("block", calls)
        return seen

    def close(self) -> None:
        """Asks for the peak of its memory and ends the process."""
        with contextlib.suppress(CaseError):
            self.peak_rss_bytes = self._worker.ask("peak_rss_bytes")
        self._worker.close()


def measure_group(
    baseline: ArmSpec,
    contenders: Sequence[ArmSpec],
    *,
    protocol: Protocol,
    limits: Limits,
    fresh: bool = False,
    watch: Watch = lambda case: None,
    tell: Tell = lambda text, share: None,
    earlier: Earlier = MappingProxyType({}),
    keep: Keep = lambda known: None,
    open_remote: Callable[..., Any] = RemoteArm,
) -> dict[str, Measured]:
    """What was measured of the baseline and of every contender, by case.

    The baseline comes from this group's own blocks, so a contender's ratio and both latencies belong together.
    """
    specs = {spec.case: spec for spec in (baseline, *contenders)}
    opened: dict[str, list[Any]] = {}

    def open_arm(case: str) -> Any:
        spec = baseline if case == CONTROL else specs[case]
        arm = open_remote(spec, limits=limits, fresh=fresh)
        opened.setdefault(spec.case, []).append(arm)  # the control is one more process of the baseline
        return arm

    names = [spec.case for spec in contenders]
    outcome = protocol.measure(baseline.case, names, open_arm, watch, tell=tell, earlier=earlier, keep=keep)
    return {case: _measured(result, opened.get(case, [])) for case, result in outcome.items()}


def _measured(result: Samples | CaseError, arms: list[Any]) -> Measured:
    peaks = [arm.peak_rss_bytes for arm in arms if arm.peak_rss_bytes is not None]
    return Measured(
        samples=None if isinstance(result, CaseError) else result,
        error=result if isinstance(result, CaseError) else None,
        facts=tuple(arm.facts for arm in arms if arm.facts is not None),
        peak_rss_bytes=max(peaks) if peaks else None,
    )


def cold_starts(spec: ArmSpec, count: int, *, limits: Limits, fresh: bool = False) -> list[ArmFacts]:
    """The facts of that many more processes, each loaded, called five times and ended."""
    found = []
    for _ in range(count):
        arm = RemoteArm(spec, limits=limits, fresh=fresh)
        try:
            arm.load()
        finally:
            arm.close()
        if arm.facts is not None:
            found.append(arm.facts)
    return found


def chunks(
    contenders: Sequence[ArmSpec], *, file_bytes: Callable[[ArmSpec], int], free_bytes: int
) -> list[list[ArmSpec]]:
    """The contenders in as few groups as the free memory allows (each with its baseline and its control)."""
    budget = free_bytes * MEMORY_SHARE
    made: list[list[ArmSpec]] = []
    used = 0.0
    for spec in contenders:
        need = ARM_BASE_BYTES + ARM_FILE_FACTOR * file_bytes(spec)
        if not made or used + need > budget:
            made.append([])
            used = 2.0 * need  # baseline and control are at least as large as what is compared with them
        made[-1].append(spec)
        used += need
    return made
