"""What two nodes of one core save against one: whole runs of one suite on clusters that `ray start` makes here.

    python tests/benchmarks/fleet_nodes.py [--rounds 1] [--keep DIR]

The nodes are processes on 127.0.0.2 and 127.0.0.3, started by the commands of the guide, each kept on one core by
taskset and with a cache of its own. Every run begins with empty caches. Twelve static variants of three small networks
(four engines each) and their fp32 are built, evaluated and shortly measured: without a cluster (on one core), on one
node, on two. Printed are the seconds of each stage, and whether artifacts (by hash), accuracy and decisions (of the
smallest, which time does not decide) are those of the run without a cluster. Exit code 1: they are not.

On a busy machine a cgroup of its own, with more cpu.shares than what else runs, keeps the others off: Linux gives each
session of processes one share (sched_autogroup), and each child of qbench is a session. The share of its core that a
node has is printed first.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RAY = [sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats", "--num-cpus=1"]
PORT, CLIENT = 26379, 30001
SUITE = """
suite: nodes
models:
  - {name: narrow, source: {python: "model.py:network", args: {width: 8}}}
  - {name: middle, source: {python: "model.py:network", args: {width: 16}}}
  - {name: wide, source: {python: "model.py:network", args: {width: 24}}}
data: {dataset: digits, calibrate: {samples: 256}}
matrix: {modes: [fp32, static], backends: [torch, fbgemm, onednn, qnnpack, onnxruntime], batch_sizes: [1]}
measure: {max_seconds: 0.1, precision: 50%, processes: 1, cold_starts: 1}
decide: {minimize: size}
gate: {accuracy: {metric: top1, margin: 50.0}}
"""
MODEL = """
import torch

def network(width):
    torch.manual_seed(0)
    layers, channels = [], 1
    for _ in range(4):
        layers += [torch.nn.Conv2d(channels, width, 3, padding=1), torch.nn.BatchNorm2d(width), torch.nn.ReLU()]
        channels = width
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(64 * width, 10)).eval()
"""


def main() -> int:
    """Prints the figures; 1 where a run differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--keep", help="work in this folder and leave it there")
    asked = parser.parse_args()
    folder = Path(asked.keep or tempfile.mkdtemp(prefix="qbn-"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(MODEL)
    (folder / "nodes.yaml").write_text(SUITE)
    own, same, seconds = None, True, dict[int, list[float]]()
    cores = sorted(os.sched_getaffinity(0))[:2]
    shares = [measure_share(cores[:count]) for count in (1, 2)]
    print(f"a node alone has {shares[0]:.0%} of its core, each of two nodes {shares[1]:.0%}", flush=True)
    for number in range(asked.rounds):
        for count in (0, 1, 2) if number == 0 else (1, 2) if number % 2 else (2, 1):
            facts, spent = run_suite(folder, count)
            own = own or facts
            same &= facts == own
            seconds.setdefault(count, []).append(spent["build"] + spent["evaluate"])
            stages = ", ".join(f"{stage} {value:.1f} s" for stage, value in spent.items())
            print(f"{count} nodes: {stages}; {'the same' if facts == own else 'ANOTHER'} outcome", flush=True)
    ratios = [single / double for single, double in zip(seconds[1], seconds[2], strict=True)]
    print(f"one node over two, building and evaluating: {statistics.median(ratios):.2f} of {sorted(ratios)}")
    if not asked.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if same else 1


def measure_share(cores: Sequence[int]) -> float:
    """The processor time over the time that passed, of processes that only compute, one on each core at once."""
    spin = "import time; end = time.monotonic() + 3\nwhile time.monotonic() < end: sum(range(1000))\n"
    command = [sys.executable, "-c", f"{spin}print(time.process_time() / 3)"]
    spinning = [subprocess.Popen([*pin(core), *command], stdout=subprocess.PIPE, text=True) for core in cores]
    return statistics.mean(float(process.communicate()[0]) for process in spinning)


def pin(core: int) -> list[str]:
    """What a command begins with that is kept on a core."""
    return ["taskset", "-c", str(core)]


def run_suite(folder: Path, count: int) -> tuple[Any, dict[str, float]]:
    """What a run on so many nodes found (0: without a cluster), and the seconds of its stages."""
    for name in ("cache", "reports", "ray", "node0", "node1"):
        shutil.rmtree(folder / name, ignore_errors=True)
    environment = {**os.environ, "RAY_TMPDIR": str(folder / "ray"), "RAY_worker_niceness": "0"}
    (folder / "ray").mkdir()
    try:
        for number in range(count):
            start_node(folder, environment, number)
        run = [sys.executable, "-m", "qbench", "run", "nodes.yaml", "--quiet"]
        run += ["--on", f"ray://127.0.0.2:{CLIENT}"] if count else ["--jobs", "1"]
        own = {**environment, "QBENCH_CACHE": str(folder / "cache")}
        subprocess.run(run, cwd=folder, env=own, check=True, capture_output=True)
    finally:
        end_processes(f"RAY_TMPDIR={folder / 'ray'}")
    (report,) = [path for path in (folder / "reports/nodes").iterdir() if path.name != "latest"]
    records = [json.loads(line) for line in (report / "records.jsonl").read_text().splitlines()]
    cases = {
        record["case"]["id"]: [record["status"], record["artifact"]["sha256"], record["accuracy"]["value"]]
        for record in records
    }
    decision = json.loads((report / "decision.json").read_text())
    chosen = [[each[name] for name in ("setting", "verdict", "pick")] for each in decision["decisions"]]
    return (cases, chosen), json.loads((report / "run.json").read_text())["elapsed_seconds"]


def start_node(folder: Path, environment: dict[str, str], number: int) -> None:
    """One node, as the guide has it: the first is the head."""
    core = sorted(os.sched_getaffinity(0))[number]
    where = ["--head", f"--port={PORT}", f"--ray-client-server-port={CLIENT}", "--include-dashboard=false"]
    command = [*RAY, f"--node-ip-address=127.0.0.{number + 2}", '--resources={"qbench": 1}']
    command += where if number == 0 else [f"--address=127.0.0.2:{PORT}"]
    own = {**environment, "QBENCH_CACHE": str(folder / f"node{number}")}
    subprocess.run([*pin(core), *command], env=own, check=True, capture_output=True)


def end_processes(setting: str) -> None:
    """Ends whatever has a variable of the environment, which this program does not."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if setting.encode() in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), sign)
            except OSError:
                continue
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
