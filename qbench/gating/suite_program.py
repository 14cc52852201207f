"""``qbench run`` in a process of its own, under the libraries of an environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from qbench.environments.environment import Environment
from qbench.errors import UsageError

# Latency is measured by the gate, both sides in turn: what a run itself measures is a first look at each case.
FIRST_LOOK = ("measure.spend=screening",)
_INTERRUPTED = (129, 130, 143)  # by SIGHUP, Ctrl-C and SIGTERM, as a shell says it


def run_suite(
    suite: str,
    words: Sequence[str],
    *,
    name: str,
    out: Path,
    settings: Sequence[str],
    environment: Environment,
    folder: Path | None = None,
    quiet: bool = False,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """The folder of the run below ``out``; ``words``: further ones of the command line; ``folder``: where it works.

    Raises ``UsageError`` with the command where the suite cannot be run; ``name`` says of which side.
    """
    command = [str(environment.python), "-m", "qbench", "run", suite, "--out", str(out), *words]
    command += [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(
        [*command, "--json", *(["--quiet"] if quiet else [])],
        cwd=folder,
        env={**os.environ, **environment.program_variables, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode in _INTERRUPTED:
        raise KeyboardInterrupt
    if done.returncode not in (0, 1):
        raise UsageError(f"{name}: its suite could not be run (see above); command: {' '.join(command)}")
    return Path(str(json.loads(done.stdout)["folder"]))
