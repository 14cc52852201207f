"""Causes: which layers are in float, and what stands between them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from qbench.errors import first_names
from qbench.explain.causes.base import Cause, Counterfactual, Situation, put_in_float
from qbench.explain.change import Change
from qbench.explain.where_time_goes import TimeShares
from qbench.quant.artifacts.node_profile import NodeTime

SHOWN = 3  # names of calls
LEAST_CONVERTING = 0.02  # of a call's time: what conversions must take to be tried


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
        int8 = {layer.name for layer in situation.layers if layer.int8}
        unpaid = [stretch for stretch in list_unpaid(times) if int8.issuperset(stretch.layers)]
        if unpaid and int8 == {name for stretch in unpaid for name in stretch.layers}:
            unpaid.remove(min(unpaid, key=lambda stretch: stretch.loss))
        names = list(dict.fromkeys(name for stretch in unpaid for name in stretch.layers))
        if not names:
            return ()
        return (put_in_float(self.name, situation, names),)


def list_unpaid(times: TimeShares) -> list[Stretch]:
    """The stretches that take longer with their conversions than fp32 takes for them, by the profiles; none where all
    conversions together take less than ``LEAST_CONVERTING`` of a call."""
    conversions = times.case.seconds_by_kind().get("conversion", 0.0)
    if conversions < LEAST_CONVERTING * times.case.call_seconds:
        return []
    fp32 = {layer.name: layer.fp32_seconds for layer in times.layers}
    stretches = _split(times.case.nodes)
    for stretch in stretches:
        seconds_of_layers = [seconds for name in stretch.layers if (seconds := fp32.get(name)) is not None]
        stretch.fp32_seconds = sum(seconds_of_layers) if len(seconds_of_layers) == len(stretch.layers) else None
    return [stretch for stretch in stretches if stretch.conversions and stretch.loss > 0]


def _split(nodes: Sequence[NodeTime]) -> list[Stretch]:
    """The stretches between products in float and operators with a conversion beside them. A conversion on the border
    belongs to the stretch before it, where that has layers."""
    stretches = [Stretch()]
    for number, node in enumerate(nodes):
        beside = {neighbour.kind for neighbour in (*nodes[number - 1 : number], *nodes[number + 1 : number + 2])}
        if node.kind == "int8 product":
            stretches[-1].layers.append(node.layer)
            stretches[-1].seconds += node.seconds
        elif node.kind == "conversion":
            stretches[-1].conversions += node.seconds
        elif stretches[-1].layers and (node.kind == "float product" or "conversion" in beside):
            stretches.append(Stretch())
    return [stretch for stretch in stretches if stretch.layers]


class Unfused(Cause):
    """Without the rewriting of the network, a BatchNorm, a padding or an activation that quantizers do not match stays
    an operator of its own, often in float with a conversion on each side; without ranges that end where an activation
    cuts them, the activation stays."""

    name = "unfused"
    title = "operators stay apart that could be one with their layer"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The network rewritten, and activations as the end of a range, where the recipe has either off."""
        recipe = situation.case.variant.recipe
        if recipe.framework_default or recipe.file is not None:
            return ()
        proposals = []
        if not recipe.canonicalize:
            proposals.append(self.counterfactual("the network rewritten first", Change(recipe={"canonicalize": True})))
        if not recipe.clip_ranges and situation.case.variant.mode in ("static", "qat"):
            proposals.append(
                self.counterfactual("ranges end where activations cut them", Change(recipe={"clip_ranges": True}))
            )
        return tuple(proposals)


