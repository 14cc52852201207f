"""Whether an idle raylet on the machine changes how often the gate errs.

    qbench run suites/ci.yaml --filter '*/static/onednn/*'
    python tests/benchmarks/fleet_noise.py reports/ci/latest [--rounds 10] [--processes 6]

Records A/A pairs of one int8 artifact in fresh processes as ``record_noise.py`` does, in turns: without Ray; beside a
node that `ray start` has made and that has nothing to do, its processes kept off the timed core as `qbench run --on`
keeps them; beside the same, kept off nothing. Of each: the standard deviation of the log ratio from process to process
and from block to block, and how 2,000 gates end whose processes are drawn from what was recorded, as in `qbench doctor
--control`. A difference between rows that is larger than between two halves of one row is Ray's.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fleet_nodes import RAY, end_processes
from record_noise import record_pairs, specify_copies

from qbench.fleet import ray_load
from qbench.gating.error_rates import CHANGES, NoiseTrace, simulated

CONDITIONS = ("no Ray", "idle raylet, kept off", "idle raylet, anywhere")
SETTLED_SECONDS = 5.0  # a node that was just started is not idle


def main() -> None:
    """Records in turns and prints the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=6, help="of each condition and round")
    asked = parser.parse_args()
    copies = specify_copies(asked.run)
    recorded: dict[str, list[Any]] = {condition: [] for condition in CONDITIONS}
    loads: dict[str, list[float]] = {condition: [] for condition in CONDITIONS}
    for number in range(asked.rounds):
        for condition in CONDITIONS if number % 2 else CONDITIONS[::-1]:
            with make_condition(condition, copies[0].cores) as load:
                recorded[condition].append(record_pairs(copies, asked.processes))
            if load is not None and load.cores is not None:
                loads[condition].append(load.cores)
        print(f"round {number + 1} of {asked.rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
    for condition, parts in recorded.items():
        halves = [parts[0::2], parts[1::2]] if len(parts) > 1 else []
        for title, chosen in ((condition, parts), *((f"  half of it, {condition}", half) for half in halves)):
            print_rates(title, chosen)
        if loads[condition]:
            print(f"  Ray's processes took {100 * np.mean(loads[condition]):.1f} % of a core")


@contextlib.contextmanager
def make_condition(condition: str, timed: tuple[int, ...] | None) -> Iterator[ray_load.Load | None]:
    """What Ray takes meanwhile; None without it."""
    if condition == "no Ray":
        yield None
        return
    folder = tempfile.mkdtemp(prefix="qbr-")
    environment = {**os.environ, "RAY_TMPDIR": folder, "RAY_worker_niceness": "0"}
    where = ["--head", "--node-ip-address=127.0.0.1", "--port=26379", "--ray-client-server-port=30001"]
    try:
        command = [*RAY, *where, "--include-dashboard=false", '--resources={"qbench": 1}']
        subprocess.run(command, env=environment, check=True, capture_output=True)
        time.sleep(SETTLED_SECONDS)
        keeping = ray_load.keep_off(timed) if timed and condition.endswith("kept off") else contextlib.nullcontext()
        with keeping as load:
            yield load
    finally:
        end_processes(f"RAY_TMPDIR={folder}")
        shutil.rmtree(folder, ignore_errors=True)


def print_rates(title: str, parts: list[Any]) -> None:
    """One line: the spread, and how often gates fail by true change."""
    ratios, controls = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    trace = NoiseTrace(name=title, ratios=ratios, controls=controls)
    rates = [simulated(trace, change, gates=2000) for change in CHANGES]
    shown = ", ".join(
        f"{rate.change:+.1%}: FAIL {rate.share('FAIL').value:.1%} PASS {rate.share('PASS').value:.1%}" for rate in rates
    )
    between, within = np.median(ratios, axis=1).std(ddof=1), ratios.std(axis=1).mean()
    print(f"{title}: {len(ratios)} pairs, between processes {between:.4f}, within {within:.4f}; {shown}", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
