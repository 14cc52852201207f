"""A stopped run, named by its folder alone: the suite that it was made from, as it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench import suite as suites
from qbench.errors import UsageError
from qbench.record.origin import came_with
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

    Raises ``UsageError`` where the suite's file is not where the run was started from, can have come with the folder,
    or is led to other models or data by the folder's overrides: what a folder brings along is run only where the user
    names it.
    """
    info = read_info(folder / RUN)
    file = Path(info.suite.file)
    if not file.is_file():
        raise UsageError(
            f"{folder}: its suite, {file}, is not there; go to where the run was started, or name the suite: "
            f"`qbench run SUITE --resume {folder}`"
        )
    if came_with(folder, file):
        raise UsageError(
            f"{folder}: its suite, {file}, lies beside it, and both may be somebody else's: if you trust the code that "
            f"the suite names, name it: `qbench run {file} --resume {folder}`"
        )
    own = info.suite.overrides[len(OVERRIDES) if info.quick is not None else 0 :]
    suite = suites.read(file, (*own, *overrides), quick=info.quick is not None)
    if own and suite.name_sources() != suites.read(file, overrides).name_sources():
        raise UsageError(
            f"{folder}: it was made with --set on models, data set or metric ({'; '.join(own)}), which may name "
            f"anybody's code: if you trust it, give the suite and --set yourself: `qbench run {file} --set … --resume "
            f"{folder}`"
        )
    return Asked(suite=suite, only=info.filter)
