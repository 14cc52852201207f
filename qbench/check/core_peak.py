"""How far a call is from what the core can do: the roofline's arithmetic roof (``machine.peak``)."""

from __future__ import annotations

from dataclasses import replace

from qbench.cache.root import open_cache
from qbench.check.finding import RuntimeCheck
from qbench.errors import CaseError, QbenchError
from qbench.machine.peak import Peak, measure_peak
from qbench.process.child_process import Limits
from qbench.quant.artifacts.coverage import Layer

_LIMITS = Limits(seconds=60.0)


def find_peak() -> Peak | None:
    """The peak of a core, measured in 5 s where this machine's is not known yet; None where that fails."""
    try:
        return measure_peak(open_cache(), limits=_LIMITS)
    except (CaseError, QbenchError):
        return None


def add_share(check: RuntimeCheck, batch: int, peak: Peak | None) -> RuntimeCheck:
    """The check of a runtime on one thread, with the share of the peak that a call of ``batch`` examples reaches."""
    seconds = None if peak is None else _add_up(check.layers, batch, peak)
    if seconds is None or not check.call_seconds:
        return check
    return replace(check, peak_share=seconds / check.call_seconds)


def _add_up(layers: tuple[Layer, ...], batch: int, peak: Peak) -> float | None:
    """Seconds of the products of a call, each at the peak of the format in which it ran; None where one is unknown."""
    total = 0.0
    for layer in layers:
        rate = peak.of("static" if layer.int8 else layer.precision)
        if layer.macs is None or rate is None or layer.weight_bits is not None:
            return None
        total += 2 * layer.macs * batch / rate
    return total or None
