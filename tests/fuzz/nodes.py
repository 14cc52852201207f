"""Nodes of a cluster killed at random moments of a run: no record is lost, and the run ends with all of them.

    python tests/fuzz/nodes.py [--kills 50] [--seed 0] [--keep DIR]

Three nodes share this machine; the suite of kills.py runs on them (ONNX Runtime and torch), again and again. At a
random moment of a run a random node is killed (its raylet and all that Ray knows below it, by SIGKILL) and another one
joins. After each kill every record that was whole before is there, byte by byte; after each run: exit code 0, one ok
record for every planned case, none twice; where cases were lost with three nodes, after one more run with --resume.
Every second run begins with an empty cache. Exit code 1: a find.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import kills

OPTIONS = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": 100 * 2**20}
VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


def main() -> int:
    """Kills as often as asked; 1 where anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", help="work in this folder and leave it there")
    asked = parser.parse_args()
    case = kills.Case(folder=Path(asked.keep or tempfile.mkdtemp(prefix="qbk-")), random=Random(asked.seed))
    kills._prepare(case, "onnxruntime, torch")
    os.environ.update({**VARIABLES, "RAY_TMPDIR": str(case.folder)})
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**OPTIONS, "num_cpus": 0})
    try:
        nodes = [add_node(case, cluster, number) for number in range(3)]
        while case.counts["kills"] < asked.kills:
            run_once(case, cluster, nodes, asked.kills)
            print(f"{dict(case.counts)}, {len(case.finds)} finds", flush=True)
            if case.random.random() < 0.5:
                shutil.rmtree(case.folder / "cache", ignore_errors=True)
    finally:
        cluster.shutdown()
    print(f"{case.counts['kills']} kills (seed {asked.seed}), {case.counts['runs']} runs, {len(case.finds)} finds")
    if not asked.keep and not case.finds:
        shutil.rmtree(case.folder, ignore_errors=True)
    return 1 if case.finds else 0


def add_node(case: kills.Case, cluster: Any, number: int) -> Any:
    """A node with a cache of its own."""
    cache = {"QBENCH_CACHE": str(case.folder / "nodes" / str(number))}
    return cluster.add_node(**OPTIONS, num_cpus=1, resources={"qbench": 1}, env_vars=cache)


def run_once(case: kills.Case, cluster: Any, nodes: list[Any], most: int) -> None:
    """One run to its end, with a kill now and then."""
    output = case.folder / "output.txt"
    command = [sys.executable, "-m", "qbench", "run", "kills.yaml", "--quiet", "--on", cluster.address]
    environment = {**os.environ, "QBENCH_CACHE": str(case.folder / "cache")}
    shutil.rmtree(case.reports, ignore_errors=True)
    with output.open("wb") as file:
        running = subprocess.Popen(command, cwd=case.folder, env=environment, stdout=file, stderr=subprocess.STDOUT)
    while not kills._to_resume(case) and running.poll() is None:  # nodes are admitted by then
        time.sleep(0.1)
    while running.poll() is None:
        time.sleep(case.random.uniform(0.5, 12.0))
        if running.poll() is None and case.counts["kills"] < most:
            before = kills._lines(case)
            cluster.remove_node(nodes.pop(case.random.randrange(len(nodes))), allow_graceful=False)
            case.counts["kills"] += 1
            nodes.append(add_node(case, cluster, 3 + case.counts["kills"]))
            look_at_records(case, before)
    case.counts["runs"] += 1
    code = running.returncode
    if code == 1 and lost_with_nodes(case):  # as the guide says: after three nodes a case fails, and is tried again
        case.counts["resumed"] += 1
        with output.open("wb") as file:
            resumed = [*command, "--resume", str(kills._to_resume(case))]
            code = subprocess.call(resumed, cwd=case.folder, env=environment, stdout=file, stderr=subprocess.STDOUT)
    look_at_end(case, code)


def lost_with_nodes(case: kills.Case) -> bool:
    """Whether all that failed was lost with its nodes."""
    records = [json.loads(line) for lines in kills._lines(case).values() for line in lines]
    failed = [record for record in records if record["status"] == "failed"]
    return bool(failed) and all(" is gone" in str(record["reason"]) for record in failed)


def look_at_records(case: kills.Case, before: dict[str, list[bytes]]) -> None:
    """What was recorded is there."""
    now = kills._lines(case)
    for run, lines in before.items():
        case.counts["records"] += len(lines)
        case.require(now.get(run, [])[: len(lines)] == lines, f"{run}: records are lost")


def look_at_end(case: kills.Case, code: int) -> None:
    """Every planned case has one ok record."""
    case.require(code == 0, f"a run ends with {code}: {kills._output(case)}")
    for run, lines in kills._lines(case).items():
        records = [json.loads(line) for line in lines]
        planned = json.loads((case.reports / run / "run.json").read_text())["plan"]["cases"]
        ok = Counter(record["case"]["id"] for record in records if record["status"] == "ok")
        case.require(ok == Counter(planned), f"{run}: ok are {dict(ok)} of {planned}")


if __name__ == "__main__":
    sys.exit(main())
