"""How near each layer's int8 output is to fp32 on real inputs: what explains a loss of accuracy, layer by layer.

A layer is compared where both networks have settled: behind the BatchNorm and the clipping activation that follow it
as its only user, since quantizers fuse these into the layer, and behind the quantization of its output, where that is
the only use. The place depends on the fp32 network alone, so that the figures of several flows can be compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qbench.errors import BuildError
from qbench.quant.analysis import quantized_range
from qbench.quant.analysis.activation_trace import ActivationTrace, Call, Place, flatten_tensors, run_traced
from qbench.quant.analysis.quantized_range import InputRange
from qbench.quant.flow import Batches
from qbench.record.layer_numbers import LayerNumbers

_PIECE = 2**15  # values that are held in float64 at a time: as many stay in a core's cache
_NOT_ALWAYS = "fp32 and int8 do not both run it on every batch"


@dataclass(frozen=True, kw_only=True)
class ComparedLayer(LayerNumbers):
    """One layer by its name in the fp32 network, ``sqnr_db`` infinite for equal outputs; ``ranges``: the values that
    int8 can represent where it is compared, one for each call; empty where they are not known, or where it stays float
    there."""

    ranges: tuple[InputRange, ...] = ()


def measure_layers(fp32_module: Any, int8_module: Any, batches: Batches) -> tuple[ComparedLayer, ...]:
    """The numbers of every layer with parameters, in the order in which the fp32 network runs them.

    ``int8_module`` is what a flow converted: modules with the fp32 network's names (eager, dynamic, FX), or a graph
    whose operators know their modules (PT2E, before it is compiled). A BatchNorm behind a layer has no numbers of its
    own. Batches go through one at a time, and of each only the compared outputs are held. Raises ``BuildError`` where
    there are no batches, or where one of the two networks does not run on them.
    """
    first = next(iter(batches()), None)
    if first is None:
        raise BuildError("per-layer numbers need inputs, and there are no batches: give calibration examples")
    ours, theirs = ActivationTrace(), _Ranged()
    try:
        run_traced(int8_module, first, theirs, "int8")
    except BuildError:  # a graph may have been exported for one example
        batches, first, theirs = _one_by_one(batches), next(_one_by_one(batches)()), _Ranged()
        run_traced(int8_module, first, theirs, "int8")
    run_traced(fp32_module, first, ours, "fp32")
    names = sorted(_layers(fp32_module), key=lambda name: ours.step_of((name, 0)))
    plan = _Plan(names, _leaves(fp32_module), ours, theirs)
    sums = {name: _Sums() for name in names if name not in plan.reasons and name not in plan.absorbed}
    for batch in batches():
        _compare(fp32_module, int8_module, batch, plan, sums)
    return tuple(
        replace(sums[name].numbers(name), ranges=plan.ranges.get(name, ()))
        if name in sums
        else ComparedLayer(name=name, reason=plan.reasons[name])
        for name in names
        if name not in plan.absorbed
    )


class _Ranged(ActivationTrace):
    """Also what the output of each step can represent, where it is quantized by fixed scales."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: dict[int, InputRange] = {}

    def step(self, function: Any, arguments: Any, result: Any) -> None:
        """A torch function has run."""
        number = len(self.steps)
        super().step(function, arguments, result)
        tensor = next(flatten_tensors(result), None) if len(self.steps) > number else None
        values = None if tensor is None else quantized_range.range_of_result(function, arguments[0], tensor)
        if values is not None:
            self.ranges[number] = values

    def range_of(self, call: Call) -> InputRange | None:
        """What can be represented where a call's layer is compared."""
        ranges = [self.ranges[step] for step in self.chain(call) if step in self.ranges]
        return ranges[-1] if ranges else None


def _one_by_one(batches: Batches) -> Batches:
    def singles() -> Iterator[tuple[Any, ...]]:
        for batch in batches():
            for i in range(len(batch[0])):
                yield tuple(tensor[i : i + 1] for tensor in batch)

    return singles


