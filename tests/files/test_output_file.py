"""Rules of qbench/files/output_file.py: a file that somebody asked for by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbench.errors import UsageError
from qbench.files import output_file


def test_the_folder_is_made(tmp_path: Path) -> None:
    """With its parents; one that is there stays as it is."""
    file = tmp_path / "a" / "b" / "page.html"
    for text in ("first", "second"):
        with output_file.place_for(file):
            file.write_text(text)
    assert file.read_text() == "second"


def test_what_hinders_is_said_with_the_name(tmp_path: Path) -> None:
    """A file where a folder is to be, while the folder is made; and whatever the system says of the file itself."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(UsageError, match=r"file/page\.html: cannot be written: (Not a directory|File exists)"),
        output_file.place_for(tmp_path / "file" / "page.html"),
    ):
        raise AssertionError("there is no place")
    (tmp_path / "page.html").mkdir()
    with (
        pytest.raises(UsageError, match=r"page\.html: cannot be written: Is a directory"),
        output_file.place_for(tmp_path / "page.html"),
    ):
        (tmp_path / "page.html").write_text("")
