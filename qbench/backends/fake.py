"""A backend that pretends: its calls take a known time and its outputs are a fixed projection; for tests and demos.

Its file says how long a call takes; ``clock`` and ``spend`` are real by default, and injected where a test must not
let time pass.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qbench.backends.base import Array, Backend, BuildJob, Built, Inputs, Runner
from qbench.models.base import NetworkKind
from qbench.modes import MODES, WEIGHT_ONLY, is_int8, precision_of
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.flow import Conversion

FILE = "model.json"
CLASSES = 10
SECONDS = {
    "fp32": 1e-3,
    "bf16": 0.6e-3,
    "fp16": 0.6e-3,
    "weight_only": 0.7e-3,
    "dynamic": 0.8e-3,
    "static": 0.5e-3,
    "qat": 0.5e-3,
}
SIZE_BYTES = {
    "fp32": 4000,
    "bf16": 2000,
    "fp16": 2000,
    "weight_only": 600,
    "dynamic": 1200,
    "static": 1100,
    "qat": 1100,
}


class Fake(Backend):
    """Every mode from every kind of network, none of it real: the name says so wherever it is shown."""

    name = "fake"
    runtime = "fake"
    modes = MODES
    made_up = True

    def missing(self) -> str | None:
        """Always there."""
        return None

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """Everything goes."""
        return None

    def libraries(self) -> tuple[str, ...]:
        """Only numpy."""
        return ("numpy",)

    def build(self, job: BuildJob) -> Built:
        """A file of a known size that says how long a call takes."""
        content = {"seconds": SECONDS[job.mode], "mode": job.mode}
        (job.folder / FILE).write_text(json.dumps(content).ljust(SIZE_BYTES[job.mode]))
        layer = Layer(
            name="projection",
            operator="fake",
            macs=1_000_000,
            precision=precision_of(job.mode),
            weight_bits=4 if job.mode == WEIGHT_ONLY else None,
        )
        conversion = Conversion(notes=("made up, for tests and demos",))
        return Built(format="fake", file=FILE, layers=(layer,), conversion=conversion)

    def load(self, file: Path, *, threads: int) -> Runner:
        """The pretended model."""
        return FakeRunner(json.loads(file.read_text()), threads=threads)


class FakeRunner(Runner):
    """Spends the time that its file names, by default busily, on the real clock."""

    def __init__(self, content: dict[str, Any], *, threads: int, spend: Callable[[float], None] | None = None) -> None:
        self._seconds = float(content["seconds"])
        self._threads = threads
        self._spend = spend or busy
        # int8 rounds the projection, so that some predictions flip, as they do in earnest.
        self._step = 0.05 if is_int8(content["mode"]) else 0.0

    def prepare(self, inputs: Inputs) -> Array:
        """The first input, flattened."""
        return inputs[0].reshape(len(inputs[0]), -1).astype("float32")

    def __call__(self, prepared: Array) -> Array:
        """One pretended inference."""
        self._spend(self._seconds)
        return prepared

    def outputs(self, result: Array) -> Array:
        """A fixed projection to ``CLASSES`` scores."""
        import numpy as np  # here, since `qbench list` imports this module and should stay quick

        seed = int.from_bytes(hashlib.sha256(str(result.shape[1]).encode()).digest()[:4], "big")
        weights = np.random.default_rng(seed).standard_normal((result.shape[1], CLASSES)).astype(np.float32)
        scores = result @ weights
        return np.round(scores / self._step) * self._step if self._step else scores

    def observed(self) -> dict[str, Any]:
        """What was asked for, since there is nothing to ask."""
        return {"threads": self._threads, "interop_threads": 1}


def busy(seconds: float) -> None:
    """Takes so many seconds of the core, as arithmetic does: longer where others have it meanwhile."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


BACKEND = Fake()
