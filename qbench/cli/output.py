"""What commands share: how wide the terminal is, and which run a name means."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from qbench.errors import UsageError
from qbench.record.locate import find_run


def find_folder(name: str, *, full: bool = False) -> Path:
    """The folder of a run; which one it is of a suite's is said where that is not the latest. ``full``: rather a run
    proper than a later quick look."""
    if Path(name).suffix in (".yaml", ".yml") and Path(name).is_file():
        raise UsageError(_explain_suite(Path(name), full=full))
    return find_run(name, full=full, tell=lambda note: print(f"note: {note}", file=sys.stderr))


def _explain_suite(file: Path, *, full: bool) -> str:
    """What to name in place of a suite's file: its latest run, or the command that makes one."""
    from qbench import suite

    name = suite.read(file).suite
    try:
        folder = find_run(name, full=full)
    except UsageError:
        return f"{file} is a suite, and a run is wanted; it has none yet: make one with `qbench run {file}`"
    return f"{file} is a suite, and a run is wanted: '{name}' names its latest one, {folder}"


def terminal_width() -> int | None:
    """The terminal's width; None where the output is no terminal and must not be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
