"""A case against the roof: its multiply-accumulates, and the share of this core's measured peak that it reaches."""

from __future__ import annotations

from qbench.build import Artifact
from qbench.machine import peak
from qbench.machine.peak import Peak
from qbench.plan.planner import Case
from qbench.record.schema import Latency, Roofline


def roofline(
    case: Case, artifact: Artifact, latency: Latency | None, most: Peak | None, calm_seconds: float | None = None
) -> Roofline:
    """Multiply-accumulates of one call, and its share of the peak of the cores and the precision that it has; the share
    is null without a latency or a peak, both where not all of them can be counted. ``calm_seconds``: what the canary
    takes on this core alone; where it took more while the peak was measured, the peak is too low."""
    macs = None if artifact.built.macs is None else artifact.built.macs * case.batch_size
    typical = latency.p50_seconds if latency else None
    peak_ops = None if most is None else most.of(case.variant.mode)
    if most is None or peak_ops is None or not typical or not macs:
        return Roofline(macs=macs)
    return Roofline(
        macs=macs,
        peak_fraction=peak.fraction(macs, typical, peak_ops * case.threads),
        peak_shared=most.is_shared(calm_seconds),
    )
