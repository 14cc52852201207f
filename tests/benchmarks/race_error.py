"""How often the race errs and what it saves, by simulation over recorded noise (gating/traces).

    python tests/benchmarks/race_error.py [RUNS]

For each noise and field of arms: how often the leader, and a variant drawn among those that are called tied, is truly
more than the tie slower than the best; how often two copies of one artifact are called tied; how often the 95 %
intervals over processes hold the truth; all with Clopper-Pearson limits. And the time against ``spend: all``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

from simulated_race import Noise, Raced, recorded_noises, simulate

from qbench.measure.race_rules import RaceRules
from qbench.stats import intervals

# True seconds a call. ResNet-18 at 224 x 224 on one thread, ten int8 variants (measured, CHANGELOG); the same with a
# copy of the best; nine that lie within 10 % of each other; small networks, whose blocks cost nothing.
RESNET18 = dict(
    zip("abcdefghij", (0.0096, 0.0098, 0.0103, 0.0105, 0.0108, 0.0123, 0.0124, 0.0281, 0.044, 0.0955), strict=True)
)
FIELDS: dict[str, dict[str, float]] = {
    "ResNet-18": {"fp32": 0.034, **RESNET18},
    "two copies": {"fp32": 0.034, **RESNET18, "b": 0.0096},
    "within 10 %": {"fp32": 0.02, **{name: 0.01 * (1 + 0.0125 * i) for i, name in enumerate("abcdefghi")}},
    "small": {"fp32": 6e-5, **{name: 3e-5 * factor for name, factor in zip("abcd", (1, 1.02, 1.3, 2), strict=True)}},
}
TIE = RaceRules().tie


def say(name: str, wrong: int, runs: int, wanted: str) -> None:
    share = intervals.clopper_pearson(wrong, runs)
    print(f"    {name:<58} {share.value:6.1%} [{share.low:.1%}, {share.high:.1%}]  wanted {wanted}", flush=True)


def rate(name: str, seconds: Mapping[str, float], noise: Noise, runs: int) -> None:
    """Prints the rows of one field of arms under one noise."""
    random = np.random.default_rng(0)
    raced = [simulate(seconds, noise, RaceRules(), random) for _ in range(runs)]
    every = [simulate(seconds, noise, RaceRules(everything=True), random) for _ in range(max(20, runs // 10))]
    best = min(value for case, value in seconds.items() if case != "fp32")
    print(f"{noise.name}, {name}: {np.mean([one.generations for one in raced]):.1f} generations")
    say(
        "leader more than the tie slower than the best",
        sum(is_slow(seconds[r.leader], best) for r in raced),
        runs,
        "<= 5 %",
    )
    shipped = [r.tied[random.integers(len(r.tied))] for r in raced]
    say("any of the tied more than the tie slower", sum(is_slow(seconds[c], best) for c in shipped), runs, "<= 5 %")
    copies = [case for case, value in seconds.items() if value == best]
    if len(copies) > 1:
        say("two copies are tied", sum(set(copies) <= set(r.tied) for r in raced), runs, ">= 95 %")
    say(*count_held(raced, seconds), "93 to 97 %")
    held = [math.log(seconds[r.leader] / seconds["fp32"]) for r in raced]
    inside = sum(r.over_fp32[0] <= truth <= r.over_fp32[1] for r, truth in zip(raced, held, strict=True))
    say("interval of the leader's speed-up holds", inside, runs, "93 to 97 %")
    spent, all_spent = (np.mean([one.seconds for one in races]) for races in (raced, every))
    print(f"    {'time':<58} {spent:.0f} s, all: {all_spent:.0f} s, ratio {spent / all_spent:.2f}  wanted <= 0.33")


def is_slow(seconds: float, best: float) -> bool:
    return math.log(seconds / best) > math.log1p(TIE)


def count_held(raced: list[Raced], seconds: Mapping[str, float]) -> tuple[str, int, int]:
    """How many intervals of finalists over the leader hold the truth."""
    held = [
        low <= math.log(seconds[case] / seconds[one.leader]) <= high
        for one in raced
        for case, (_, low, high) in one.limits.items()
    ]
    return "intervals of finalists over the leader hold", sum(held), max(1, len(held))


def main(runs: int) -> None:
    """Prints every field under every noise."""
    for noise in recorded_noises():
        for name, seconds in FIELDS.items():
            rate(name, seconds, noise, runs)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