class KeptFloat(Cause):
    """Layers that a recipe, or a file of the user's, leaves out run in float, with conversions before and behind."""

    name = "kept-float"
    title = "layers are kept in float that could be int8"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """All of them in int8, then each kind of them; of a file of the user's, by quantizing anew."""
        recipe = situation.case.variant.recipe
        if recipe.file is not None:
            names = situation.float_layers
            text = f"quantized by qbench, with {', '.join(names)} in int8"
            return (self.counterfactual(text, Change(own_recipe=True, recipe={"skip_layers": ()})),) if names else ()
        if recipe.framework_default or situation.case.variant.mode == "dynamic":
            return ()
        proposals: list[tuple[str, dict[str, Any]]] = []
        if recipe.skip_layers:
            proposals.append(("without skip_layers", {"skip_layers": ()}))
        if recipe.last_layer_float:
            proposals.append(("with the last layer in int8", {"last_layer_float": False}))
        if recipe.first_layer_float:
            proposals.append(("with the first layer in int8", {"first_layer_float": False}))
        return tuple(self.counterfactual(text, Change(recipe=fields)) for text, fields in proposals)


MOST_LAYERS = 12  # layers that are tried, each by a build of its own


class SensitiveLayers(Cause):
    """A few layers often make most of the error: the first and the last one, or one whose values lie far apart."""

    name = "sensitive-layers"
    title = "a layer loses more in int8 than others"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Each int8 layer back to float alone, whatever ``min_coverage`` the suite has; of many, those
        behind which the signal falls most, else the first and the last."""
        variant = situation.case.variant
        if variant.recipe.framework_default or variant.recipe.file is not None:
            return ()
        names = list(dict.fromkeys(layer.name for layer in situation.layers if layer.int8))
        return tuple(
            replace(put_in_float(self.name, situation, (name,)), text=f"{name} in float", part=name)
            for name in _choose(names, situation)
        )


def _choose(names: list[str], situation: Situation) -> list[str]:
    if len(names) <= MOST_LAYERS:
        return names
    signal = {str(numbers["name"]): numbers.get("sqnr_db") for numbers in situation.layer_numbers}
    ratios = [(name, value) for name in names if (value := signal.get(name)) is not None]
    falls = {name: before - value for (_, before), (name, value) in itertools.pairwise(ratios)}
    if len(falls) < MOST_LAYERS:
        return [*names[: MOST_LAYERS // 2], *names[-(MOST_LAYERS // 2) :]]
    worst = sorted(falls, key=lambda name: -falls[name])[: MOST_LAYERS - 2]
    return [name for name in names if name in {*worst, names[0], names[-1]}]


class FixedRange(Cause):
    """torch's engines give a sigmoid 256 levels from 0 to 1 (tanh: -1 to 1) whatever its values are: small ones, as of
    a gate that is nearly shut, all become one or two levels."""

    name = "fixed-range"
    title = "an operator's output range is fixed, and its values fill little of it"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """These operators in float, so that what follows quantizes their values by their own range."""
        recipe = situation.case.variant.recipe
        names = tuple(name for name in situation.fixed_ranges if name not in recipe.skip_layers)
        if not names or situation.case.variant.mode != "static" or recipe.framework_default:
            return ()
        change = Change(recipe={"skip_layers": (*recipe.skip_layers, *names)})
        return (self.counterfactual(f"in float: {', '.join(names)}", change),)


class JoinedRanges(Cause):
    """A framework gives all that a concatenation reads one scale, and rounds what sums and products make of the last
    layers' outputs at each step: beside boxes of hundreds of pixels scores of up to 1 are nothing."""

    name = "joined-ranges"
    title = "tensors of different ranges are joined under one scale"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The same recipe, but these in float."""
        recipe = situation.case.variant.recipe
        if not situation.joins or recipe.joins_in_float or recipe.file is not None:
            return ()
        if situation.case.variant.mode != "static":
            return ()
        text = f"joined in float, not under one scale: {first_names(situation.joins, SHOWN)}"
        return (self.counterfactual(text, Change(recipe={"float_joins": True})),)


CONVERSIONS = Conversions()
UNFUSED = Unfused()
KEPT_FLOAT = KeptFloat()
SENSITIVE_LAYERS = SensitiveLayers()
FIXED_RANGE = FixedRange()
JOINED_RANGES = JoinedRanges()
