"""The backend ``torch``: floats as fused, traced, frozen TorchScript; its fp32 is the baseline of the torch.ao
engines."""

from __future__ import annotations

from qbench.backends.base import BuildJob, Built
from qbench.backends.torch_quantize import prepare_fp32
from qbench.backends.torch_runner import TorchScriptBackend, one_example, save
from qbench.machine import half_floats
from qbench.models.base import NetworkKind
from qbench.modes import HALVES, precision_of

FILE = "model.pt"


class TorchScript(TorchScriptBackend):
    """fp32, bf16 and fp16 on torch. Tracing and freezing fold BatchNorm into convolutions and make weights constants.

    ``optimize_for_inference`` is left out: its result cannot be saved (torch 2.13), and applied after loading
    it made digits-cnn slower (0.28 against 0.14 ms, one thread, batch 1).
    """

    name = "torch"
    modes = ("fp32", *HALVES)

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """ONNX files run on onnxruntime; floats of 16 bits need a CPU that multiplies them, and a network that can be
        cast."""
        if kind == "onnx":
            return "torch does not run ONNX files; use the onnxruntime backend"
        if (precision := precision_of(mode)) not in HALVES:
            return None
        if (reason := half_floats.explain_missing(precision)) is not None:
            return f"{reason}: torch would convert every value; leave {mode} out here"
        if kind == "torchscript":
            return f"a TorchScript file keeps its types; give the model's Python source for {mode}"
        return None

    def build(self, job: BuildJob) -> Built:
        """Saves the traced, frozen network and reads its layers from it; those of 16 bits from what oneDNN says that it
        ran of the file."""
        from qbench.quant.artifacts import torchscript
        from qbench.quant.pytorch.half import to_half

        example = one_example(job)
        job.progress("trace and freeze", 0.3)
        converted = prepare_fp32(job, example)
        layers, uncounted = torchscript.count_layers(job.network.module, example)
        file, notes = job.folder / FILE, list[str | None]()
        if (precision := precision_of(job.mode)) in HALVES:
            half, note = to_half(converted.module, example, precision)
            notes = [note, save(half, job, file, tolerance=torchscript.HALF_TOLERANCE)]
            ran = torchscript.watch_products(file, example)
            layers, uncounted = torchscript.find_proven(layers, half, example, ran)
        else:
            notes = [save(converted.module, job, file)]
        return Built(
            format="torchscript",
            file=FILE,
            layers=layers,
            uncounted=uncounted,
            conversion=converted.conversion.with_notes(*notes),
        )


BACKEND = TorchScript()
