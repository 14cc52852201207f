"""The torch.ao engines fbgemm, x86, onednn and qnnpack: FX static and QAT, and dynamic quantization."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbench.backends.base import Backend, BuildJob, Built, Runner
from qbench.backends.torch_runner import MODULES, TorchScriptRunner, one_example, save, tensors, torch_missing
from qbench.errors import BuildError
from qbench.models.base import NetworkKind
from qbench.quant.recipe import Recipe

FILE = "model.pt"
_X86 = ("x86_64", "AMD64")


class TorchAO(Backend):
    """One quantized engine of torch."""

    runtime = "torch"
    modes = ("dynamic", "static", "qat")
    modules = MODULES

    def __init__(self, name: str, *, per_channel: bool, machines: tuple[str, ...] | None) -> None:
        self.name = name
        self._per_channel = per_channel
        self._machines = machines

    def missing(self) -> str | None:
        """Whether torch is there and the engine exists for this kind of CPU."""
        if self._machines is not None and platform.machine() not in self._machines:
            return f"the engine {self.name} exists only on {self._machines[0]}; use qnnpack or onednn here"
        return torch_missing()

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """FX and quantize_dynamic need the Python module."""
        if kind == "onnx":
            return "torch cannot quantize an ONNX file; use the onnxruntime backend"
        if kind == "torchscript":
            return (
                "torch cannot quantize a TorchScript file; give the model's Python source as {python: file.py:factory}"
            )
        return None

    def resolve(self, mode: str, recipe: Recipe) -> Recipe:
        """Per-channel weights where the engine's own default has them; dynamic needs no calibrator."""
        chosen = self._per_channel if recipe.per_channel is None else recipe.per_channel
        if mode == "dynamic":
            # quantize_dynamic's own default is per tensor; recurrent layers have nothing else.
            return replace(recipe, flow="eager", calibrator=None, per_channel=bool(recipe.per_channel))
        # QAT tracks ranges with moving averages: a histogram observer is too slow in a training loop.
        calibrator = "moving_average" if mode == "qat" else recipe.calibrator
        return replace(recipe, flow="fx", calibrator=calibrator, per_channel=chosen)

    def libraries(self) -> tuple[str, ...]:
        """torch."""
        return ("torch",)

    def build(self, job: BuildJob) -> Built:
        """Quantizes on this engine, saves, reloads, checks bit-equality, reads the layers from the file."""
        from qbench.quant import coverage, torch_ao, torchscript

        torch_ao.set_engine(self.name)
        example = one_example(job)
        reference = torchscript.layers(job.network.module, example)
        int8, trained = self._quantize(job)
        traced = save(int8, job, job.folder / FILE)
        ran = torchscript.layers(torchscript.load(job.folder / FILE), example)
        return Built(
            format="torchscript",
            file=FILE,
            layers=coverage.align(reference, ran),
            note="; ".join(note for note in (self._note(), trained, traced) if note) or None,
        )

    def _quantize(self, job: BuildJob) -> tuple[Any, str | None]:
        """The int8 module, and what a reader must know of how it was trained."""
        from qbench.quant import qat, torch_ao

        module, recipe = job.network.module, job.recipe
        if job.mode == "dynamic":
            job.progress("quantize", 0.3)
            return torch_ao.dynamic(module, recipe), None
        if job.mode == "static":
            job.progress("calibrate", 0.2)
            return torch_ao.static(module, self.name, recipe, tensors(job.calibration)), None
        if job.training is None:
            raise BuildError("QAT needs labelled training examples, and this data set's calibration split has none")
        import torch

        inputs, labels = job.training
        targets = torch.from_numpy(labels.astype("float32" if labels.dtype.kind == "f" else "int64"))
        trained = qat.train(module, self.name, recipe, tensors(inputs), targets, job.progress)
        return trained.module, f"trained on {trained.loss}"

    def _note(self) -> str | None:
        if self.name == "qnnpack" and platform.machine() in _X86:
            return "qnnpack is made for ARM: on x86 it works but is slow"
        return None

    def load(self, file: Path, *, threads: int) -> Runner:
        """The file on this engine with that many intra-op threads and one inter-op thread."""
        return TorchScriptRunner(file, threads=threads, engine=self.name)


FBGEMM = TorchAO("fbgemm", per_channel=True, machines=_X86)
X86 = TorchAO("x86", per_channel=True, machines=_X86)
ONEDNN = TorchAO("onednn", per_channel=True, machines=None)
QNNPACK = TorchAO("qnnpack", per_channel=False, machines=None)
