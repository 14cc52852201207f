"""Cause: conversions between float and int8 that the layers between them do not repay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from qbench.explain.causes.base import Cause, Counterfactual, Situation, put_in_float
from qbench.explain.where_time_goes import TimeShares
from qbench.quant.artifacts.node_profile import NodeTime

LEAST_SHARE = 0.02  # of a call's time: what conversions must take to be tried


@dataclass(kw_only=True)
class Stretch:
    """Int8 layers in a row, the seconds that they take, those of the conversions before, between and behind them, and
    those that fp32 takes for the layers (None: not known of all)."""

    layers: list[str] = field(default_factory=list)
    seconds: float = 0.0
    conversions: float = 0.0
    fp32_seconds: float | None = None

    @property
    def loss(self) -> float:
        """The seconds by which it takes longer than fp32; 0 where that is not known."""
        return 0.0 if self.fp32_seconds is None else self.seconds + self.conversions - self.fp32_seconds


class Conversions(Cause):
    """Where operators in float lie between int8 layers, values are converted back and forth, which a short stretch of
    int8 layers does not repay."""

    name = "conversions"
    title = "conversions to int8 and back cost more than the layers between them gain"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The layers of such stretches in float, so that their conversions go; where all would go, the stretch that
        loses least stays, since a variant without int8 layers is none."""
        times, variant = situation.times, situation.case.variant
        if times is None or variant.recipe.framework_default or variant.recipe.file is not None:
            return ()
        known = {layer.name for layer in situation.layers if layer.int8}
        unpaid = [stretch for stretch in list_unpaid(times) if known.issuperset(stretch.layers)]
        if unpaid and known == {name for stretch in unpaid for name in stretch.layers}:
            unpaid.remove(min(unpaid, key=lambda stretch: stretch.loss))
        names = list(dict.fromkeys(name for stretch in unpaid for name in stretch.layers))
        if not names:
            return ()
        return (put_in_float(self.name, situation, names),)


def list_unpaid(times: TimeShares) -> list[Stretch]:
    """The stretches that take longer with their conversions than fp32 takes for them, by the profiles; none where all
    conversions together take less than ``LEAST_SHARE`` of a call."""
    conversions = times.case.seconds_by_kind().get("conversion", 0.0)
    if conversions < LEAST_SHARE * times.case.call_seconds:
        return []
    fp32 = {layer.name: layer.fp32_seconds for layer in times.layers}
    stretches = _split(times.case.nodes)
    for stretch in stretches:
        known = [seconds for name in stretch.layers if (seconds := fp32.get(name)) is not None]
        stretch.fp32_seconds = sum(known) if len(known) == len(stretch.layers) else None
    return [stretch for stretch in stretches if stretch.conversions and stretch.loss > 0]


def _split(nodes: Sequence[NodeTime]) -> list[Stretch]:
    """The stretches between products in float and operators with a conversion beside them. A conversion on the border
    belongs to the stretch before it, where that has layers."""
    stretches = [Stretch()]
    for number, node in enumerate(nodes):
        beside = {other.kind for other in (*nodes[max(0, number - 1) : number], *nodes[number + 1 : number + 2])}
        if node.kind == "int8 product":
            stretches[-1].layers.append(node.layer)
            stretches[-1].seconds += node.seconds
        elif node.kind == "conversion":
            stretches[-1].conversions += node.seconds
        elif stretches[-1].layers and (node.kind == "float product" or "conversion" in beside):
            stretches.append(Stretch())
    return [stretch for stretch in stretches if stretch.layers]


CAUSE = Conversions()
