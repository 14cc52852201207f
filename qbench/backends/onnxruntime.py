"""ONNX Runtime on the CPU: fp32 by export, dynamic, static and QAT (QDQ), its own quantizer as framework default."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from qbench.backends import own_int8_file
from qbench.backends.base import Array, Backend, BuildJob, Built, Inputs, Runner
from qbench.backends.onnx_build import EXPORTS, FILE, Made, find_obstacle, fp32_file, quantize_network, resolve_recipe
from qbench.models.base import NetworkKind
from qbench.quant.recipe import Recipe


class OnnxRuntime(Backend):
    """ONNX Runtime. Its int8 files are made from its fp32 file, which is exported once for all of them."""

    name = "onnxruntime"
    runtime = "onnxruntime"
    modes = ("fp32", "dynamic", "static", "qat")
    flows = ("onnx",)
    int8_files = True
    modules = ("onnxruntime", "qbench.quant.onnx.onnxruntime_session")

    def missing(self) -> str | None:
        """Whether the packages are there."""
        absent = [name for name in ("onnxruntime", "onnx") if importlib.util.find_spec(name) is None]
        return f"{' and '.join(absent)} not installed; pip install {' '.join(absent)}" if absent else None

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """An ONNX file cannot be trained; TorchScript has no path to ONNX that torch still keeps."""
        return find_obstacle(mode, kind)

    def resolve(self, mode: str, recipe: Recipe) -> Recipe:
        """Every choice that was left open; the framework's default has none."""
        return resolve_recipe(mode, recipe)

    def libraries(self) -> tuple[str, ...]:
        """What exports, quantizes and runs."""
        return (*EXPORTS, "onnxruntime")

    def build(self, job: BuildJob) -> Built:
        """Exports (fp32) or quantizes, checks that the file gives the same from call to call, reads the layers from
        what ONNX Runtime made of it."""
        from qbench.quant.analysis import quantized_range
        from qbench.quant.artifacts import onnx_file
        from qbench.quant.onnx import onnxruntime_layers, onnxruntime_session

        file = job.folder / FILE
        with fp32_file(job) as source:
            reference = onnxruntime_layers.executed(source, job.example, optimized=False)
            if job.int8_file is not None:
                quantization = own_int8_file.take_own_file(job, source, file)
                own_int8_file.require_outputs(job, source, file, onnxruntime_session.run)
                reference = onnxruntime_layers.as_float(onnxruntime_layers.executed(file, job.example, optimized=False))
            elif job.mode == "fp32":
                onnx_file.copy(source, file)
                quantization = Made()
            else:
                quantization = _int8(job, source, file)
        onnxruntime_session.require_repeatable(file, job.example)
        executed = onnxruntime_layers.executed(file, job.example) if job.mode != "fp32" else reference
        return Built(
            format="onnx",
            file=FILE,
            layers=onnxruntime_layers.match(reference, executed),
            fixed_batch=onnx_file.fixed_batch(file),
            note="; ".join(quantization.notes) or None,
            float_reasons=quantization.float_reasons,
            rewrites=quantization.rewrites,
            rewrite_difference=quantization.rewrite_difference,
            input_ranges=quantized_range.range_of_onnx(file),
        )

    def load(self, file: Path, *, threads: int) -> Runner:
        """A session with that many intra-op threads, not spinning."""
        return OnnxRunner(file, threads=threads)


def _int8(job: BuildJob, source: Path, file: Path) -> Made:
    from qbench.quant.onnx import onnxruntime_session, static

    job.progress("quantize", 0.2)
    if job.mode == "dynamic":
        notes = onnxruntime_session.dynamic(source, file, job.recipe)
    elif job.mode == "static" and job.recipe.framework_default:
        onnxruntime_session.framework_static(source, file, job.recipe, job.calibration)
        notes = ()
    else:
        return quantize_network(job, source, file, runtime="onnxruntime")
    return Made(notes=notes, float_reasons=static.within_subgraphs(source))


class OnnxRunner(Runner):
    """One inference session on the CPU provider."""

    def __init__(self, file: Path, *, threads: int) -> None:
        from qbench.quant.onnx import onnxruntime_session

        self._session = onnxruntime_session.open_session(file, threads=threads)
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
