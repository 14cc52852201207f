"""A run on the nodes of a cluster is the run on this machine: the same artifacts, the same accuracy."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

if importlib.util.find_spec("ray") is None:
    pytest.skip("a cluster needs Ray: pip install 'qbench[cluster]'", allow_module_level=True)

SUITE = """
suite: whole
models: [{name: mine, source: {python: "model.py:network"}}]
data: {dataset: {npz: data.npz}, calibrate: {samples: 16}}
matrix: {modes: [fp32, static], backends: [onnxruntime], batch_sizes: [1]}
measure: {max_seconds: 0.1, precision: 50%, processes: 1, cold_starts: 1}
"""
MODEL = """
import torch

def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two nodes on this machine need two cores")
def test_a_run_on_two_nodes_is_the_run_on_this_machine(tmp_path):
    """Built apart, from empty caches: every artifact has the same bytes, every case the same score."""
    draw = np.random.default_rng(0)
    arrays = {
        f"{part}_{name}": draw.random((count, 1, 8, 8), dtype=np.float32) if name == "inputs" else np.arange(count) % 10
        for part, count in (("train", 32), ("test", 40))
        for name in ("inputs", "labels")
    }
    np.savez(tmp_path / "data.npz", **arrays)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "whole.yaml").write_text(SUITE)
    here, there = run_suite(tmp_path, "here"), run_suite(tmp_path, "there", "--on", "local-cluster:2")
    assert len(here) == 2
    assert {case: facts[:2] for case, facts in here.items()} == {case: facts[:2] for case, facts in there.items()}
    assert not any(node for _, _, node in here.values())
    assert all(node for _, _, node in there.values())


def run_suite(folder, name, *options):
    """The artifact's hash, the accuracy and the node of each case."""
    command = [sys.executable, "-m", "qbench", "run", "whole.yaml", "--quiet", "--out", name, *options]
    environment = {**os.environ, "QBENCH_CACHE": str(folder / f"cache-{name}")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = [path for path in folder.glob(f"{name}/whole/*/records.jsonl") if path.parent.name != "latest"]
    records = map(json.loads, file.read_text().splitlines())
    return {
        record["case"]["id"]: (
            record["artifact"]["sha256"],
            record["accuracy"]["value"],
            (record["host"] or {}).get("node"),
        )
        for record in records
    }
