"""What a measuring process reads of itself, and what it refuses; in real processes: tests/measure/test_group.py."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from qbench.errors import MeasureError
from qbench.measure import worker
from qbench.measure.worker import WorkerSpec
from qbench.models.postprocess import Postprocess


def specify(**changes: Any) -> WorkerSpec:
    """A case of two threads on the cores 3 and 1."""
    values: dict[str, Any] = {"case": "a", "backend": "fake", "file": Path("m"), "threads": 2, "batch_size": 1}
    return WorkerSpec(**values | {"cores": (3, 1), "inputs": ()} | changes)


AS_SET = {
    "threads": 2,
    "interop_threads": 1,
    "affinity": [1, 3],
    "spinning": False,
    "denormals_flushed": False,
    "inference_precision": "f32",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threads", 1),
        ("interop_threads", 2),
        ("affinity", [1]),
        ("spinning", True),
        ("denormals_flushed", True),
        ("inference_precision", "bf16"),
    ],
)
def test_anything_that_is_not_as_set_is_another_case(name: str, value: Any) -> None:
    """Cores in any order; what is not told is not held against it."""
    worker.require_as_set(AS_SET, specify())
    worker.require_as_set(AS_SET | {name: None}, specify())
    worker.require_as_set({key: told for key, told in AS_SET.items() if key != name}, specify())
    with pytest.raises(MeasureError, match=f"^set {name} to .* but {name} is .*: not measured, since it is another"):
        worker.require_as_set(AS_SET | {name: value}, specify())


def test_a_cpu_that_does_not_multiply_the_format_is_another_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch would convert each value and say nothing; what is made up needs no instructions, and fp32 none of these."""
    monkeypatch.setattr(worker.half_floats, "explain_missing", lambda precision: f"no {precision} here")
    worker.require_instructions(specify(backend="torch"))
    worker.require_instructions(specify(backend="fake", precision="bf16"))
    with pytest.raises(MeasureError, match="^no bf16 here: not measured"):
        worker.require_instructions(specify(backend="torch", precision="bf16"))
    monkeypatch.setattr(worker.half_floats, "explain_missing", lambda precision: None)
    worker.require_instructions(specify(backend="torch", precision="bf16"))


def test_denormals_are_flushed_where_that_was_asked_for() -> None:
    """And only there."""
    worker.require_as_set(AS_SET | {"inference_precision": "bf16"}, specify(precision="bf16"))
    worker.require_as_set(AS_SET | {"denormals_flushed": True}, specify(flush_denormals=True))
    with pytest.raises(MeasureError, match="set denormals_flushed to True"):
        worker.require_as_set(AS_SET, specify(flush_denormals=True))


def test_a_case_is_neither_slowed_down_nor_flushed_unless_it_says_so() -> None:
    """No run sets either."""
    plain = specify()
    assert (plain.slowdown, plain.flush_denormals, plain.environment, plain.versions) == (0.0, False, {}, {})


@pytest.mark.parametrize(
    ("size", "first", "second", "last"),
    [
        (1, [0], [1], [2]),
        (2, [0, 1], [2, 3], [4, 0]),
        (7, [0, 1, 2, 3, 4, 0, 1], [2, 3, 4, 0, 1, 2, 3], [4, 0, 1, 2, 3, 4, 0]),
    ],
)
def test_batches_go_on_where_the_one_before_ended(size: int, first: Any, second: Any, last: Any) -> None:
    """Through all inputs of an example alike, from the start again at the end."""
    inputs = (np.arange(5), 10 * np.arange(5).reshape(5, 1))
    batches = worker.batches(inputs, size)
    assert len(batches) == 8
    assert [batch[0].tolist() for batch in batches[:3]] == [first, second, last]
    assert all(np.array_equal(10 * batch[0], batch[1][:, 0]) and batch[0].flags.c_contiguous for batch in batches)


def test_calls_that_take_a_share_longer_are_rounded() -> None:
    """To whole nanoseconds, of which half are even."""
    assert worker.lengthen(np.asarray([1000, 10, 30]), 0.05).tolist() == [1050, 10, 32]
    assert worker.lengthen(np.asarray([7]), 0.0).tolist() == [7]


@pytest.mark.parametrize(
    ("text", "peak"),
    [("Name:\tx\nVmPeak:\t   9000 kB\nVmHWM:\t   2048 kB\n", 2048 * 1024), ("Name:\tx\n", None)],
)
def test_the_peak_of_memory_is_what_the_system_says(tmp_path: Path, text: str, peak: Any) -> None:
    """The resident set, in bytes; None where its file has no such line."""
    (tmp_path / "status").write_text(text)
    assert worker.peak_rss_bytes(tmp_path / "status") == peak


