"""One worker of a measurement: a loaded artifact that is called in blocks; runs inside its own process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry
from qbench.backends.base import Inputs, Runner
from qbench.errors import MeasureError
from qbench.machine import denormals, half_floats, runtime
from qbench.machine.canary import Canary
from qbench.measure.samples import BlockTiming
from qbench.models.postprocess import Postprocess
from qbench.modes import HALVES, Precision
from qbench.process import child, threads

Clock = Callable[[], int]
Call = Callable[[Any], Any]
SUSPENDED_NS = 10_000_000  # the two clocks are read a microsecond apart; a suspend takes far longer
FIRST_CALLS = 5  # cold start: the first, and 2 to 5
_READ_BACK: Mapping[Precision, str] = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}  # as runtimes tell it
INPUTS = 8  # real examples in rotation: one input over and over would sit in the cache


@dataclass(frozen=True, kw_only=True)
class WorkerSpec:
    """What to load and how: ``inputs`` are preprocessed examples, one array per model input; ``environment`` are the
    variables of the case's host. ``flush_denormals``: arithmetic takes denormals as zero, which no run sets.
    ``precision``: the format in which floats are multiplied. ``postprocess`` is called with each call's outputs.

    ``versions``: what must have been imported in which version (None: not at all).

    ``slowdown`` records every call of a block as that share longer than it took (0.05: 5 % slower): for measuring how
    often a gate errs, never in a run. Work beside the call would leave the true change unknown: it takes its share, and
    its code slows the call that follows, too (by 0.4 to 1.0 % of 75 us, measured: 5 % were 5.5 to 6.1 %).
    """

    case: str
    backend: str
    file: Path
    threads: int
    batch_size: int
    cores: tuple[int, ...]
    inputs: Inputs
    slowdown: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str | None] = field(default_factory=dict)
    flush_denormals: bool = False
    precision: Precision = "fp32"
    postprocess: Postprocess | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerFacts:
    """What loading showed: seconds, resident bytes, and what was read back from the runtime and the system."""

    load_seconds: float
    first_call_seconds: float
    next_calls_seconds: tuple[float, ...]
    loaded_rss_bytes: int
    observed: dict[str, Any]


class LocalWorker:
    """The session of a measuring process. Loading it pins, sets and reads back; ``block`` times calls."""

    def __init__(self, spec: WorkerSpec, clock: Clock = time.perf_counter_ns) -> None:
        self._clock = clock
        self._spec = spec
        runtime.set_malloc(spec.environment)
        if spec.flush_denormals:  # before the runtime starts threads, which take it over
            denormals.flush(True)
        examples = batches(spec.inputs, spec.batch_size)
        started = clock()
        self._runner: Runner = registry.load("backend", spec.backend).load(spec.file, threads=spec.threads)
        self._call: Call = self._runner if spec.postprocess is None else _call_both(self._runner, spec.postprocess)
        first = self._runner.prepare(examples[0])  # a runtime may compile for a batch of that size
        self._load_ns = clock() - started
        if spec.flush_denormals:  # ONNX Runtime sets it back as the first session of a process opens
            denormals.flush(True)
        self._prepared = [first, *map(self._runner.prepare, examples[1:])]
        self._runner.context().__enter__()  # for the life of this process
        self._first_ns, _ = timed_calls(self._call, self._prepared, FIRST_CALLS, clock)
        self._canary = Canary()
        self._loaded_rss = resident_bytes()
        child.freeze_garbage_collector()

    def facts(self) -> WorkerFacts:
        """What loading showed; raises ``MeasureError`` where something is not what was set."""
        observed = {**self._runner.observed(), **system_view()}
        require_as_set(observed, self._spec)
        require_instructions(self._spec)
        require_versions(self._spec.versions)
        return WorkerFacts(
            load_seconds=self._load_ns / 1e9,
            first_call_seconds=float(self._first_ns[0]) / 1e9,
            next_calls_seconds=tuple(float(call) / 1e9 for call in self._first_ns[1:]),
            loaded_rss_bytes=self._loaded_rss,
            observed=observed,
        )

    def block(self, calls: int) -> BlockTiming:
        """That many calls, one after the other, and what the system and the host did to this process meanwhile."""
        read, alone = self._canary.read, self._spec.threads == 1
        canary_before = read()
        before, asleep, started = read_usage(), suspended_ns(), time.perf_counter_ns()
        processor = time.thread_time_ns if alone else no_clock
        calls_ns, processor_ns = timed_calls(self._call, self._prepared, calls, self._clock, processor)
        took, spent = time.perf_counter_ns() - started, read_usage().since(before)
        slept = suspended_ns() - asleep
        return BlockTiming(
            calls_ns=lengthen(calls_ns, self._spec.slowdown),
            processor_ns=lengthen(processor_ns, self._spec.slowdown) if alone and spent.waits == 0 else None,
            off_core=share_off_core(spent.processor_ns, took) if alone else None,
            involuntary=spent.involuntary,
            faults=spent.faults,
            suspended=slept > SUSPENDED_NS,
            canary_ns=(canary_before, read()),
        )

    def peak_rss_bytes(self) -> int | None:
        """The largest resident set of this process so far; None where the system does not tell."""
        return peak_rss_bytes()


def no_clock() -> int:
    """In place of a clock that tells nothing here: always 0."""
    return 0


def _call_both(runner: Runner, postprocess: Postprocess) -> Call:
    """A call of a network and of what makes answers of its outputs."""
    make_answers = postprocess.load()
    return lambda prepared: make_answers(runner.all_outputs(runner(prepared)), None)


def timed_calls(
    runner: Call, prepared: list[Any], calls: int, clock: Clock, processor: Clock = no_clock
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What each call took by the clock, and by that of the ``processor``. The timed region: nothing but the call lies
    between two readings of the clock; the processor's, a call of the system, is read outside of them. (The process's
    own processor clock moves in ticks of up to 4 ms where a limit of processor time is set, ``ulimit -t``, or a
    profiler's timer; a thread's does not.)"""
    count = len(prepared)
    durations, needed = [0] * calls, [0] * calls
    for i in range(calls):
        inputs = prepared[i % count]
        spent_before = processor()
        before = clock()
        runner(inputs)
        durations[i] = clock() - before
        needed[i] = processor() - spent_before
    return np.asarray(durations, dtype=np.int64), np.asarray(needed, dtype=np.int64)


