"""The backend ``torch``: fp32 as fused, traced, frozen TorchScript; the baseline of the torch.ao engines."""

from __future__ import annotations

from pathlib import Path

from qbench.backends.base import Backend, BuildJob, Built, Inputs, Runner
from qbench.backends.program import Program
from qbench.backends.torch_quantize import prepare_fp32
from qbench.backends.torch_runner import (
    MODULES,
    TorchScriptRunner,
    deploy,
    one_example,
    save,
    time_nodes,
    torch_missing,
)
from qbench.models.base import NetworkKind
from qbench.quant.artifacts.node_profile import CallProfile

FILE = "model.pt"


class TorchScript(Backend):
    """fp32 on torch. Tracing and freezing fold BatchNorm into convolutions and turn weights into constants.

    ``optimize_for_inference`` is left out: its result cannot be saved (torch 2.13), and applied after loading
    it made digits-cnn slower (0.28 against 0.14 ms, one thread, batch 1).
    """

    name = "torch"
    runtime = "torch"
    modes = ("fp32",)
    modules = MODULES

    def missing(self) -> str | None:
        """Whether torch is there."""
        return torch_missing()

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """ONNX files run on onnxruntime."""
        if kind == "onnx":
            return "torch does not run ONNX files; use the onnxruntime backend"
        return None

    def libraries(self) -> tuple[str, ...]:
        """torch."""
        return ("torch",)

    def build(self, job: BuildJob) -> Built:
        """Saves the traced, frozen network and reads its layers from it."""
        from qbench.quant.artifacts import torchscript

        example = one_example(job)
        job.progress("trace and freeze", 0.3)
        converted = prepare_fp32(job, example)
        note = save(converted.module, job, job.folder / FILE)
        layers, uncounted = torchscript.count_layers(job.network.module, example)
        return Built(
            format="torchscript",
            file=FILE,
            layers=layers,
            uncounted=uncounted,
            conversion=converted.conversion.with_notes(note),
        )

    def time_nodes(self, file: Path, inputs: Inputs, *, threads: int, calls: int) -> CallProfile:
        """By torch's profiler."""
        return time_nodes(file, inputs, threads=threads, calls=calls, engine=None)

    def deploy(self, file: Path, folder: Path, name: str) -> Program:
        """As every TorchScript file."""
        return deploy(file, folder, name, engine=None)

    def load(self, file: Path, *, threads: int) -> Runner:
        """The file with that many intra-op threads and one inter-op thread."""
        return TorchScriptRunner(file, threads=threads, engine=None)


BACKEND = TorchScript()
