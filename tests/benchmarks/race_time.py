"""How long cases of a ResNet-18-shaped network take to be measured: until it is decided, and all to the precision.

    python tests/benchmarks/race_time.py [TIMES]                 # ten cases; about five minutes with a cold cache
    python tests/benchmarks/race_time.py [TIMES] --cases 20      # seven backends, three recipes, only until decided
    python tests/benchmarks/race_time.py --account RUN           # where the seconds of a stored run went

One thread, 1x3x224x224, random weights. Builds the cases once, then runs the suite with ``measure.spend`` decision and
all in turn, and prints the seconds of the stage measure, what they went to, their ratio, and what each run calls the
fastest.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from resnet18 import IMAGES, NETWORK, images

from qbench.measure import samples
from qbench.record import jsonl
from qbench.record.schema import Record

BACKENDS = ("torch", "fbgemm", "x86", "onednn", "qnnpack", "onnxruntime")
RECIPES: list[Any] = ["default", {"calibrator": "minmax"}, {"calibrator": "percentile"}]
SPENDS = {10: ("decision", "all"), 20: ("decision",)}


def write_suite(folder: Path, cases: int) -> None:
    """Two fp32 and eight int8 cases; or, for 20, three fp32 and 19 int8, of which those of one engine differ by how
    they were calibrated alone and so are equally fast."""
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
            "backends": [*BACKENDS, "openvino"] if cases == 20 else list(BACKENDS),
            "exclude": [{"mode": "dynamic", "backend": "x86"}, {"mode": "dynamic", "backend": "qnnpack"}],
        },
        "gate": {"accuracy": {"margin": 50.0}},  # random weights: every answer is as good as another
    }
    (folder / "suite.yaml").write_text(json.dumps(suite | ({"recipe": RECIPES} if cases == 20 else {})))


def measure(folder: Path, spend: str) -> tuple[float, dict[str, float]]:
    """Seconds of the stage measure, and the time of each int8 case over the fastest fp32."""
    command = [sys.executable, "-m", "qbench", "run", "suite.yaml", "--out", "out", "--quiet"]
    subprocess.run([*command, "--set", f"measure.spend={spend}"], cwd=folder, check=False, stdout=subprocess.DEVNULL)
    run = folder / "out/race/latest"
    seconds = account(run)
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
            f"  {record.case.variant:30} {record.speedup_fastest.value:6.3f} "
            f"{speedup.stopped if speedup else '-':10} {speedup.processes if speedup else 0} processes"
        )
    return seconds, {record.case.variant: record.speedup_fastest.value for record in records}


def account(run: Path) -> float:
    """Prints what the seconds of the stage measure went to; returns them all."""
    total = float(json.loads((run / "run.json").read_text())["elapsed_seconds"]["measure"])
    records = [record for record in jsonl.read(run) if record.samples is not None]
    known = {record.case.id: samples.load(run / record.samples) for record in records if record.samples}
    generations = 1 + max(int(samples.process.max()) for samples in known.values())
    sizes = [sum(number in samples.process for samples in known.values()) for number in range(generations)]
    print(f"{total:.0f} s, {len(known)} cases; in by generation: {', '.join(map(str, sizes))}")
    left = total
    for name, chosen in _group(records).items():
        seconds = sum(known[record.case.id].seconds for record in chosen)
        blocks = sum(len(known[record.case.id].process) for record in chosen)
        left -= seconds
        print(f"  {seconds:6.1f} s  {blocks:4} blocks of {len(chosen)} cases: {name}")
    starts = sum(sizes) + generations - 1  # the control starts in each but the screening
    print(
        f"  {left:6.1f} s  {starts} starts of processes, {left / starts:.2f} s each: load, warm-up, control, the rest"
    )
    return total


def _group(records: Sequence[Record]) -> Mapping[str, list[Record]]:
    """The records by what they are to the race."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        stopped = record.speedup.stopped if record.speedup else None
        name = "fp32" if record.case.mode == "fp32" else "int8, screened" if stopped == "screened" else "int8"
        groups.setdefault(name, []).append(record)
    return groups


def main(times: int, cases: int) -> None:
    """Runs each spending in turn and prints one line each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_suite(folder, cases)
        spent: dict[str, list[float]] = {spend: [] for spend in SPENDS[cases]}
        for _ in range(times):
            for spend in SPENDS[cases]:
                seconds, over = measure(folder, spend)
                spent[spend].append(seconds)
                print(
                    f"{spend}: {seconds:.0f} s, {len(over)} int8 cases, fastest {max(over, key=lambda c: over[c])}",
                    flush=True,
                )
        decision = float(np.median(spent["decision"]))
        if cases == 20:
            print(f"{decision:.0f} s until decided; wanted <= 60 to 80")
        else:
            every = float(np.median(spent["all"]))
            print(f"decision takes {decision / every:.2f} of all ({decision:.0f} s and {every:.0f} s; wanted <= 0.33)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", type=int, nargs="?", default=1)
    parser.add_argument("--cases", type=int, choices=(10, 20), default=10)
    parser.add_argument("--account", type=Path, metavar="RUN")
    arguments = parser.parse_args()
    if arguments.account is not None:
        account(arguments.account)
    else:
        main(arguments.times, arguments.cases)
