"""Python and the engines for ARM, in the cache: of which versions, where they lie, and how to have them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from qbench.cache import manifest, store
from qbench.errors import CaseSkipped
from qbench.hosts import arm_packages
from qbench.machine import fingerprint

KIND = "emulators"
# The last two are what qbench itself imports there.
_ALWAYS = ("numpy", "psutil", "pydantic")
ENGINES: Mapping[str, tuple[str, ...]] = {"onnxruntime": ("onnxruntime", "onnx"), "openvino": ("openvino",)}
_FORM = 1  # of what lies in the cache; a change of `arm_packages` that matters counts on
DOWNLOAD = "about 120 MB to download, 350 MB on the disk"


@dataclass(frozen=True, kw_only=True)
class ArmEnvironment:
    """Where it lies: ``system`` is to the emulated programs what the root folder is to others, ``packages`` holds
    Python's packages. ``facts`` are the versions, by name."""

    system: Path
    packages: Path
    facts: Mapping[str, str]

    @property
    def python(self) -> Path:
        """Its Python, below ``system``."""
        return self.system / arm_packages.PYTHON


@functools.cache
def list_versions() -> Mapping[str, str]:
    """The packages that the environment has, in the versions that are installed here."""
    names = (*_ALWAYS, *(package for packages in ENGINES.values() for package in packages))
    return {name: version for name, version in fingerprint.versions(names).items() if version is not None}


def find_folder(root: Path) -> Path:
    """Where the environment of these versions lies in a cache, whether it is there or not."""
    python = list(sys.version_info[:2])
    key = store.key_of({"form": _FORM, "python": python, "packages": dict(list_versions())})
    return root / KIND / key


def explain_missing(root: Path, host: str) -> str | None:
    """Why the environment is not in a cache and what to do; None where it is."""
    if (find_folder(root) / manifest.MANIFEST).is_file():
        return None
    engines = ", ".join(f"{name} {version}" for name, version in list_versions().items() if name in ENGINES)
    return (
        f"Python and the engines for ARM ({engines or 'none is installed here'}) are not in the cache: "
        f"`qbench doctor --prepare {host}` fetches them ({DOWNLOAD})"
    )


def open_environment(root: Path, host: str) -> ArmEnvironment:
    """The environment in a cache, each file as it was put there; raises ``CaseSkipped`` where it is not."""
    if (reason := explain_missing(root, host)) is not None:
        raise CaseSkipped(reason)
    folder = find_folder(root)
    return _open_checked(folder, (folder / manifest.MANIFEST).stat().st_mtime_ns, host)


@functools.cache
def _open_checked(folder: Path, written: int, host: str) -> ArmEnvironment:
    """Once in a process for what was ``written`` at a time: its 300 MB are read to be checked."""
    try:
        facts = manifest.read(folder).facts
    except manifest.Damaged as damage:
        raise CaseSkipped(
            f"Python and the engines for ARM in {folder} are damaged ({damage}): `qbench doctor --prepare {host}` "
            "fetches them again"
        ) from damage
    return _describe(folder, facts)


def make_environment(root: Path, tell: Callable[[str], None]) -> ArmEnvironment:
    """The environment in the open cache ``root``, fetched where it is not there or is damaged. Raises ``UsageError``
    where it cannot be fetched."""
    folder = find_folder(root)

    def make(folder: Path) -> Mapping[str, str]:
        return arm_packages.fetch(folder, list_versions(), tell)

    return _describe(folder, store.fetch(root, KIND, folder.name, make).facts)


def _describe(folder: Path, facts: Mapping[str, str]) -> ArmEnvironment:
    return ArmEnvironment(system=folder / arm_packages.SYSTEM, packages=folder / arm_packages.PACKAGES, facts=facts)
