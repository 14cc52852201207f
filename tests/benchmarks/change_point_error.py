"""How often a history in which nothing changed shows a change point, and how large a change it finds.

Run: python tests/benchmarks/change_point_error.py [RUN ...] [--panels N]

Noise is normal, Student's t with 4 degrees, passed on from one run to the next (0.3), and, where folders of runs are
given, that of their processes: each run is the mean of three deviations drawn from those of all cases, plus one that
all cases of the run share (their fp32).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from qbench.record.stored_run import read_run
from qbench.stats.change_points import find_change_points

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def normal(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Independent runs."""
    return 0.015 * rng.normal(size=size)


def long_tails(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Now and then a bad run."""
    return 0.015 * rng.standard_t(4, size) / np.sqrt(2)


def passed_on(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """A machine that is slow today is likely to be slow tomorrow."""
    noise = rng.normal(size=size)
    for place in range(1, size[1]):
        noise[:, place] = 0.3 * noise[:, place - 1] + np.sqrt(1 - 0.09) * noise[:, place]
    return 0.015 * noise


def of_processes(folders: list[Path]) -> Draw:
    """Noise as real processes have it."""
    deviations = []
    for folder in folders:
        run = read_run(folder)
        for record in run.records:
            samples = run.samples(record)
            process, block, calls = (samples.get(name, np.zeros(0, int)) for name in ("process", "block", "calls_ns"))
            if len(calls) == len(block) > 0 and block.max() < len(process):
                of_call = process[block]
                medians = np.log([np.median(calls[of_call == each]) for each in np.unique(of_call)])
                if len(medians) > 2:
                    deviations += list((medians - medians.mean()) * np.sqrt(len(medians) / (len(medians) - 1)))
    real = np.array(deviations)
    print(f"{len(real)} processes of real runs, standard deviation {real.std():.4f}")

    def draw(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
        own = rng.choice(real, (*size, 3)).mean(axis=-1)
        return own + rng.choice(real, (1, size[1], 3)).mean(axis=-1)

    return draw


def rate(draw: Draw, panels: int, series: int, runs: int, change: float = 0.0) -> float:
    """The share of panels that show a change; ``change`` is added to the first series from the middle on."""
    rng = np.random.default_rng(0)
    shown = 0
    for _ in range(panels):
        values = draw(rng, (series, runs))
        values[0, runs // 2 :] += change
        changes = find_change_points(values.tolist(), least_noise=0.005)
        shown += bool(changes[0]) if change else any(changes)
    return shown / panels


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--panels", type=int, default=200)
    options = parser.parse_args()
    draws: dict[str, Draw] = {"normal": normal, "t, 4 degrees": long_tails, "passed on, 0.3": passed_on}
    draws |= {"real processes": of_processes(options.runs)} if options.runs else {}
    for name, draw in draws.items():
        for series in (1, 20):
            for count in (8, 20, 40):
                false = rate(draw, options.panels, series, count)
                rates = [rate(draw, options.panels // 4, series, count, change) for change in (0.05, 0.1)]
                print(f"{name:16s} {series:3d} series {count:3d} runs: false {false:.3f}, finds 5 % {rates[0]:.2f}, "
                      f"10 % {rates[1]:.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
