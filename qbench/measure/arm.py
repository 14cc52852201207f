"""One arm of a measurement: a loaded artifact that is called in blocks; runs inside its own process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import child, registry
from qbench.backends.base import Inputs, Runner
from qbench.errors import MeasureError

Clock = Callable[[], int]
INPUTS = 8  # real examples in rotation: one input over and over would sit in the cache


@dataclass(frozen=True, kw_only=True)
class ArmSpec:
    """What to load and how: ``inputs`` are folders of examples (see ``qbench.inputs``)."""

    case: str
    backend: str
    file: Path
    threads: int
    batch_size: int
    cores: tuple[int, ...]
    inputs: Inputs


@dataclass(frozen=True, kw_only=True)
class ArmFacts:
    """What loading showed: seconds, resident bytes, and what was read back from the runtime and the system."""

    load_seconds: float
    first_call_seconds: float
    loaded_rss_bytes: int
    observed: dict[str, Any]


class LocalArm:
    """The session of a measuring process. Loading it pins, sets and reads back; ``block`` times calls."""

    def __init__(self, spec: ArmSpec, clock: Clock = time.perf_counter_ns) -> None:
        self._clock = clock
        self._spec = spec
        started = clock()
        self._runner: Runner = registry.load("backend", spec.backend).load(spec.file, threads=spec.threads)
        self._load_ns = clock() - started
        self._prepared = [self._runner.prepare(batch) for batch in batches(spec.inputs, spec.batch_size)]
        self._runner.context().__enter__()  # for the life of this process
        self._first_ns = int(self.block(1)[0])
        self._loaded_rss = resident_bytes()
        child.freeze_garbage_collector()

    def facts(self) -> ArmFacts:
        """What loading showed; raises ``MeasureError`` where something is not what was set."""
        observed = {**self._runner.observed(), **system_view()}
        require_as_set(observed, self._spec)
        return ArmFacts(
            load_seconds=self._load_ns / 1e9,
            first_call_seconds=self._first_ns / 1e9,
            loaded_rss_bytes=self._loaded_rss,
            observed=observed,
        )

    def block(self, calls: int) -> NDArray[np.int64]:
        """Nanoseconds of each of that many calls, one after the other."""
        return timed_calls(self._runner, self._prepared, calls, self._clock)

    def peak_rss_bytes(self) -> int | None:
        """The largest resident set of this process so far; None where the system does not tell."""
        return _status_bytes("VmHWM")


def timed_calls(runner: Callable[[Any], Any], prepared: list[Any], calls: int, clock: Clock) -> NDArray[np.int64]:
    """The timed region: nothing but the call lies between two readings of the clock."""
    count = len(prepared)
    seen = [0] * calls
    for i in range(calls):
        inputs = prepared[i % count]
        before = clock()
        runner(inputs)
        seen[i] = clock() - before
    return np.asarray(seen, dtype=np.int64)


def batches(inputs: Inputs, batch_size: int) -> list[Inputs]:
    """``INPUTS`` batches of real examples in rotation, reusing examples where there are too few."""
    n = len(inputs[0])
    made = []
    for i in range(INPUTS):
        index = np.arange(i * batch_size, (i + 1) * batch_size) % n
        made.append(tuple(np.ascontiguousarray(array[index]) for array in inputs))
    return made


def system_view() -> dict[str, Any]:
    """What the operating system and the thread pools say of this process: affinity, tasks, OpenMP threads."""
    import threadpoolctl

    affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    tasks = Path("/proc/self/task")
    pools = {
        f"{pool['internal_api']}:{Path(pool['filepath']).name}": pool["num_threads"]
        for pool in threadpoolctl.threadpool_info()
    }
    return {
        "affinity": affinity,
        "tasks": len(list(tasks.iterdir())) if tasks.is_dir() else None,
        "thread_pools": pools,
    }


def require_as_set(observed: dict[str, Any], spec: ArmSpec) -> None:
    """Raises ``MeasureError`` for the first thing that is not what was asked for."""
    expected = {"threads": spec.threads, "interop_threads": 1, "affinity": sorted(spec.cores), "spinning": False}
    for name, value in expected.items():
        found = observed.get(name)
        if found is not None and found != value:
            raise MeasureError(f"set {name} to {value} but {name} is {found}: not measured, since it is another case")


def resident_bytes() -> int:
    """The resident set of this process."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def _status_bytes(name: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith(f"{name}:")]
    return int(found[0][1]) * 1024 if found else None
