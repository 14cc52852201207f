"""10,000 Fashion-MNIST images through one int8 variant: qbench against a hand-written loop, wall and processor seconds.

    QBENCH_DATA=... PYTHONPATH=. python tests/benchmarks/evaluate.py [--backends fbgemm,onednn,onnxruntime] [--cores 2]

The network is mobilenet-small with drawn weights, int8 by qbench's default static recipe. The loop is what one writes
by hand: the file loaded with its own runtime on all allowed cores, the images scaled as the suite scales them, batches
of 64, 256 or 1,000 in turn, the outputs in one array. Both start from the images in memory, in a process that has its
libraries imported; qbench's time holds starting its processes, loading, the proof that the artifact gives what it gave
where it was built, the choice of the width, what is read back of the inputs, and writing the file. Rounds alternate,
and the best of each counts: on a loaded machine compare processor seconds, with ``--cores 1``.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from qbench.build import Artifact, build
from qbench.cache import store
from qbench.data import Data, DataRequest
from qbench.data_preparation import prepare_data
from qbench.evaluate import predictions
from qbench.machine import fingerprint
from qbench.models.base import ModelReference
from qbench.network import prepare_model
from qbench.plan.planner import Variant
from qbench.process.child_process import Limits, call
from qbench.process.cpu_slots import Slots
from qbench.quant.recipe import Recipe

NETWORK = """
import torch

from qbench.models.mobilenet_small import build


def network():
    torch.manual_seed(0)
    network = build(1, 10)
    for part in network.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.2)
            part.running_var.uniform_(0.5, 2)
    return network.eval()
"""
LIMITS = Limits(seconds=600)
BATCHES = (64, 256, 1000)


def quiet(*_: Any) -> None:
    """No progress."""


def prepared(folder: Path) -> Data:
    """All test images, and 128 to calibrate on."""
    request = DataRequest(
        loader="fashion-mnist", value=None, options={}, base=folder,
        calibrate_split="train", calibrate_samples=128, calibrate_seed=0,
        evaluate_split="test", evaluate_samples=None, evaluate_seed=0, train=False,
    )  # fmt: skip
    return prepare_data(request, store.open_cache(), progress=quiet)


def built(backend: str, data: Data, folder: Path) -> Artifact:
    """The int8 file, from the cache if it is there."""
    file = folder / "network.py"
    file.write_text(NETWORK)
    reference = ModelReference(name="drawn", source="python", path=file, attribute="network")
    root = store.open_cache()
    model = call(prepare_model, reference, data, "top1", root, limits=LIMITS, progress=quiet)
    variant = Variant(model=reference, mode="static", backend=backend, recipe=Recipe())
    return build(variant, model=model, data=data, root=root, limits=LIMITS, progress=quiet)


def by_hand(file: Path, backend: str, data: Data, batch: int, threads: int, *, progress: Any) -> tuple[float, float]:
    """Wall and processor seconds of the loop."""
    images = np.array(data.evaluation_examples().inputs[0])
    scaling = data.preprocessing
    mean, std = np.float32(scaling.mean[0]), np.float32(scaling.std[0])
    predict = _by_torch(file, backend, threads) if file.suffix == ".pt" else _by_onnxruntime(file, threads)
    started, spent = time.perf_counter(), time.process_time()
    rows = [
        predict((images[i : i + batch].astype(np.float32) * np.float32(scaling.scale) - mean) / std)
        for i in range(0, len(images), batch)
    ]
    assert np.concatenate(rows).shape == (len(images), 10)
    return time.perf_counter() - started, time.process_time() - spent


def _by_torch(file: Path, engine: str, threads: int) -> Any:
    import torch

    torch.set_num_threads(threads)
    torch.backends.quantized.engine = engine
    module = torch.jit.load(str(file))

    def predict(images: Any) -> Any:
        with torch.inference_mode():
            return module(torch.from_numpy(images)).numpy()

    return predict


def _by_onnxruntime(file: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images})[0]


def by_qbench(artifact: Artifact, data: Data, jobs: int, file: Path) -> tuple[float, float]:
    """Wall and processor seconds of the stage; its processes are children of multiprocessing's server."""
    started, spent = time.perf_counter(), _spent()
    predictions.predict(
        artifact, data, 1, file, root=store.open_cache(), slots=Slots(jobs), limits=LIMITS, progress=quiet
    )
    seconds = time.perf_counter() - started
    time.sleep(0.2)  # the server has to see that they ended
    return seconds, _spent() - spent


def _spent() -> float:
    import psutil

    total = time.process_time()
    for child in psutil.Process().children():
        times = child.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


def main() -> None:
    """Prints one line a backend."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backends", default="fbgemm,onednn,onnxruntime")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=len(fingerprint.allowed_cores()))
    options = parser.parse_args()
    cores = options.cores
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = prepared(folder)
        for backend in options.backends.split(","):
            artifact = built(backend, data, folder)
            by_qbench(artifact, data, cores, folder / "p.npz")  # what a run has: the server started, inputs looked at
            hand: dict[int, list[tuple[float, float]]] = {batch: [] for batch in BATCHES}
            ours = []
            for _ in range(options.rounds):
                for batch, times in hand.items():
                    times.append(call(by_hand, artifact.file, backend, data, batch, cores, limits=LIMITS))
                ours.append(by_qbench(artifact, data, cores, folder / "p.npz"))
            best = {batch: np.min(times, axis=0) for batch, times in hand.items()}
            wall, spent = np.min(ours, axis=0)
            told = ", ".join(f"{wall_:.2f} s ({spent_:.2f}) by {batch}" for batch, (wall_, spent_) in best.items())
            walls, spents = zip(*best.values(), strict=True)
            print(
                f"{backend}, {cores} cores, wall (processor): by hand {told}; qbench {wall:.2f} s ({spent:.2f}): "
                f"{wall / min(walls):.2f} times the best by hand in wall, {spent / min(spents):.2f} in processor time",
                flush=True,
            )


if __name__ == "__main__":
    # By its name, so that its own processes find the loop.
    sys.path.insert(0, str(Path(__file__).parent))
    importlib.import_module("evaluate").main()
