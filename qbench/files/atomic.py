"""Files that are written whole or not at all: a file, or a folder of files, beside them that is then moved.

What is in the making lies in a folder of its own that holds a mark. Only what is marked is ever removed: a name proves
nothing, since anybody may give it. The mark names the folder's own number on its disk, so a copy of it marks nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from qbench.files import full_disk, regular_file

_ENDING, _LOCK = ".part", "lock"
MARK = "made-by-qbench"
_TEXT = "qbench made this folder, number {inode} on its disk, and removes it with what lies in it.\n"


def write_text(file: Path, text: str) -> None:
    """Writes a UTF-8 text file, with line feeds on every system, over any file of that name."""
    with replace_file(file) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


@contextlib.contextmanager
def replace_file(file: Path) -> Iterator[Path]:
    """A path on the disk of a file: what is written there takes the file's place at the end, and is removed on an
    error. A symbolic link in its place is replaced, not followed."""
    regular_file.require_replaceable(file)
    with _make_workplace(file) as folder:
        part = folder / file.name
        yield part
        part.replace(file)


@contextlib.contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """A marked folder to be filled, which takes the place of one that was made so before; raises ``OSError`` where
    anything else is there."""
    with _make_workplace(folder) as workplace:
        part = workplace / folder.name
        part.mkdir()
        _mark(part)
        yield part
        remove_marked(folder)
        part.replace(folder)


@contextlib.contextmanager
def make_workplace(beside: Path) -> Iterator[Path]:
    """A new folder beside a file (or a prefix of files), on the same disk, gone afterwards; those that killed processes
    left there are removed."""
    regular_file.require_replaceable(beside)
    try:
        beside.parent.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:  # with all its parents: some folder takes none, as ``_make_hidden_folder`` says
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(beside)) from error
    sweep(beside.parent)
    with _make_workplace(beside) as folder:
        yield folder


@contextlib.contextmanager
def _make_workplace(beside: Path) -> Iterator[Path]:
    import filelock

    folder = _make_hidden_folder(beside)
    try:
        with filelock.FileLock(folder / _LOCK):
            _mark(folder)  # from now on others may look at the lock, and what a killed process leaves can be told
            yield folder
    except OSError as error:
        is_elsewhere = error.filename is not None and not Path(error.filename).is_relative_to(folder)
        if error.errno not in full_disk.FULL or is_elsewhere:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(beside)) from error  # of that name, as above
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_hidden_folder(beside: Path) -> Path:
    """Raises ``OSError`` of the file that is to be written, not of a name that nobody gave."""
    start = os.fsencode(beside.name)[:100].decode(errors="ignore")  # a name may have 255 bytes, a letter four
    try:
        return Path(tempfile.mkdtemp(prefix=f".{start}-", suffix=_ENDING, dir=beside.parent))
    except OSError as error:
        nothing_new = error.errno == errno.ENOENT and beside.parent.is_dir()  # so /proc and /dev/fd say it
        number = errno.EROFS if nothing_new else error.errno or errno.EIO
        raise OSError(number, os.strerror(number), str(beside)) from error


def make_folder(folder: Path) -> Path:
    """A folder in one that may be anybody's, made if need be; raises ``OSError`` where a link has its name, which would
    lead what is written elsewhere."""
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a link; nothing is written behind one", str(folder))
    folder.mkdir(exist_ok=True)
    return folder


def sweep(folder: Path) -> None:
    """Removes the workplaces that killed processes left in a folder: each is marked, and holds a lock that ends with
    its process."""
    import filelock

    for workplace in folder.glob(f".*{_ENDING}"):
        if is_marked(workplace):
            with contextlib.suppress(filelock.Timeout, OSError), filelock.FileLock(workplace / _LOCK, timeout=0):
                shutil.rmtree(workplace, ignore_errors=True)


def remove_marked(folder: Path) -> None:
    """Removes a folder that qbench made and marked; leaves anything else, a symbolic link too, as it is."""
    if is_marked(folder):
        shutil.rmtree(folder, ignore_errors=True)


def is_marked(folder: Path) -> bool:
    """Whether qbench made this very folder and marked it."""
    try:
        return regular_file.read_text(folder / MARK) == _describe(folder)
    except (OSError, UnicodeDecodeError):
        return False


def _mark(folder: Path) -> None:
    (folder / MARK).write_text(_describe(folder), encoding="utf-8")


def _describe(folder: Path) -> str:
    return _TEXT.format(inode=folder.lstat().st_ino)
