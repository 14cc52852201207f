"""What of a case no recipe makes int8: a cause that cannot be taken away, so that only its size is told; pure."""

from __future__ import annotations

from dataclasses import dataclass

from qbench.backends.base import Built
from qbench.backends.int8_coverage import has_no_int8_form
from qbench.explain.where_time_goes import TimeShares


@dataclass(frozen=True, kw_only=True)
class NotCovered:
    """The layers without an int8 form in this mode on this backend, each with its reason or its operator; the share of
    the multiply-accumulates that they do, and of a call's time that they take (None each where not known)."""

    layers: tuple[tuple[str, str], ...]
    macs_share: float | None
    time_share: float | None


def find_not_covered(built: Built, fp32: Built, times: TimeShares | None) -> NotCovered | None:
    """The layers of an artifact that no recipe makes int8; None where there are none. ``fp32`` has the operators of the
    network, where a runtime calls them otherwise."""
    written = {layer.name: layer for layer in fp32.layers}
    reasons, layers = built.conversion.float_reasons, dict[str, str]()
    for layer in built.layers:
        as_written = written.get(layer.name, layer)
        if not layer.int8 and has_no_int8_form(as_written, reasons):
            layers[layer.name] = reasons.get(layer.name, as_written.operator)
    if not layers:
        return None
    counts = [layer.macs for layer in built.layers]
    total = sum(macs or 0 for macs in counts)
    uncovered = sum(layer.macs or 0 for layer in built.layers if layer.name in layers and not layer.int8)
    rows = [] if times is None else [row for row in times.layers if row.name in layers]
    complete = {row.name for row in rows} == set(layers)
    return NotCovered(
        layers=tuple(layers.items()),
        macs_share=uncovered / total if total and None not in counts else None,
        time_share=sum(row.int8_seconds for row in rows) / times.case.call_seconds if times and complete else None,
    )
