"""ONNX Runtime on the CPU: fp32 by export, dynamic, static and QAT (QDQ), its own quantizer as framework default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.backends.base import Array, BuildJob, Inputs, Runner
from qbench.backends.onnx_backend import OnnxBackend
from qbench.backends.program import Program, copy_model
from qbench.machine import amx_tiles
from qbench.models.base import NetworkKind
from qbench.modes import HALVES, WEIGHT_ONLY
from qbench.quant.flow import Conversion

if TYPE_CHECKING:
    from qbench.quant.artifacts.coverage import Layer
    from qbench.quant.artifacts.node_profile import CallProfile
    from qbench.quant.onnx.onnxruntime_layers import Executed


class OnnxRuntime(OnnxBackend):
    """ONNX Runtime. Its int8 files are made from its fp32 file, which is exported once for all of them."""

    name = "onnxruntime"
    runtime = "onnxruntime"
    modes = ("fp32", "weight_only", "dynamic", "static", "qat")
    modules = ("onnxruntime", "qbench.quant.onnx.onnxruntime_session")
    packages = ("onnxruntime", "onnx")

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """As for every ONNX file; its kernels for x86 multiply no floats of 16 bits."""
        if mode in HALVES:
            return f"ONNX Runtime has no {mode} kernels for x86: it would convert every value; use openvino or torch"
        return super().why_not(mode=mode, kind=kind)

    def quantize(self, job: BuildJob, source: Path, file: Path) -> tuple[Path, Conversion]:
        """As every ONNX backend; ONNX Runtime's own quantizer makes dynamic files and the framework's default."""
        from qbench.quant.onnx import onnxruntime_quantizers, static, weight_only

        notes: tuple[str, ...] = ()
        if job.mode == WEIGHT_ONLY:
            return file, Conversion(float_reasons=weight_only.quantize_file(source, file, job.recipe))
        if job.mode == "dynamic":
            notes = onnxruntime_quantizers.dynamic(source, file, job.recipe)
        elif job.mode == "static" and job.recipe.framework_default:
            onnxruntime_quantizers.framework_static(source, file, job.recipe, job.calibration)
        else:
            return super().quantize(job, source, file)
        target = onnxruntime_quantizers.describe_target(file, job.recipe)
        reasons = static.explain_floats(source, job.recipe.skip_layers)
        return file, Conversion(notes=notes, float_reasons=reasons, target=target)

    def open_file(self, file: Path) -> Callable[[Inputs], Array]:
        """A session on one thread, which computes what the deployed one does, and keeps no memory of a call."""
        from qbench.quant.onnx import onnxruntime_session

        options = onnxruntime_session.spare_memory(onnxruntime_session.session_options(1))
        return onnxruntime_session.bind_run(onnxruntime_session.open_session(file, options=options))

    def execute(self, file: Path, inputs: Inputs) -> Sequence[Executed]:
        """The layers that ONNX Runtime's profile tells of."""
        from qbench.quant.onnx import onnxruntime_layers

        return onnxruntime_layers.executed(file, tuple(array[:1] for array in inputs))

    def time_nodes(self, file: Path, inputs: Inputs, *, threads: int, calls: int) -> CallProfile:
        """By the profile of a session."""
        from qbench.quant.onnx import onnxruntime_layers

        return onnxruntime_layers.time_nodes(file, inputs, threads=threads, calls=calls)

    def watch(
        self, file: Path, inputs: Inputs, *, threads: int, seconds: float
    ) -> tuple[tuple[Layer, ...], CallProfile]:
        """By the calls of one session."""
        from qbench.quant.onnx import onnxruntime_layers

        executed, profile = onnxruntime_layers.watch(file, inputs, threads=threads, seconds=seconds)
        return tuple(each.layer for each in executed), profile

    def deploy(self, file: Path, folder: Path, name: str) -> Program:
        """One ONNX file, in a session as it was measured in."""
        return Program(
            file=copy_model(file, folder, name),
            libraries=("onnxruntime",),
            imports=(
                "import os",
                'os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # no thread of reports, as when measured',
                "import onnxruntime",
            ),
            load=(
                "options = onnxruntime.SessionOptions()",
                "options.intra_op_num_threads = THREADS",
                'options.add_session_config_entry("session.intra_op.allow_spinning", "0")',
                'model = onnxruntime.InferenceSession(FILE, options, providers=["CPUExecutionProvider"])',
            ),
            call=("return model.run(None, {value.name: array for value, array in zip(model.get_inputs(), arrays)})",),
        )

    def load(self, file: Path, *, threads: int) -> Runner:
        """A session with that many intra-op threads, not spinning."""
        return OnnxRunner(file, threads=threads)


class OnnxRunner(Runner):
    """One inference session on the CPU provider."""

    def __init__(self, file: Path, *, threads: int) -> None:
        from qbench.quant.onnx import onnxruntime_session

        self._session = onnxruntime_session.open_session(file, threads=threads)
        self._names = [value.name for value in self._session.get_inputs()]
        self._types = [value.type for value in self._session.get_inputs()]

    def prepare(self, inputs: Inputs) -> dict[str, Array]:
        """The feed dictionary."""
        return dict(zip(self._names, inputs, strict=True))

    def __call__(self, prepared: dict[str, Array]) -> Any:
        """One inference."""
        return self._session.run(None, prepared)

    def outputs(self, result: Any) -> Array:
        """The first output."""
        array: Array = result[0]
        return array

    def all_outputs(self, result: Any) -> tuple[Array, ...]:
        """All that the file returns, but for sequences, maps and optional values that are not there."""
        import numpy as np

        return tuple(output for output in result if isinstance(output, np.ndarray))

    def observed(self) -> dict[str, Any]:
        """Thread counts and provider as the session tells them; ``amx_tiles``: whether this thread's calls so far have
        used AMX, which only int8 kernels of ONNX Runtime do (None where that cannot be told)."""
        options = self._session.get_session_options()
        return {
            "threads": options.intra_op_num_threads,
            "interop_threads": options.inter_op_num_threads,
            "provider": self._session.get_providers()[0],
            "spinning": options.get_session_config_entry("session.intra_op.allow_spinning") != "0",
            "graph_optimization": options.graph_optimization_level.name,
            "amx_tiles": amx_tiles.are_in_use(),
        }


BACKEND = OnnxRuntime()
