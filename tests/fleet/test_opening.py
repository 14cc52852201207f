"""A run on a cluster as a process of its own, which is told to end."""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import wait_until

from qbench.errors import UsageError
from qbench.fleet import opening
from qbench.process import reaper

if importlib.util.find_spec("ray") is None:
    pytest.skip("a cluster needs Ray: pip install -e '.[cluster]'", allow_module_level=True)

SUITE = """
suite: ended
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [fp32], backends: [onnxruntime]}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc, which Linux has")
def test_sigterm_ends_a_run_with_everything_on_its_nodes(tmp_path: Path) -> None:
    """Exit code 143 and how to go on; no process of qbench or Ray and no temporary folder is left. Ctrl-C does not
    break that off."""
    (tmp_path / "ended.yaml").write_text(SUITE)
    temporary, mark = tmp_path / "t", secrets.token_hex(16)
    temporary.mkdir()
    own = {"QBENCH_CACHE": str(tmp_path / "cache"), "TMPDIR": str(temporary), "QBENCH_TEST": mark}
    command = [sys.executable, "-m", "qbench", "run", "ended.yaml", "--on", "local-cluster"]
    running = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **own}, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: any(tmp_path.glob("cache/locks/user-*")) or running.poll() is not None)  # its stages begin
        processes = list(reaper.marked(f"QBENCH_TEST={mark}".encode()))
        running.send_signal(signal.SIGTERM)
        wait_until(lambda: any(not Path(f"/proc/{pid}").exists() for pid in processes))
        running.send_signal(signal.SIGINT)
        _, messages = running.communicate(timeout=60)
    finally:
        if running.poll() is None:  # it hangs: the next tests are not to see it
            running.kill()
            running.communicate()
    assert running.returncode == 143, messages
    assert "qbench run ended.yaml --on local-cluster --resume" in messages
    assert len(processes) > 5
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes))
    assert list(reaper.marked(f"QBENCH_TEST={mark}".encode())) == []
    assert [path.name for path in temporary.iterdir() if path.name.startswith(("qb-", "pymp-"))] == []


class PretendedFleet:
    """Admits what it is told to; its watch lasts until it is cancelled."""

    refused: tuple[str, ...] = ()
    has_nodes = True
    home: Any = None
    classes: tuple[Any, ...] = ()
    last: PretendedFleet

    def __init__(self, *, ray: Any, root: Path, own: Any, note: Callable[[str], None]) -> None:
        self.note, self.ended, self.watching = note, threading.Event(), threading.Event()
        self.own = own
        PretendedFleet.last = self

    def watch(self) -> None:
        self.watching.set()
        self.ended.wait(30)
        self.watching.clear()

    def admit_nodes(self) -> tuple[str, ...]:
        return self.refused

    def form_classes(self) -> tuple[str, ...]:
        return ("n9 is of two kinds",)

    def cancel(self) -> None:
        self.ended.set()


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> type[PretendedFleet]:
    """A kind of fleet that asks no cluster."""
    kind = type("Pretended", (PretendedFleet,), {})
    monkeypatch.setattr(opening, "Fleet", kind)
    monkeypatch.setattr(opening.engine, "connect", lambda on, root: nullcontext())
    monkeypatch.setattr(opening.nodes, "read_facts", lambda **facts: facts)
    return kind


def form(label: str, cores: int, nodes: int) -> SimpleNamespace:
    """A class of so many nodes."""
    return SimpleNamespace(label=label, cores=cores, nodes=[SimpleNamespace(cpu="a CPU")] * nodes)


def test_a_fleet_tells_its_classes_and_is_watched_until_it_ends(pretended: Any, tmp_path: Path) -> None:
    """And no longer: nothing of it goes on behind the run."""
    notes: list[str] = []
    pretended.classes = (form("zen4", 8, 1), form("spr", 4, 2))
    pretended.home = pretended.classes[1]
    with opening.open_fleet("ray", tmp_path, notes.append) as fleet:
        assert PretendedFleet.last.watching.wait(30)
        assert fleet is PretendedFleet.last
    assert not PretendedFleet.last.watching.is_set()
    assert notes == [
        "n9 is of two kinds",
        "ray:zen4: 1 node, 8 cores each, a CPU",
        "ray:spr: 2 nodes, 4 cores each, a CPU (like this machine: native)",
    ]
    pretended.home = None
    with opening.open_fleet("ray", tmp_path, notes.append):
        pass
    assert notes[-1] == "no node is like this machine: what is native runs here"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"refused": ("a: old", "b: busy")}, "^--on ray: a: old\n--on ray: b: busy$"),
        ({"has_nodes": False}, "^--on ray: no node of the cluster offers itself to qbench; start nodes with"),
    ],
)
def test_a_fleet_whose_nodes_cannot_work_is_not_opened(
    pretended: Any, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    """Every node that cannot is named, and what was begun on the others ends."""
    for name, value in changes.items():
        setattr(pretended, name, value)
    with pytest.raises(UsageError, match=words), opening.open_fleet("ray", tmp_path, lambda text: None):
        pass
    assert PretendedFleet.last.ended.is_set()
    assert not PretendedFleet.last.watching.is_set()


def test_the_watch_holds_no_process_open_and_has_a_minute_to_end(
    pretended: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the cluster may hang; this machine is no node of its own."""
    done: list[Any] = []

    class Watcher:
        def __init__(self, *, target: Any, name: str, daemon: bool) -> None:
            done.append((name, daemon))

        def start(self) -> None:
            done.append("started")

        def is_alive(self) -> bool:
            return "started" in done

        def join(self, seconds: float) -> None:
            assert PretendedFleet.last.ended.is_set()
            done.append(seconds)

    monkeypatch.setattr(opening.threading, "Thread", Watcher)
    with opening.open_fleet("ray", tmp_path, lambda text: None):
        assert PretendedFleet.last.own == {"name": "", "address": "here", "label": None, "niceness": 0}
    assert done == [("fleet-watch", True), "started", 60.0]
    done.clear()
    pretended.refused = ("a: old",)
    with pytest.raises(UsageError), opening.open_fleet("ray", tmp_path, lambda text: None):
        pass
    assert done == [("fleet-watch", True)]
