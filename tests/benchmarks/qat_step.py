"""What a step of quantization-aware training costs over a step of fp32 training, for each flow.

    python tests/benchmarks/qat_step.py                       # digits-cnn and ResNet-18 at 3x224x224, a quarter hour
    python tests/benchmarks/qat_step.py digits-cnn --pairs 50

Batch 8, one thread, Adam, cross-entropy, random examples; a step is forward, backward and update. The arms take turns,
so that a disturbance falls on all of them, and what counts is the processor time of this process; printed are the
medians in ms and the median over rounds of the ratio to the fp32 step of the same round, with its quartiles. The goal
is a ratio of at most 2.6.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from resnet18 import NETWORK

from qbench.models import digits_cnn
from qbench.quant import canonical
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import eager, fx, pt2e, qat, torch_ao
from qbench.quant.recipe import Recipe

BATCH = 8
GOAL = 2.6
FLOWS = {"eager": eager, "fx": fx, "pt2e": pt2e}
RECIPE = Recipe(per_channel=True, symmetric=False, reduce_range=False)


def networks() -> dict[str, tuple[Callable[[], Any], tuple[int, ...], int]]:
    """Name -> factory, shape of an example, pairs of steps to measure."""
    namespace: dict[str, Any] = {}
    exec(NETWORK, namespace)
    return {
        "digits-cnn": (digits_cnn.build, (1, 8, 8), 100),
        "resnet18": (namespace["build"], (3, 224, 224), 5),
    }


def stepping(module: Any, x: Any, y: Any) -> Callable[[], None]:
    """A function that trains ``module`` one step on the same batch."""
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()

    return step


def arms(make: Callable[[], Any], shape: tuple[int, ...], engine: str) -> dict[str, Callable[[], None]]:
    """fp32 and each flow -> its step; all start from the same canonical network, as qbench trains it."""
    x, y = torch.rand(BATCH, *shape), torch.arange(BATCH) % 10
    module = canonical.canonicalize(make().eval(), (x[:1],), training=True).module
    flows = {}
    for name, flow in FLOWS.items():
        prepared = flow.prepare_qat(QuantizeJob(module, engine, RECIPE, (x[:1],)))
        flow.qat_modes(prepared, True)
        qat.set_averaging(prepared, 1000)
        flows[name] = stepping(prepared, x, y)
    return {"fp32": stepping(module.train(), x, y), **flows}


def measure(steps: dict[str, Callable[[], None]], pairs: int) -> dict[str, list[float]]:
    """Arm -> processor seconds of each of its steps, one a round, after three rounds that do not count."""
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(pairs + 3):
        for name, step in steps.items():
            start = time.process_time()
            step()
            spent[name].append(time.process_time() - start)
    return {name: seconds[3:] for name, seconds in spent.items()}


def main() -> None:
    """Measures and prints each network that was asked for."""
    there = networks()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=[*there], help=", ".join(there))
    parser.add_argument("--pairs", type=int, help="rounds that count (100 for digits-cnn, 5 for resnet18)")
    parser.add_argument("--engine", default="onednn")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch_ao.set_engine(asked.engine)
    for name in asked.networks:
        make, shape, pairs = there[name]
        seconds = measure(arms(make, shape, asked.engine), asked.pairs or pairs)
        for arm, own in seconds.items():
            ratios = [taken / base for taken, base in zip(own, seconds["fp32"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            verdict = "" if arm == "fp32" else f"  ({'within' if middle <= GOAL else 'above'} {GOAL})"
            print(
                f"{name:10} {arm:5} {statistics.median(own) * 1e3:9.2f} ms  x {middle:.2f} [{low:.2f}, {high:.2f}]"
                f"{verdict}",
                flush=True,
            )


if __name__ == "__main__":
    main()
