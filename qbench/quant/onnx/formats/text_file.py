"""Text files of the workflow: read with one message for what is wrong, written whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

from qbench.errors import UsageError
from qbench.files import regular_file
from qbench.files.atomic import make_workplace

MODE = 0o640  # as AMCT writes its files


def read(file: Path, what: str, absent: str) -> str:
    """The text of a file that is to be a ``what``. Raises ``UsageError`` where it cannot be read; ``absent`` is what to
    say where there is no such file."""
    try:
        return regular_file.read_text(file, encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise UsageError(f"{file}: {absent}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not a {what} ({error})") from error


def write(text: str, file: Path) -> None:
    """Writes a text file whole or not at all, mode 0640 or what the umask leaves of it."""
    with make_workplace(file) as folder:
        part = folder / file.name
        part.write_text(text, encoding="utf-8")
        restrict_mode(part)
        part.replace(file)


def restrict_mode(file: Path, *others: Path) -> None:
    """Gives a file that Python has just made, and others beside it, mode 0640 or what the umask left of that."""
    mode = stat.S_IMODE(file.stat().st_mode) & MODE
    for path in (file, *others):
        path.chmod(mode)
