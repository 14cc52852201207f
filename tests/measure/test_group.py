"""Arms in real processes: pinned, read back, and each dying alone."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from qbench.backends import fake
from qbench.errors import CaseError, MeasureError
from qbench.measure import group, worker
from qbench.measure.group import RemoteWorker, cold_starts, measure_group
from qbench.measure.pairing import pair_samples
from qbench.measure.protocol import SequentialProtocol
from qbench.measure.race import Race
from qbench.measure.race_rules import Arm, RaceRules
from qbench.measure.worker import LocalWorker, Usage, WorkerSpec
from qbench.process import imports, threads
from qbench.process.child_process import Limits

CORE = sorted(os.sched_getaffinity(0))[-1]


def spec(tmp_path, case, seconds=1e-4, **changes):
    file = tmp_path / f"{case}.json"
    file.write_text(json.dumps({"seconds": seconds, "mode": "fp32"}))
    values = {"case": case, "backend": "fake", "file": file, "threads": 1, "batch_size": 1, "cores": (CORE,)}
    return WorkerSpec(**values | {"inputs": (np.zeros((3, 1, 8, 8), np.float32),)} | changes)


def paired(*cases):
    """One generation of every case beside the first, which is their fp32."""
    arms = [Arm(case=case, role="fp32" if case == cases[0] else "candidate", baseline=cases[0]) for case in cases]
    rules = RaceRules(everything=True, precision=0.5, least=1, most=1)
    return Race(arms=tuple(arms), rules=rules, clock=time.monotonic, rounds=6, warmup_seconds=0.0)


def test_a_group_is_measured_in_processes_of_its_own(tmp_path):
    """Contenders of known speed are found at that speed, pinned to their core, with memory and cold start."""
    base, contender = spec(tmp_path, "base", 1e-3), spec(tmp_path, "fast", 5e-4)
    results = measure_group(base, [contender], protocol=paired("base", "fast"), limits=Limits(seconds=60))
    ratio = np.exp(np.median(pair_samples(results["fast"].samples, results["base"].samples).log_ratios[0]))
    assert ratio == pytest.approx(0.5, rel=0.1)
    facts = results["fast"].facts[0]
    assert facts.observed["affinity"] == [CORE]
    assert facts.load_seconds >= 0
    assert facts.first_call_seconds >= 5e-4
    assert facts.loaded_rss_bytes > 10**6
    assert results["fast"].peak_rss_bytes >= facts.loaded_rss_bytes * 0.5


class Victim(RemoteWorker):
    """A worker that somebody kills as it is asked for a block."""

    def block(self, calls):
        os.kill(self._worker.pid, signal.SIGKILL)
        return super().block(calls)


def test_an_arm_that_is_killed_inside_a_round_ends_alone(tmp_path):
    """SIGKILL from outside ends that case with the signal's name; the others are measured to the end."""
    specs = [spec(tmp_path, name) for name in ("base", "victim", "other")]
    opened = {}

    def open_remote(worker_spec, **options):
        from qbench.measure.group import RemoteWorker

        opened[worker_spec.case] = (
            Victim(worker_spec, **options) if worker_spec.case == "victim" else RemoteWorker(worker_spec, **options)
        )
        return opened[worker_spec.case]

    protocol = paired("base", "victim", "other")
    results = measure_group(specs[0], specs[1:], protocol=protocol, limits=Limits(seconds=60), open_remote=open_remote)
    assert "SIGKILL" in str(results["victim"].error)
    assert results["other"].samples is not None
    assert results["base"].samples is not None


def test_an_arm_that_hangs_ends_alone(tmp_path):
    """A call that never returns is stopped at the limit."""
    slow = spec(tmp_path, "slow", seconds=3600)
    others = [slow, spec(tmp_path, "other")]
    protocol = paired("base", "slow", "other")
    results = measure_group(spec(tmp_path, "base"), others, protocol=protocol, limits=Limits(seconds=4))
    assert "took longer than 4 s" in str(results["slow"].error)
    assert results["other"].samples is not None


