"""The process that ends what a qbench leaves behind: whom it kills, by what it was told."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from qbench.process import reaper


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The groups that were killed; nothing is."""
    groups: list[int] = []
    monkeypatch.setattr(reaper.signal, "signal", lambda number, action: None)
    monkeypatch.setattr(reaper.os, "killpg", lambda group, number: groups.append(group), raising=False)
    monkeypatch.setattr(reaper, "marked", lambda setting: iter(()))
    return groups


def test_groups_that_have_not_ended_are_killed(killed: list[int], tmp_path: Path) -> None:
    """Those whose end was told are left alone: their number can be another process's by now."""
    reaper.main(io.StringIO(f"+71\n+72\n-71\n{reaper.ENDING}"), tmp_path, "mark")
    assert killed == [72]
    assert tmp_path.exists()


@pytest.mark.parametrize("last", ["", "+", "+1", "+123", "-7", "endi", "+ 9\n", "+-9\n", "\n"])
def test_a_line_that_is_cut_names_nobody(killed: list[int], tmp_path: Path, last: str) -> None:
    """+123 of +12345 is somebody else's group, and group 1 is every process of the machine."""
    reaper.main(io.StringIO(f"+71\n{last}"), tmp_path / "of a killed qbench", "mark")
    assert killed == [71]


def test_no_number_stands_for_all_processes(killed: list[int]) -> None:
    """killpg(0) kills the caller's own group, killpg(1) whatever there is."""
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