def lengthen(durations: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """The durations as they would be of calls that take that share longer."""
    longer: NDArray[np.int64] = np.rint(durations * (1 + share)).astype(np.int64)
    return longer


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What this process has had so far, or in a time: nanoseconds of processors, involuntary context switches, waits
    (voluntary ones) and page faults; None where the system does not tell."""

    processor_ns: int
    involuntary: int | None = None
    waits: int | None = None
    faults: int | None = None

    def since(self, earlier: Usage) -> Usage:
        """What came after ``earlier``."""
        counts = {
            name: None if (now := getattr(self, name)) is None else now - getattr(earlier, name)
            for name in ("involuntary", "waits", "faults")
        }
        return Usage(processor_ns=self.processor_ns - earlier.processor_ns, **counts)


def read_usage() -> Usage:
    """Of this process so far."""
    try:
        import resource
    except ImportError:  # Windows
        return Usage(processor_ns=time.process_time_ns())
    resources = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(
        processor_ns=time.process_time_ns(),
        involuntary=resources.ru_nivcsw,
        waits=resources.ru_nvcsw,
        faults=resources.ru_minflt + resources.ru_majflt,
    )


def share_off_core(processor_ns: int, wall_ns: int) -> float | None:
    """The share of a time in which a process of one thread had no core: another one had it. None of no time."""
    return None if wall_ns <= 0 else min(max(1 - processor_ns / wall_ns, 0.0), 1.0)


def suspended_ns() -> int:
    """Nanoseconds that the machine has slept: by how much boot time is ahead of the clock that stops (Linux)."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime_ns(boot) - time.clock_gettime_ns(time.CLOCK_MONOTONIC) if boot is not None else 0


def batches(inputs: Inputs, batch_size: int) -> list[Inputs]:
    """``INPUTS`` batches of real examples in rotation, reusing examples where there are too few."""
    n = len(inputs[0])
    rotated = []
    for i in range(INPUTS):
        index = np.arange(i * batch_size, (i + 1) * batch_size) % n
        rotated.append(tuple(np.ascontiguousarray(array[index]) for array in inputs))
    return rotated


def system_view() -> dict[str, Any]:
    """What the operating system and the thread pools say of this process: affinity, tasks (the system's own count of
    its threads), threads of each pool, the library whose malloc is mapped, and whether this thread's arithmetic takes
    denormals as zero. None where the system does not tell (macOS has neither affinity nor /proc)."""
    affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "affinity": affinity,
        "tasks": threads.count_tasks(),
        "thread_pools": threads.read_pools(),
        "allocator": runtime.allocator_of_this_process(),
        "denormals_flushed": denormals.are_flushed(),
    }


def require_as_set(observed: dict[str, Any], spec: WorkerSpec) -> None:
    """Raises ``MeasureError`` for the first thing that is not what was asked for."""
    expected = {
        "threads": spec.threads,
        "interop_threads": 1,
        "affinity": sorted(spec.cores),
        "spinning": False,
        "denormals_flushed": spec.flush_denormals,
        "inference_precision": _READ_BACK[spec.precision],
        "compiled_batch_size": spec.batch_size,
    }
    for name, value in expected.items():
        actual = observed.get(name)
        if actual is not None and actual != value:
            raise MeasureError(f"set {name} to {value} but {name} is {actual}: not measured, since it is another case")


def require_instructions(spec: WorkerSpec) -> None:
    """Raises ``MeasureError`` where this CPU does not multiply the format: torch would convert each value, in silence.
    A file of 16-bit floats may have come here from another machine."""
    if spec.precision not in HALVES or registry.load("backend", spec.backend).made_up:
        return
    if (reason := half_floats.explain_missing(spec.precision)) is not None:
        raise MeasureError(f"{reason}: not measured, since it is another case")


def require_versions(versions: Mapping[str, str | None]) -> None:
    """Raises ``MeasureError`` for the first library of which another version is loaded than was asked for."""
    for name, version in versions.items():
        actual = read_loaded_version(name)
        if actual != version:
            raise MeasureError(f"asked for {name} {version}, but {actual} is loaded: not measured")


def read_loaded_version(name: str) -> str | None:
    """The version of the distribution that an imported module of its name came from; None where none did."""
    import importlib.metadata

    module = sys.modules.get(name)
    if module is None or module.__file__ is None:
        return None
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    return distribution.version if Path(module.__file__).is_relative_to(str(distribution.locate_file(""))) else None


def resident_bytes() -> int:
    """The resident set of this process."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak_rss_bytes(status: Path = Path("/proc/self/status")) -> int | None:
    """The largest resident set of this process so far, from /proc, else from getrusage (bytes on macOS)."""
    try:
        lines = [line.split() for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(lines[0][1]) * 1024 if lines else None
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
