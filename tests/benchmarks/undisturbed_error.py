"""How often the limits of p50 cover a call's time on an undisturbed core, by simulation.

    python tests/benchmarks/undisturbed_error.py [SERIES]

The series of ``percentile_error.py``: two host states, the slow one 45 % slower, each call off by 3 %, processes
``apart`` times as far apart as is known of them. They are cut into blocks of 20 calls; the canary reads 1.5 times its
calm level where the call before or after a block is slow, so a neighbour that comes and goes within a block is missed.
Prints how often p50 is that of undisturbed blocks, how often its limits cover the truth (1.0), their mean half width,
and the same for limits from all calls.
"""

from __future__ import annotations

import sys

import numpy as np
from percentile_error import SLOWER, Setting, series

from qbench.machine.process_spread import TIME_SPREAD
from qbench.measure import estimates
from qbench.measure.samples import Samples

BLOCK, CALM_NS, UNIT_NS = 20, 5600, 1_000_000
SETTINGS = [
    Setting(processes, calls, dwell, slow, times * TIME_SPREAD)
    for processes, calls in ((1, 240), (2, 600), (3, 1200), (9, 600))
    for slow, dwell in ((0.15, 30), (0.15, 1000), (0.6, 100))
    for times in (0.5, 1, 2)
]


def samples_of(setting: Setting, random: np.random.Generator) -> Samples:
    """The samples of one case, with the canary's readings."""
    groups = [series(setting, random) for _ in range(setting.processes)]
    calls = np.concatenate(groups)
    blocks = len(calls) // BLOCK
    slow = calls.reshape(blocks, BLOCK)[:, [0, -1]] > (1 + SLOWER) / 2
    return Samples(
        protocol="paired",
        stopped="precision",
        calls_ns=np.round(calls * UNIT_NS).astype(np.int64),
        block=np.repeat(np.arange(blocks), BLOCK),
        process=np.repeat(np.arange(setting.processes), blocks // setting.processes),
        canary_ns=np.where(slow, 1.5 * CALM_NS, CALM_NS).astype(np.int64),
    )


def row(setting: Setting, count: int) -> str:
    """The figures of one setting, in per cent."""
    random = np.random.default_rng(0)
    undisturbed, of_all = [], []
    for _ in range(count):
        samples = samples_of(setting, random)
        latency = estimates.latency(samples, CALM_NS)
        if latency.p50_from == "undisturbed":
            undisturbed.append((latency.p50_seconds, latency.p50_low, latency.p50_high))
        whole = estimates.latency(Samples(protocol="paired", stopped="precision", calls_ns=samples.calls_ns,
                                          block=samples.block, process=samples.process))  # fmt: skip
        of_all.append((whole.p50_seconds, whole.p50_low, whole.p50_high))
    head = f"{setting.processes:9} {setting.calls:6} {setting.slow:5.2f} {setting.dwell:6}"
    head += f" {setting.apart / TIME_SPREAD:6.1f}"
    return f"{head} {100 * len(undisturbed) / count:12.0f} {_describe(undisturbed)}   {_describe(of_all)}"


def _describe(medians: list[tuple[float | None, float | None, float | None]]) -> str:
    given = np.asarray([limits for limits in medians if None not in limits], dtype=float) / (UNIT_NS / 1e9)
    if not len(given):
        return f"{'-':>9} {'-':>10}"
    covered = (given[:, 1] <= 1) & (given[:, 2] >= 1)
    return f"{100 * covered.mean():9.0f} {50 * (given[:, 2] - given[:, 1]).mean():10.1f}"


if __name__ == "__main__":
    print("processes  calls  slow  dwell  apart  undisturbed  coverage half width   all: coverage half width")
    for setting in SETTINGS:
        print(row(setting, int(sys.argv[1]) if len(sys.argv) > 1 else 300), flush=True)
