"""How often the race errs and what it saves, by simulation over recorded noise (gating/traces).

    python tests/benchmarks/race_error.py [RUNS]
    python tests/benchmarks/race_error.py --real RUN RUN ...    # whole repeated runs of one suite, from their folders

For each noise and field of arms: how often the leader, and a variant drawn among those that are called tied, is truly
more than the tie slower than the best; how often two copies of one artifact are called tied; how often the 95 %
intervals over processes hold the truth; all with Clopper-Pearson limits. And the time against ``spend: all``.

Of whole repeated runs, by setting and over all pairs of them: how often two pick the same variant, beside how often
they said that they would; and how often the limits of their speed-ups over the best fp32 meet, and hold the other's.
Pairs share runs, so that the limits of these shares are too narrow.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
    print(f"{noise.name}, {name}: {np.mean([race.generations for race in raced]):.1f} generations")
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
    spent, all_spent = (np.mean([race.seconds for race in races]) for races in (raced, every))
    print(f"    {'time':<58} {spent:.0f} s, all: {all_spent:.0f} s, ratio {spent / all_spent:.2f}  wanted <= 0.33")


def is_slow(seconds: float, best: float) -> bool:
    return math.log(seconds / best) > math.log1p(TIE)


def count_held(raced: list[Raced], seconds: Mapping[str, float]) -> tuple[str, int, int]:
    """How many intervals of finalists over the leader hold the truth."""
    held = [
        low <= math.log(seconds[case] / seconds[race.leader]) <= high
        for race in raced
        for case, (_, low, high) in race.limits.items()
    ]
    return "intervals of finalists over the leader hold", sum(held), max(1, len(held))


def rate_repeated(folders: Sequence[Path]) -> None:
    """Prints the rows of whole runs of one suite, from each run's ``decision.json``."""
    answers: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for folder in folders:
        for answer in json.loads((folder / "decision.json").read_text())["decisions"]:
            answers[tuple(answer["setting"].values())].append(answer)
    for setting, repeated in answers.items():
        pairs = list(itertools.permutations(repeated, 2))
        said = np.mean([answer["probability"] for answer in repeated if answer["probability"] is not None])
        print(f"{' '.join(map(str, setting))}: {len(repeated)} runs")
        say("another run picks the same", sum(a["pick"] == b["pick"] for a, b in pairs), len(pairs), f">= {said:.0%}")
        known = [answer["speedup"] for answer in repeated if answer["speedup"] is not None]
        limits = list(itertools.permutations(known, 2))
        meet = sum(a["low"] <= b["high"] and b["low"] <= a["high"] for a, b in limits)
        say("limits of two speed-ups meet", meet, max(1, len(limits)), ">= 95 %")
        held = sum(a["low"] <= b["value"] <= a["high"] for a, b in limits)
        say("limits hold the other's value", held, max(1, len(limits)), ">= 83 %")


def main() -> None:
    """Prints every field under every noise, or the rows of repeated runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="?", type=int, default=1000)
    parser.add_argument("--real", nargs="+", type=Path)
    asked = parser.parse_args()
    if asked.real:
        rate_repeated(asked.real)
        return
    for noise in recorded_noises():
        for name, seconds in FIELDS.items():
            rate(name, seconds, noise, asked.runs)


if __name__ == "__main__":
    main()