def _layers(module: Any) -> list[str]:
    """Modules with parameters of their own and none below, or torch's own with some below (MultiheadAttention)."""
    names: list[str] = []
    for name, part in module.named_modules():
        has_parameters = next(part.parameters(recurse=False), None) is not None
        below = any(next(child.parameters(), None) is not None for child in part.children())
        if has_parameters and name and (not below or type(part).__module__.startswith("torch.nn.")):
            inside = any(name.startswith(f"{upper}.") for upper in names)
            names += [] if inside else [name]
    return names


def _leaves(module: Any) -> set[str]:
    return {name for name, part in module.named_modules() if next(part.children(), None) is None}


class _Plan:
    """Where each layer is read in the two networks, and why some cannot be.

    ``ours`` and ``theirs`` say where to start and how far to follow; ``absorbed`` layers are compared as part of the
    one before them.
    """

    def __init__(self, names: list[str], leaves: set[str], fp32: ActivationTrace, int8: _Ranged) -> None:
        self.ours: dict[Place, tuple[Call, int]] = {}
        self.theirs: dict[Place, tuple[Call, int]] = {}
        self.reasons: dict[str, str] = {}
        self.ranges: dict[str, tuple[InputRange, ...]] = {}  # of each call, where that of every call is known
        self._fp32, self._int8, self._leaves = fp32, int8, leaves
        self._prefix = _prefix(names, {name for name, _ in int8.ends})
        chains = {call: fp32.chain(call) for name in names for call in fp32.calls(name)}
        behind = {step for chain in chains.values() for step in chain[1:]}
        alone = {call[0] for call, chain in chains.items() if not behind.intersection(chain[:1])}
        self.absorbed = {name for name, _ in chains} - alone
        for name in names:
            calls = fp32.calls(name)
            if not calls:
                self.reasons[name] = "these inputs do not run it"
            compared = [self._add(call, chains[call]) for call in calls] if name not in self.absorbed else []
            layers = tuple(layer for layer in compared if layer is not None)
            if layers and len(layers) == len(compared):
                self.ranges[name] = layers

    def _add(self, call: Call, chain: list[int]) -> InputRange | None:
        """The last module of the chain that the int8 network still has is where its output is taken from there; what
        that can represent."""
        within = [at for step in reversed(chain) for at, (_, producer) in self._fp32.ends.items() if producer == step]
        for name, number in (*(at for at in within if at[0] in self._leaves), call):
            int8_calls = self._int8.calls(self._prefix + name)
            if len(int8_calls) == len(self._fp32.calls(name)):
                self.ours[self._fp32.ends[call][0]] = (call, max(len(chain) - 1, 0))
                further = len(self._int8.chain(int8_calls[number])) - 1
                self.theirs[self._int8.ends[int8_calls[number]][0]] = (call, max(further, 0))
                return self._int8.range_of(int8_calls[number])
        times = len(self._int8.calls(self._prefix + call[0]))
        self.reasons[call[0]] = (
            f"fp32 runs it {len(self._fp32.calls(call[0]))} times, int8 {times} times"
            if times
            else "nothing in the int8 network carries its name: it was renamed, or fused into another layer"
        )
        return None


def measure_clipping(
    fp32_module: Any, batches: Batches, variants: Sequence[Mapping[str, Sequence[InputRange]]]
) -> list[dict[str, float]]:
    """Of each variant's layers the share of values that lie outside what their int8 outputs can represent.

    The values are those of the fp32 network, at the places where ``measure_layers`` compares its layers; ``variants``
    have the ``ranges`` that it gave. A layer that these batches call another number of times has no share. Raises
    ``BuildError`` where the network does not run on them.
    """
    ours, first = ActivationTrace(), next(iter(batches()))
    run_traced(fp32_module, first, ours, "fp32")
    names = {name for variant in variants for name in variant}
    calls = [call for name in names for call in ours.calls(name)]
    layers = {ours.ends[call][0]: (call, max(len(ours.chain(call)) - 1, 0)) for call in calls}
    totals: Counter[str] = Counter()
    outside: list[Counter[str]] = [Counter() for _ in variants]

    def look(call: Call, output: Any) -> None:
        name, number = call
        totals[name] += output.numel()
        for counts, ranges in zip(outside, variants, strict=True):
            if number < len(ranges.get(name, ())):
                counts[name] += _outside(output, ranges[name][number])

    for batch in batches():
        run_traced(fp32_module, batch, ActivationTrace(layers, look), "fp32")
    return [
        {
            name: counts[name] / totals[name]
            for name in ranges
            if totals[name] and len(ours.calls(name)) == len(ranges[name])
        }
        for counts, ranges in zip(outside, variants, strict=True)
    ]


