"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import filelock
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


@pytest.mark.parametrize(
    ("code", "name", "said"),
    [
        (errno.ENOSPC, None, "a.txt"),
        (errno.EDQUOT, "{part}", "a.txt"),
        (errno.ENOSPC, "/elsewhere", "/elsewhere"),
        (errno.EIO, None, None),
        (errno.EIO, "{part}", "{part}"),
    ],
)
def test_a_full_disk_is_told_of_the_file_that_is_wanted(
    tmp_path: Path, code: int, name: str | None, said: str | None
) -> None:
    """The system says it of no file, and a library of one that nobody knows; what lies elsewhere keeps its name."""
    parts: list[Path] = []

    def write() -> None:
        with atomic.replace_file(tmp_path / "a.txt") as part:
            parts.append(part)
            raise OSError(code, os.strerror(code), None if name is None else name.format(part=part))

    with pytest.raises(OSError, match=os.strerror(code)) as raised:
        write()
    (part,) = parts
    wanted = {None: None, "a.txt": str(tmp_path / "a.txt"), "{part}": str(part)}
    assert (raised.value.errno, raised.value.filename) == (code, wanted.get(said, said))


def test_the_error_of_a_folder_that_is_not_there_is_raised_as_it_is(tmp_path: Path) -> None:
    """Tidying up does not hide why a file could not be written."""
    with pytest.raises(FileNotFoundError):
        atomic.write_text(tmp_path / "nowhere" / "a.txt", "text")


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """Neither one in the file's place nor one that somebody puts where the part could be is written through."""
    target = tmp_path / "target"
    target.write_text("somebody's")
    file = tmp_path / "a.txt"
    file.symlink_to(target)
    atomic.write_text(file, "new")
    assert (file.read_text(), file.is_symlink(), target.read_text()) == ("new", False, "somebody's")


