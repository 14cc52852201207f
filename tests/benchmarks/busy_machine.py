"""Whether the limits of a ratio hold on a busy machine: fp32 over int8, alone and beside loops on every core.

    python tests/benchmarks/busy_machine.py RUN... [--races 10] [--loads alone,one,three,changing]

Each RUN holds a case in fp32 and one in int8 of ONNX Runtime, one thread, whose artifacts are raced here to the
precision of a suite (4 to 9 generations). ``one`` and ``three``: so many loops in Python on every core that may be
used, each in a session of its own; ``changing``: three that run and sleep for 0.3 s on average. The truth is the median
of the races alone. Prints by load how often the 95 % limits of a race hold it, with Clopper-Pearson limits, the median
ratio, the median half width, and the same for the minima of wall time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from qbench.cache import store
from qbench.machine.peak import measure_peak
from qbench.measure.group import measure_group
from qbench.measure.paired_difference import PairedDifference, compare_times
from qbench.measure.race import Race
from qbench.measure.race_rules import Arm, RaceRules
from qbench.measure.samples import Samples
from qbench.measure.undisturbed_blocks import lowest_level
from qbench.measure.worker import WorkerSpec
from qbench.process.child_process import Limits
from qbench.record import jsonl
from qbench.stats import intervals

LIMITS = Limits(seconds=600)
LOADS = {"alone": 0, "one": 1, "three": 3, "changing": 3}
LOOP = """
import os, random, sys, time
os.setsid()
os.sched_setaffinity(0, {int(sys.argv[1])})
random.seed(int(sys.argv[3]))
parent = os.getppid()
while os.getppid() == parent:  # whoever ends the benchmark ends its loops
    until = time.perf_counter() + (random.expovariate(1 / 0.3) if sys.argv[2] == "changing" else 1.0)
    while time.perf_counter() < until:
        pass
    if sys.argv[2] == "changing":
        time.sleep(random.expovariate(1 / 0.3))
"""


@contextlib.contextmanager
def load_cores(load: str) -> Iterator[None]:
    """The loops run meanwhile."""
    loops = [
        subprocess.Popen([sys.executable, "-c", LOOP, str(core), load, str(number)])
        for core in sorted(os.sched_getaffinity(0))
        for number in range(LOADS[load])
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.send_signal(signal.SIGKILL)
            loop.wait()


def specify_workers(run: Path) -> dict[str, WorkerSpec]:
    """The fp32 and the int8 case of the run, as they are timed."""
    core = max(os.sched_getaffinity(0))
    specs = {}
    for record in jsonl.read(run):
        if (
            record.case.backend == "onnxruntime"
            and record.artifact is not None
            and record.case.mode in ("fp32", "static")
        ):
            folder = store.cache_folder() / "artifacts" / record.artifact.key
            specs["fp32" if record.case.mode == "fp32" else "int8"] = WorkerSpec(
                case=record.case.id, backend="onnxruntime", file=folder / "model.onnx", threads=1, batch_size=1,
                cores=(core,), inputs=(),
            )  # fmt: skip
    shape = read_input_shape(specs["fp32"].file)
    inputs = (np.random.default_rng(0).random((8, *shape), dtype=np.float32),)
    return {name: replace(spec, case=name, inputs=inputs) for name, spec in specs.items()}


def read_input_shape(file: Path) -> tuple[int, ...]:
    """Of one example."""
    import onnx

    model = onnx.load(file)
    return tuple(dimension.dim_value for dimension in model.graph.input[0].type.tensor_type.shape.dim[1:])


def race(specs: dict[str, WorkerSpec], seed: int, calm_ns: float | None) -> dict[str, Samples]:
    """The samples of both arms."""
    arms = (Arm(case="fp32", role="fp32"), Arm(case="int8", role="candidate", baseline="fp32"))
    protocol = Race(arms=arms, rules=RaceRules(max_seconds=30), clock=time.monotonic, seed=seed, calm_ns=calm_ns)
    measured = measure_group(specs["fp32"], [specs["int8"]], protocol=protocol, limits=LIMITS)
    return {name: result.samples for name, result in measured.items() if result.samples is not None}


def compare(samples: dict[str, Samples], calm_ns: float | None, *, by_wall: bool = False) -> PairedDifference:
    """fp32 over int8, as a run tells it; by wall time alone as it was told before."""
    fp32, int8 = samples["fp32"], samples["int8"]
    if by_wall:
        none = np.empty(0, dtype=np.int64)
        fp32, int8 = (replace(timed, processor_ns=none, canary_ns=none.reshape(-1, 2)) for timed in (fp32, int8))
    level = None if by_wall else lowest_level((fp32.canary_ns, int8.canary_ns), calm_ns)
    difference = compare_times(fp32, int8, level)
    assert difference is not None
    return difference


def describe(truth: float, differences: Sequence[PairedDifference]) -> str:
    """How often the limits hold the truth, the median ratio, the median half width in per cent."""
    held = sum(low <= truth <= high for low, high in (difference.limits() for difference in differences))
    share = intervals.clopper_pearson(held, len(differences))
    half = statistics.median((high - low) / 2 for low, high in (difference.limits() for difference in differences))
    ratio = math.exp(statistics.median(difference.value for difference in differences))
    return (
        f"{held:3} of {len(differences)} [{100 * (share.low or 0):3.0f}, {100 * (share.high or 0):3.0f}] %"
        f"  {ratio:6.3f} +-{100 * half:4.1f} %"
    )


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--races", type=int, default=10)
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--truths", type=Path, help="where the ratios alone are kept from one call to the next")
    options = parser.parse_args()
    peak = measure_peak(store.cache_folder(), limits=LIMITS, cores=(max(os.sched_getaffinity(0)),))
    calm_ns = None if peak.canary_seconds is None else peak.canary_seconds * 1e9
    truths = json.loads(options.truths.read_text()) if options.truths and options.truths.exists() else {}
    for run in options.runs:
        specs = specify_workers(run)
        for load in options.loads.split(","):
            with load_cores(load):
                raced = [race(specs, seed, calm_ns) for seed in range(options.races)]
            differences = [compare(samples, calm_ns) for samples in raced]
            walls = [compare(samples, calm_ns, by_wall=True) for samples in raced]
            if load == "alone":
                truths[str(run)] = statistics.median(difference.value for difference in differences)
            truth = truths[str(run)]
            print(
                f"{run.parent.name:12} {load:9} {describe(truth, differences)}   by wall {describe(truth, walls)}",
                flush=True,
            )
    if options.truths:
        options.truths.write_text(json.dumps(truths))


if __name__ == "__main__":
    main()
