"""What commands share: how wide the terminal is, and which run a name means."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from qbench.record.locate import find_run


def find_folder(name: str, *, full: bool = False) -> Path:
    """The folder of a run; which one it is of a suite's is said where that is not the latest. ``full``: rather a run
    proper than a later quick look."""
    return find_run(name, full=full, tell=lambda note: print(f"note: {note}", file=sys.stderr))


def terminal_width() -> int | None:
    """The terminal's width; None where the output is no terminal and must not be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
