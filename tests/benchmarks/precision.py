"""How long until the interval on a speed-up is narrow, and what the coordinator costs meanwhile.

    python tests/benchmarks/precision.py            # about four minutes

Builds a small convolutional network whose int8 takes about 1 ms and one whose fp32 takes about 50 ms, then measures
each with its fp32 as ``qbench run`` does where every case is measured (`spend: all`), and prints: the seconds of
measuring until the half width of the 95 % interval was within the precision (goals: 1.5 % within 10 s at 1 ms, 2 %
within 30 s at 50 ms), and the CPU time of the coordinator over the wall time of the whole measurement, starting of
processes included (goal while a block runs: 1 %).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from qbench.cache import store
from qbench.machine import fingerprint
from qbench.measure import estimates
from qbench.measure.group import measure_group
from qbench.measure.race import Race
from qbench.measure.race_rules import Arm, RaceRules
from qbench.measure.worker import WorkerSpec
from qbench.process.child_process import Limits
from qbench.record import jsonl

NETWORK = """
import torch
from torch import nn

def build(width, image, depth):
    torch.manual_seed(0)
    layers = [nn.Upsample(size=(image, image)), nn.Conv2d(1, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
"""
NETS = {
    "1 ms": ({"width": 40, "image": 24, "depth": 4}, 0.015),
    "50 ms": ({"width": 128, "image": 56, "depth": 6}, 0.02),
}
REPEATS = 5


def artifacts(folder: Path, arguments: dict[str, int]) -> dict[str, Path]:
    """The built files of fp32 and int8, by mode."""
    (folder / "net.py").write_text(NETWORK)
    suite = {
        "suite": "precision",
        "models": [{"name": "net", "source": {"python": "net.py:build", "args": arguments}}],
        "data": {"dataset": "digits", "evaluate": {"split": "test", "samples": 20}},
        "matrix": {"modes": ["fp32", "static"], "backends": ["torch", "onednn"]},
        "measure": {"protocol": "sequential", "calls": 1, "cold_starts": 1},
    }
    (folder / "suite.yaml").write_text(json.dumps(suite))
    command = [sys.executable, "-m", "qbench", "run", "suite.yaml", "--out", "out", "--quiet"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    files = {}
    for record in jsonl.read(folder / "out/precision/latest"):
        files[record.case.mode] = store.cache_folder() / "artifacts" / record.artifact.key / "model.pt"
    return files


def main() -> None:
    """Measures both networks ``REPEATS`` times each and prints one line a time."""
    for name, (arguments, precision) in NETS.items():
        with tempfile.TemporaryDirectory() as folder:
            files = artifacts(Path(folder), arguments)
        fp32, int8 = (
            WorkerSpec(
                case=mode,
                backend=backend,
                file=files[mode],
                threads=1,
                batch_size=1,
                cores=fingerprint.allowed_cores()[-1:],
                inputs=(np.random.default_rng(0).random((8, 1, 8, 8), dtype=np.float32),),
            )
            for mode, backend in (("fp32", "torch"), ("static", "onednn"))
        )
        for seed in range(REPEATS):
            protocol = Race(
                arms=(Arm(case="fp32", role="fp32"), Arm(case="static", role="candidate", baseline="fp32")),
                rules=RaceRules(everything=True, precision=precision, max_seconds=60.0),
                clock=time.monotonic,
                seed=seed,
            )
            wall, cpu = time.monotonic(), time.process_time()
            arms = measure_group(fp32, [int8], protocol=protocol, limits=Limits())
            wall, cpu = time.monotonic() - wall, time.process_time() - cpu
            samples = arms["static"].samples
            speedup = estimates.speedup(samples, "fp32", arms["fp32"].samples)
            typical = float(np.median(samples.calls_ns)) / 1e6
            print(
                f"{name}: int8 {typical:.2f} ms, speed-up {speedup.value:.3f} [{speedup.low:.3f}, {speedup.high:.3f}], "
                f"{speedup.stopped} ({precision:.1%}) after {samples.seconds:.1f} s in {len(samples.round)} rounds, "
                f"{wall:.1f} s in all, coordinator {cpu / wall:.2%} of a CPU",
                flush=True,
            )


if __name__ == "__main__":
    main()
