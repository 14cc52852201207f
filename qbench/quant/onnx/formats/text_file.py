"""Text files of the workflow: read with one message for what is wrong, written whole or not at all."""

from __future__ import annotations

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
    """Writes a text file whole or not at all, mode 0640."""
    with make_workplace(file) as folder:
        part = folder / file.name
        part.write_text(text, encoding="utf-8")
        part.chmod(MODE)
        part.replace(file)
