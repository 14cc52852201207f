"""qbench's int8 of a ResNet-18-shaped network against int8 built by hand with each tool's own documentation.

    pip install openvino nncf
    python tests/benchmarks/resnet18.py            # about ten minutes

One thread, 1x3x224x224, random weights, all arms measured in one run by the paired protocol against the fastest of the
hand-built ones (found in a first, short round); prints each arm's latency and its ratio with the 95 % interval over
processes. The goal: qbench's best is at least as fast as the best hand-built one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))

from hand_built import HandArm, fx_int8, onnx_file, onnxruntime_int8, openvino_int8  # noqa: E402

from qbench.cache import store  # noqa: E402
from qbench.machine import fingerprint  # noqa: E402
from qbench.measure import estimates  # noqa: E402
from qbench.measure.group import RemoteWorker, measure_group  # noqa: E402
from qbench.measure.race import Race  # noqa: E402
from qbench.measure.race_rules import Arm, RaceRules  # noqa: E402
from qbench.measure.worker import WorkerSpec  # noqa: E402
from qbench.process.child_process import Limits, Worker  # noqa: E402
from qbench.record import jsonl  # noqa: E402

NETWORK = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.down = None
        if stride != 1 or before != width:
            self.down = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        return self.relu2(out + (x if self.down is None else self.down(x)))


def build():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, width, stride), Block(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
"""
IMAGES = 32
BACKENDS = ("torch", "fbgemm", "x86", "onednn", "onnxruntime", "openvino", "inductor")


def images(count: int) -> np.ndarray:
    """Smooth noise, as pictures are: random 28 x 28 fields, enlarged."""
    small = np.random.default_rng(0).normal(size=(count, 3, 28, 28)).astype(np.float32)
    return np.ascontiguousarray(np.repeat(np.repeat(small, 8, axis=2), 8, axis=3))


def qbench_artifacts(folder: Path) -> dict[str, tuple[str, Path]]:
    """Case -> backend and file of what ``qbench run`` builds."""
    labels = np.arange(IMAGES) % 10
    np.savez(
        folder / "data.npz",
        train_inputs=images(IMAGES), train_labels=labels, test_inputs=images(IMAGES)[::-1] + 1, test_labels=labels,
    )  # fmt: skip
    suite = {
        "suite": "resnet18",
        "models": [{"name": "resnet18", "source": {"python": "net.py:build"}}],
        "data": {"dataset": {"npz": "data.npz"}, "calibrate": {"samples": IMAGES}},
        "matrix": {"modes": ["fp32", "static"], "backends": list(BACKENDS)},
        "measure": {"protocol": "sequential", "calls": 1, "cold_starts": 1},
    }
    (folder / "suite.yaml").write_text(json.dumps(suite))
    command = [sys.executable, "-m", "qbench", "run", "suite.yaml", "--out", "out", "--quiet"]
    subprocess.run(command, cwd=folder, check=False)
    artifacts = {}
    for record in jsonl.read(folder / "out/resnet18/latest"):
        if record.artifact is None or record.status != "ok":
            print(f"{record.case.id}: {record.status}: {record.reason}")
            continue
        (file,) = (path for path in (store.cache_folder() / "artifacts" / record.artifact.key).iterdir()
                   if path.name in ("model.pt", "model.onnx", "model.pt2"))  # fmt: skip
        artifacts[f"qbench {record.case.mode} {record.case.backend}"] = (record.case.backend, file)
    return artifacts


def hand_built(folder: Path) -> dict[str, tuple[str, Path]]:
    """Name -> backend that runs it, and file."""
    namespace: dict[str, Any] = {}
    exec(NETWORK, namespace)
    module, examples = namespace["build"]().eval(), images(IMAGES)
    onnx_file(module, folder / "fp32.onnx")
    arms = {}
    for name, backend, file, make in (
        ("by hand, FX onednn", "onednn", "fx.pt", lambda path: fx_int8(module, path, examples)),
        ("by hand, ONNX Runtime U8S8", "onnxruntime", "ort.onnx",
         lambda path: onnxruntime_int8(folder / "fp32.onnx", path, examples)),
        ("by hand, OpenVINO and NNCF", "openvino", "ov.xml",
         lambda path: openvino_int8(folder / "fp32.onnx", path, examples)),
    ):  # fmt: skip
        try:
            make(folder / file)
            arms[name] = (backend, folder / file)
        except ImportError as error:
            print(f"{name}: left out: {error}")
    return arms


class HandRemoteArm(RemoteWorker):
    """A process whose arm knows OpenVINO."""

    def __init__(self, spec: WorkerSpec, *, limits: Limits, fresh: bool) -> None:
        self.facts, self.peak_rss_bytes = None, None
        self._worker = Worker(HandArm, spec, limits=limits, cores=spec.cores, fresh=fresh, name=spec.case)


def measured(base: WorkerSpec, others: list[WorkerSpec], *, processes: int, seconds: float) -> dict[str, Any]:
    """What the paired protocol saw of each."""
    arms = [Arm(case=base.case, role="fp32")]
    arms += [Arm(case=other.case, role="candidate", baseline=base.case) for other in others]
    protocol = Race(
        arms=tuple(arms),
        rules=RaceRules(everything=True, precision=0.01, least=processes, max_seconds=seconds),
        clock=time.monotonic,
    )
    return measure_group(base, others, protocol=protocol, limits=Limits(), open_remote=HandRemoteArm)


def main() -> None:
    """Builds everything, measures it in one run, prints one line an arm."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "net.py").write_text(NETWORK)
        by_hand = hand_built(folder)
        arms = {**by_hand, **qbench_artifacts(folder)}
        specs = {
            case: WorkerSpec(
                case=case, backend=backend, file=file, threads=1, batch_size=1, cores=fingerprint.allowed_cores()[-1:],
                inputs=(images(8),),
            )
            for case, (backend, file) in arms.items()
        }  # fmt: skip
        first = measured(
            specs[next(iter(by_hand))], [specs[case] for case in list(by_hand)[1:]], processes=1, seconds=3
        )
        best = min(by_hand, key=lambda case: float(np.median(first[case].samples.calls_ns)))
        results = measured(specs[best], [spec for case, spec in specs.items() if case != best], processes=5, seconds=15)
        print(f"baseline: {best}")
        for case, arm in results.items():
            if arm.samples is None:
                print(f"{case}: {arm.error}")
                continue
            ratio = estimates.speedup(arm.samples, best, results[best].samples)
            said = "" if ratio is None else f"  {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] times as fast"
            print(f"{case:<32} {float(np.median(arm.samples.calls_ns)) / 1e6:8.2f} ms{said}")


if __name__ == "__main__":
    main()