def test_a_folder_takes_the_place_of_a_marked_one_alone(tmp_path: Path) -> None:
    """What qbench made is replaced; a folder of that name which it did not make stays, and that is an error."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for text in ("old", "new"):
        with atomic.replace_folder(ours) as part:
            (part / text).write_text(text)
    assert {path.name for path in ours.iterdir()} == {atomic.MARK, "new"}
    theirs.mkdir()
    (theirs / "notes").write_text("mine")
    with pytest.raises(OSError, match="not empty"), atomic.replace_folder(theirs) as part:
        (part / "new").write_text("new")
    assert [path.name for path in theirs.iterdir()] == ["notes"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours", "theirs"]


def test_only_the_very_folder_that_was_marked_is_removed(tmp_path: Path) -> None:
    """A copy of it, a link to it, one whose mark is a link, a pipe or another text, and any name are no proof."""
    with atomic.replace_folder(tmp_path / "made"):
        pass
    marked, mark = tmp_path / "made", tmp_path / "made" / atomic.MARK
    shutil.copytree(marked, tmp_path / "copy")
    (tmp_path / "link").symlink_to(marked)
    (tmp_path / ".a.part").mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / atomic.MARK).symlink_to(mark)
    (tmp_path / "binary").mkdir()
    (tmp_path / "binary" / atomic.MARK).write_bytes(b"\xff")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / atomic.MARK)
    names = ["copy", "link", ".a.part", "linked", "binary", "pipe", "nowhere"]
    for name in names:
        atomic.remove_marked(tmp_path / name)
    atomic.sweep(tmp_path)
    assert all((tmp_path / name).exists() for name in names[:-1])
    atomic.remove_marked(marked)
    assert not marked.exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from qbench.files import atomic

mark = atomic._mark
atomic._mark = lambda folder: (mark(folder), os.kill(os.getpid(), signal.SIGKILL))
atomic.write_text(Path(sys.argv[1]), "text")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing ends a process at once here")
def test_what_is_marked_can_be_removed_from_that_moment_on(tmp_path: Path) -> None:
    """A process that is killed right after it has set its mark leaves nothing that stays."""
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "a.txt"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    atomic.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="a folder that takes no file, whoever asks")
@pytest.mark.parametrize("make", [atomic.replace_file, atomic.replace_folder, atomic.make_workplace])
def test_a_folder_that_takes_no_file_is_said_of_the_file_that_was_named(make: Any) -> None:
    """Not of a hidden name that nobody gave; and the folder is there, whatever the system says."""
    file = Path("/proc/self/fd/new.json")
    with pytest.raises(OSError, match=r"Read-only file system: '/proc/self/fd/new.json'"), make(file):
        raise AssertionError


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="a folder that takes no other, whoever asks")
def test_so_is_a_folder_that_takes_no_other() -> None:
    """What is to be made on the way to a file is not there yet either way."""
    file = Path("/proc/self/fd/new/a.json")
    with (
        pytest.raises(OSError, match=r"Read-only file system: '/proc/self/fd/new/a.json'"),
        atomic.make_workplace(file),
    ):
        raise AssertionError


def test_a_folder_in_one_that_may_be_anybodys_is_no_link(tmp_path: Path) -> None:
    """One that is there already is taken as it is."""
    for _ in range(2):
        assert atomic.make_folder(tmp_path / "new") == tmp_path / "new"
    (tmp_path / "link").symlink_to(tmp_path / "new")
    with pytest.raises(OSError, match="it is a link; nothing is written behind one"):
        atomic.make_folder(tmp_path / "link")


def test_a_workplace_lies_beside_its_file_and_takes_what_killed_ones_left(tmp_path: Path) -> None:
    """With the folders above it; while it is used nobody removes it, and afterwards it is gone."""
    file = tmp_path / "a" / "b" / "model.onnx"
    with atomic.make_workplace(file) as folder:
        left = file.parent / ".left.part"
        left.mkdir()
        atomic._mark(left)
        atomic.sweep(file.parent)
        assert (folder.parent, folder.exists(), left.exists()) == (file.parent, True, False)
        left.mkdir()
        atomic._mark(left)
        with atomic.make_workplace(file.parent / "other"):
            assert not left.exists()
    assert list(file.parent.iterdir()) == []


def test_a_workplace_that_is_gone_before_its_end_is_no_error(tmp_path: Path) -> None:
    """Somebody who empties the folder takes nothing but what would be removed."""
    with atomic.make_workplace(tmp_path / "model") as folder:
        shutil.rmtree(folder)
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_a_workplace_begins_as_that_of_its_file(tmp_path: Path) -> None:
    """With a hundred bytes of a long one, so that it is a name itself; no letter is cut."""
    with atomic.make_workplace(tmp_path / f"{'x' * 100}y") as folder:
        assert folder.name.startswith(f".{'x' * 100}-")
    with atomic.make_workplace(tmp_path / f"x{'𝄞' * 63}") as folder:
        assert folder.name.startswith(f".x{'𝄞' * 24}-")


def test_what_cannot_be_removed_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as it goes: the file that was written counts."""
    with atomic.replace_folder(tmp_path / "old"):
        pass

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "rmdir", refuse)
    atomic.remove_marked(tmp_path / "old")
    atomic.write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "old").is_dir()
    assert (tmp_path / "a.txt").read_text() == "new"


def test_nobody_waits_for_the_workplace_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is in use is left at once."""
    waits: list[float] = []

    class Lock(filelock.FileLock):  # type: ignore[misc,valid-type]  # of this system
        def acquire(self, *words: Any, **options: Any) -> Any:
            waits.append(self.timeout)
            return super().acquire(*words, **options)

    with atomic.make_workplace(tmp_path / "a"):
        monkeypatch.setattr(filelock, "FileLock", Lock)
        atomic.sweep(tmp_path)
        assert len(list(tmp_path.iterdir())) == 1
    assert waits == [0]