def _outside(output: Any, fitting: InputRange) -> int:
    """How many values are clipped, as ``input_drift.outside`` counts them."""
    half = fitting.step * (0.5 + 1e-5)
    return int(((output < fitting.low - half) | (output > fitting.high + half)).sum())


def _prefix(names: list[str], int8_names: set[str]) -> str:
    """What a wrapper of the int8 network puts before the fp32 network's names (``module.``), mostly nothing."""
    hits = Counter(
        other.removesuffix(name)
        for name in names
        for other in int8_names
        if other == name or other.endswith(f".{name}")
    )
    return min(hits, key=lambda prefix: (-hits[prefix], len(prefix)), default="")


def _compare(fp32_module: Any, int8_module: Any, batch: tuple[Any, ...], plan: _Plan, sums: dict[str, _Sums]) -> None:
    """Adds one batch to the sums of every layer."""
    outputs: dict[Call, Any] = {}

    def keep(call: Call, output: Any) -> None:
        outputs[call] = _float(output).clone()  # a later function may write into it

    def add(call: Call, output: Any) -> None:
        if call[0] in sums:
            sums[call[0]].add(outputs.pop(call, None), _float(output))

    run_traced(fp32_module, batch, ActivationTrace(plan.ours, keep), "fp32")
    run_traced(int8_module, batch, ActivationTrace(plan.theirs, add), "int8")
    for name, _ in outputs:
        if name in sums:
            sums[name].problem = _NOT_ALWAYS


def _float(output: Any) -> Any:
    return output.dequantize() if output.is_quantized else output


class _Sums:
    """What is known of a layer's two outputs after the batches so far."""

    def __init__(self) -> None:
        self.signal = self.energy = self.product = self.noise = 0.0
        self.n = 0
        self.problem: str | None = None

    def add(self, x: Any, q: Any) -> None:
        """The outputs of one call: of fp32 (None where it did not make one) and of int8."""
        if x is None:
            self.problem = _NOT_ALWAYS
        elif x.shape != q.shape:
            self.problem = f"its output has shape {tuple(x.shape)} in fp32 and {tuple(q.shape)} in int8"
        else:
            self.n += x.numel()
            for a, b in zip(x.reshape(-1).split(_PIECE), q.reshape(-1).split(_PIECE), strict=True):
                self._add(a.double(), b.double())

    def _add(self, x: Any, q: Any) -> None:
        self.signal += float(x.dot(x))
        self.energy += float(q.dot(q))
        self.product += float(x.dot(q))
        x -= q
        self.noise += float(x.dot(x))

    def numbers(self, name: str) -> ComparedLayer:
        """SQNR and cosine, or why there are none."""
        problem = self.problem
        if problem is None and not math.isfinite(self.signal + self.noise):
            problem = "its outputs are not all finite"
        elif problem is None and self.signal == 0:
            problem = "its fp32 output is zero everywhere: there is no signal to compare with"
        if problem is not None:
            return ComparedLayer(name=name, reason=problem)
        sqnr = 10 * math.log10(self.signal / self.noise) if self.noise else math.inf
        cosine = self.product / math.sqrt(self.signal * self.energy) if self.energy else 0.0
        return ComparedLayer(name=name, sqnr_db=sqnr, cosine=max(-1.0, min(1.0, cosine)), n=self.n)
