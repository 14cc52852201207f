"""The backend ``torch``: fp32 as fused, traced, frozen TorchScript; the baseline of the torch.ao engines."""

from __future__ import annotations

from qbench.backends.base import BuildJob, Built
from qbench.backends.torch_quantize import prepare_fp32
from qbench.backends.torch_runner import TorchScriptBackend, one_example, save
from qbench.models.base import NetworkKind

FILE = "model.pt"


class TorchScript(TorchScriptBackend):
    """fp32 on torch. Tracing and freezing fold BatchNorm into convolutions and turn weights into constants.

    ``optimize_for_inference`` is left out: its result cannot be saved (torch 2.13), and applied after loading
    it made digits-cnn slower (0.28 against 0.14 ms, one thread, batch 1).
    """

    name = "torch"
    modes = ("fp32",)

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """ONNX files run on onnxruntime."""
        if kind == "onnx":
            return "torch does not run ONNX files; use the onnxruntime backend"
        return None

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


BACKEND = TorchScript()
