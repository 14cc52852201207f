"""How long ten cases of a ResNet-18-shaped network take to be measured: until it is decided, and all to the precision.

    python tests/benchmarks/race_time.py [TIMES]     # about five minutes with a cold cache

One thread, 1x3x224x224, random weights. Builds the cases once, then runs the suite with ``measure.spend`` decision and
all in turn, and prints the seconds of the stage measure, their ratio, and what each run calls the fastest.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from resnet18 import IMAGES, NETWORK, images

from qbench.record import jsonl

BACKENDS = ("torch", "fbgemm", "x86", "onednn", "qnnpack", "onnxruntime")
SPENDS = ("decision", "all")


def write_suite(folder: Path) -> None:
    """Two fp32 and eight int8 cases."""
    (folder / "net.py").write_text(NETWORK)
    labels = np.arange(IMAGES) % 10
    np.savez(
        folder / "data.npz",
        train_inputs=images(IMAGES),
        train_labels=labels,
        test_inputs=images(IMAGES)[::-1] + 1,
        test_labels=labels,
    )
    suite: dict[str, Any] = {
        "suite": "race",
        "models": [{"name": "resnet18", "source": {"python": "net.py:build"}}],
        "data": {"dataset": {"npz": "data.npz"}, "calibrate": {"samples": IMAGES}},
        "matrix": {
            "modes": ["fp32", "static", "dynamic"],
            "backends": list(BACKENDS),
            "exclude": [{"mode": "dynamic", "backend": "x86"}, {"mode": "dynamic", "backend": "qnnpack"}],
        },
        "gate": {"accuracy": {"margin": 50.0}},  # random weights: every answer is as good as another
    }
    (folder / "suite.yaml").write_text(json.dumps(suite))


def measure(folder: Path, spend: str) -> tuple[float, dict[str, float]]:
    """Seconds of the stage measure, and the time of each int8 case over the fastest fp32."""
    command = [sys.executable, "-m", "qbench", "run", "suite.yaml", "--out", "out", "--quiet"]
    subprocess.run([*command, "--set", f"measure.spend={spend}"], cwd=folder, check=False, stdout=subprocess.DEVNULL)
    run = folder / "out/race/latest"
    seconds = json.loads((run / "run.json").read_text())["elapsed_seconds"]["measure"]
    every = [record for record in jsonl.read(run) if record.case.mode != "fp32"]
    for record in every:
        if record.status == "failed":
            print(f"  {record.case.variant}: {record.stage}: {record.reason}")
    records = [record for record in every if record.speedup_fastest]
    if not records:
        sys.exit(f"{spend}: nothing was measured")
    for record in records:
        speedup = record.speedup
        print(
            f"  {record.case.variant:24} {record.speedup_fastest.value:6.3f} "
            f"{speedup.stopped if speedup else '-':10} {speedup.processes if speedup else 0} processes"
        )
    return seconds, {record.case.variant: record.speedup_fastest.value for record in records}


def main(times: int) -> None:
    """Runs both in turn and prints one line each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_suite(folder)
        spent: dict[str, list[float]] = {spend: [] for spend in SPENDS}
        for _ in range(times):
            for spend in SPENDS:
                seconds, over = measure(folder, spend)
                spent[spend].append(seconds)
                print(
                    f"{spend}: {seconds:.0f} s, {len(over)} int8 cases, fastest {max(over, key=lambda c: over[c])}",
                    flush=True,
                )
        decision, every = (float(np.median(spent[spend])) for spend in SPENDS)
        print(f"decision takes {decision / every:.2f} of all ({decision:.0f} s and {every:.0f} s; wanted <= 0.33)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
