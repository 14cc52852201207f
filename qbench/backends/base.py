"""The contract of a backend: what runs a model, how it builds an artifact, and how it runs one.

``missing`` and ``why_not`` are asked while planning, so a backend's module imports no heavy library at top
level. ``build`` and ``load`` run in child processes.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from qbench.backends.program import Program
from qbench.errors import CaseSkipped
from qbench.models.base import Network, NetworkKind
from qbench.progress.callback import Progress, tell_nobody
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile, plan_watching, time_calls
from qbench.quant.flow import Conversion, Shared
from qbench.quant.recipe import Recipe

if TYPE_CHECKING:  # importing numpy costs 0.1 s, a third of what `qbench list` may take
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"
Inputs: TypeAlias = "tuple[Array, ...]"


@dataclass(frozen=True, kw_only=True)
class BuildJob:
    """Everything a backend needs to build a variant into ``folder``. ``calibration`` is preprocessed, one array
    per model input; ``training`` (inputs, labels or None) is there for QAT only."""

    network: Network
    mode: str
    recipe: Recipe
    calibration: Inputs
    training: tuple[Inputs, Array | None] | None
    folder: Path
    # Where an unfinished build of this very variant keeps what it can go on from (QAT: a checkpoint an epoch).
    checkpoints: Path | None = None
    # The folder at which the paths of the user's own Python files in the recipe start.
    base: Path | None = None
    # A file that builds of the same network on the same calibration data share: what decides it, and who writes it.
    shared: Shared | None = None
    # The user's own int8 file, which is the variant: nothing is quantized; and the engine that is named for it.
    int8_file: Path | None = None
    int8_engine: str | None = None
    # Whether the artifact is only to tell where its time goes (``Backend.watched_builds``).
    watched: bool = False
    progress: Progress = field(default=tell_nobody)

    @property
    def probes(self) -> Inputs:
        """A few preprocessed examples, on which an artifact must give what its module gives."""
        return tuple(array[:8] for array in self.calibration)

    @property
    def example(self) -> Inputs:
        """One preprocessed example, as a batch of 1."""
        return tuple(array[:1] for array in self.calibration)


@dataclass(frozen=True, kw_only=True)
class Built:
    """What a build left in its folder: ``file`` is the one that is shipped and whose bytes count; ``layers`` were read
    from that file while it ran, and ``uncounted`` says why not, where that failed; ``fixed_batch`` is the only batch
    size it takes (None: any); ``conversion`` is how it came about. ``expected``: the sha256 of its outputs on made-up
    inputs, taken once it is built: another process proves by it that it runs the same thing."""

    format: str
    file: str
    layers: tuple[Layer, ...]
    fixed_batch: int | None = None
    uncounted: str | None = None
    conversion: Conversion = field(default_factory=Conversion)
    expected: str = ""

    @property
    def note(self) -> str | None:
        """What a reader must know of it."""
        return "; ".join(self.conversion.notes) or None

    @property
    def macs(self) -> int | None:
        """Multiply-accumulates of one example; None where not all of them can be counted."""
        counted = [layer.macs for layer in self.layers if layer.macs is not None]
        return None if self.uncounted or len(counted) < len(self.layers) else sum(counted)


class Runner(ABC):
    """A loaded artifact. ``prepare`` is outside the timed region, calling is the timed region."""

    def context(self) -> AbstractContextManager[Any]:
        """What must hold around calls (for torch: inference mode); entered once, not per call."""
        return nullcontext()

    @abstractmethod
    def prepare(self, inputs: Inputs) -> Any:
        """The inputs in the runtime's own form."""

    @abstractmethod
    def __call__(self, prepared: Any) -> Any:
        """One inference."""

    @abstractmethod
    def outputs(self, result: Any) -> Array:
        """The first output of an inference as numpy, first axis = example."""

    def all_outputs(self, result: Any) -> tuple[Array, ...]:
        """All outputs of an inference, that of ``outputs`` first; a runtime that has no others need not say so."""
        return (self.outputs(result),)

    def digest(self, inputs: Inputs) -> str:
        """The sha256 of all outputs for these inputs, as 64 hex digits; called within ``context``."""
        import numpy as np

        outputs = self.all_outputs(self(self.prepare(inputs)))
        return hashlib.sha256(b"".join(np.ascontiguousarray(output).tobytes() for output in outputs)).hexdigest()

    @abstractmethod
    def observed(self) -> dict[str, Any]:
        """What is read back from the runtime itself: ``threads``, ``interop_threads``, ``engine`` or
        ``provider``, and what else it tells."""


