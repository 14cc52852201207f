"""Whether an environment is what it was made to be: a child process under it imports what was asked for and says which
version that is, and from where."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from qbench.environments.environment import Environment
from qbench.environments.pins import Pin
from qbench.errors import UsageError
from qbench.files import regular_file
from qbench.process.offspring import offspring

# Of a distribution without a module of its name the first that it brings is imported; of one without any, none.
_LOOK = """
import importlib, importlib.metadata, json, sys
sys.dont_write_bytecode = True
packages = {}
for name in json.loads(sys.argv[1]):
    distribution = importlib.metadata.distribution(name)
    tops = sorted({file.parts[0].removesuffix(".py") for file in distribution.files or () if file.suffix == ".py"})
    tops = [top for top in tops if top.isidentifier()]
    same = [top for top in tops if top.lower() == name.replace("-", "_")]
    entry = {"version": distribution.version, "place": str(distribution.locate_file("")), "file": None, "error": None}
    for top in (same or tops)[:1]:
        try:
            entry["file"] = importlib.import_module(top).__file__
        except BaseException as error:
            entry["error"] = f"{type(error).__name__}: {error}"
    packages[name] = entry
sys.stdout.write("\\n" + json.dumps(packages))
"""


class Unimportable(UsageError):
    """A library was installed, and cannot be imported beside the others."""


def require_imports(environment: Environment, pins: Sequence[Pin]) -> None:
    """Raises ``Unimportable`` where a child under the environment cannot import a package, and ``UsageError`` where it
    has another version of it, or one from another place."""
    command = [str(environment.python), "-P", "-c", _LOOK, json.dumps([pin.name for pin in pins])]
    done = subprocess.run(
        command, env={**os.environ, **environment.program_variables, **offspring().mark_program()},
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    said = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
    if done.returncode:
        names = ", ".join(f"{pin.name} {pin.version}" for pin in pins)
        words = " ".join(said[-3:]) or f"exit code {done.returncode}"
        raise Unimportable(f"{names} cannot be imported: the process ended ({words})")
    read = json.loads(done.stdout.decode("utf-8", errors="replace").rpartition("\n")[2])
    for pin in pins:
        entry = read[pin.name]
        if entry["error"] is not None:
            # What a binary that was made for another numpy writes before it is half imported says more than the error.
            told = next((line for line in said if "NumPy" in line), "")
            raise Unimportable(
                f"{pin.name} {pin.version} cannot be imported beside what is here: {told or entry['error']}"
            )
        if not pin.allows(entry["version"]):
            raise UsageError(f"asked for {pin}, but {entry['version']} is what a process there has")
        file = entry["file"]
        if file is not None and not regular_file.real_path(Path(file)).is_relative_to(
            regular_file.real_path(Path(entry["place"]))
        ):
            raise UsageError(f"asked for {pin}, but a process there imports {file}")
