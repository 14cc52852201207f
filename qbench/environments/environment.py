"""An environment: the present libraries, or some of them replaced by what lies in a folder of the cache.

Such a folder comes before the present packages on ``sys.path`` (an overlay). It holds what was asked for and what this
needs that the present environment does not satisfy: 20 to 90 MB and seconds, where a virtual environment of its own
would be 2 GB and minutes, most of it the same torch again, and would let everything else differ, too.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from qbench.cache import store
from qbench.environments.pins import Pin, normalize_name
from qbench.process import imports

_NAME = re.compile(r"[^A-Za-z0-9._-]")  # ends the name in a requirement


@dataclass(frozen=True, kw_only=True)
class Locked:
    """One distribution of a lock: a name in a version, and the sha256 of the wheel that was installed."""

    pin: Pin
    sha256: str | None = None

    def __str__(self) -> str:
        return str(self.pin) if self.sha256 is None else f"{self.pin} --hash=sha256:{self.sha256}"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The libraries that a process imports. ``digest``: 64 hex digits over all that decides which these are;
    ``folder``: what comes before the present packages (None: nothing does, this is the present environment);
    ``lock``: what lies in there; ``python``: the interpreter."""

    digest: str
    folder: Path | None = None
    lock: tuple[Locked, ...] = ()
    python: Path = Path(sys.executable)

    @property
    def is_present(self) -> bool:
        """Whether it is the environment of this process."""
        return self.folder is None

    @property
    def paths(self) -> tuple[str, ...]:
        """``sys.path`` of a process of it; empty where that is this process's own."""
        return () if self.folder is None else (str(self.folder), *filter(None, sys.path))

    @property
    def worker_variables(self) -> dict[str, str]:
        """Variables with which a fresh child process imports from it: of ``WorkerSpec.environment``, or of
        ``Worker(environment=, fresh=True)``."""
        return {} if self.folder is None else imports.name_paths(self.paths)

    @property
    def program_variables(self) -> dict[str, str]:
        """Variables with which a program that is started anew, such as ``python -m qbench``, imports from it, and all
        that it starts. No bytecode is written: an entry of the cache holds what its manifest lists."""
        if self.folder is None:
            return {}
        before = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([str(self.folder), *([before] if before else [])])
        return {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}

    def version_of(self, name: str) -> str | None:
        """The version of a distribution in it; None where it has none."""
        name = normalize_name(name)
        laid = {locked.pin.name: locked.pin.version for locked in self.lock}
        return laid.get(name, list_present().get(name))

    def list_versions(self, names: Iterable[str]) -> dict[str, str | None]:
        """``version_of`` each, by the names as they were given."""
        return {name: self.version_of(name) for name in names}

    @property
    def text(self) -> str:
        """``onnxruntime 1.20.0 and coloredlogs 15.0.1``; empty where it is the present one."""
        names = [f"{locked.pin.name} {locked.pin.version}" for locked in self.lock]
        return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


@functools.cache
def list_present() -> Mapping[str, str]:
    """The version of every distribution that this process can import, by normalized name; the first on ``sys.path``
    where there are two."""
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            versions.setdefault(normalize_name(name), distribution.version)
    return versions


def list_needed(names: Iterable[str]) -> dict[str, str]:
    """The version of each of these distributions and of all that they need, here and now, by normalized name; what is
    not installed is left out, as are extras."""
    waiting, needed = [normalize_name(name) for name in names], dict[str, str]()
    while waiting:
        name = waiting.pop()
        version = list_present().get(name)
        if version is None or name in needed:
            continue
        needed[name] = version
        required = importlib.metadata.requires(name) or []
        waiting += [normalize_name(_NAME.split(each)[0]) for each in required if "extra ==" not in each]
    return dict(sorted(needed.items()))


def describe_present() -> dict[str, object]:
    """What decides whether an overlay fits: this Python, its platform, and what it finds installed."""
    return {
        "python": [platform.python_implementation(), platform.python_version(), sysconfig.get_platform()],
        "installed": dict(list_present()),
    }


def find_present() -> Environment:
    """The environment of this process."""
    return Environment(digest=store.key_of(describe_present()))