@pytest.mark.parametrize(("platform", "peak"), [("darwin", 4096), ("linux", 4096 * 1024)])
def test_without_that_file_it_is_what_the_kernel_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, peak: int
) -> None:
    """In bytes on macOS, in KiB elsewhere; None where there is no such count."""
    usage = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=4096))
    monkeypatch.setitem(sys.modules, "resource", usage)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "platform", platform)
    assert worker.peak_rss_bytes(tmp_path / "none") == peak
    monkeypatch.setitem(sys.modules, "resource", None)  # type: ignore[arg-type]
    assert worker.peak_rss_bytes(tmp_path / "none") is None


def test_a_machine_that_slept_shows_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock that counts sleep is ahead of the one that does not; without it nothing is known."""
    clocks = {7: 1_500, time.CLOCK_MONOTONIC: 1_000}
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(time, "clock_gettime_ns", clocks.__getitem__)
    assert worker.suspended_ns() == 500
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    assert worker.suspended_ns() == 0


def test_the_version_of_a_library_is_that_of_what_was_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of that name from elsewhere has none, nor has one without a file or a distribution."""
    assert worker.read_loaded_version("numpy") == importlib.metadata.version("numpy")
    assert worker.read_loaded_version("no_such_library") is None
    monkeypatch.setitem(sys.modules, "numpy", SimpleNamespace(__file__=str(tmp_path / "numpy.py")))  # type: ignore[arg-type]
    assert worker.read_loaded_version("numpy") is None
    monkeypatch.setitem(sys.modules, "numpy", SimpleNamespace(__file__=None))  # type: ignore[arg-type]
    assert worker.read_loaded_version("numpy") is None
    monkeypatch.setitem(sys.modules, "mine", SimpleNamespace(__file__=str(tmp_path / "mine.py")))  # type: ignore[arg-type]
    assert worker.read_loaded_version("mine") is None


class Case:
    """A loaded case on a clock that only it moves: loading takes 7 ns, its first inputs 20 and each of the others 1,
    its calls as many as are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *calls: int) -> None:
        self.now, self.calls = 0, iter(calls)
        self.done: list[Any] = []
        self.prepared: list[Any] = []
        monkeypatch.setattr(worker.registry, "load", lambda kind, name: self)
        monkeypatch.setattr(worker.child, "freeze_garbage_collector", lambda: self.done.append("frozen"))
        monkeypatch.setattr(worker, "system_view", lambda: {"tasks": 3})
        monkeypatch.setattr(worker, "resident_bytes", lambda: 4096)
        monkeypatch.setattr(worker.denormals, "flush", lambda on: self.done.append(on))
        monkeypatch.setattr(worker.runtime, "set_malloc", lambda environment: self.done.append(dict(environment)))

    def load(self, file: Path, *, threads: int) -> Case:
        """Loads it."""
        self.done.append((file, threads))
        self.now += 7
        return self

    def prepare(self, batch: Any) -> Any:
        """As it is; a runtime may compile for the first."""
        self.now += 1 if self.prepared else 20
        self.prepared.append(batch[0].tolist())
        return batch

    def context(self) -> Any:
        """What is entered for the life of the process."""
        return SimpleNamespace(__enter__=lambda: self.done.append("entered"))

    def observed(self) -> dict[str, Any]:
        """What the runtime says."""
        return {"threads": 2, "engine": "fake"}

    def __call__(self, batch: Any) -> None:
        """One call."""
        self.now += next(self.calls)

    def open(self, **changes: Any) -> worker.LocalWorker:
        """The worker of the case."""
        spec = specify(inputs=(np.arange(3),), environment={"A": "1"}, **changes)
        return worker.LocalWorker(spec, clock=lambda: self.now)


def test_a_cold_start_is_the_load_the_first_call_and_the_next_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by itself, what is compiled for the first inputs in the load; what the runtime and the system say stands
    together."""
    case = Case(monkeypatch, 900, 500, 400, 300, 200)
    facts = case.open().facts()
    assert (facts.load_seconds, facts.first_call_seconds) == (27e-9, pytest.approx(9e-7))
    assert facts.next_calls_seconds == pytest.approx((5e-7, 4e-7, 3e-7, 2e-7))
    assert (facts.loaded_rss_bytes, facts.observed) == (4096, {"threads": 2, "engine": "fake", "tasks": 3})
    assert case.done == [{"A": "1"}, (Path("m"), 2), "entered", "frozen"]
    assert case.prepared == [[i % 3] for i in range(worker.INPUTS)]


