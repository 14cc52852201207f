"""OpenVINO on the CPU: fp32 and int8 from ONNX files, NNCF's own quantization as the framework's default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.backends.base import Array, BuildJob, Built, Inputs, Runner
from qbench.backends.onnx_backend import OnnxBackend
from qbench.backends.onnx_build import fp32_file
from qbench.backends.program import Program, copy_model
from qbench.machine import half_floats
from qbench.models.base import NetworkKind, format_of
from qbench.modes import HALVES, WEIGHT_ONLY, precision_of
from qbench.process import threads as threads_of_process
from qbench.quant.flow import Conversion
from qbench.quant.recipe import Recipe

if TYPE_CHECKING:
    from qbench.quant.artifacts.coverage import Layer
    from qbench.quant.artifacts.node_profile import CallProfile
    from qbench.quant.artifacts.openvino_model import Shapes
    from qbench.quant.onnx.onnxruntime_layers import Executed

PAIR_FILE = "model.ov.zip"
PAIR_NOTE = "OpenVINO's own form: model.xml and model.bin, stored in one zip file"
_COMPILE_FOR_EACH = (
    "@functools.cache",
    "def compile_for(count):  # it is fastest where it knows how many examples a call has",
    "    model = openvino.Core().read_model(FILE)",
    "    model.reshape({i: [count, *list(port.partial_shape)[1:]] for i, port in enumerate(model.inputs) "
    "if port.partial_shape[0].is_dynamic})",
    '    return openvino.compile_model(model, "CPU", settings)',
)


class OpenVino(OnnxBackend):
    """OpenVINO. It runs the very files that onnxruntime runs, where its kernels take them."""

    name = "openvino"
    float_joins = False
    runtime = "openvino"
    modes = ("fp32", *HALVES, WEIGHT_ONLY, "static", "qat")
    modules = ("openvino", "qbench.quant.artifacts.openvino_model")
    int8_formats = ("onnx", "openvino")
    packages = ("openvino", "nncf", "onnx", "onnxruntime")
    extra = "openvino"

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """OpenVINO quantizes no activations as it runs, and floats of 16 bits need a CPU that multiplies them;
        otherwise as for every ONNX file."""
        if (precision := precision_of(mode)) in HALVES and (
            reason := half_floats.explain_missing(precision)
        ) is not None:
            return f"{reason}: OpenVINO would run it in fp32, or convert every value; leave {mode} out here"
        if mode == "dynamic":
            return (
                "OpenVINO's CPU kernels take activations whose ranges are known; use static, or dynamic on "
                "onnxruntime or a torch engine"
            )
        return super().why_not(mode=mode, kind=kind)

    def resolve(self, mode: str, recipe: Recipe) -> Recipe:
        """As every ONNX backend; NNCF's weights of 8 bits have one group for all inputs of an output."""
        recipe = super().resolve(mode, recipe)
        return replace(recipe, group="channel") if mode == WEIGHT_ONLY and recipe.bits == 8 else recipe

    def take_operators(self, source: Path) -> None:
        """Computes before what OpenVINO computes wrongly; raises ``ModeImpossible`` for a Fourier transform."""
        from qbench.quant.onnx import openvino_operators

        openvino_operators.take_operators(source)

    def build(self, job: BuildJob) -> Built:
        """As every ONNX backend; an int8 file of the user's may be in OpenVINO's own form."""
        if job.int8_file is None or format_of(job.recipe.file or "") != "openvino":
            return super().build(job)
        from qbench.backends import own_openvino

        with fp32_file(job) as source:
            self.take_operators(source)
            return own_openvino.build(job, source, job.folder / PAIR_FILE, self.open_file)

    def quantize(self, job: BuildJob, source: Path, file: Path) -> tuple[Path, Conversion]:
        """As every ONNX backend; NNCF makes the framework's default, in OpenVINO's own form, in which floats of 16 bits
        are kept, too."""
        from qbench.quant.artifacts import openvino_model

        if (precision := precision_of(job.mode)) in HALVES:
            pair = file.with_name(PAIR_FILE)
            openvino_model.store_half(source, pair, precision)
            note = f"weights stored in 16 bits, compiled for {precision}; nothing was calibrated"
            return pair, Conversion(notes=(PAIR_NOTE, note))
        if job.mode == WEIGHT_ONLY:
            from qbench.quant.onnx import weight_only

            pair = file.with_name(PAIR_FILE)
            floats, tensors = weight_only.find_skipped(source, job.recipe)
            openvino_model.compress_weights(source, pair, job.recipe, tensors)
            return pair, Conversion(notes=(PAIR_NOTE,), float_reasons=floats)
        if job.mode != "static" or not job.recipe.framework_default:
            return super().quantize(job, source, file)
        pair = file.with_name(PAIR_FILE)
        openvino_model.quantize(source, pair, job.calibration)
        return pair, Conversion(notes=(PAIR_NOTE,))

    def compare_known_batch(self, file: Path, inputs: Inputs) -> float | None:
        """By one call of each."""
        from qbench.quant.onnx import known_batch

        return known_batch.compare(file, inputs)

    def check_file(self, file: Path, source: Path, probes: Inputs) -> str | None:
        """Whether it answers for a known number of examples as for any."""
        from qbench.quant.onnx import known_batch

        return known_batch.check(file, source, probes)

    def open_file(self, file: Path) -> Callable[[Inputs], Array]:
        """A model on one thread, compiled for the number of examples that it is called with."""
        from qbench.quant.artifacts import openvino_model

        model = openvino_model.ForShapes(openvino_model.read_file(file).compile)
        return lambda inputs: openvino_model.run(model.get([array.shape for array in inputs]), inputs)

    def execute(self, file: Path, inputs: Inputs) -> Sequence[Executed]:
        """The layers of the graph that OpenVINO executes."""
        from qbench.quant.onnx import openvino_layers

        return openvino_layers.executed(file, inputs)

    def time_nodes(self, file: Path, inputs: Inputs, *, threads: int, calls: int) -> CallProfile:
        """By the counters of a compiled model."""
        from qbench.quant.onnx import openvino_layers

        return openvino_layers.time_nodes(file, inputs, threads=threads, calls=calls)

    def watch(
        self, file: Path, inputs: Inputs, *, threads: int, seconds: float
    ) -> tuple[tuple[Layer, ...], CallProfile]:
        """By the calls of one compiled model."""
        from qbench.quant.onnx import openvino_layers

        executed, profile = openvino_layers.watch(file, inputs, threads=threads, seconds=seconds)
        return tuple(each.layer for each in executed), profile

    def deploy(self, file: Path, folder: Path, name: str) -> Program:
        """An ONNX file, or OpenVINO's own pair of files; compiled as it was measured."""
        from qbench.quant.artifacts import openvino_model

        read = openvino_model.read_file(file)
        settings = read.list_settings(threads=0) | {"INFERENCE_NUM_THREADS": "THREADS"}
        arguments = [
            f'"{key}": {value if value == "THREADS" else repr(value)}'.replace("'", '"')
            for key, value in settings.items()
        ]
        half = len(arguments) // 2
        for_each = read.is_compiled_for_each()
        return Program(
            file=openvino_model.unpack_pair(file, folder, name) or copy_model(file, folder, name),
            libraries=("openvino",),
            imports=("import functools, openvino",) if for_each else ("import openvino",),
            load=(
                f"settings = {{{', '.join(arguments[:half])},",
                f"            {', '.join(arguments[half:])}}}",
                *(_COMPILE_FOR_EACH if for_each else ('model = openvino.compile_model(FILE, "CPU", settings)',)),
            ),
            call=(f"return list({'compile_for(len(arrays[0]))' if for_each else 'model'}(arrays).values())",),
        )

    def load(self, file: Path, *, threads: int) -> Runner:
        """The model with that many threads on one stream; compiled as it gets inputs, for as many examples."""
        return OpenVinoRunner(file, threads=threads)


