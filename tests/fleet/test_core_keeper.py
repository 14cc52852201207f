"""Ray's processes are found by their command lines, moved off the timed cores, and moved back at the end. No process is
moved here: the system's calls are stood in for. What really happens: tests/fleet/test_ray_load.py."""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path

import pytest

from qbench.fleet import core_keeper

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system pins no process")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of four cores with three processes, two of which are Ray's; the affinities of their threads."""
    commands = {10: b"/usr/bin/python\0ray::Agent\0", 11: b"bash\0", 12: b"/x/ray/core/src/ray/raylet/raylet\0"}
    threads = {10: (10, 100), 11: (11,), 12: (12,)}
    for pid, command in commands.items():
        for thread in threads[pid]:
            (tmp_path / str(pid) / "task" / str(thread)).mkdir(parents=True)
        (tmp_path / str(pid) / "cmdline").write_bytes(command)
    (tmp_path / "self").mkdir()
    (tmp_path / "13").mkdir()  # it has just ended
    affinities = {10: {0, 1, 2, 3}, 100: {0, 1}, 11: {0, 1, 2, 3}, 12: {0, 1, 2, 3}}

    def set_affinity(thread, cores):
        if thread == 100:
            raise PermissionError
        affinities[thread] = set(cores)

    monkeypatch.setattr(core_keeper, "PROC", tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: affinities[thread])
    monkeypatch.setattr(os, "sched_setaffinity", set_affinity)
    return affinities


class Input:
    """The input of the keeper, which looks at the machine as it ends."""

    def __init__(self, look):
        self.look, self.seen = look, None

    def read(self):
        self.seen = self.look()
        return ""


def keep(tmp_path, monkeypatch, affinities, timed):
    """What the keeper wrote, and the affinities while it held."""
    ending, output = Input(lambda: dict(affinities)), io.StringIO()
    monkeypatch.setattr(sys, "stdin", ending)
    monkeypatch.setattr(sys, "stdout", output)
    core_keeper.main(str(tmp_path / "lock" / "cores.lock"), timed, 0.0)
    return output.getvalue(), ending.seen


def test_the_processes_of_ray_are_known_by_their_command_lines(machine):
    """Of all that run; one that ends meanwhile is none."""
    assert sorted(core_keeper.list_processes()) == [10, 12]


def test_what_may_be_moved_is_off_the_timed_cores_until_the_input_ends(machine, tmp_path, monkeypatch):
    """It says how many threads that were; each gets back the cores that it had."""
    before = dict(machine)
    told, meanwhile = keep(tmp_path, monkeypatch, machine, {2, 3})
    assert told == "2\n"
    assert meanwhile == {**before, 10: {0, 1}, 12: {0, 1}}
    assert machine == before
    assert not (tmp_path / "lock").exists()


def test_where_every_core_is_timed_nothing_is_moved(machine, tmp_path, monkeypatch):
    """There is nowhere to go."""
    before = dict(machine)
    assert keep(tmp_path, monkeypatch, machine, {0, 1, 2, 3}) == ("0\n", before)


def test_without_the_lock_nothing_is_moved(machine, tmp_path, monkeypatch):
    """Another run has moved them already: the few cores would be taken for all that they have."""
    before = dict(machine)
    with core_keeper.hold_lock(tmp_path / "lock" / "cores.lock", 0.0) as is_held:
        assert is_held
        assert keep(tmp_path, monkeypatch, machine, {3}) == ("0\n", before)


def test_the_lock_is_waited_for_as_long_as_was_said(tmp_path, monkeypatch):
    """Looked at every twentieth of a second; it is had as soon as the other one leaves it."""
    file, slept, left = tmp_path / "lock" / "cores.lock", [], []
    with core_keeper.hold_lock(file, 0.0):
        now = iter((0.0, 1.0, 2.0, 2.1))
        monkeypatch.setattr(core_keeper.time, "monotonic", lambda: next(now))
        monkeypatch.setattr(core_keeper.time, "sleep", slept.append)
        with core_keeper.hold_lock(file, 2.0) as is_held:
            assert not is_held
        assert slept == [0.05, 0.05]
    other = core_keeper.hold_lock
    monkeypatch.setattr(core_keeper.time, "monotonic", lambda: 0.0)
    with core_keeper.hold_lock(file, 0.0):
        left.append(file)
        monkeypatch.setattr(core_keeper.time, "sleep", lambda seconds: left.pop().unlink())
        with other(file, 1.0) as is_held:
            assert is_held


def test_a_lock_that_fails_within_is_let_go(tmp_path):
    """Its file and folder are gone; the folder and the file were this user's alone."""
    file = tmp_path / "lock" / "cores.lock"

    def fail():
        with core_keeper.hold_lock(file, 0.0) as is_held:
            assert is_held
            assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not file.parent.exists()


def test_a_folder_that_goes_again_and_again_ends_the_attempts(tmp_path, monkeypatch):
    """Somebody removes it each time before the file is made in it: no lock, and no endless loop."""
    opened = []

    def open_file(*words):
        opened.append(words)
        raise FileNotFoundError

    monkeypatch.setattr(core_keeper.os, "open", open_file)
    with core_keeper.hold_lock(Path(tmp_path / "lock" / "cores.lock"), 0.0) as is_held:
        assert not is_held
    assert len(opened) == 100


def test_a_folder_of_another_user_is_no_place_for_a_lock(tmp_path, monkeypatch):
    """Its owner could take what is in it away; nothing of it is left open either."""
    (tmp_path / "lock").mkdir(mode=0o700)
    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(os, "getuid", lambda: (tmp_path / "lock").stat().st_uid + 1)
    with core_keeper.hold_lock(tmp_path / "lock" / "cores.lock", 0.0) as is_held:
        assert not is_held
    monkeypatch.undo()
    with core_keeper.hold_lock(tmp_path / "lock" / "cores.lock", 0.0) as is_held:
        assert is_held
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_system_that_does_not_count_its_cores_has_one(machine, tmp_path, monkeypatch):
    """There is nowhere to go from it."""
    before = dict(machine)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert keep(tmp_path, monkeypatch, machine, {0}) == ("0\n", before)
