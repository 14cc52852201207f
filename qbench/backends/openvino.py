"""OpenVINO on the CPU: fp32 and int8 from ONNX files, NNCF's own quantization as the framework's default."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from pathlib import Path
from typing import Any

from qbench.backends import own_int8_file
from qbench.backends.base import Array, Backend, BuildJob, Built, Inputs, Runner
from qbench.backends.onnx_build import EXPORTS, FILE, Made, find_obstacle, fp32_file, quantize_network, resolve_recipe
from qbench.errors import MeasureError
from qbench.models.base import NetworkKind
from qbench.quant.recipe import Recipe

NNCF_FILE = "model.ov.zip"
NNCF_NOTE = "OpenVINO's own form: model.xml and model.bin, stored in one zip file"
TASKS = Path("/proc/self/task")
_PACKAGES = ("openvino", "nncf", "onnx", "onnxruntime")


class OpenVino(Backend):
    """OpenVINO. It runs the very files that onnxruntime runs, where its kernels take them."""

    name = "openvino"
    runtime = "openvino"
    modes = ("fp32", "static", "qat")
    flows = ("onnx",)
    int8_files = True
    modules = ("openvino", "qbench.quant.artifacts.openvino_model")

    def missing(self) -> str | None:
        """Whether the packages are there."""
        absent = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
        return f"{' and '.join(absent)} not installed; pip install 'qbench[openvino]'" if absent else None

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """OpenVINO quantizes no activations as it runs; otherwise as for every ONNX file."""
        if mode == "dynamic":
            return (
                "OpenVINO's CPU kernels take activations whose ranges are known; use static, or dynamic on "
                "onnxruntime or a torch engine"
            )
        return find_obstacle(mode, kind)

    def resolve(self, mode: str, recipe: Recipe) -> Recipe:
        """Every choice that was left open; NNCF chooses for itself where the framework's default is asked for."""
        return resolve_recipe(mode, recipe)

    def libraries(self) -> tuple[str, ...]:
        """What exports, quantizes and runs."""
        return (*EXPORTS, "onnxruntime", "openvino", "nncf")

    def build(self, job: BuildJob) -> Built:
        """Exports or quantizes, and reads the layers from the graph that OpenVINO executes."""
        from qbench.quant.onnx import openvino_operators

        with fp32_file(job) as source:
            openvino_operators.require_transforms(source)
            if job.mode == "fp32":
                return _fp32(job, source)
            own = job.mode == "static" and job.recipe.framework_default
            file = job.folder / (NNCF_FILE if own else FILE)
            if job.int8_file is not None:
                return _of_user(job, source, file)
            job.progress("quantize", 0.2)
            quantization = (
                _by_nncf(job, source, file) if own else quantize_network(job, source, file, runtime="openvino")
            )
            return _int8(job, source, file, quantization)

    def load(self, file: Path, *, threads: int) -> Runner:
        """The compiled model with that many threads on one stream."""
        return OpenVinoRunner(file, threads=threads)


def _fp32(job: BuildJob, source: Path) -> Built:
    """The file itself; its layers are those of the file as written."""
    from qbench.quant.artifacts import onnx_file, openvino_model
    from qbench.quant.onnx import onnxruntime_layers

    file = job.folder / FILE
    onnx_file.copy(source, file)
    openvino_model.require_repeatable(file, onnx_file.tile_batch(file, job.example))
    layers = onnxruntime_layers.layers(source, job.example, optimized=False)
    return Built(format="onnx", file=FILE, layers=layers, fixed_batch=onnx_file.fixed_batch(source))


def _of_user(job: BuildJob, source: Path, file: Path) -> Built:
    """The user's own int8 file; its layers are those of that file."""
    from qbench.quant.artifacts import openvino_model

    def run(path: Path, inputs: Inputs) -> Array:
        return openvino_model.run(openvino_model.compile_file(path), inputs)

    int8_file = own_int8_file.take_own_file(job, source, file)
    own_int8_file.require_outputs(job, source, file, run)
    return _int8(job, file, file, int8_file)


def _by_nncf(job: BuildJob, source: Path, file: Path) -> Made:
    from qbench.quant.artifacts import openvino_model

    openvino_model.quantize(source, file, job.calibration)
    return Made(notes=(NNCF_NOTE,))


