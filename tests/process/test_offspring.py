"""What a process tells the one that ends its children, and how it ends itself."""

from __future__ import annotations

import dataclasses
import multiprocessing
import multiprocessing.util
import os
import select
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from qbench.process import offspring


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups here")
def test_the_end_is_over_when_it_returns(tmp_path: Path) -> None:
    """qbench that has ended has left nothing behind; a fork of it ends nothing of its parent's."""
    reaper = offspring._start(tmp_path, "a mark of no process")
    assert reaper is not None
    parents = offspring.Offspring(folder=tmp_path, shares=True, mark="", reaper=reaper, owner=os.getpid())
    dataclasses.replace(parents, owner=os.getppid()).end()
    assert reaper.poll() is None
    parents.end()
    assert reaper.returncode == 0


def test_a_childs_folder_is_its_own_and_nobody_elses_to_read(tmp_path: Path) -> None:
    """Also where a child has removed the one that holds them all."""
    here = offspring.Offspring(folder=tmp_path / "a/b", shares=True, mark="", reaper=None, owner=os.getpid())
    folders = [here.make_folder(), here.make_folder()]
    assert len({*folders}) == 2
    assert {folder.parent for folder in folders} == {here.folder}
    assert {folder.stat().st_mode & 0o777 for folder in (*folders, here.folder)} == {0o700}


def test_a_process_has_one() -> None:
    """Every child of it is told to the same."""
    assert offspring.offspring() is offspring.offspring()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups here")
def test_a_process_that_ends_waits_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it ends by itself, what it started is gone before it is."""
    registered: list[Callable[[], None]] = []
    monkeypatch.setattr(offspring.atexit, "register", registered.append)
    monkeypatch.setattr(offspring, "_current", None)
    current = offspring.offspring()
    offspring.offspring()
    (at_the_end,) = registered
    at_the_end()
    assert current.reaper is not None
    assert current.reaper.returncode == 0


def _be_killed(told: Connection) -> None:
    """What becomes of the folders where this process is killed: the reaper hears no more of it."""
    current = offspring.offspring()
    assert current.reaper is not None
    assert current.reaper.stdin is not None
    current.reaper.stdin.close()
    select.select([current.reaper.stdout], [], [])
    told.send(current.folder)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups here")
def test_a_folder_elsewhere_goes_with_a_process_that_is_killed(tmp_path: Path) -> None:
    """The reaper hears of it before it is used."""
    own, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    elsewhere.mkdir()
    reaper = offspring._start(own, "a mark of no process")
    assert reaper is not None
    ours = offspring.Offspring(folder=own, shares=True, mark="", reaper=reaper, owner=os.getpid())
    with reaper:
        ours.remove_at_the_end(elsewhere)
        assert reaper.stdin is not None
        reaper.stdin.close()
        select.select([reaper.stdout], [], [])
    assert not elsewhere.exists()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups here")
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_process_removes_no_folder_of_the_one_that_started_it(method: str) -> None:
    """A user's own process of multiprocessing has the temporary folder of its parent, which goes on using it; one
    within it is all that goes with the child."""
    parents = offspring.offspring().folder
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    child = context.Process(target=_be_killed, args=(there,))  # type: ignore[attr-defined]  # of every context
    child.start()
    childs = here.recv()
    child.join()
    assert parents.is_dir()
    assert childs.parent == parents
    assert not childs.exists()


def test_a_process_that_shares_takes_the_folder_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other has a new one in it, which nobody else reads."""
    top = tmp_path / "top"
    monkeypatch.setattr(multiprocessing.util, "get_temp_dir", lambda: str(top))
    assert offspring._find_folder(shares=True) == top
    assert not top.exists()
    own, another = (offspring._find_folder(shares=False) for _ in range(2))
    assert own != another
    assert {own.parent, another.parent} == {top}
    assert {folder.stat().st_mode & 0o777 for folder in (top, own)} == {0o700}


def test_without_process_groups_nothing_outlives_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reaper is started there, and nobody is told of folders or of the end."""
    monkeypatch.delattr(os, "killpg")
    assert offspring._start(tmp_path, "mark") is None
    alone = offspring.Offspring(folder=tmp_path, shares=True, mark="", reaper=None, owner=os.getpid())
    alone.remove_at_the_end(tmp_path)
    alone.end()
    assert tmp_path.is_dir()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups here")
@pytest.mark.parametrize("shares", [True, False])
def test_the_folder_of_a_process_that_shares_none_ends_with_it(tmp_path: Path, shares: bool) -> None:
    """That of multiprocessing it removes itself."""
    folder = tmp_path / "folder"
    folder.mkdir()
    reaper = offspring._start(folder, "a mark of no process")
    offspring.Offspring(folder=folder, shares=shares, mark="", reaper=reaper, owner=os.getpid()).end()
    assert folder.exists() is shares


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups here")
def test_the_reaper_is_a_process_that_no_qbench_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a session of its own, and without the mark of a qbench that has started this one."""
    started: list[Any] = []
    monkeypatch.setattr(offspring.subprocess, "Popen", lambda command, **options: started.append((command, options)))
    monkeypatch.setenv(offspring.reaper.MARK, "of a qbench above")
    monkeypatch.setenv("QBENCH_OF_ONE_CHILD", "1")
    offspring._start(tmp_path, "mark")
    ((command, options),) = started
    assert command[1:] == ["-I", "-S", offspring.reaper.__file__, str(tmp_path), "mark"]
    assert options["start_new_session"] is True
    assert offspring.reaper.MARK not in options["env"]
    assert options["env"]["QBENCH_OF_ONE_CHILD"] == "1"
