"""How often the decision errs, by simulation over recorded noise (gate/traces) and normal noise.

    python tests/benchmarks/decision_error.py [RUNS]

Prints a row a rate and a noise: the share with its Clopper-Pearson limits at 95 %, and the most that is wanted.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from qbench.decide.error_rates import Noise, normal_noise, rate_all
from qbench.gate.error_rates import traces


def list_noises() -> list[Noise]:
    """The recorded noises, and two that are known exactly."""
    recorded = [
        Noise(name=trace.name, log_ratios=trace.ratios - np.median(np.median(trace.ratios, axis=1)))
        for trace in traces()
    ]
    long = [replace(noise, name=f"{noise.name}, 6 generations", generations=6) for noise in recorded]
    return [*recorded, *long, normal_noise(0.015, 0.01), normal_noise(0.02, 0.02)]


def main(runs: int) -> None:
    """Prints the table."""
    for noise in list_noises():
        for rate in rate_all(noise, runs=runs):
            share = rate.share
            assert share.low is not None
            assert share.high is not None
            limits = f"[{share.low:.1%}, {share.high:.1%}]"
            print(
                f"{noise.name:28} {rate.name:50} {share.value:6.1%} {limits:16} wanted <= {rate.most:.1%}", flush=True
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
