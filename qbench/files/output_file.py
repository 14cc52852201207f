"""A file that somebody asked for by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from qbench.errors import UsageError


@contextlib.contextmanager
def place_for(file: Path) -> Iterator[None]:
    """While the file is written: its folder is there, with its parents, and what hinders is a ``UsageError`` with its
    name."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror or error}") from error
