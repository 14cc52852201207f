"""Ray's processes are kept off the timed cores, and have them again however that ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from waiting import wait_until

from qbench.fleet import core_keeper, ray_load
from qbench.process import reaper

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="it takes two cores to move between",
)
# Its command line is what marks a process of Ray; it writes when it has moved the other, and waits to be killed.
MEASURE = """
import sys
from qbench.fleet.ray_load import keep_off
with keep_off((int(sys.argv[1]),)) as load:
    print(load.moved, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("sign", [None, signal.SIGKILL], ids=["ended", "killed"])
def test_cores_are_given_back_however_the_measurement_ends(sign):
    """A raylet that kept the few cores would start every later worker there, and its node would be of another class."""
    with subprocess.Popen([sys.executable, "-c", "input()", "ray::idle"], stdin=subprocess.PIPE) as raylet:
        wait_until(lambda: is_started(raylet.pid))
        before = os.sched_getaffinity(raylet.pid)
        with measure(min(before)) as measuring:
            assert int(measuring.stdout.readline()) >= 1
            assert min(before) not in os.sched_getaffinity(raylet.pid)
            if sign is None:
                measuring.communicate(b"\n")
            else:
                for pid in (*reaper.descendants(measuring.pid), measuring.pid):  # as Ray does
                    os.kill(pid, sign)
        wait_until(lambda: os.sched_getaffinity(raylet.pid) == before)
        raylet.communicate(b"\n")


def test_the_next_measurement_does_not_take_the_few_cores_for_all():
    """It begins while the killed one before it has not given the cores back yet, and waits for that."""
    with subprocess.Popen([sys.executable, "-c", "input()", "ray::idle"], stdin=subprocess.PIPE) as raylet:
        wait_until(lambda: is_started(raylet.pid))
        before = os.sched_getaffinity(raylet.pid)
        with measure(min(before)) as first:
            first.stdout.readline()
            with measure(max(before)) as second:
                first.kill()
                assert int(second.stdout.readline()) >= 1
                assert max(before) not in os.sched_getaffinity(raylet.pid)
                second.kill()
        wait_until(lambda: os.sched_getaffinity(raylet.pid) == before)
        raylet.communicate(b"\n")


def test_who_waits_too_long_for_the_cores_moves_nothing(tmp_path, monkeypatch):
    """Another run may measure for hours; this one goes on, and says that nothing was moved."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "input()", "ray::idle"], stdin=subprocess.PIPE) as raylet:
        wait_until(lambda: is_started(raylet.pid))
        before = os.sched_getaffinity(raylet.pid)
        with core_keeper.hold_lock(ray_load.find_lock(), 0.0) as is_held:
            assert is_held
            with ray_load.keep_off((min(before),), patience_seconds=0.1) as load:
                assert load.moved == 0
                assert os.sched_getaffinity(raylet.pid) == before
        raylet.communicate(b"\n")


def test_the_lock_is_nobody_elses_file_and_goes(tmp_path, monkeypatch):
    """A link that somebody laid in the folder of temporary files empties nothing, at no place of the path; then, as
    where the folder is open to others, nothing is locked. What was made is gone afterwards."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (target / "cores.lock").write_text("somebody's")
    lock = ray_load.find_lock()
    lock.parent.symlink_to(target)
    with core_keeper.hold_lock(lock, 0.0) as is_held:
        assert not is_held
    lock.parent.unlink()
    lock.parent.mkdir(mode=0o700)
    lock.symlink_to(target / "cores.lock")
    with core_keeper.hold_lock(lock, 0.0) as is_held:
        assert not is_held
    lock.unlink()
    lock.parent.chmod(0o755)
    with core_keeper.hold_lock(lock, 0.0) as is_held:
        assert not is_held
    lock.parent.rmdir()
    assert (target / "cores.lock").read_text() == "somebody's"
    with core_keeper.hold_lock(lock, 0.0) as is_held, core_keeper.hold_lock(lock, 0.0) as is_held_twice:
        assert (is_held, is_held_twice) == (True, False)
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("processes", "spent", "clock", "cores"),
    [
        ([7], [2.0, 5.0], [10.0, 12.0], 1.5),
        ([7], [5.0, 2.0], [10.0, 12.0], 0.0),
        ([], [0.0, 0.0], [10.0, 12.0], None),
        ([7], [2.0, 5.0], [10.0, 10.0], None),
    ],
    ids=["busy", "one has ended", "none", "at once"],
)
def test_what_ray_takes_is_processor_time_over_the_time_that_passed(processes, spent, clock, cores, monkeypatch):
    """In cores; a process that has ended takes its time with it, which is no negative share."""
    seconds, moments = iter(spent), iter(clock)
    monkeypatch.setattr(core_keeper, "list_processes", lambda: processes)
    monkeypatch.setattr(ray_load, "_keeper", lambda timed, patience: contextlib.nullcontext(3 if patience == 60 else 0))
    monkeypatch.setattr(ray_load, "_read_seconds", lambda given: next(seconds))
    monkeypatch.setattr(ray_load.time, "monotonic", lambda: next(moments))
    with ray_load.keep_off((0,)) as load:
        assert (load.cores, load.moved) == (None, 3)
    assert load.cores == cores


def test_without_affinities_nothing_is_moved_or_known(monkeypatch):
    """As on macOS."""
    monkeypatch.delattr(os, "sched_setaffinity")
    with ray_load.keep_off((0,)) as load:
        pass
    assert (load.cores, load.moved) == (None, 0)


def test_processor_time_is_that_of_the_processes_themselves():
    """As the system counts it, of each; of one that is gone there is none."""
    own = ray_load._read_seconds([os.getpid()])
    used = os.times()
    assert 0 < own <= used.user + used.system + 2 / os.sysconf("SC_CLK_TCK")
    assert ray_load._read_seconds([2**22 + 1]) == 0.0
    assert ray_load._read_seconds([os.getpid(), os.getpid()]) >= 2 * own


def measure(core):
    """Another process that times on a core."""
    return subprocess.Popen([sys.executable, "-c", MEASURE, str(core)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def is_started(pid):
    """Its command line is that of the program, no longer of what forked it."""
    return b"ray::idle" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_keeper_that_does_not_start_moves_nothing(monkeypatch):
    """It is a process in a session of its own: whoever ends this one's group leaves it to give the cores back."""
    started, open_process = [], subprocess.Popen

    def start(command, **options):
        started.append(options["start_new_session"])
        return open_process([sys.executable, "-c", "pass"], **options)

    monkeypatch.setattr(ray_load.subprocess, "Popen", start)
    with ray_load.keep_off((0,)) as load:
        assert load.moved == 0
    assert started == [True]


def test_processor_time_is_that_in_programs_and_in_the_kernel(monkeypatch, tmp_path):
    """The 14th and 15th field of proc(5), behind a name that may hold anything; not that of children."""
    fields = " ".join(["S", *map(str, range(1, 11)), "300", "50", "7000", "9000"])
    (tmp_path / "stat").write_text(f"7 (a) b) {fields}")
    monkeypatch.setattr(ray_load, "Path", lambda name: tmp_path / Path(name).name)
    monkeypatch.setattr(ray_load.os, "sysconf", lambda name: 100)
    assert ray_load._read_seconds([7]) == 3.5
    assert ray_load._read_seconds([7, 8]) == 7.0
    assert ray_load._read_seconds([]) == 0.0