class Backend(ABC):
    """What runs a model. ``runtime`` is the backend whose fp32 is the like-for-like baseline."""

    name: str
    runtime: str
    modes: tuple[str, ...]
    # How it makes int8 variants, its own way first; a recipe may ask for another of them.
    flows: tuple[str, ...] = ()
    # Whether its flows read a qconfig that the network's author gave it (``Recipe.qconfig``).
    own_qconfig: bool = False
    # Whether its framework's own recipe can be told to join in float what one scale cannot hold.
    float_joins: bool = True
    # The formats of the int8 files that it runs where the user brings them (``models.base.FileFormat``).
    int8_formats: tuple[str, ...] = ()
    # What loading an artifact imports: done before a measuring process is pinned, so that several start side by side.
    modules: tuple[str, ...] = ()

    @abstractmethod
    def missing(self) -> str | None:
        """Why this backend cannot be used on this machine and how to mend it; None if it can."""

    @abstractmethod
    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """Why this backend cannot build that mode from that kind of network; None if it can."""

    # Whether only an artifact that was built for it (``BuildJob.watched``) tells where its time goes.
    watched_builds = False
    # Whether its outputs are made up, and not those of a network.
    made_up = False
    # Whether an artifact holds machine code for the CPU that it was compiled for, in fp32, too.
    machine_code = False

    def why_not_for(self, cpu: str) -> str | None:
        """Why what it builds here does not run on a kind of CPU (``quant.target``); None if it does."""
        return None

    def resolve(self, mode: str, recipe: Recipe) -> Recipe:
        """The recipe with every choice that was left open (None) filled in."""
        return recipe

    @abstractmethod
    def libraries(self) -> tuple[str, ...]:
        """The distributions whose versions decide what a build gives (part of the cache key)."""

    def runtime_libraries(self) -> tuple[str, ...]:
        """Those of ``libraries`` that a process which runs its artifacts imports: another version changes what they
        take, though their bytes are the same."""
        imported = {module.partition(".")[0] for module in self.modules}
        return tuple(name for name in self.libraries() if name.replace("-", "_") in imported)

    def toolchain(self) -> str | None:
        """What else decides the bytes of an artifact, as it names itself: a compiler and its version."""
        return None

    def read_layers(self, job: BuildJob, file: Path) -> tuple[Layer, ...] | None:
        """The layers of a file that this backend built of the job's network before, read from what the runtime that is
        here makes of it; None where only a build tells."""
        return None

    @abstractmethod
    def build(self, job: BuildJob) -> Built:
        """Builds, saves, reloads and proves one variant; raises ``BuildError`` or ``CaseSkipped``."""

    @abstractmethod
    def load(self, file: Path, *, threads: int) -> Runner:
        """The artifact, ready to run with that many threads; thread counts are set and read back."""

    def compare_known_batch(self, file: Path, inputs: Inputs) -> float | None:
        """SQNR in dB of a file's answers where the runtime is told how many examples come, against those where it is
        not; None where it opens the file in one way alone. In a child process."""
        return None

    def deploy(self, file: Path, folder: Path, name: str) -> Program:
        """Puts an artifact's file into ``folder`` under a plain name; how the runtime runs it there without qbench.

        Raises ``CaseSkipped`` with the reason where it cannot be told."""
        raise CaseSkipped(f"the backend {self.name} does not say how its files run without qbench")

    def time_nodes(self, file: Path, inputs: Inputs, *, threads: int, calls: int) -> CallProfile:
        """Where the time of a call with these inputs goes, over that many calls; in a child process.

        Raises ``CaseSkipped`` with the reason where the runtime does not tell."""
        raise CaseSkipped(f"{self.name} does not tell where the time of a call goes")

    def watch(
        self, file: Path, inputs: Inputs, *, threads: int, seconds: float
    ) -> tuple[tuple[Layer, ...], CallProfile]:
        """The layers that multiplied, as they ran (none where the runtime does not tell them), and ``time_nodes`` over
        calls for about ``seconds``; without nodes where it does not tell those. In a child process."""
        runner = self.load(file, threads=threads)
        with runner.context():
            prepared = runner.prepare(inputs)
            plan = plan_watching(lambda: runner(prepared), seconds)
        try:
            return (), self.time_nodes(file, inputs, threads=threads, calls=plan.calls)
        except CaseSkipped:
            with runner.context():
                call_seconds = time_calls(lambda: runner(prepared), plan.calls, plan.warmups)
            return (), CallProfile(nodes=(), call_seconds=call_seconds, watched_seconds=call_seconds)
