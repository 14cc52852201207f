"""Cause: conversions between float and int8 that the layers between them do not repay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from qbench.explain.causes.base import Cause, Counterfactual, Situation, put_in_float
from qbench.explain.where_time_goes import TimeShares
from qbench.quant.artifacts.node_profile import NodeTime

LEAST_SHARE = 0.02  # of a call's time: what conversions must take to be tried


@dataclass(kw_only=True)
class _Stretch:
    """Int8 layers in a row, and the seconds of the conversions before, between and behind them."""

    layers: list[str] = field(default_factory=list)
    seconds: float = 0.0
    conversions: float = 0.0


class Conversions(Cause):
    """Where operators in float lie between int8 layers, values are converted back and forth, which a short stretch of
    int8 layers does not repay."""

    name = "conversions"
    title = "conversions to int8 and back cost more than the layers between them gain"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The layers of such stretches in float, so that their conversions go."""
        times, variant = situation.times, situation.case.variant
        if times is None or variant.recipe.framework_default or variant.recipe.file is not None:
            return ()
        known = {layer.name for layer in situation.layers if layer.int8}
        names = [name for name in list_unpaid(times) if name in known]
        if not names or set(names) == known:
            return ()
        return (put_in_float(self.name, situation, names),)


def list_unpaid(times: TimeShares) -> list[str]:
    """The layers of the stretches that take longer with their conversions than fp32 takes for them, by the profiles;
    none where all conversions together take less than ``LEAST_SHARE`` of a call."""
    conversions = times.case.seconds_by_kind().get("conversion", 0.0)
    if conversions < LEAST_SHARE * times.case.call_seconds:
        return []
    fp32 = {layer.name: layer.fp32_seconds for layer in times.layers}
    unpaid: list[str] = []
    for stretch in _split(times.case.nodes):
        before = [fp32.get(name) for name in stretch.layers]
        known = [seconds for seconds in before if seconds is not None]
        if stretch.conversions and len(known) == len(before) and stretch.seconds + stretch.conversions > sum(known):
            unpaid += stretch.layers
    return list(dict.fromkeys(unpaid))


def _split(nodes: Sequence[NodeTime]) -> list[_Stretch]:
    """The stretches between products in float and operators with a conversion beside them. A conversion on the border
    belongs to the stretch before it, where that has layers."""
    stretches = [_Stretch()]
    for number, node in enumerate(nodes):
        beside = {other.kind for other in (*nodes[max(0, number - 1) : number], *nodes[number + 1 : number + 2])}
        if node.kind == "int8 product":
            stretches[-1].layers.append(node.layer)
            stretches[-1].seconds += node.seconds
        elif node.kind == "conversion":
            stretches[-1].conversions += node.seconds
        elif stretches[-1].layers and (node.kind == "float product" or "conversion" in beside):
            stretches.append(_Stretch())
    return [stretch for stretch in stretches if stretch.layers]


CAUSE = Conversions()
