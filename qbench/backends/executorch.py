"""The backend ``executorch``: programs (.pte) for XNNPACK's kernels, fp32 and int8 by PT2E with ExecuTorch's own
quantizer. People deploy them on phones and other ARM devices."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbench.backends.base import Backend, BuildJob, Built, Inputs, Runner
from qbench.backends.open_choices import choose_ranges, find_without_ranges
from qbench.backends.program import Program, copy_model
from qbench.backends.torch_quantize import prepare_fp32, quantize_network
from qbench.backends.torch_runner import SingleExampleRunner, one_example, tensors, torch_missing
from qbench.errors import BuildError
from qbench.models.base import NetworkKind
from qbench.modes import FLOATS, HALVES, WEIGHT_ONLY, is_int8
from qbench.process.threads import read_torch, set_torch
from qbench.quant.artifacts import executorch_program
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile
from qbench.quant.flow import Conversion
from qbench.quant.recipe import Recipe

FILE = "model.pte"
NOTE = "memory planned for single examples: a batch is answered one by one"
_CALIBRATOR = "minmax"  # within 0.3 dB of the others on EfficientNet-Lite0 (``pt2e_xnnpack``), and the quickest


class ExecuTorch(Backend):
    """XNNPACK's kernels in ExecuTorch's runtime."""

    name = "executorch"
    runtime = "executorch"
    modes = ("fp32", "dynamic", "static", "qat")
    flows = ("pt2e",)
    modules = executorch_program.MODULES

    def missing(self) -> str | None:
        """Whether torch and executorch are there."""
        if importlib.util.find_spec("executorch") is None:
            return "executorch is not installed; pip install 'executorch>=1.5', or qbench with the extra executorch"
        if importlib.util.find_spec("torchao") is None:
            return "torchao is not installed; pip install 'torchao>=0.18'"
        return torch_missing()

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """torch.export needs the Python module."""
        if kind == "onnx":
            return "ExecuTorch does not take ONNX files; use the onnxruntime backend"
        if kind == "torchscript":
            return (
                "torch.export does not take TorchScript files; give the model's Python source as "
                "{python: file.py:factory}"
            )
        if mode in HALVES or mode == WEIGHT_ONLY:
            return f"qbench builds no {mode} for ExecuTorch; use openvino, or leave {mode} out here"
        return None

    def resolve(self, mode: str, recipe: Recipe) -> Recipe:
        """Every choice that was left open."""
        if recipe.target is None:  # nothing is done for other CPUs: what their kernels answer was not seen
            recipe = replace(recipe, target=())
        if mode in FLOATS:
            return recipe
        recipe = replace(recipe, flow=recipe.flow or "pt2e", embeddings=None)  # no int8 tables in this flow
        if mode == "dynamic":
            return replace(find_without_ranges(recipe), per_channel=recipe.per_channel is not False)
        if recipe.framework_default:
            return replace(find_without_ranges(recipe), per_channel=None)
        chosen = choose_ranges(recipe, mode, _CALIBRATOR)
        return replace(chosen, reduce_range=False, narrow_weights=False)  # XNNPACK's bytes have 8 bits

    def libraries(self) -> tuple[str, ...]:
        """What exports, quantizes and runs."""
        return ("torch", "torchao", "executorch")

    def build(self, job: BuildJob) -> Built:
        """Quantizes, lowers, reloads, compares with what went in, reads the layers from what a call runs."""
        from qbench.quant.artifacts import coverage, same_outputs, torchscript

        if reason := self.missing():
            raise BuildError(reason)
        example = one_example(job)
        reference, unseen = torchscript.count_layers(job.network.module, example)
        file = job.folder / FILE
        converted = quantize_network(job, self.name, example) if is_int8(job.mode) else prepare_fp32(job, example)
        job.progress("lower", 0.7)
        products = executorch_program.lower(converted.module, example, file)
        executorch_program.set_threads(1)
        program = executorch_program.load_running(file, example)
        same_outputs.require(
            job.network.module if job.mode == "fp32" else converted.module,
            lambda inputs: program.forward(inputs)[0],
            tensors(job.probes),
            tolerance=same_outputs.TOLERANCE,
            title="the program",
        )
        (ran,) = executorch_program.watch_calls(file, example, calls=1)
        layers, uncounted = executorch_program.mark_layers(products, ran)
        return Built(
            format="pte",
            file=FILE,
            layers=coverage.align_by_name(reference, layers),
            uncounted=unseen or uncounted,
            conversion=_explain_floats(job.mode, layers, converted.conversion),
        )

    def time_nodes(self, file: Path, inputs: Inputs, *, threads: int, calls: int) -> CallProfile:
        """By the runtime's own record; of a batch the first example."""
        from qbench.quant.artifacts import executorch_profile

        executorch_program.set_threads(threads)
        return executorch_profile.time_nodes(file, tuple(tensor[:1] for tensor in tensors(inputs)), calls=calls)

    def deploy(self, file: Path, folder: Path, name: str) -> Program:
        """The program, which answers one example a call."""
        return Program(
            file=copy_model(file, folder, name),
            libraries=("torch", "executorch"),
            imports=(
                "import torch",
                "import executorch.kernels.quantized",
                "from executorch.extension.pybindings import _C as executorch_runtime",
            ),
            load=(
                "executorch_runtime._unsafe_reset_threadpool(THREADS)",
                "model = executorch_runtime._load_for_executorch(FILE)",
            ),
            call=(
                "tensors = [torch.from_numpy(array) for array in arrays]",
                "return [output.numpy() for output in model.forward(tensors)]",
            ),
            single=True,
        )

    def load(self, file: Path, *, threads: int) -> Runner:
        """The program with that many threads."""
        return ProgramRunner(file, threads=threads)


def _explain_floats(mode: str, layers: Sequence[Layer], conversion: Conversion) -> Conversion:
    """With a reason for layers of an int8 mode that ran in float though the quantizer took them."""
    floats = [layer for layer in layers if is_int8(mode) and not layer.int8]
    reasons = {layer.name: f"XNNPACK takes it in float only ({layer.operator})" for layer in floats}
    conversion = conversion.with_notes(*conversion.notes, NOTE)
    return replace(conversion, float_reasons={**reasons, **conversion.float_reasons})


class ProgramRunner(SingleExampleRunner):
    """One loaded program; its inputs are single examples."""

    def __init__(self, file: Path, *, threads: int) -> None:
        set_torch(threads)
        executorch_program.set_threads(threads)
        super().__init__(executorch_program.load(file).forward)

    def observed(self) -> dict[str, Any]:
        """The threads that ExecuTorch tells; torch computes nothing here."""
        return {**read_torch(), "threads": executorch_program.read_threads(), "engine": None}


BACKEND = ExecuTorch()
