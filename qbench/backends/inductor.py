"""The backend ``inductor``: AOTInductor packages (.pt2), fp32 and int8 by PT2E with torchao's X86InductorQuantizer."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbench.backends.base import Backend, BuildJob, Built, Inputs, Runner
from qbench.backends.open_choices import choose_ranges, find_without_ranges, make_room_for_sums
from qbench.backends.program import Program, copy_model
from qbench.backends.torch_quantize import prepare_fp32, quantize_network
from qbench.backends.torch_runner import SingleExampleRunner, one_example, tensors, torch_missing
from qbench.errors import BuildError
from qbench.machine import half_floats
from qbench.models.base import NetworkKind
from qbench.modes import FLOATS, HALVES, WEIGHT_ONLY, is_int8, precision_of
from qbench.process.threads import read_openmp, read_torch, set_torch
from qbench.quant.artifacts.node_profile import CallProfile
from qbench.quant.recipe import Recipe
from qbench.quant.target import oldest_march
from qbench.record.schema import TargetFacts

FILE = "model.pt2"
_X86 = ("x86_64", "AMD64")
# EfficientNet-Lite0, calibrated on 20 photos, 80 shifted and flipped ones against fp32: SQNR of the logits in dB with 8
# bits minmax 17.6, torchao's own default 17.5, histogram, mse, percentile and moving average 17.4 (all agree on each
# prediction); with 7 bits 15.8, histogram 16.2, mse 16.0. minmax calibrates in a third of the time of histogram.
_CALIBRATOR = "minmax"
_SINGLE = "compiled for single examples: a batch is answered one by one"
NOTE = f"machine code for this kind of CPU, {_SINGLE}"


class Inductor(Backend):
    """Compiled ahead of time, with frozen weights; loading needs no compiler."""

    name = "inductor"
    runtime = "inductor"
    modes = ("fp32", *HALVES, "dynamic", "static", "qat")
    flows = ("pt2e",)
    machine_code = True
    watched_builds = True
    modules = ("torch", "threadpoolctl", "qbench.quant.artifacts.aoti")

    def missing(self) -> str | None:
        """Whether torch and a C++ compiler are there."""
        compiler = _compiler()
        if shutil.which(compiler) is None:
            return f"AOTInductor needs a C++ compiler, and there is no '{compiler}'; install g++, or name one in CXX"
        return torch_missing()

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """torch.export needs the Python module; int8 needs torchao, and its kernels exist on x86; floats of 16 bits
        need a CPU that multiplies them."""
        if kind == "onnx":
            return "Inductor does not compile ONNX files; use the onnxruntime backend"
        if kind == "torchscript":
            return (
                "torch.export does not take TorchScript files; give the model's Python source as "
                "{python: file.py:factory}"
            )
        if (precision := precision_of(mode)) in HALVES:
            reason = half_floats.explain_missing(precision)
            return None if reason is None else f"{reason}: torch would convert every value; leave {mode} out here"
        if mode == WEIGHT_ONLY:
            return (
                "Inductor makes floats of weights of few bits when it freezes them: torchao's 8 bits give a package as "
                "large and as slow as fp32's; use onnxruntime or openvino"
            )
        if mode == "fp32":
            return None
        if platform.machine() not in _X86:
            return "PT2E's X86InductorQuantizer is for x86 only; use onednn, qnnpack or onnxruntime here"
        if importlib.util.find_spec("torchao") is None:
            return "torchao is not installed; pip install 'torchao>=0.18'"
        return None

    def why_not_for(self, cpu: str) -> str | None:
        """A package holds machine code."""
        if (cpu == "arm") == (platform.machine() not in _X86):
            return None
        return f"its package holds machine code for {platform.machine()}, which no other kind of CPU loads"

    def resolve(self, mode: str, recipe: Recipe) -> Recipe:
        """Every choice that was left open."""
        if recipe.target is None:  # compiled for an older CPU, a package is slower on this one
            recipe = replace(recipe, target=())
        if mode in FLOATS:
            return recipe
        recipe = replace(recipe, flow=recipe.flow or "pt2e", embeddings=None)  # no int8 tables in this flow
        if mode == "dynamic":
            per_channel = recipe.per_channel is not False
            room = make_room_for_sums(recipe)
            without = find_without_ranges(replace(recipe, per_channel=per_channel))
            if recipe.framework_default:
                return without
            return replace(without, reduce_range=room.reduce_range, narrow_weights=room.narrow_weights)
        if recipe.framework_default:
            return replace(find_without_ranges(recipe), per_channel=None)
        return choose_ranges(make_room_for_sums(recipe), mode, _CALIBRATOR)

    def libraries(self) -> tuple[str, ...]:
        """What exports, quantizes and generates the code."""
        return ("torch", "torchao")

    def toolchain(self) -> str | None:
        """The first line of what the C++ compiler says of its version."""
        try:
            version = subprocess.run(
                [_compiler(), "--version"], capture_output=True, text=True, check=False, timeout=60
            )
        except OSError:
            return None
        return version.stdout.partition("\n")[0] or None

    def build(self, job: BuildJob) -> Built:
        """Quantizes, compiles, packages, reloads, compares with what went in, reads the layers from the package."""
        from qbench.quant.artifacts import aoti, coverage, same_outputs, torchscript
        from qbench.quant.pytorch.half import to_half

        if reason := self.missing():
            raise BuildError(reason)
        example = one_example(job)
        reference, uncounted = torchscript.count_layers(job.network.module, example)
        file = job.folder / FILE
        converted = quantize_network(job, self.name, example) if is_int8(job.mode) else prepare_fp32(job, example)
        network, note, allowed = converted.module, None, same_outputs.TOLERANCE
        if (precision := precision_of(job.mode)) in HALVES:
            network, note = to_half(network, example, precision)
            allowed = torchscript.HALF_TOLERANCE
        job.progress("compile", 0.7)
        march = oldest_march(job.recipe.cpus)
        compiled = aoti.compile_package(network, example, file, march=march, watched=job.watched)
        original = job.network.module if job.mode == "fp32" else network
        overflow = aoti.require_equal(
            original, file, tensors(job.probes), saturates=converted.overflows, tolerance=allowed
        )
        layers = coverage.align_by_name(reference, compiled)
        if precision in HALVES:
            ran = aoti.watch_products(file, example)
            layers, uncounted = torchscript.find_proven(reference, network, example, ran)
        return Built(
            format="pt2",
            file=FILE,
            layers=layers,
            uncounted=uncounted,
            conversion=replace(
                converted.conversion.with_notes(*converted.conversion.notes, note, overflow, _note(march)),
                target=_target(job.recipe, converted.conversion.target, march),
            ),
        )

    def time_nodes(self, file: Path, inputs: Inputs, *, threads: int, calls: int) -> CallProfile:
        """By torch's profiler; of a batch the first example."""
        from qbench.quant.artifacts import aoti_profile

        set_torch(threads)
        return aoti_profile.time_nodes(file, [tensor[:1] for tensor in tensors(inputs)], calls=calls)

    def deploy(self, file: Path, folder: Path, name: str) -> Program:
        """The package, which answers one example a call."""
        return Program(
            file=copy_model(file, folder, name),
            libraries=("torch",),
            imports=("import torch", "import torch._inductor"),
            load=("torch.set_num_threads(THREADS)", "model = torch._inductor.aoti_load_package(FILE)"),
            call=(
                "with torch.inference_mode():",
                "    outputs = model(*[torch.from_numpy(array) for array in arrays])",
                "return [output.numpy() for output in ([outputs] if torch.is_tensor(outputs) else outputs)]",
            ),
            single=True,
        )

    def load(self, file: Path, *, threads: int) -> Runner:
        """The package with that many OpenMP threads; raises ``BuildError`` where its code demands another number."""
        return PackageRunner(file, threads=threads)


