"""A stopped run, named by its folder alone: the suite that it was made from, as it was asked for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench import consent
from qbench import suite as suites
from qbench.errors import UsageError
from qbench.record.stored_run import RUN, read_info
from qbench.suite import Suite
from qbench.suite.quick import list_written


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a run was started with: its suite, read again from its file, and the filter."""

    suite: Suite
    only: str | None


def read_stopped(folder: Path, overrides: Sequence[str] = ()) -> Asked:
    """What the run in a folder was asked for; ``overrides`` come on top of its own.

    Raises ``UsageError`` where the suite's file is not there, or leads to code that this user did not run here: what a
    folder brings along is run only where the user names it.
    """
    info = read_info(folder / RUN)
    file = consent.find_suite(folder, info.suite)
    if not file.is_file():
        raise UsageError(
            f"{folder}: its suite, {file}, is not there; go to where the run was started, or name the suite: "
            f"`qbench run SUITE --resume {folder}`"
        )
    quick = info.quick is not None
    stored_overrides = list_written(info.suite.overrides, quick)
    suite = suites.read(file, (*stored_overrides, *overrides), quick=quick)
    if (reason := consent.why_refused(suite)) is not None:
        settings = [word for override in (*stored_overrides, *overrides) for word in ("--set", override)]
        command = ["qbench", "run", str(file), *(["--quick"] if quick else []), *settings, "--resume", str(folder)]
        raise UsageError(f"{folder}: {reason}; if you trust that, name the suite: `{shlex.join(command)}`")
    return Asked(suite=suite, only=info.filter)
