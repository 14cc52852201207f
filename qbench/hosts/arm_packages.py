"""Fetches Debian's Python and the wheels of Python packages for ARM into a folder, by apt-get and pip.

Nothing of this system changes and no root is needed: apt-get gets lists, a state and a cache of its own, in a folder
that goes afterwards, and packages are unpacked, not installed.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from qbench.errors import UsageError
from qbench.files import regular_file

SYSTEM, PACKAGES, PYTHON = "system", "packages", "usr/bin/python3"
_LIBRARIES, _LOADER = "lib/aarch64-linux-gnu", "ld-linux-aarch64.so.1"
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
# apt-get adds what they depend on, by the names of the release; numpy and the engines are linked to the last two.
_DEBIAN = (f"{_VERSION}-minimal", f"lib{_VERSION}-stdlib", "libstdc++6", "libgomp1")
# The hooks of this system's apt empty its own cache, or tell desktops of new lists.
_APT = """
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Acquire::Languages "none";
Debug::NoLocking "1";
"""
_OLDEST_GLIBC = 17  # 2.17, that of manylinux2014
_SECONDS = 3600.0
_LINKS = 20
_LAST_LINES = 3


def fetch(folder: Path, versions: Mapping[str, str], tell: Callable[[str], None]) -> Mapping[str, str]:
    """Fills an empty folder with ``system`` and ``packages``; the versions of what lies there, by name. Raises
    ``UsageError`` where a program is missing or a package cannot be had."""
    with tempfile.TemporaryDirectory(prefix="qbench-arm64-") as name:
        work = Path(name)
        tell(f"Debian's packages of {_VERSION} for arm64")
        debian = _fetch_debian(work)
        _copy_system(work / "unpacked", folder / SYSTEM)
        tell(f"the wheels for aarch64 of {', '.join(f'{name} {version}' for name, version in versions.items())}")
        _fetch_wheels(work, folder / PACKAGES, versions, newest_glibc=_read_minor(debian["libc6"]))
    tell("bytecode")
    # The emulated Python reads it and writes none; what does not compile is source for a test of the compiler.
    subprocess.run([sys.executable, "-P", "-m", "compileall", "-q", "-q", str(folder)], check=False)
    return {**debian, **versions}


def _fetch_debian(work: Path) -> dict[str, str]:
    """Unpacks Debian's packages into ``unpacked`` of a folder; their versions."""
    for place in ("state/lists/partial", "cache/archives/partial", "unpacked"):
        (work / place).mkdir(parents=True)
    (work / "status").touch()
    (work / "apt.conf").write_text(_APT.format(folder=work))
    apt = ("apt-get", "-c", str(work / "apt.conf"), "-q=2")
    _run((*apt, "update"), "the lists of Debian's packages for arm64")
    install = ("-y", "--no-install-recommends", "--download-only", "install", *_DEBIAN)
    _run((*apt, *install), f"Debian's {_DEBIAN[0]} for arm64, which must be of the version of Python that runs qbench")
    versions = {}
    for package in sorted((work / "cache" / "archives").glob("*.deb")):
        _run(("dpkg-deb", "-x", str(package), str(work / "unpacked")), package.name)
        name, version, _ = package.name.split("_")
        versions[name] = version.replace("%3a", ":")
    return versions


def _copy_system(unpacked: Path, system: Path) -> None:
    """What a Python process opens: the interpreter, its library and the shared libraries, as plain files."""
    libraries = system / _LIBRARIES
    for path in unpacked.glob("**/aarch64-linux-gnu/*.so*"):
        _copy(unpacked, path, libraries / path.name)
    shutil.copy2(libraries / _LOADER, system / "lib" / _LOADER)
    _copy(unpacked, unpacked / "usr" / "bin" / _VERSION, system / PYTHON)
    standard = unpacked / "usr" / "lib" / _VERSION
    for path in standard.rglob("*"):
        if path.suffix in (".py", ".so"):
            _copy(unpacked, path, system / "usr" / "lib" / _VERSION / path.relative_to(standard))


def _copy(root: Path, path: Path, target: Path) -> None:
    """Copies the file to which a path leads; links are those of a system whose root is ``root``. A link that leads to
    nothing is none."""
    for _ in range(_LINKS):
        if not path.is_symlink():
            break
        link = path.readlink()
        path = root / link.relative_to("/") if link.is_absolute() else path.parent / link
    if (
        path.is_file()
        and not path.is_symlink()
        and regular_file.real_path(path).is_relative_to(regular_file.real_path(root))
    ):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def _fetch_wheels(work: Path, packages: Path, versions: Mapping[str, str], *, newest_glibc: int) -> None:
    """Installs packages with all that they require; whatever is installed here has the same version there."""
    constraints = work / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in list_constraints()))
    command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--target", str(packages), "--only-binary", ":all:", "--implementation", "cp"]
    command += ["--python-version", _VERSION.removeprefix("python"), "--constraint", str(constraints)]
    command += [part for tag in list_platforms(newest_glibc) for part in ("--platform", tag)]
    command += [f"{name}=={version}" for name, version in versions.items()]
    _run(command, f"wheels for aarch64 of {', '.join(versions)}")


def list_constraints() -> Iterator[str]:
    """``name==version`` of each package that is installed here; of two of a name the one that is imported."""
    installed: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        installed.setdefault(re.sub(r"[-_.]+", "-", distribution.name).lower(), distribution.version)
    return (f"{name}=={version}" for name, version in sorted(installed.items()))


def list_platforms(newest_glibc: int) -> list[str]:
    """The tags of wheels that run with glibc 2.``newest_glibc``, the newest first (PEP 600; PEP 599: manylinux2014)."""
    numbers = range(newest_glibc, _OLDEST_GLIBC - 1, -1)
    return [*(f"manylinux_2_{number}_aarch64" for number in numbers), "manylinux2014_aarch64"]


def _read_minor(version: str) -> int:
    """36 of glibc ``2.36-9+deb12u14``."""
    number = re.match(r"2\.(\d+)", version)
    if number is None:
        raise UsageError(f"Debian's libc6 for arm64 has the version {version}, which is none of glibc 2")
    return int(number[1])


def _run(command: Sequence[str], what: str) -> None:
    """Runs a program that fetches or unpacks something; raises ``UsageError`` with its last words."""
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=_SECONDS,
        )
    except FileNotFoundError as error:
        raise UsageError(f"{what}: {command[0]} is not installed here; it takes Debian's apt-get and dpkg") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{what}: {command[0]} took more than {_SECONDS:.0f} s and was stopped") from error
    if answer.returncode:
        lines = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
        errors = [line for line in lines if re.match(r"(E:|ERROR)", line)] or lines
        words = "; ".join(errors[:_LAST_LINES]) or f"exit code {answer.returncode}"
        raise UsageError(f"{what} cannot be fetched by {Path(command[0]).name}: {words}")