def test_denormals_are_flushed_before_threads_start_and_after_a_session_set_them_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where that is asked for."""
    case = Case(monkeypatch, *[1] * 5)
    case.open(flush_denormals=True)
    assert case.done == [{"A": "1"}, True, (Path("m"), 2), True, "entered", "frozen"]


@pytest.mark.parametrize(("slept", "suspended"), [(0, False), (10_000_000, False), (10_000_001, True)])
def test_a_block_in_which_the_machine_slept_says_so(
    monkeypatch: pytest.MonkeyPatch, slept: int, suspended: bool
) -> None:
    """From ten milliseconds on: the two clocks are read a microsecond apart."""
    case = Case(monkeypatch, *[1] * 5, 30, 20)
    opened = case.open()
    asleep = iter((5, 5 + slept))
    monkeypatch.setattr(worker, "suspended_ns", lambda: next(asleep))
    timing = opened.block(2)
    assert (timing.calls_ns.tolist(), timing.suspended) == ([30, 20], suspended)
    assert timing.off_core is None  # of several threads nobody can say
    assert timing.canary_ns is not None


def test_a_timed_postprocess_belongs_to_each_call(tmp_path: Path) -> None:
    """It is given all outputs of the call, in their order."""
    (tmp_path / "mine.py").write_text("def fn(outputs): return outputs['a'] + outputs['b']\n")
    runner = SimpleNamespace(all_outputs=lambda result: (result, 10 * result))

    class Called(SimpleNamespace):
        def __call__(self, prepared: Any) -> Any:
            return prepared + 1

    postprocess = Postprocess(file=tmp_path / "mine.py", attribute="fn", timed=True, names=("a", "b"))
    call = worker._call_both(Called(**vars(runner)), postprocess)  # type: ignore[arg-type]
    assert call(np.zeros((2, 1))).tolist() == [[11], [11]]


def test_what_a_process_had_in_a_time_is_what_came_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the system's counts, both kinds of page faults together; what it does not tell stays unknown."""
    counts = SimpleNamespace(ru_nivcsw=4, ru_nvcsw=9, ru_minflt=30, ru_majflt=2)
    system = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: counts)
    monkeypatch.setitem(sys.modules, "resource", system)  # type: ignore[arg-type]
    monkeypatch.setattr(time, "process_time_ns", lambda: 700)
    before = worker.read_usage()
    assert before == worker.Usage(processor_ns=700, involuntary=4, waits=9, faults=32)
    after = worker.Usage(processor_ns=1000, involuntary=4, waits=12, faults=40)
    assert after.since(before) == worker.Usage(processor_ns=300, involuntary=0, waits=3, faults=8)
    monkeypatch.setitem(sys.modules, "resource", None)  # type: ignore[arg-type]
    told = worker.read_usage()
    assert told == worker.Usage(processor_ns=700)
    assert told.since(told) == worker.Usage(processor_ns=0)


@pytest.mark.parametrize(
    ("processor_ns", "wall_ns", "share"),
    [(5, 0, None), (5, -1, None), (250, 1000, 0.75), (1200, 1000, 0.0), (0, 1, 1.0)],
)
def test_the_share_without_a_core_lies_between_none_and_all(
    processor_ns: int, wall_ns: int, share: float | None
) -> None:
    """Clocks that tick apart make neither more nor less of it."""
    assert worker.share_off_core(processor_ns, wall_ns) == share


def test_a_system_without_affinity_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 1}, raising=False)
    assert worker.system_view()["affinity"] == [1, 3]
    monkeypatch.delattr(os, "sched_getaffinity")
    assert worker.system_view()["affinity"] is None


def test_another_version_of_a_library_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Than the one that was asked for, the first that differs is named; where none is asked for, none may be loaded."""
    loaded = {"a": "1.0", "b": "2.0", "c": None}
    monkeypatch.setattr(worker, "read_loaded_version", loaded.__getitem__)
    worker.require_versions({})
    worker.require_versions(loaded)
    for asked, told in (({"a": "1.0", "b": "2.1"}, "b 2.1, but 2.0"), ({"c": "1", "a": "2"}, "c 1, but None")):
        with pytest.raises(MeasureError, match=f"asked for {told} is loaded: not measured"):
            worker.require_versions(asked)
    with pytest.raises(MeasureError, match="asked for a None, but 1.0 is loaded"):
        worker.require_versions({"a": None})
