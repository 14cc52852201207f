"""The process that ends what a qbench leaves behind: whom it kills, and how."""

from __future__ import annotations

import io
import signal
from pathlib import Path

import pytest

from qbench.process import reaper


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The signals that were sent, with the number of the process; a process with the mark hears SIGKILL alone."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(reaper.signal, "signal", lambda number, action: None)
    monkeypatch.setattr(reaper.os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(reaper.time, "sleep", lambda seconds: sent.append((0, seconds)))
    monkeypatch.setattr(reaper, "marked", lambda setting: iter(() if (71, signal.SIGKILL) in sent else (71,)))
    return sent


def test_what_has_the_mark_is_asked_to_end_before_it_is_killed(signals: list[tuple[int, int]], tmp_path: Path) -> None:
    """A guard that is killed could not end what is below it."""
    reaper.main(io.BytesIO(reaper.ENDING), tmp_path, "mark")
    assert signals == [(71, signal.SIGTERM), (0, 0.05)] * 40 + [(71, signal.SIGKILL), (0, 0.05)], "for two seconds"
    assert tmp_path.exists()


def test_what_is_not_killed_either_is_given_up(
    signals: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After two more seconds; its files are removed all the same. No Ctrl-C ends it before that."""
    heard: list[tuple[int, object]] = []
    monkeypatch.setattr(reaper.signal, "signal", lambda number, action: heard.append((number, action)))
    monkeypatch.setattr(reaper, "marked", lambda setting: iter((71,)))
    reaper.main(io.BytesIO(b""), tmp_path / "folder", "mark")
    assert [number for pid, number in signals if pid] == [signal.SIGTERM] * 40 + [signal.SIGKILL] * 40
    assert heard == [(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


@pytest.mark.parametrize("last", [b"", b"endi"])
def test_the_files_of_a_killed_qbench_are_removed(signals: list[tuple[int, int]], tmp_path: Path, last: bytes) -> None:
    """One that ends by itself says so, and removes its folder later; what it says can be cut."""
    folder = tmp_path / "of a killed qbench"
    folder.mkdir()
    reaper.main(io.BytesIO(last), folder, "mark")
    assert not folder.exists()


def test_named_folders_go_however_qbench_ends(signals: list[tuple[int, int]], tmp_path: Path) -> None:
    """They lie elsewhere, as those of a cluster on this machine do, and nobody else removes them."""
    folders = [tmp_path / name for name in ("one", "two", "own", "of others")]
    for folder in folders:
        folder.mkdir()
    messages = b"".join(bytes(folder) + reaper.SEPARATOR for folder in (tmp_path / "gone already", *folders[:2]))
    reaper.main(io.BytesIO(messages + reaper.ENDING), folders[2], "mark")
    assert set(tmp_path.iterdir()) == set(folders[2:])


def test_no_number_stands_for_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """killpg(0) kills the caller's own group, killpg(1) whatever there is."""
    killed: list[int] = []
    monkeypatch.setattr(reaper.os, "killpg", lambda group, number: killed.append(group))
    for group in (-5, 0, 1, 2):
        reaper.kill_group(group)
    assert killed == [2]


def test_descendants_are_found_without_a_look_at_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder of a process has its parent in ``stat``, behind a name that can hold anything; ``task`` is not needed,
    since a look at it makes reaping the process slow."""
    for pid, name, parent in ((7, "qbench", 1), (8, "a) R 1 (b", 7), (9, "python", 8), (10, "other", 1)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} {pid} 0\n")
    (tmp_path / "11").mkdir()  # it has ended meanwhile
    monkeypatch.setattr(reaper, "_PROC", tmp_path)
    assert reaper.descendants(7) == [8, 9]


def test_a_process_is_known_by_its_whole_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not by a part of another, nor one that keeps count of what is shared, or that is gone or another user's."""
    processes = {
        "7": (b"A=1\0MARK=me\0B=2", b"python"),
        "8": (b"MARK=me2\0XMARK=me", b"python"),
        "9": (b"MARK=me", b"python\0-c\0from multiprocessing.resource_tracker import main"),
        "10": (b"MARK=me", b""),
        "self": (b"MARK=me", b"python"),
    }
    for pid, (environment, command) in processes.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "environ").write_bytes(environment)
        (tmp_path / pid / "cmdline").write_bytes(command)
    (tmp_path / "11").mkdir()
    monkeypatch.setattr(reaper, "_PROC", tmp_path)
    assert sorted(reaper.marked(b"MARK=me")) == [7, 10]


def test_a_process_that_is_gone_or_another_users_is_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL where no other signal is named."""
    sent: list[tuple[int, int]] = []

    def kill(pid: int, number: int) -> None:
        sent.append((pid, number))
        raise ProcessLookupError if pid == 7 else PermissionError

    monkeypatch.setattr(reaper.os, "kill", kill)
    reaper.kill(7)
    reaper.kill(8, signal.SIGTERM)
    assert sent == [(7, signal.SIGKILL), (8, signal.SIGTERM)]
