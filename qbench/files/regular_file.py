"""Files that somebody named, opened without trusting what lies there: a name may lead to a pipe or an endless device.

What is opened is what is looked at: the kind and the size are those of the descriptor, so nothing comes in between.
Every refusal is an ``OSError`` whose ``strerror`` says why, as of a file that is not there.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import TextIO

# What is read whole into memory: a hundred times the records of the largest run that was made.
MOST_BYTES = 1 << 30
# What is read in parts or holds weights: more than networks for CPUs have.
LARGE_BYTES = 1 << 38
_BLOCK = 1 << 22
# What the caller opened and handed on, by `<` or `<(…)`: a pipe there has a writer.
_DESCRIPTORS = (Path("/dev/fd"), Path("/proc/self/fd"))
_STANDARD = (Path("/dev/stdin"), Path("/dev/stdout"), Path("/dev/stderr"))
_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_file(path: Path, most_bytes: int = LARGE_BYTES) -> io.BufferedReader:
    """A regular file, or what a link to one leads to, open for reading; also a stream that the caller handed on.

    Raises ``OSError`` for anything else, without waiting for it, and for a file of more than ``most_bytes``.
    """
    descriptor = _open(path, os.O_RDONLY)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not _is_handed_on(path):
            require_regular(path, status)
        if status.st_size > most_bytes:
            raise _too_large(path, most_bytes)
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """All of a file that ``open_file`` opens; it may grow meanwhile, or be a stream, so what comes is counted."""
    with open_file(path, most_bytes) as stream:
        content = stream.read(os.fstat(stream.fileno()).st_size)  # of more than comes, room would be made for that, too
        while block := stream.read(_BLOCK):
            content += block
            if len(content) > most_bytes:
                raise _too_large(path, most_bytes)
    return content


def read_text(path: Path, most_bytes: int = MOST_BYTES, *, encoding: str = "utf-8", errors: str = "strict") -> str:
    """The text of a file that ``open_file`` opens, every line ending as a line feed."""
    with io.TextIOWrapper(io.BytesIO(read_bytes(path, most_bytes)), encoding=encoding, errors=errors) as text:
        return text.read()


def open_to_write(path: Path, *, append: bool = False) -> TextIO:
    """A UTF-8 text file to write to, with line feeds on every system; also a device, or a pipe that somebody reads."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
    try:
        descriptor = _open(path, flags)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "a pipe that nobody reads, or a socket", str(path)) from error
        raise
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "a" if append else "w", encoding="utf-8", newline="\n")


def require_replaceable(path: Path) -> None:
    """Raises ``OSError`` where a pipe, a device or a socket has the name that a new file is to get: root would replace
    ``/dev/null`` itself."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no name of a file: {error}", str(path)) from error
    require_regular(path, status)


def expand_home(name: str | Path) -> Path:
    """The path with the home folder in place of ``~``; as it is where no such user is known."""
    return Path(os.path.expanduser(name))  # noqa: PTH111  # pathlib's raises RuntimeError


def resolve_path(name: str | Path, base: Path) -> Path:
    """The absolute path that a name leads to, a relative one from ``base``; raises nothing where it leads nowhere: not
    for a link to itself, a NUL byte, a name that is too long, or the home of an unknown user."""
    return real_path(base / expand_home(name))


def real_path(path: Path) -> Path:
    """The absolute path without links; raises nothing where it leads nowhere, as pathlib's ``resolve`` does of a link
    to itself (a ``RuntimeError``, until Python 3.12)."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:
        return Path(os.path.abspath(path))  # noqa: PTH100  # as above


def explain_unusable(path: Path) -> str | None:
    """Why neither a regular file nor a folder lies there, in a few words; None where one does."""
    try:
        require_regular(path, os.stat(path))  # noqa: PTH116  # as for ``open_file``
    except FileNotFoundError:
        return "no such file or folder"
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)
    return None


def require_regular(path: Path, status: os.stat_result) -> None:
    """Raises ``OSError`` where the status of a path is that of a pipe, a device or a socket."""
    for is_kind, kind in _KINDS:
        if is_kind(status.st_mode):
            raise OSError(errno.EINVAL, f"{kind}, and a regular file is wanted", str(path))


def _open(path: Path, flags: int) -> int:
    # A pipe is opened without waiting for its other end, a terminal without becoming this process's.
    waiting = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        return os.open(path, flags | waiting | getattr(os, "O_BINARY", 0), 0o666)
    except ValueError as error:  # a NUL byte
        raise OSError(errno.EINVAL, f"no name of a file: {error}", str(path)) from error


def _is_handed_on(path: Path) -> bool:
    return path in _STANDARD or path.parent in _DESCRIPTORS


def _too_large(path: Path, most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"larger than the {most_bytes:,} bytes that are read", str(path))
