"""The contract of a cause: when it may be at work, and the change to a case that takes it away."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from qbench.backends.int8_coverage import has_no_int8_form
from qbench.explain.change import Change
from qbench.explain.where_time_goes import TimeShares
from qbench.plan.cases import Case, Variant
from qbench.quant.artifacts.coverage import Layer, compute_int8_share
from qbench.record.schema import InputFit

Concern = Literal["time", "accuracy"]
MORE_EXAMPLES = 8  # in a call, in place of one, to see what a call costs whatever its size
READING_SHARE = 0.5  # of a call, from which on it is said to wait for memory


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What a cause is judged from: the case with its recipe (no open choices), its layers, where its time goes (None:
    the runtime does not tell, or time is not asked for), the variables that hide instructions from engines, the page
    faults of a call (None: not known), the backends that can be used here, and of each layer how near its output is to
    fp32's (``Conversion.layer_numbers``). ``machine_code``: the artifact holds code for one kind of CPU.
    ``call_seconds``: a call as the run measured it, ``reading_seconds``: what this core takes to read as many bytes as
    the artifact has, ``flushing_gain``: how many times as fast calls are with denormals taken as zero, ``amx_tiles``:
    whether the run saw calls use AMX tiles that ONNX Runtime leaves in use, ``timed_core``: the last core that the case
    has; None each where not known. ``pinned``: this process may use one core.

    Of accuracy: ``inputs``: how calibration and evaluation values fit, by model input, as the run has it;
    ``evaluation``: the evaluated split, and how many of its examples can calibrate (None: too few); ``fixed_ranges``:
    operators of the network whose output range the backend fixes; ``joins``: calls of the network that one scale cannot
    hold."""

    case: Case
    layers: tuple[Layer, ...]
    times: TimeShares | None
    hiding_variables: tuple[str, ...] = ()
    faults_per_call: float | None = None
    backends: tuple[str, ...] = ()
    layer_numbers: tuple[Mapping[str, Any], ...] = ()
    machine_code: bool = False
    call_seconds: float | None = None
    reading_seconds: float | None = None
    flushing_gain: float | None = None
    amx_tiles: bool | None = None
    timed_core: int | None = None
    pinned: bool = False
    inputs: tuple[InputFit | None, ...] = ()
    evaluation: tuple[str, int] | None = None
    fixed_ranges: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()

    @property
    def float_layers(self) -> tuple[str, ...]:
        """The layers in float that have an int8 form here."""
        floats = (layer for layer in self.layers if not layer.int8 and not has_no_int8_form(layer, {}))
        return tuple(dict.fromkeys(layer.name for layer in floats))

    @property
    def waits_for_memory(self) -> bool:
        """Whether reading the weights once explains most of what a call's nodes take (of the call, where the runtime
        does not tell)."""
        seconds = self.call_seconds if self.times is None else self.times.case.node_seconds
        if not seconds or self.reading_seconds is None:
            return False
        return self.reading_seconds >= READING_SHARE * seconds


@dataclass(frozen=True, kw_only=True)
class Counterfactual:
    """The case without a cause: ``change`` takes it away, ``text`` says what is done otherwise. Several of one cause
    are alternatives, of which the best counts, but where they are about different parts: then ``part`` names it.
    ``gives_up``: it puts layers in float, which hides whatever makes them slow in int8."""

    cause: str
    text: str
    change: Change
    part: str = ""
    gives_up: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """What is confirmed or not: the cause, of one part where it names one."""
        return self.cause, self.part


def put_in_float(cause: str, situation: Situation, names: Sequence[str]) -> Counterfactual:
    """The layers of that name in float, beside those that the recipe skips; with a ``min_coverage`` that allows it,
    where the suite's does not."""
    fields = skip_more(situation.case.variant, situation.layers, names)
    return Counterfactual(
        cause=cause, text=f"in float: {', '.join(names)}", change=Change(recipe=fields), gives_up=True
    )


def skip_more(variant: Variant, layers: Sequence[Layer], names: Collection[str]) -> dict[str, Any]:
    """The fields of a recipe that keep the ``layers`` of these names in float, beside those that it skips."""
    recipe = variant.recipe
    fields: dict[str, Any] = {"skip_layers": tuple(dict.fromkeys([*recipe.skip_layers, *names]))}
    left = [replace(layer, precision="fp32") if layer.name in names else layer for layer in layers]
    share = None if variant.mode == "dynamic" else compute_int8_share(left)
    if share and recipe.min_coverage is not None and share < recipe.min_coverage:
        fields["min_coverage"] = _round_down(share)
    return fields


def _round_down(share: float) -> float:
    """A share to two digits, no more than it is."""
    digits = 1 - math.floor(math.log10(share))
    return float(f"{math.floor(share * 10**digits) / 10**digits:.{digits}f}")


class Cause(ABC):
    """One cause. ``title`` says what is wrong where it is confirmed, ``concerns`` what it may spoil."""

    name: ClassVar[str]
    title: ClassVar[str]
    concerns: ClassVar[tuple[Concern, ...]] = ("time",)

    @abstractmethod
    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The changes to try, none where it cannot be at work."""

    def counterfactual(self, text: str, change: Change, part: str = "") -> Counterfactual:
        """One that takes this cause away."""
        return Counterfactual(cause=self.name, text=text, change=change, part=part)
