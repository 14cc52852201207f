"""Files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbench.files import atomic


def test_a_text_replaces_the_old_one_and_leaves_nothing_beside(tmp_path: Path) -> None:
    """Umlauts are UTF-8 and line feeds stay line feeds, whatever the system."""
    file = tmp_path / "a.txt"
    for text in ("old", "nëw\n"):
        atomic.write_text(file, text)
    assert file.read_bytes() == "nëw\n".encode()
    assert list(tmp_path.iterdir()) == [file]


def test_an_error_while_writing_keeps_the_old_file_and_leaves_nothing_beside(tmp_path: Path) -> None:
    """What was written so far is removed, and the error arrives as it was raised."""
    file = tmp_path / "a.txt"
    file.write_text("old")

    def write_half() -> None:
        with atomic.replace_file(file) as part:
            part.write_text("half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_half()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_error_of_a_folder_that_is_not_there_is_raised_as_it_is(tmp_path: Path) -> None:
    """Tidying up does not hide why a file could not be written."""
    with pytest.raises(FileNotFoundError):
        atomic.write_text(tmp_path / "nowhere" / "a.txt", "text")
