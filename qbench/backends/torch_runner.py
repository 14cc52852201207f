"""Runs TorchScript artifacts; shared by the backends of the torch runtime."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.backends.base import Array, Backend, BuildJob, Inputs, Runner
from qbench.backends.program import Program, copy_model
from qbench.process.threads import read_torch, set_torch

if TYPE_CHECKING:
    from qbench.quant.artifacts.node_profile import CallProfile

# What loading a TorchScript file imports.
MODULES = ("torch", "qbench.quant.pytorch.torch_ao", "qbench.quant.artifacts.torchscript")
MISSING = "torch is not installed; pip install 'torch>=2.13,<2.16', or qbench with the extra cpu: no CUDA"
# Outputs of two calls on one example, as a share of the largest: rounding is far below, dropout far above.
SAME = 1e-4


def torch_missing() -> str | None:
    """Why torch cannot be used, or None; torch is not imported."""
    if importlib.util.find_spec("torch") is None:
        return MISSING
    return None


def tensors(inputs: Inputs) -> tuple[Any, ...]:
    """The arrays as tensors of their own memory (a memory-mapped array is read-only, so it is copied)."""
    import torch

    return tuple(torch.from_numpy(array.copy()) for array in inputs)


def training_tensors(job: BuildJob) -> tuple[tuple[Any, ...], Any]:
    """The inputs that a job trains on, and its labels as losses take them; None in place of labels that it lacks."""
    import torch

    assert job.training is not None  # a job for QAT has it
    inputs, labels = job.training
    if labels is None:
        return tensors(inputs), None
    return tensors(inputs), torch.from_numpy(labels.astype("float32" if labels.dtype.kind == "f" else "int64"))


def one_example(job: BuildJob) -> tuple[Any, ...]:
    """The job's example as tensors; raises ``BuildError`` where the network does not take a batch of 1, or gives
    another answer at each call."""
    from qbench.quant import model_call

    example = tensors(job.example)
    model_call.of_one_example(job.network.module, example)
    model_call.require_repeatable(job.network.module, example=example, tolerance=SAME)
    return example


def save(module: Any, job: BuildJob, file: Path, *, tolerance: float | None = None) -> str | None:
    """Saves a module as TorchScript, proven on the job's probes to ``tolerance`` (None: that of fp32 and int8); a note
    where the trace froze decisions on values, which are then tried on the calibration examples, one at a time."""
    from qbench.quant.artifacts import torchscript

    allowed = torchscript.FREEZE_TOLERANCE if tolerance is None else tolerance
    return torchscript.save(module, tensors(job.probes), file, list_examples(job), tolerance=allowed)


def list_examples(job: BuildJob) -> Iterator[tuple[Any, ...]]:
    """The job's calibration examples as tensors, each a batch of 1."""
    return (tensors(tuple(array[i : i + 1] for array in job.calibration)) for i in range(len(job.calibration[0])))


class TorchScriptBackend(Backend):
    """A backend whose artifacts are TorchScript files, run by torch; int8 weights are packed for ``engine`` as they are
    loaded, so that it is set first (None: fp32)."""

    runtime = "torch"
    modules = MODULES
    engine: str | None = None

    def missing(self) -> str | None:
        """Whether torch is there."""
        return torch_missing()

    def libraries(self) -> tuple[str, ...]:
        """torch."""
        return ("torch",)

    def load(self, file: Path, *, threads: int) -> TorchScriptRunner:
        """The file on this engine with that many intra-op threads and one inter-op thread."""
        return TorchScriptRunner(file, threads=threads, engine=self.engine)

    def time_nodes(self, file: Path, inputs: Inputs, *, threads: int, calls: int) -> CallProfile:
        """By torch's profiler."""
        from qbench.quant.artifacts import torchscript_profile

        runner = self.load(file, threads=threads)
        return torchscript_profile.time_nodes(runner.module, tensors(inputs), calls=calls)

    def deploy(self, file: Path, folder: Path, name: str) -> Program:
        """One TorchScript file."""
        packed = () if self.engine is None else (f'torch.backends.quantized.engine = "{self.engine}"',)
        # From C++, where Python's filters do not see it: that later versions will not have int8 tensors. This one has.
        quiet = () if self.engine is None else ("import os", 'os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")')
        return Program(
            file=copy_model(file, folder, name),
            libraries=("torch",),
            imports=(*quiet, "import torch"),
            load=("torch.set_num_threads(THREADS)", *packed, "model = torch.jit.load(FILE)"),
            call=(
                "with torch.inference_mode():",
                "    outputs = model(*[torch.from_numpy(array) for array in arrays])",
                "return [output.numpy() for output in ([outputs] if torch.is_tensor(outputs) else outputs)]",
            ),
        )


class TorchRunner(Runner):
    """What runs on torch does so in inference mode."""

    def context(self) -> contextlib.AbstractContextManager[Any]:
        """Inference mode, as a deployed model runs."""
        import torch

        mode: contextlib.AbstractContextManager[Any] = torch.inference_mode()
        return mode


class SingleExampleRunner(TorchRunner):
    """One loaded artifact that takes batches of 1: ``run`` gives the outputs for the tensors of one example."""

    def __init__(self, run: Callable[[list[Any]], Sequence[Any]]) -> None:
        self._run = run

    def prepare(self, inputs: Inputs) -> list[list[Any]]:
        """The inputs of each example as tensors of a batch of 1."""
        whole = tensors(inputs)
        return [[tensor[i : i + 1] for tensor in whole] for i in range(len(whole[0]))]

    def __call__(self, prepared: list[list[Any]]) -> list[Any]:
        """One inference: an example after the other."""
        return [self._run(example) for example in prepared]

    def outputs(self, result: list[Any]) -> Array:
        """The first output as float numpy."""
        import torch

        array: Array = torch.cat([output[0] for output in result]).detach().numpy()
        return array

    def all_outputs(self, result: list[Any]) -> tuple[Array, ...]:
        """All outputs, those of an example after those of the one before; those without a row for it are left out."""
        import torch

        from qbench.quant import model_call

        columns = zip(*(model_call.list_tensors(output) for output in result), strict=True)
        return tuple(
            torch.cat(list(column)).detach().numpy() for column in columns if all(t.shape[:1] == (1,) for t in column)
        )


class TorchScriptRunner(TorchRunner):
    """One loaded TorchScript file; ``engine`` is None for fp32."""

    def __init__(self, file: Path, *, threads: int, engine: str | None) -> None:
        from qbench.quant.artifacts import torchscript
        from qbench.quant.pytorch import torch_ao

        set_torch(threads)
        if engine is not None:
            torch_ao.set_engine(engine)
        self._engine = engine
        self.module = torchscript.load(file)

    def prepare(self, inputs: Inputs) -> tuple[Any, ...]:
        """The inputs as tensors."""
        return tensors(inputs)

    def __call__(self, prepared: tuple[Any, ...]) -> Any:
        """One inference."""
        return self.module(*prepared)

    def outputs(self, result: Any) -> Array:
        """The first output as float numpy."""
        first = result[0] if isinstance(result, tuple | list) else result
        array: Array = first.detach().numpy()
        return array

    def all_outputs(self, result: Any) -> tuple[Array, ...]:
        """All outputs, those in tuples of tuples in their order."""
        from qbench.quant import model_call

        return tuple(tensor.detach().numpy() for tensor in model_call.list_tensors(result))

    def observed(self) -> dict[str, Any]:
        """Thread counts and engine as torch tells them."""
        import torch

        return {**read_torch(), "engine": torch.backends.quantized.engine if self._engine is not None else None}
