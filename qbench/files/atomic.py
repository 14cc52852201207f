"""Files that are written whole or not at all: a file, or a folder of files, beside them that is then moved."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from qbench.files import regular_file

_ENDING, _LOCK = ".part", "lock"


def write_text(file: Path, text: str) -> None:
    """Writes a UTF-8 text file, with line feeds on every system, over any file of that name."""
    with replace_file(file) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


@contextlib.contextmanager
def replace_file(file: Path) -> Iterator[Path]:
    """A path beside a file: what is written there takes the file's place at the end, and is removed on an error."""
    regular_file.require_replaceable(file)
    part = file.with_name(f".{file.name}.{os.getpid()}{_ENDING}")
    try:
        yield part
        part.replace(file)
    finally:
        with contextlib.suppress(OSError):  # the error that is on its way says more
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def make_workplace(beside: Path) -> Iterator[Path]:
    """A new folder beside a file (or a prefix of files), on the same disk, gone afterwards.

    Those that killed processes left for the same file are removed: each holds a lock that ends with its process.
    """
    import filelock

    regular_file.require_replaceable(beside)
    beside.parent.mkdir(parents=True, exist_ok=True)
    sweep(beside)
    folder = Path(tempfile.mkdtemp(prefix=f".{beside.name}-", dir=beside.parent))
    lock = filelock.FileLock(folder / _LOCK)
    try:
        with lock:
            folder = folder.rename(folder.with_name(folder.name + _ENDING))  # from now on others may look at the lock
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(beside: Path) -> None:
    """Removes the workplaces of a file (or prefix) that killed processes left."""
    import filelock

    for folder in beside.parent.glob(f".{glob.escape(beside.name)}-*{_ENDING}"):
        with contextlib.suppress(filelock.Timeout, OSError), filelock.FileLock(folder / _LOCK, timeout=0):
            shutil.rmtree(folder, ignore_errors=True)
