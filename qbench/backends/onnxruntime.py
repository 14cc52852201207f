"""ONNX Runtime on the CPU: fp32 by export, dynamic, static (QDQ, U8S8)."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbench.backends.base import Array, Backend, BuildJob, Built, Inputs, Runner
from qbench.errors import BuildError
from qbench.models.base import NetworkKind
from qbench.quant.recipe import Recipe

FILE = "model.onnx"


class OnnxRuntime(Backend):
    """ONNX Runtime. Its int8 files are made from its fp32 file, so that a network is exported once."""

    name = "onnxruntime"
    runtime = "onnxruntime"
    modes = ("fp32", "dynamic", "static")
    flows = ("onnx",)
    builds_from_baseline = True
    modules = ("onnxruntime", "qbench.quant.onnx_model")

    def missing(self) -> str | None:
        """Whether the packages are there."""
        absent = [name for name in ("onnxruntime", "onnx") if importlib.util.find_spec(name) is None]
        return f"{' and '.join(absent)} not installed; pip install {' '.join(absent)}" if absent else None

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """QAT happens in torch; TorchScript has no path to ONNX that torch still keeps."""
        if kind == "torchscript":
            return "torch no longer exports TorchScript files to ONNX; give the Python source, or an ONNX file"
        if mode == "qat":
            return (
                "an ONNX file cannot be trained; give the model's Python source and use a torch engine"
                if kind == "onnx"
                else "a QAT model's learned scales are not carried into ONNX yet; use fbgemm, x86, onednn or qnnpack"
            )
        return None

    def resolve(self, mode: str, recipe: Recipe) -> Recipe:
        """Per-channel weights unless told otherwise; dynamic needs no calibrator."""
        per_channel = True if recipe.per_channel is None else recipe.per_channel
        calibrator = None if mode == "dynamic" else recipe.calibrator or "histogram"
        return replace(
            recipe,
            flow="onnx",
            calibrator=calibrator,
            percentile=None,
            per_channel=per_channel,
            symmetric=None,
            reduce_range=None,
            clip_ranges=False,
            canonicalize=False,
            min_coverage=None if mode == "dynamic" else recipe.min_coverage,
        )

    def libraries(self) -> tuple[str, ...]:
        """What exports, quantizes and runs."""
        return ("torch", "onnx", "onnxscript", "onnxruntime")

    def build(self, job: BuildJob) -> Built:
        """Exports (fp32) or quantizes, checks that the file gives what the model in memory gives."""
        from qbench.quant import coverage, onnx_file, onnx_layers, onnx_model

        file = job.folder / FILE
        if job.mode == "fp32":
            self._fp32(job, file)
            onnx_model.require_repeatable(file, job.example)
            layers = onnx_layers.layers(file, job.example, optimized=False)
        else:
            source = job.network.path
            if source is None:
                raise BuildError("ONNX Runtime's int8 files are made from its fp32 file, and there is none")
            job.progress("quantize", 0.2)
            if job.mode == "static":
                onnx_model.static(source, file, job.recipe, job.calibration)
            else:
                onnx_model.dynamic(source, file, job.recipe)
            onnx_model.require_repeatable(file, job.example)
            reference = onnx_layers.layers(source, job.example, optimized=False)
            layers = coverage.align(reference, onnx_layers.layers(file, job.example))
        return Built(format="onnx", file=FILE, layers=layers, fixed_batch=onnx_file.fixed_batch(file))

    def _fp32(self, job: BuildJob, file: Path) -> None:
        from qbench.backends.torch_runner import tensors
        from qbench.quant import onnx_file, onnx_model

        if job.network.path is not None:
            onnx_file.copy(job.network.path, file)
            return
        job.progress("export to ONNX", 0.2)
        onnx_model.export(job.network.module, tensors(job.example), file)

    def load(self, file: Path, *, threads: int) -> Runner:
        """A session with that many intra-op threads, not spinning."""
        return OnnxRunner(file, threads=threads)


class OnnxRunner(Runner):
    """One inference session on the CPU provider."""

    def __init__(self, file: Path, *, threads: int) -> None:
        from qbench.quant import onnx_model

        self._session = onnx_model.open_session(file, threads=threads)
        self._names = [value.name for value in self._session.get_inputs()]
        self._types = [value.type for value in self._session.get_inputs()]
        self._outputs = [self._session.get_outputs()[0].name]

    def prepare(self, inputs: Inputs) -> dict[str, Array]:
        """The feed dictionary."""
        return dict(zip(self._names, inputs, strict=True))

    def __call__(self, prepared: dict[str, Array]) -> Any:
        """One inference."""
        return self._session.run(self._outputs, prepared)

    def outputs(self, result: Any) -> Array:
        """The first output."""
        array: Array = result[0]
        return array

    def observed(self) -> dict[str, Any]:
        """Thread counts and provider as the session tells them."""
        options = self._session.get_session_options()
        return {
            "threads": options.intra_op_num_threads,
            "interop_threads": options.inter_op_num_threads,
            "provider": self._session.get_providers()[0],
            "spinning": options.get_session_config_entry("session.intra_op.allow_spinning") != "0",
            "graph_optimization": options.graph_optimization_level.name,
        }


BACKEND = OnnxRuntime()
