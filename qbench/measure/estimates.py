"""Samples -> latency and speed-up; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from qbench.machine import canary as machine_canary
from qbench.measure import paired_difference, pairing, percentiles, undisturbed_blocks
from qbench.measure.core_time import needed_ns
from qbench.measure.samples import Samples
from qbench.measure.series import split_controls
from qbench.measure.time_spread import KNOWN, TimeSpread, pool_cases
from qbench.measure.worker import WorkerFacts
from qbench.record.schema import ColdStart, Fastest, Interference, Latency, Sequential, Speedup
from qbench.stats import intervals, stationarity
from qbench.stats.interval_type import Interval

LEVEL = 0.95
# The drift that matters, in logarithms: the precision that a suite has by default.
DRIFT_ROOM = 0.02
UNKNOWN = ("p50_seconds", "p50_low", "p50_high", "p90_seconds", "p99_seconds", "mean_seconds")


Spreads = Mapping[tuple[str, float], TimeSpread]  # by the calls (``undisturbed`` or ``all``) and the percentile


def latency(samples: Samples, calm_ns: float | None = None, spreads: Spreads = MappingProxyType({})) -> Latency:
    """Percentiles of the seconds that the kept calls needed (``core_time``), with limits around them; null where the
    calls do not support one, since they are worth too few independent ones (``percentiles``). p50 is that of the
    undisturbed blocks where there are enough; ``calm_ns`` is what the canary is known to take on this core alone,
    ``spreads`` what ``pool_spreads`` says of the setting."""
    seconds = needed_ns(samples.calls_ns, samples.processor_ns) / 1e9
    if not len(seconds):
        return Latency(**dict.fromkeys(UNKNOWN), n=0)
    groups, unknown = _by_process(seconds, samples), Interval(value=math.nan)
    p50, p90, p99 = (
        percentiles.percentile(seconds, groups, q, spreads.get(("all", q), KNOWN)) for q in percentiles.LEAST
    )
    of_all, calm = p50, undisturbed_blocks.select_calls(samples, calm_ns)
    if calm is not None:
        p50 = percentiles.undisturbed_median(
            seconds[calm], _by_process(seconds, samples, calm), spreads.get(("undisturbed", 0.5), KNOWN)
        )
    p90_limits, p99_limits = p90 or unknown, p99 or unknown
    return Latency(
        p50_seconds=p50.value if p50 else None,
        p50_low=p50.low if p50 else None,
        p50_high=p50.high if p50 else None,
        p90_seconds=p90.value if p90 else None,
        p99_seconds=p99.value if p99 else None,
        mean_seconds=float(np.mean(seconds)),
        n=len(seconds),
        p90_low=p90_limits.low,
        p90_high=p90_limits.high,
        p99_low=p99_limits.low,
        p99_high=p99_limits.high,
        effective_n=intervals.effective_size(percentiles.ranks(seconds)),
        p50_from=("all" if calm is None else "undisturbed") if len(samples.canary_ns) else None,
        p50_all_seconds=of_all.value if of_all and len(samples.canary_ns) else None,
    )


def pool_spreads(measured: Iterable[Samples], calm_ns: float | None = None) -> Spreads:
    """How much the cases of a setting differ from one process to the next."""
    logs: dict[tuple[str, float], list[list[float]]] = {}
    for samples in measured:
        seconds = needed_ns(samples.calls_ns, samples.processor_ns) / 1e9
        calm = undisturbed_blocks.select_calls(samples, calm_ns)
        if calm is not None:
            groups = _by_process(seconds, samples, calm)
            logs.setdefault(("undisturbed", 0.5), []).append(percentiles.list_logs(groups, 0.5))
        groups = [group for group in _by_process(seconds, samples) if len(group)]
        for q in percentiles.LEAST:
            logs.setdefault(("all", q), []).append(percentiles.list_logs(groups, q))
    return {key: pool_cases(cases) for key, cases in logs.items()}


def _by_process(
    seconds: NDArray[np.float64], samples: Samples, kept: NDArray[np.bool_] | None = None
) -> list[NDArray[np.float64]]:
    """The calls of each process (of those that are ``kept``); all where it is not known which process they ran in."""
    kept = np.ones(len(seconds), dtype=bool) if kept is None else kept
    numbers = np.unique(samples.process)
    if len(numbers) < 2 or not len(samples.block):
        return [seconds[kept]]
    process = samples.process[samples.block]
    groups = [seconds[kept & (process == number)] for number in numbers]
    return [group for group in groups if len(group)]


def interference(samples: Samples, calm_ns: float | None = None) -> Interference | None:
    """Totals over all blocks, and how much of them the host disturbed (``calm_ns`` as for ``latency``); None where
    nothing was measured."""
    blocks = len(np.unique(samples.block))
    if not blocks:
        return None
    switches, faults = (int(part.sum()) if len(part) else None for part in (samples.involuntary, samples.faults))
    off_core = average_off_core(samples)
    known = Interference(blocks=blocks, involuntary_switches=switches, page_faults=faults, off_core=off_core)
    level = machine_canary.calm_level(samples.canary_ns, calm_ns)
    if level is None or not len(samples.canary_ns):
        return known
    return replace(
        known,
        shared=machine_canary.share_disturbed(samples.canary_ns, level),
        undisturbed_blocks=int(undisturbed_blocks.find_undisturbed(samples.canary_ns, level).sum()),
        calm_seconds=level / 1e9,
    )


def average_off_core(samples: Samples) -> float | None:
    """The share of the time of all blocks in which another process had the core; None where it is not known."""
    numbers, places = np.unique(samples.block, return_inverse=True)
    if len(samples.off_core) != len(numbers):
        return None
    took = np.bincount(places, weights=samples.calls_ns)
    return float(np.average(samples.off_core, weights=took)) if took.sum() else None


def cold_start(facts: Sequence[WorkerFacts]) -> ColdStart | None:
    """Medians over processes with order-statistic limits; None without a process."""
    if not facts:
        return None
    load, first = (
        [getattr(process_facts, name) for process_facts in facts] for name in ("load_seconds", "first_call_seconds")
    )
    later = [call for process_facts in facts for call in process_facts.next_calls_seconds]
    load_limits, first_limits = (intervals.quantile_interval(values, 0.5, LEVEL) for values in (load, first))
    return ColdStart(
        load_seconds=float(np.median(load)),
        first_call_seconds=float(np.median(first)),
        next_calls_seconds=float(np.median(later)) if later else None,
        processes=len(facts),
        load_low=load_limits.low if load_limits else None,
        load_high=load_limits.high if load_limits else None,
        first_call_low=first_limits.low if first_limits else None,
        first_call_high=first_limits.high if first_limits else None,
    )


def sequential(samples: Samples, baseline: Samples | None) -> Sequential | None:
    """Mean and speed-up of means, as the literature reports them; no interval."""
    if not len(samples.calls_ns):
        return None
    mean = float(np.mean(samples.calls_ns))
    speedup = float(np.mean(baseline.calls_ns)) / mean if baseline is not None and len(baseline.calls_ns) else None
    return Sequential(mean_seconds=mean / 1e9, n=len(samples.calls_ns), speedup=speedup)


def over_fastest(
    samples: Samples, fastest: str, fastest_samples: Samples, calm_ns: float | None = None
) -> Fastest | None:
    """The speed-up over the run's fastest fp32, from the rounds that both ran in (``calm_ns`` as for ``latency``); None
    where they never met."""
    difference = paired_difference.compare_times(fastest_samples, samples, calm_ns)
    if difference is None:
        return None
    ratio = difference.ratio()
    return Fastest(baseline=fastest, value=ratio.value, low=ratio.low, high=ratio.high)


def speedup(
    samples: Samples, baseline: str, baseline_samples: Samples | None, calm_ns: float | None = None
) -> Speedup | None:
    """Baseline time over this case's; from blocks of the same rounds (paired; ``calm_ns`` as for ``latency``), or of
    the means (sequential)."""
    if len(samples.round):
        return None if baseline_samples is None else _speedup_by_rounds(samples, baseline, baseline_samples, calm_ns)
    if baseline_samples is None or not len(samples.calls_ns) or not len(baseline_samples.calls_ns):
        return None
    value = float(np.mean(baseline_samples.calls_ns) / np.mean(samples.calls_ns))
    return Speedup(
        baseline=baseline, value=value, low=None, high=None, protocol=samples.protocol, stopped=samples.stopped
    )


def _speedup_by_rounds(
    samples: Samples, baseline: str, baseline_samples: Samples, calm_ns: float | None
) -> Speedup | None:
    """Limits over generations of processes; with few of them they hold what is known of processes in general."""
    blocks = pairing.pair_samples(samples, baseline_samples, calm_ns)
    difference = paired_difference.average_blocks(blocks)
    if difference is None:
        return None
    low, high = difference.limits(LEVEL)
    control = paired_difference.difference_over_generations(split_controls(samples))
    return Speedup(
        baseline=baseline,
        value=math.exp(-difference.value),
        low=math.exp(-high),
        high=math.exp(-low),
        level=LEVEL,
        processes=difference.generations,
        control=None if control is None else control.ratio(LEVEL),
        protocol=samples.protocol,
        stopped=samples.stopped,
        steady=stationarity.is_stationary(list(blocks.log_ratios.values()), DRIFT_ROOM),
        measured_seconds=None if math.isnan(samples.seconds) else samples.seconds,
    )
