"""Two cases of one group held against each other: log ratios of blocks that ran in the same round; pure.

What slows a whole round cancels in a ratio, as far as it slows both alike. A neighbour on the host does not: it slows
int8 arithmetic more than fp32 (ONNX Runtime's ResNet-18 3.37 times as fast as fp32 in undisturbed blocks, 2.99 times in
disturbed ones). So pairs of undisturbed blocks count, where there are ``LEAST_CALM`` of them; where there
are not, though the canary is known to be faster, what the ratio is on a core of its own is less certain: by
``SHARED_SPREAD``, and by ``SHARED_ALIKE`` where both cases are int8, or both fp32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qbench.machine.canary import DISTURBED
from qbench.machine.process_spread import RUN_SPREAD
from qbench.measure.core_time import CUT_SPREAD, find_cut, needed_ns
from qbench.measure.samples import BlockTiming, Samples, list_blocks

LEAST_CALM = 3  # pairs of undisturbed blocks in all, and two in a generation: one that misleads is outvoted
LEAST_GENERATIONS = 3  # that have them, of as many or more: fewer do not show how processes differ on a busy machine
# Standard deviation of ln(ratio on a shared core / ratio on a core of its own). Tried by hand on one guest with ONNX
# Runtime, fp32 over int8: -11 % (ResNet-18), -9 % (2 ms), -4 % (70 us). Of two cases in int8 it is chosen, untested.
SHARED_SPREAD, SHARED_ALIKE = 0.05, 0.02


@dataclass(frozen=True, kw_only=True)
class BlockMinimum:
    """The fastest call of a block: ``nanoseconds`` that it needed of its core, ``away``: the share of its time in which
    others had the core; ``calm``: whether the host left the core alone before and after the block (None: not known)."""

    nanoseconds: float
    away: float = 0.0
    calm: bool | None = None


Minima = Mapping[tuple[int, int], BlockMinimum]  # by process and round


@dataclass(frozen=True, kw_only=True)
class PairedBlocks:
    """ln(case / other) of the blocks of each round that both ran in, by process (a generation of processes that were
    alive together). ``unseen``: the standard error of their mean that no number of blocks shows."""

    log_ratios: Mapping[int, NDArray[np.float64]]
    unseen: float = 0.0


def pair_samples(case: Samples, other: Samples, calm_ns: float | None = None, *, alike: bool = False) -> PairedBlocks:
    """``pair_blocks`` of stored samples; ``calm_ns``: what the canary takes where nobody shares the core (None: no
    block is known to be undisturbed). Empty where the rounds of one are not known, or where they never met."""
    return pair_blocks(list_minima(case, calm_ns), list_minima(other, calm_ns), alike=alike)


def pair_blocks(case: Minima, other: Minima, *, alike: bool = False) -> PairedBlocks:
    """The rounds that both ran in: those whose blocks are undisturbed, where there are enough. ``alike``: both cases
    are int8, or both fp32."""
    shared = sorted(case.keys() & other.keys())
    if not shared:
        return PairedBlocks(log_ratios={})
    calm = _list_calm(shared, [key for key in shared if case[key].calm and other[key].calm])
    used = calm or shared
    log_ratios: dict[int, list[float]] = {}
    for key in used:
        log_ratios.setdefault(key[0], []).append(math.log(case[key].nanoseconds / other[key].nanoseconds))
    disturbed = not calm and any(case[key].calm is not None for key in shared)
    cut = max(float(np.mean([minima[key].away for key in used])) for minima in (case, other))
    shared_spread, run_spread = (SHARED_ALIKE, 0.0) if alike else (SHARED_SPREAD, RUN_SPREAD)
    return PairedBlocks(
        log_ratios={process: np.asarray(values) for process, values in log_ratios.items()},
        unseen=math.hypot(run_spread, CUT_SPREAD * cut, shared_spread if disturbed else 0.0),
    )


def _list_calm(shared: list[tuple[int, int]], calm: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The undisturbed rounds of generations that have two of them; none where they, or these, are too few."""
    processes = [process for process, _ in calm]
    several = [key for key in calm if processes.count(key[0]) > 1]
    needed = min(LEAST_GENERATIONS, len({process for process, _ in shared}))
    return several if len(several) >= LEAST_CALM and len({process for process, _ in several}) >= needed else []


def list_minima(samples: Samples, calm_ns: float | None) -> Minima:
    """The fastest call of each block; empty where the rounds are not known."""
    if not len(samples.round) or len(samples.process) != len(samples.round):
        return {}
    timings = list_blocks(samples)
    if len(timings) != len(samples.round):
        return {}
    return find_minima(zip(samples.process.tolist(), samples.round.tolist(), strict=True), timings, calm_ns)


def find_minima(
    keys: Iterable[tuple[int, int]], timings: Iterable[BlockTiming], calm_ns: float | None = None
) -> Minima:
    """The fastest call of each block, by its process and round."""
    return {key: _find_minimum(timing, calm_ns) for key, timing in zip(keys, timings, strict=True)}


def _find_minimum(timing: BlockTiming, calm_ns: float | None) -> BlockMinimum:
    """A call below the clock's resolution reads 0; one nanosecond keeps the ratio defined."""
    needed = needed_ns(timing.calls_ns, timing.processor_ns)
    fastest = int(needed.argmin())
    is_cut = timing.processor_ns is not None and bool(find_cut(timing.calls_ns, timing.processor_ns)[fastest])
    calm = None
    if calm_ns is not None and timing.canary_ns is not None:
        calm = max(timing.canary_ns) < DISTURBED * calm_ns
    return BlockMinimum(
        nanoseconds=max(1.0, float(needed[fastest])),
        away=1 - float(needed[fastest] / timing.calls_ns[fastest]) if is_cut else 0.0,
        calm=calm,
    )
