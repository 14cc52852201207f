"""How often a bisection by time names the wrong release, and whether the chance that it states holds, by simulation.

    python tests/benchmarks/bisect_error.py [BISECTIONS]

A row a setting: how process pairs spread (normal with that standard deviation from pair to pair, or the gate's recorded
traces), how many releases there are behind the good one, by how much the bad ones are slower, and of BISECTIONS (400 by
default) whose first bad release is drawn evenly: how many named the right release, a wrong one, several of which one is
right, several of which none is; found no difference; stayed open. ``stated``: the mean chance of those that name one,
``right``: the share of those that are right. In the rows ``two steps`` the change comes in two releases of which the
first brings 30 %, so that the second one is right; in ``broken`` one release of three cannot run. Seeded.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from qbench.bisect import judge_time
from qbench.bisect.search import Bracket, Judged, search
from qbench.gating.error_rates import _pairs, traces
from qbench.gating.sequential_test import ProcessPair

Draw = Callable[[np.random.Generator], ProcessPair]
EFFECTS = (0.0, 0.02, 0.05, 0.20)
BROKEN = Judged(side="skipped", p_bad=None)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """``draw``: a process pair of two equal artifacts; ``steps``: the shares of the change that come with the first bad
    release and before it; ``broken``: the share of releases that cannot run."""

    noise: str
    draw: Draw
    releases: int
    effect: float
    kind: str = ""
    early: float = 0.0
    broken: float = 0.0


@dataclass(kw_only=True)
class Tally:
    """What came of the bisections of a setting."""

    ends: Counter[str] = field(default_factory=Counter)
    chances: list[float] = field(default_factory=list)
    right: int = 0
    pairs: int = 0

    def describe(self) -> str:
        """The columns behind the setting."""
        count, named = self.ends.total(), len(self.chances)
        columns = "".join(f"{self.ends[end]:8}" for end in ENDS)
        stated = f"{100 * math.fsum(self.chances) / named:8.2f}{100 * self.right / named:8.2f}" if named else 16 * " "
        return f"{columns}{stated}{self.pairs / count:8.1f}"


ENDS = ("right", "wrong", "range", "missed", "same", "open")


def normal(spread: float) -> Draw:
    """Pairs of processes that spread alike; ``spread`` is that of one copy's ratio."""

    def draw(rng: np.random.Generator) -> ProcessPair:
        base, contender, control = rng.normal(0, spread / math.sqrt(2), 3)
        return ProcessPair(ratio=contender - base, control=control - base, drift=0.0)

    return draw


def list_noises() -> Iterator[tuple[str, Draw]]:
    """The names of the noises, and what draws a pair of each."""
    for spread in (0.004, 0.015, 0.025):
        yield f"normal {spread:.1%}", normal(spread)
    for trace in traces():
        recorded = _pairs(trace, 0.0)
        yield trace.name, lambda rng, recorded=recorded: recorded[rng.integers(len(recorded))]  # type: ignore[misc]


def list_settings() -> Iterator[Setting]:
    """All rows."""
    for noise, draw in list_noises():
        for releases in (7, 30):
            for effect in EFFECTS:
                yield Setting(noise=noise, draw=draw, releases=releases, effect=effect)
        steps = Setting(noise=noise, draw=draw, releases=15, effect=0.05)
        yield replace(steps, kind="two steps", early=0.3)
        yield replace(steps, kind="broken", broken=1 / 3)


def bisect(levels: list[float], broken: set[int], draw: Draw, rng: np.random.Generator) -> tuple[str | Bracket, int]:
    """The answer for releases of these logarithms of time, or how the ends are; and the process pairs that it took."""
    last = len(levels) - 1
    pairs: dict[int, list[ProcessPair]] = defaultdict(list)

    def look(place: int) -> None:
        wanted = judge_time.next_look(len(pairs[place]))
        assert wanted is not None
        while len(pairs[place]) < wanted:
            pair = draw(rng)
            pairs[place].append(replace(pair, ratio=pair.ratio + levels[place]))

    while (end := judge_time.judge_end(pairs[last])).side == "open" and end.more:
        look(last)
    judged: dict[int, Judged] = {last: replace(end, more=False)}
    bracket: str | Bracket = {"good": "same", "open": "open"}.get(end.side, "")
    while not bracket:
        step = search(judged, last)
        if isinstance(step, Bracket):
            bracket = step
        elif step.candidate in broken:
            judged[step.candidate] = BROKEN
        else:
            look(step.candidate)
            change = judge_time.measure_change(pairs[last])
            judged[step.candidate] = judge_time.judge_candidate(pairs[step.candidate], change)
    return bracket, sum(map(len, pairs.values()))


def simulate(setting: Setting, count: int) -> Tally:
    """That many bisections."""
    rng, tally, size = np.random.default_rng(1), Tally(), math.log1p(setting.effect)
    for _ in range(count):
        first = int(rng.integers(1, setting.releases + 1))
        before = int(rng.integers(0, first)) if setting.early else first
        levels = [size * (place >= first or setting.early * (place > before)) for place in range(setting.releases + 1)]
        drawn = rng.random(setting.releases + 1) < setting.broken
        broken = {place for place in range(1, setting.releases) if drawn[place]}
        bracket, pairs = bisect(levels, broken, setting.draw, rng)
        tally.pairs += pairs
        if isinstance(bracket, str):
            tally.ends[bracket] += 1
        elif bracket.is_named:
            tally.ends["right" if bracket.first_bad == first else "wrong"] += 1
            tally.right += bracket.first_bad == first
            tally.chances.append(bracket.chance)
        else:
            tally.ends["range" if first in bracket.candidates else "missed"] += 1
    return tally


def main(count: int) -> None:
    """Prints the table."""
    head = "".join(f"{title:>8}" for title in (*ENDS, "stated", "right %", "pairs"))
    print(f"{'noise':18}{'releases':>9}{'slower':>8}  {'':10}{head}")
    for setting in list_settings():
        told = f"{setting.noise:18}{setting.releases:9}{setting.effect:8.0%}  {setting.kind:10}"
        print(f"{told}{simulate(setting, count).describe()}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
