"""The start of a child process, where what it needs has been taken away meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.process import offspring, reaper, start


class Taken:
    """A process whose first starts fail, as where somebody removes the files of its server."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.left, self.starts = error, times, 0

    def start(self) -> None:
        """Fails as often as it was told to."""
        self.starts += 1
        if self.left:
            self.left -= 1
            raise self.error


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often the server of children was ended; the folder of all children is one that may be removed, and a second
    passes between two starts."""
    calls: list[str] = []
    own = offspring.Offspring(folder=tmp_path / "all", shares=True, mark="m", reaper=None, owner=0)
    monkeypatch.setattr(start, "offspring", lambda: own)

    def end_server() -> None:
        shutil.rmtree(own.folder, ignore_errors=True)
        calls.append("ended")

    monkeypatch.setattr(start, "_end_server", end_server)

    def sleep(seconds: float) -> None:
        assert seconds == 0.05

    monkeypatch.setattr(start, "time", SimpleNamespace(monotonic=lambda: float(len(calls)), sleep=sleep))
    monkeypatch.setattr(start, "multiprocessing", SimpleNamespace(set_forkserver_preload=lambda names: None))
    return calls


@pytest.mark.parametrize("error", [FileNotFoundError("socket"), ConnectionResetError("server"), EOFError()])
def test_a_server_that_was_taken_away_is_started_anew(ended: list[str], error: Exception, tmp_path: Path) -> None:
    """For some seconds, each time with a folder to lie in; what it was is told in the end."""
    late: Any = Taken(error, 4)
    start.start(late, fresh=False)
    assert (late.starts, len(ended)) == (5, 4)
    assert (tmp_path / "all").is_dir()
    never: Any = Taken(error, 99)
    with pytest.raises(type(error)):
        start.start(never, fresh=False)
    assert never.starts == 5


@pytest.mark.parametrize(("error", "fresh"), [(PermissionError("no"), False), (FileNotFoundError("python"), True)])
def test_what_no_other_server_mends_is_told_at_once(ended: list[str], error: Exception, fresh: bool) -> None:
    """Another error, or a process that has no server."""
    process: Any = Taken(error, 1)
    with pytest.raises(type(error)):
        start.start(process, fresh=fresh)
    assert (process.starts, ended) == (1, [])


def test_why_no_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder whose name is too long for a socket is named, with what to do; anything else has its own words."""
    monkeypatch.setattr(start.tempfile, "gettempdir", lambda: "/long")
    text = start.explain(OSError("AF_UNIX path too long"))
    assert text == "the path of the temporary folder, /long, is too long; set TMPDIR to a shorter one"
    assert start.explain(OSError("no more")) == "no more"
    assert start.explain(EOFError()) == "EOFError"


@pytest.mark.parametrize(("pid", "error"), [(None, None), (71, None), (71, FileNotFoundError("socket"))])
def test_the_server_is_ended_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, pid: int | None, error: Exception | None
) -> None:
    """Its socket may be gone already."""
    done: list[object] = []

    def stop() -> None:
        done.append("stopped")
        if error is not None:
            raise error

    monkeypatch.setattr(start.forkserver, "_forkserver", SimpleNamespace(_forkserver_pid=pid, _stop=stop))
    monkeypatch.setattr(start.reaper, "kill", done.append)
    start._end_server()
    assert done == ([] if pid is None else [71, "stopped"])


def test_the_server_begins_its_imports_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of its own module, with the variables of every child; where no server can be started, the first child
    tells."""
    done: list[object] = []

    def ensure_running() -> None:
        done.append((os.environ["OMP_NUM_THREADS"], os.environ[reaper.MARK]))
        raise OSError("no room for a process")

    own = offspring.Offspring(folder=Path("/folder"), shares=True, mark="m", reaper=None, owner=0)
    monkeypatch.setattr(start, "offspring", lambda: own)
    monkeypatch.setattr(start, "multiprocessing", SimpleNamespace(set_forkserver_preload=done.append))
    monkeypatch.setattr(start.forkserver, "ensure_running", ensure_running)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    start.start_server()
    assert done == [["qbench.process.preload"], ("1", "m")]
    process: Any = Taken(EOFError(), 0)
    start.start(process, fresh=False)
    assert done[2:] == [["qbench.process.preload"]]
    start.start(process, fresh=True)
    assert (process.starts, len(done)) == (2, 3)