class OpenVinoRunner(Runner):
    """One compiled model and its only request, which another one follows where a batch of another size is prepared.
    ``observed`` tells what the runtime made of the settings."""

    def __init__(self, file: Path, *, threads: int) -> None:
        from qbench.quant.artifacts import openvino_model

        self._before = frozenset(threads_of_process.list_cores())
        self._file, self._threads = file, threads
        self._read: openvino_model.ReadModel | None = openvino_model.read_file(file)
        self._read.require_instructions()
        self._requests = openvino_model.ForShapes(self._open)
        self._model: Any = None

    def _open(self, shapes: Shapes) -> Any:
        from qbench.quant.artifacts import openvino_model

        read, self._read, self._model = self._read or openvino_model.read_file(self._file), None, None
        self._model = read.compile(shapes, threads=self._threads)
        request = self._model.create_infer_request()
        threads_of_process.confine(threads_of_process.list_cores(), self._before)
        return request

    def prepare(self, inputs: Inputs) -> tuple[Any, dict[int, Any]]:
        """The request for a batch of that size, and the inputs as tensors that share the arrays' memory."""
        import numpy as np
        import openvino

        # Memory that is mapped for reading only cannot be shared: whole numbers come as they lie in the cache.
        arrays = (np.require(tensor, requirements=("C", "W")) for tensor in inputs)
        tensors = {i: openvino.Tensor(array, shared_memory=True) for i, array in enumerate(arrays)}
        return self._requests.get([array.shape for array in inputs]), tensors

    def __call__(self, prepared: tuple[Any, dict[int, Any]]) -> Any:
        """One inference."""
        request, tensors = prepared
        return request.infer(tensors, share_inputs=True, share_outputs=True)

    def outputs(self, result: Any) -> Array:
        """The first output, copied: the request writes the next one over it."""
        array: Array = result[0].copy()
        return array

    def all_outputs(self, result: Any) -> tuple[Array, ...]:
        """All outputs, copied."""
        return tuple(result[place].copy() for place in range(len(self._model.outputs)))

    def observed(self) -> dict[str, Any]:
        """Threads, streams, pinning, precision and batch size (None: any) as the compiled model tells them, before any
        inputs that for any size, and where its threads may run.

        Raises ``MeasureError`` where one of them may run on a core that this process may not use: OpenVINO places
        threads by itself on some machines, whatever the affinity of the process.
        """
        from qbench.quant.artifacts import openvino_model

        if self._model is None:
            self._open(())
        property_of = self._model.get_property
        threads_of_process.require_inside(threads_of_process.list_cores(), self._before, "OpenVINO")
        return {
            "threads": int(property_of("INFERENCE_NUM_THREADS")),
            "interop_threads": int(property_of("NUM_STREAMS")),
            "provider": ", ".join(property_of("EXECUTION_DEVICES")),
            "pinned_by_runtime": bool(property_of("ENABLE_CPU_PINNING")),
            "inference_precision": str(property_of("INFERENCE_PRECISION_HINT").get_type_name()),
            "compiled_batch_size": openvino_model.find_fixed_batch(self._model),
        }


BACKEND = OpenVino()
