"""A stopped run, named by its folder alone: the suite that it was made from, as it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench import suite as suites
from qbench.errors import UsageError
from qbench.record.stored_run import RUN, read_info
from qbench.suite import Suite
from qbench.suite.quick import OVERRIDES


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a run was started with: its suite, read again from its file, and the filter."""

    suite: Suite
    only: str | None


def read_stopped(folder: Path, overrides: Sequence[str] = ()) -> Asked:
    """What the run in a folder was asked for; ``overrides`` come on top of its own.

    Raises ``UsageError`` where the suite's file is not where the run was started from: only what the user has on disk
    is run, never the text that a folder brings along.
    """
    info = read_info(folder / RUN)
    file = Path(info.suite.file)
    if not file.is_file():
        raise UsageError(
            f"{folder}: its suite, {file}, is not there; go to where the run was started, or name the suite: "
            f"`qbench run SUITE --resume {folder}`"
        )
    own = info.suite.overrides[len(OVERRIDES) if info.quick is not None else 0 :]
    return Asked(suite=suites.read(file, (*own, *overrides), quick=info.quick is not None), only=info.filter)