def _note(march: str | None) -> str:
    return NOTE if march is None else f"machine code for {march} and newer, {_SINGLE}"


def _target(recipe: Recipe, facts: TargetFacts | None, march: str | None) -> TargetFacts | None:
    """What is known of the target, with the CPU of the machine code; None where it is for this machine alone."""
    if not recipe.cpus:
        return None
    return replace(facts or TargetFacts(cpus=recipe.cpus), compiled_for=march)


def _compiler() -> str:
    return os.environ.get("CXX", "g++")


class PackageRunner(SingleExampleRunner):
    """One loaded package; its inputs are single examples."""

    def __init__(self, file: Path, *, threads: int) -> None:
        from qbench.quant.artifacts import aoti

        baked = aoti.read_threads(file)
        if baked - {threads}:
            raise BuildError(
                f"{file.name} was compiled for {', '.join(map(str, sorted(baked)))} threads, not {threads}; "
                "build it again with Inductor's cpp.dynamic_threads"
            )
        set_torch(threads)
        super().__init__(aoti.load(file).run)

    def observed(self) -> dict[str, Any]:
        """The largest number of threads that the OpenMP runtimes that the package may run on give a parallel region:
        its code and torch must share one, or a number set in torch would not reach the package."""
        torch_threads, openmp = read_torch(), read_openmp()
        return {
            **torch_threads,
            "threads": max([torch_threads["threads"], *openmp]),
            "engine": None,
            "openmp_runtimes": len(openmp),
        }


BACKEND = Inductor()
