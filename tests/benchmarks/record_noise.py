"""How the noise traces were recorded: A/A pairs of one int8 artifact in fresh interpreters, quiet and under load.

    qbench run suites/ci.yaml --filter '*/static/onednn/*'
    python tests/benchmarks/record_noise.py reports/ci/latest quiet
    python tests/benchmarks/record_noise.py reports/ci/latest busy

Each writes ``qbench/gating/traces/<name>.npz``: ``log_ratios`` (processes x blocks), the natural log ratios of block
minima of a round of two copies of the same artifact, whose truth is 0, and ``control_log_ratios``, those of a third
copy. ``busy`` runs a memory-hungry loop on the other core meanwhile. The committed traces were recorded in neighbouring
blocks, on a 2-vCPU KVM guest, Intel Xeon with AMX and AVX512-VNNI, torch 2.13.0, digits-cnn static onednn (about
0.09 ms a call), one thread, pinned.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from qbench.cache import store
from qbench.measure.group import measure_group
from qbench.measure.pairing import pair_samples
from qbench.measure.race import Race
from qbench.measure.race_rules import Arm, RaceRules
from qbench.measure.series import split_controls
from qbench.measure.worker import WorkerSpec
from qbench.process.child_process import Limits
from qbench.record import jsonl

PROCESSES, BLOCKS = 60, 12
CASE = "digits-cnn/static/onednn/t1/b1"
Array: TypeAlias = NDArray[Any]
HOG = "import numpy as n; a = n.ones(32 * 2**20)\nwhile True: a += 1"


def specify_copies(folder: Path) -> tuple[WorkerSpec, WorkerSpec]:
    """The artifact of a run twice, ready to be loaded on the last core."""
    artifact = next(record.artifact for record in jsonl.read(folder) if record.case.id == CASE)
    if artifact is None or artifact.key is None:
        raise SystemExit(f"{folder} has no artifact of {CASE}")
    base, copy = (
        WorkerSpec(
            case=case,
            backend="onednn",
            file=store.cache_folder() / "artifacts" / artifact.key / "model.pt",
            threads=1,
            batch_size=1,
            cores=(max(os.sched_getaffinity(0)),),
            inputs=(np.random.default_rng(0).random((8, 1, 8, 8), dtype=np.float32),),
        )
        for case in ("base", "copy")
    )
    return base, copy


def record_pairs(copies: tuple[WorkerSpec, WorkerSpec], processes: int) -> tuple[Array, Array]:
    """``log_ratios`` and ``control_log_ratios`` of so many pairs of fresh processes."""
    base, copy = copies
    protocol = Race(
        arms=(Arm(case="base", role="fp32"), Arm(case="copy", role="candidate", baseline="base")),
        rules=RaceRules(everything=True, precision=1e-9, least=processes, most=processes),
        clock=time.monotonic,
        rounds=BLOCKS,
    )
    measured = measure_group(base, [copy], protocol=protocol, limits=Limits(), fresh=True)
    samples = [measured[case].samples for case in ("copy", "base")]
    if samples[0] is None or samples[1] is None:
        raise SystemExit(f"nothing was measured: {measured['copy'].error or measured['base'].error}")
    ratios = np.stack(list(pair_samples(samples[0], samples[1]).log_ratios.values()))
    controls = np.stack(list(split_controls(samples[0]).values()))
    return ratios.astype(np.float32), controls.astype(np.float32)


def main(folder: Path, name: str) -> None:
    """Records one trace."""
    others = sorted(os.sched_getaffinity(0))[:1]
    hog = subprocess.Popen([sys.executable, "-c", HOG], preexec_fn=lambda: os.sched_setaffinity(0, others))
    if name == "quiet":
        hog.kill()
    try:
        ratios, controls = record_pairs(specify_copies(folder), PROCESSES)
    finally:
        hog.kill()
    file = Path(__file__).parents[2] / "qbench/gating/traces" / f"{name}.npz"
    np.savez_compressed(file, log_ratios=ratios, control_log_ratios=controls)
    medians = np.median(ratios, axis=1)
    print(name, ratios.shape, "between processes:", medians.std(ddof=1), "within:", ratios.std(axis=1).mean())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
