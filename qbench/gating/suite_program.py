"""``qbench run`` in a process of its own, under the libraries of an environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import qbench
from qbench.environments.environment import Environment
from qbench.errors import UsageError
from qbench.process.offspring import offspring

# Latency is measured by the gate, both sides in turn: what a run itself measures is a first look at each case.
FIRST_LOOK = ("measure.spend=screening",)
_SOURCE = str(Path(qbench.__file__).parents[1])
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
    from_here: bool = True,
) -> Path:
    """The folder of the run below ``out``; ``words``: further ones of the command line; ``folder``: where it works.

    ``from_here``: Python looks for modules in the folder where it works, too, as for ``python -m``: a commit's own;
    somebody else's folder may hold a module in the place of qbench's.
    Raises ``UsageError`` with the command where the suite cannot be run; ``name`` says of which side.
    """
    command = [str(environment.python), "-m", "qbench", "run", suite, "--out", str(out), *words]
    command += [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(
        [*command, "--json", *(["--quiet"] if quiet else [])],
        cwd=folder,
        env={
            **os.environ,
            **environment.program_variables,
            **variables,
            **({} if from_here else _look_away(environment)),
            **offspring().mark_program(),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode in _INTERRUPTED:
        raise KeyboardInterrupt
    if done.returncode not in (0, 1):
        raise UsageError(f"{name}: its suite could not be run (see above); command: {' '.join(command)}")
    return Path(str(json.loads(done.stdout)["folder"]))


def _look_away(environment: Environment) -> dict[str, str]:
    """Variables with which Python finds this qbench, and nothing in the folder where it works."""
    paths = (environment.program_variables.get("PYTHONPATH", os.environ.get("PYTHONPATH")), _SOURCE)
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
