"""What of a case no recipe makes int8: a cause that cannot be taken away, so that only its size is told; pure."""

from __future__ import annotations

from dataclasses import dataclass

from qbench.backends.int8_coverage import has_no_int8_form
from qbench.build import Artifact
from qbench.explain.where_time_goes import TimeShares


@dataclass(frozen=True, kw_only=True)
class NotCovered:
    """The layers without an int8 form in this mode on this backend, each with its reason or its operator; the share of
    the multiply-accumulates that they do, and of a call's time that they take (None each where not known)."""

    layers: tuple[tuple[str, str], ...]
    macs_share: float | None
    time_share: float | None


def find_not_covered(artifact: Artifact, times: TimeShares | None) -> NotCovered | None:
    """The layers of an artifact that no recipe makes int8; None where there are none."""
    layers = [layer for layer in artifact.layers if not layer.int8 and has_no_int8_form(layer, artifact.float_reasons)]
    if not layers:
        return None
    names = {layer.name for layer in layers}
    counts = [layer.macs for layer in artifact.layers]
    total = sum(macs or 0 for macs in counts)
    own = sum(layer.macs or 0 for layer in layers)
    known = {time.name for time in times.layers} if times is not None else set()
    seconds = sum(time.int8_seconds for time in times.layers if time.name in names) if times is not None else 0.0
    return NotCovered(
        layers=tuple((layer.name, artifact.float_reasons.get(layer.name, layer.operator)) for layer in layers),
        macs_share=own / total if total and None not in counts else None,
        time_share=seconds / times.case.call_seconds if times is not None and names <= known else None,
    )