def test_a_file_that_cannot_be_loaded_ends_alone(tmp_path):
    """The error names what is wrong with it."""
    broken = spec(tmp_path, "broken")
    broken.file.write_text("{")
    results = measure_group(
        spec(tmp_path, "base"), [broken], protocol=SequentialProtocol(calls=5), limits=Limits(seconds=60)
    )
    assert isinstance(results["broken"].error, CaseError)
    assert results["base"].samples is not None


def test_what_differs_from_what_was_set_is_not_measured(tmp_path):
    """A mismatch of threads, affinity, spinning or the precision of floats is an error that names both values."""
    worker_spec = spec(tmp_path, "a")
    good = {"threads": 1, "interop_threads": 1, "affinity": [CORE], "spinning": False}
    worker.require_as_set(good, worker_spec)
    worker.require_as_set({**good, "affinity": None}, worker_spec)  # where the system cannot tell
    others = {"threads": 2, "interop_threads": 4, "affinity": [0, 1, 2], "spinning": True}
    for name, wrong in {**others, "inference_precision": "bf16"}.items():
        with pytest.raises(MeasureError, match=f"set {name} to .* but {name} is"):
            worker.require_as_set({**good, name: wrong}, worker_spec)


def test_a_library_of_another_version_than_was_asked_for_is_not_measured():
    """The version is that of what was imported, read from where it came from; one that is not imported has none."""
    import importlib.metadata

    worker.require_versions({"numpy": importlib.metadata.version("numpy"), "no_such_library": None})
    with pytest.raises(MeasureError, match=r"asked for numpy 1\.0, but \S+ is loaded"):
        worker.require_versions({"numpy": "1.0"})
    with pytest.raises(MeasureError, match=r"asked for no_such_library 1\.0, but None is loaded"):
        worker.require_versions({"no_such_library": "1.0"})