def _int8(job: BuildJob, source: Path, file: Path, int8_file: Made) -> Built:
    """What was built, proven, with its layers as they ran."""
    from qbench.quant.analysis import quantized_range
    from qbench.quant.artifacts import onnx_file, openvino_model
    from qbench.quant.onnx import onnxruntime_layers, openvino_layers

    inputs = onnx_file.tile_batch(source, job.example)
    openvino_model.require_repeatable(file, inputs)
    expected = onnxruntime_layers.executed(source, job.example, optimized=False)
    reference = onnxruntime_layers.as_float(expected)
    return Built(
        format="onnx" if file.name == FILE else "openvino",
        file=file.name,
        layers=onnxruntime_layers.match(reference, openvino_layers.executed(file, inputs)),
        fixed_batch=onnx_file.fixed_batch(source),
        note="; ".join(int8_file.notes) or None,
        float_reasons=int8_file.float_reasons,
        rewrites=int8_file.rewrites,
        rewrite_difference=int8_file.rewrite_difference,
        input_ranges=quantized_range.range_of_onnx(file) if file.name == FILE else (),
    )


class OpenVinoRunner(Runner):
    """One compiled model and its only request. ``observed`` tells what the runtime made of the settings."""

    def __init__(self, file: Path, *, threads: int) -> None:
        from qbench.quant.artifacts import openvino_model

        self._before = frozenset(_threads())
        self._model = openvino_model.compile_file(file, threads=threads)
        self._request = self._model.create_infer_request()
        _confine(_threads(), self._before)

    def prepare(self, inputs: Inputs) -> dict[int, Any]:
        """The inputs as tensors that share the arrays' memory."""
        import numpy as np
        import openvino

        # Memory that is mapped for reading only cannot be shared: whole numbers come as they lie in the cache.
        arrays = (np.require(tensor, requirements=("C", "W")) for tensor in inputs)
        return {i: openvino.Tensor(array, shared_memory=True) for i, array in enumerate(arrays)}

    def __call__(self, prepared: dict[int, Any]) -> Any:
        """One inference."""
        return self._request.infer(prepared, share_inputs=True, share_outputs=True)

    def outputs(self, result: Any) -> Array:
        """The first output, copied: the request writes the next one over it."""
        array: Array = result[0].copy()
        return array

    def observed(self) -> dict[str, Any]:
        """Threads, streams, pinning and precision as the compiled model tells them, and where its threads may run.

        Raises ``MeasureError`` where one of them may run on a core that this process may not use: OpenVINO places
        threads by itself on some machines, whatever the affinity of the process.
        """
        property_of = self._model.get_property
        _require_inside(_threads(), self._before)
        return {
            "threads": int(property_of("INFERENCE_NUM_THREADS")),
            "interop_threads": int(property_of("NUM_STREAMS")),
            "provider": ", ".join(property_of("EXECUTION_DEVICES")),
            "pinned_by_runtime": bool(property_of("ENABLE_CPU_PINNING")),
            "inference_precision": str(property_of("INFERENCE_PRECISION_HINT").get_type_name()),
        }


def _threads() -> dict[int, set[int]]:
    """Thread of this process -> the cores that it may run on; empty where the system does not tell."""
    if not TASKS.is_dir() or not hasattr(os, "sched_getaffinity"):
        return {}
    counts = {}
    for task in TASKS.iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            counts[int(task.name)] = os.sched_getaffinity(int(task.name))
    return counts


def _outside(now: dict[int, set[int]], before: frozenset[int]) -> dict[int, set[int]]:
    """Thread -> its cores outside those of the process, for threads that came with the model; older ones are those of
    other libraries, and idle."""
    allowed = now.get(os.getpid(), set())
    return {task: cores - allowed for task, cores in now.items() if task not in before and not cores <= allowed}


def _confine(now: dict[int, set[int]], before: frozenset[int]) -> None:
    """Lets the model's threads run on the cores of the process only: they take after whichever thread makes them, which
    may be one that was there before the process was pinned."""
    for task in _outside(now, before):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.sched_setaffinity(task, now[os.getpid()])


def _require_inside(now: dict[int, set[int]], before: frozenset[int]) -> None:
    """Raises ``MeasureError`` where a thread of the model may leave the cores of the process."""
    outside = set().union(*_outside(now, before).values())
    if outside:
        raise MeasureError(
            f"OpenVINO lets threads run on the cores {', '.join(map(str, sorted(outside)))}, outside those of this "
            f"process ({', '.join(map(str, sorted(now[os.getpid()])))}): not measured, since it is another case"
        )


BACKEND = OpenVino()