def test_the_timed_region_reads_the_clock_around_the_call_and_nothing_else():
    """With an injected clock that only calls move, each sample is exactly the call."""
    now = [0]

    def call(prepared):
        now[0] += prepared

    durations, processor_ns = worker.timed_calls(call, [1000, 2000, 3000], 7, lambda: now[0], lambda: now[0] // 2)
    assert durations.tolist() == [1000, 2000, 3000, 1000, 2000, 3000, 1000]
    assert processor_ns.tolist() == [500, 1000, 1500, 500, 1000, 1500, 500]
    assert not worker.timed_calls(call, [1000], 2, lambda: now[0])[1].any()


@pytest.mark.parametrize(("slowdown", "expected"), [(0.0, 500), (0.05, 525), (0.075, 538)])
def test_a_block_that_is_slowed_down_records_calls_that_share_longer(tmp_path, monkeypatch, slowdown, expected):
    """Exactly: nothing is done beside the call, so that nothing but the share differs from the block of an equal."""
    ticks = iter(range(0, 10**9, 500))
    monkeypatch.setattr(fake, "busy", lambda seconds: None)
    monkeypatch.setattr("qbench.process.child.freeze_garbage_collector", lambda: None)
    slowed = replace(spec(tmp_path, "a", cores=tuple(sorted(os.sched_getaffinity(0)))), slowdown=slowdown)
    local = LocalWorker(slowed, clock=lambda: next(ticks))
    assert local.block(3).calls_ns.tolist() == [expected] * 3
    assert local.facts().first_call_seconds == 5e-7


def test_an_injected_clock_serves_the_whole_arm(tmp_path, monkeypatch):
    """Load and first call are read from the same clock, without time passing."""
    ticks = iter(range(0, 10**9, 500))
    monkeypatch.setattr(fake, "busy", lambda seconds: None)
    monkeypatch.setattr("qbench.process.child.freeze_garbage_collector", lambda: None)
    local = LocalWorker(spec(tmp_path, "a", cores=tuple(sorted(os.sched_getaffinity(0)))), clock=lambda: next(ticks))
    facts = local.facts()
    assert (facts.load_seconds, facts.first_call_seconds) == (5e-7, 5e-7)
    assert local.block(3).calls_ns.tolist() == [500, 500, 500]
    assert facts.next_calls_seconds == (5e-7,) * 4


def test_a_block_tells_what_the_system_did(tmp_path, monkeypatch):
    """Time without the core, context switches and faults of the block itself, read before and after it."""
    monkeypatch.setattr("qbench.process.child.freeze_garbage_collector", lambda: None)
    local = LocalWorker(spec(tmp_path, "a", 1e-3, cores=tuple(sorted(os.sched_getaffinity(0)))))
    measured = local.block(3)
    assert 0 <= measured.off_core < 1
    assert measured.involuntary >= 0
    assert measured.faults >= 0
    assert not measured.suspended


@pytest.mark.parametrize(("waits", "told"), [(0, True), (1, False), (None, False)])
def test_the_processor_time_of_calls_that_wait_by_themselves_is_not_told(tmp_path, monkeypatch, waits, told):
    """A wait is no time that others took; where the system counts no waits, nobody knows."""
    monkeypatch.setattr("qbench.process.child.freeze_garbage_collector", lambda: None)
    local = LocalWorker(spec(tmp_path, "a", cores=tuple(sorted(os.sched_getaffinity(0)))))
    readings = iter([Usage(processor_ns=5, waits=3), Usage(processor_ns=9, waits=None if waits is None else 3 + waits)])
    monkeypatch.setattr(worker, "read_usage", lambda: next(readings))
    assert (local.block(2).processor_ns is not None) == told


UNDER_A_LIMIT = """
import pathlib, sys, time
import numpy
from qbench.backends import fake
from qbench.measure.worker import LocalWorker, WorkerSpec

def spin(seconds):  # reading the clock of the thread would move that of the process, too
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass

fake.busy = spin
file, core = pathlib.Path(sys.argv[1]), int(sys.argv[2])
inputs = (numpy.zeros((1, 1), numpy.float32),)
spec = WorkerSpec(case="a", backend="fake", file=file, threads=1, batch_size=1, cores=(core,), inputs=inputs)
block = LocalWorker(spec).block(9)
print(int(((block.processor_ns > 0) & (block.processor_ns <= block.calls_ns + 50_000)).sum()))
"""


def test_the_processor_time_of_a_call_is_fine_under_a_limit_of_processor_time(tmp_path):
    """With ``ulimit -t`` Linux moves the clock of the process in ticks of milliseconds, which are no time of a call."""
    (tmp_path / "a.json").write_text(json.dumps({"seconds": 3e-4, "mode": "fp32"}))
    limited = shlex.join([sys.executable, "-c", UNDER_A_LIMIT, str(tmp_path / "a.json"), str(CORE)])
    # A process takes the limit over as its parent forks it.
    assert subprocess.check_output(["bash", "-c", f"ulimit -t 100000; {limited}; true"], text=True).strip() == "9"


@pytest.mark.parametrize(
    ("cpu_ns", "wall_ns", "share"),
    [(900, 1000, 0.1), (1003, 1000, 0.0), (0, 1000, 1.0), (5, 0, None)],
)
def test_a_process_that_waits_for_its_core_is_seen(cpu_ns, wall_ns, share):
    """What of the time was no processor time of this process: another one had the core."""
    assert worker.share_off_core(cpu_ns, wall_ns) == pytest.approx(share)


def test_a_block_of_several_threads_does_not_tell_who_had_the_core(tmp_path, monkeypatch):
    """Its threads wait for each other, too."""
    monkeypatch.setattr("qbench.process.child.freeze_garbage_collector", lambda: None)
    two = replace(spec(tmp_path, "a", cores=tuple(sorted(os.sched_getaffinity(0)))), threads=2)
    assert LocalWorker(two).block(3).off_core is None


def test_a_block_tells_what_the_host_did(tmp_path, monkeypatch):
    """The canary is read just before and just after the calls of a block, outside of what is counted for it."""
    monkeypatch.setattr("qbench.process.child.freeze_garbage_collector", lambda: None)
    local = LocalWorker(spec(tmp_path, "a", cores=tuple(sorted(os.sched_getaffinity(0)))))
    story, readings = [], iter([5600, 9100])
    monkeypatch.setattr(local._canary, "read", lambda: story.append("canary") or next(readings))
    monkeypatch.setattr(worker, "read_usage", lambda: story.append("usage") or Usage(processor_ns=0))
    assert local.block(2).canary_ns == (5600, 9100)
    assert story == ["canary", "usage", "usage", "canary"]


def test_a_jump_of_boot_time_is_a_suspend(tmp_path, monkeypatch):
    """Boot time runs on while the machine sleeps; the clock of the calls does not."""
    monkeypatch.setattr("qbench.process.child.freeze_garbage_collector", lambda: None)
    local = LocalWorker(spec(tmp_path, "a", cores=tuple(sorted(os.sched_getaffinity(0)))))
    slept = iter([0, 5_000_000_000])
    monkeypatch.setattr(worker, "suspended_ns", lambda: next(slept))
    assert local.block(2).suspended
    monkeypatch.setattr(worker, "suspended_ns", lambda: 5_000_000_000)  # slept once, before
    assert not local.block(2).suspended


def test_cold_starts_are_processes_of_their_own(tmp_path):
    """As many as asked for, each loaded and called five times; the largest peak of their memory is told with them."""
    facts, peak = cold_starts(spec(tmp_path, "a"), 3, limits=Limits(seconds=60))
    assert [len(each.next_calls_seconds) for each in facts] == [4, 4, 4]
    assert peak >= 0.5 * max(each.loaded_rss_bytes for each in facts)


def test_openmp_variables_set_after_import_do_nothing():
    """The trap that read-back exists for: the number of threads stays what it was at import."""
    code = (
        "import torch, os; before = torch.get_num_threads(); os.environ['OMP_NUM_THREADS'] = str(before + 3); "
        "torch.randn(300, 300) @ torch.randn(300, 300); print(torch.get_num_threads() == before)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "True"


def test_onnxruntime_spins_unless_told_not_to():
    """The trap: its default is to spin; qbench's sessions are told not to, and the option is read back."""
    import onnxruntime

    from qbench.quant.onnx import onnxruntime_session

    key = "session.intra_op.allow_spinning"
    with pytest.raises(RuntimeError, match="allow_spinning"):  # not set: the runtime then spins
        onnxruntime.SessionOptions().get_session_config_entry(key)
    assert onnxruntime_session.session_options(1).get_session_config_entry(key) == "0"


def test_denormals_taken_as_zero_are_not_measured(tmp_path, monkeypatch):
    """Arithmetic that flushes denormals is another case: the arm that finds it refuses to be measured."""
    view = worker.system_view()
    assert view["denormals_flushed"] is False
    monkeypatch.setattr(worker, "system_view", lambda: {**view, "affinity": [CORE], "denormals_flushed": True})
    with pytest.raises(MeasureError, match="denormals_flushed"):
        LocalWorker(spec(tmp_path, "a")).facts()


def test_without_affinity_and_proc_what_is_unknown_is_null_and_measuring_works(tmp_path, monkeypatch):
    """On macOS there is neither: the facts say None, blocks are timed, and the peak of memory comes from getrusage."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(threads, "TASKS", tmp_path / "proc" / "self" / "task")
    monkeypatch.setattr("qbench.machine.runtime._MAPS", tmp_path / "proc" / "self" / "maps")
    monkeypatch.setattr("qbench.process.child.freeze_garbage_collector", lambda: None)
    local = LocalWorker(spec(tmp_path, "a"))
    observed = local.facts().observed
    assert (observed["affinity"], observed["tasks"], observed["allocator"]) == (None, None, None)
    assert len(local.block(3).calls_ns) == 3
    assert worker.peak_rss_bytes(tmp_path / "status") > 10**6


def test_an_outside_observer_sees_the_thread_that_is_told(tmp_path):
    """While an arm is alive, /proc of its process shows as many busy threads as its record: here one, on its core."""
    import psutil

    remotes = []

    def open_remote(worker_spec, **options):
        from qbench.measure.group import RemoteWorker

        remote = RemoteWorker(worker_spec, **options)
        remotes.append(remote)
        return remote

    class Watched(SequentialProtocol):
        def _alone(self, case, open_arm):
            opened = open_arm(case)
            opened.load()
            opened.block(200)
            process = psutil.Process(remotes[-1]._worker.pid)
            busy = [thread for thread in process.threads() if thread.user_time + thread.system_time > 0.1]
            affinity = process.cpu_affinity()
            opened.close()
            raise CaseError(f"{len(busy)} busy on {affinity}")

    base = spec(tmp_path, "base", 2e-3)
    results = measure_group(base, [], protocol=Watched(), limits=Limits(seconds=60), open_remote=open_remote)
    assert str(results["base"].error) == f"1 busy on [{CORE}]"


def test_a_case_with_import_cores_of_its_own_has_a_fresh_interpreter(tmp_path):
    """What others fork from has imported its libraries already; it says so by the process that it runs in."""
    base = spec(tmp_path, "base")
    named = spec(tmp_path, "named", environment=imports.name_cores((CORE,)))
    starters = {}

    class Traced(RemoteWorker):
        def load(self):
            import psutil

            super().load()
            guard = psutil.Process(self._worker.pid).parent()
            starters[self._worker._name] = guard.ppid()

    protocol = SequentialProtocol(warmup=1, calls=5)
    measured = measure_group(base, [named], protocol=protocol, limits=Limits(seconds=60), open_remote=Traced)
    assert measured["named"].samples is not None
    assert (starters["named"] == os.getpid(), starters["base"] == os.getpid()) == (True, False)


def test_fresh_processes_start_side_by_side_and_load_one_after_the_other(tmp_path):
    """All processes are started before the first one loads, and all have loaded before the first block."""
    told = []

    def open_remote(worker_spec, **options):
        from qbench.measure.group import RemoteWorker

        class Told(RemoteWorker):
            def load(self):
                told.append("load")
                super().load()

            def block(self, calls):
                told.append("block")
                return super().block(calls)

        told.append("start")
        return Told(worker_spec, **options)

    specs = [spec(tmp_path, name) for name in ("base", "a")]
    measure_group(specs[0], specs[1:], protocol=paired("base", "a"), limits=Limits(seconds=60), open_remote=open_remote)
    assert told[:7] == ["start"] * 3 + ["load"] * 3 + ["block"]


def test_batches_rotate_real_examples():
    """Eight batches of the asked size; too few examples are used again, none is invented."""
    inputs = (np.arange(5, dtype=np.float32).reshape(5, 1),)
    batches = worker.batches(inputs, 2)
    assert len(batches) == worker.INPUTS
    assert [batch[0].ravel().tolist() for batch in batches[:3]] == [[0, 1], [2, 3], [4, 0]]


def test_a_cold_start_is_forked_and_ends_also_where_it_fails(tmp_path, monkeypatch):
    """From the server, as the processes of a race are; one that said nothing of itself still had some memory."""
    opened = []

    class Started:
        def __init__(self, spec, *, limits, fresh):
            self.fresh, self.closed, self.peak_rss_bytes = fresh, False, 5 + len(opened)
            self.facts = None if len(opened) == 1 else f"facts {len(opened)}"
            opened.append(self)

        def load(self):
            if len(opened) == 4:
                raise CaseError("no memory")

        def close(self):
            self.closed = True

    monkeypatch.setattr(group, "RemoteWorker", Started)
    assert cold_starts(spec(tmp_path, "a"), 3, limits=Limits()) == (["facts 0", "facts 2"], 7)
    with pytest.raises(CaseError, match="no memory"):
        cold_starts(spec(tmp_path, "a"), 1, limits=Limits())
    assert [(each.fresh, each.closed) for each in opened] == [(False, True)] * 4
