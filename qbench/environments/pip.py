"""pip, as a program: asked for the versions it would install, for their wheels, and to lay those into a folder.

pip has no interface for programs but its command line, whose ``--report`` is a contract. Everything that it prints to
people is passed on as its last words.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench import installation
from qbench.environments.pins import Pin, normalize_name
from qbench.errors import UsageError
from qbench.process.offspring import offspring

_LAST_LINES = 3
# How pip says, to people, that it begins to fetch a file, and how large that is.
_DOWNLOAD = re.compile(r"Downloading (?P<file>\S+) \((?P<size>[\d.]+ (?:bytes|[kMG]?B))\)$")
# How pip and what it fetches with say that nobody answers.
_UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|Failed to establish a new connection"
    r"|Max retries exceeded|ProxyError|SSLError|connection broken by"
)


class Uninstallable(UsageError):
    """pip cannot install what was asked for: it does not exist, has no wheel for this Python, or contradicts."""


class Unreachable(UsageError):
    """Nobody answers where pip would fetch from."""


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """One distribution that pip would install: ``sha256`` is that of its file where the index tells one, ``source`` the
    folder or address that it is built from where it comes from no index (None: from the index)."""

    pin: Pin
    sha256: str | None = None
    source: str | None = None

    @property
    def line(self) -> str:
        """The line of a lock."""
        if self.source is not None:
            return f"{self.pin.name} @ {self.source}"
        return str(self.pin) if self.sha256 is None else f"{self.pin} --hash=sha256:{self.sha256}"


def resolve(requirements: Sequence[str], folder: Path | None = None, *, wheels_only: bool = True) -> list[Resolved]:
    """What pip would install beside what is here so that the requirements hold, by name; nothing where they do.

    ``requirements`` are words of pip's command line, ``folder`` is where paths in them count from; ``wheels_only``:
    nothing is built. Raises ``Uninstallable`` or ``Unreachable``.
    """
    words = ["install", "--dry-run", "--quiet", "--report", "-"]
    words += ["--only-binary", ":all:"] if wheels_only else []
    report = json.loads(run_pip([*words, *requirements], folder))
    installed = [_read_item(item) for item in report["install"]]
    return sorted((each for each in installed if each.pin.name != installation.NAME), key=lambda each: each.pin)


def _read_item(item: Mapping[str, Any]) -> Resolved:
    pin = Pin(name=normalize_name(item["metadata"]["name"]), version=item["metadata"]["version"])
    info = item["download_info"]
    archive = info.get("archive_info", {})
    direct = bool(item.get("is_direct")) or "archive_info" not in info
    source = _describe_source(info) if direct else None
    return Resolved(pin=pin, sha256=None if direct else archive.get("hashes", {}).get("sha256"), source=source)


def _describe_source(info: Mapping[str, Any]) -> str:
    version = info.get("vcs_info")
    url = f"{version['vcs']}+{info['url']}@{version['commit_id']}" if version else str(info["url"])
    return f"{url}#subdirectory={info['subdirectory']}" if "subdirectory" in info else url


def fetch_wheels(
    resolved: Sequence[Resolved], folder: Path, tell: Callable[[str], None] = lambda text: None
) -> list[Path]:
    """The wheels of what was resolved, in ``folder``: fetched, and built where there is none; whatever has a hash must
    have that one. ``tell`` hears the size of each file as its download begins: no index has to say it before."""
    hashed = [each for each in resolved if each.sha256 is not None]
    for group in (hashed, [each for each in resolved if each.sha256 is None]):
        if group:
            lock = folder / "lock.txt"
            lock.write_text("".join(f"{each.line}\n" for each in group), encoding="utf-8")
            words = ["wheel", "--progress-bar", "off", "--no-deps", "--wheel-dir", str(folder), "-r", str(lock)]
            run_pip(words, hear=lambda line: _tell_download(line, tell))
            lock.unlink()
    return sorted(folder.glob("*.whl"))


def _tell_download(line: str, tell: Callable[[str], None]) -> None:
    if (download := _DOWNLOAD.match(line)) is not None and not download["file"].endswith(".metadata"):
        tell(f"downloading {download['file'].rpartition('/')[2]}: {download['size']}")


def lay_out(wheels: Sequence[Path], folder: Path) -> None:
    """The content of wheels in a folder, as it lies where packages are found, compiled; nothing is fetched."""
    words = ["install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", "--target", str(folder)]
    run_pip([*words, *map(str, wheels)])


def run_pip(words: Sequence[str], folder: Path | None = None, hear: Callable[[str], None] | None = None) -> str:
    """What pip prints for programs; ``Unreachable`` or ``Uninstallable`` with its last words where it fails. ``hear``
    is called with each line as it comes. pip ends with this process, however that one ends, and its files with it."""
    # -P: a folder that one works in may hold a pip.py. The two settings would contradict --target.
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
    # Its answers are read, however quiet it is to be. Without a retry it says that there are no versions, not that
    # nobody answered.
    retries = os.environ.get("PIP_RETRIES", "2").lstrip("0") or "1"
    settings = {
        "PIP_USER": "0",
        "PIP_REQUIRE_VIRTUALENV": "0",
        "PIP_RETRIES": retries,
        "PIP_QUIET": "0",
        "PIP_VERBOSE": "0",
    }
    own = offspring()
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory(dir=own.make_folder()) as temporary:
        variables = {**os.environ, **settings, **own.mark_program(), "TMPDIR": temporary}
        with subprocess.Popen(
            command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        ) as process:
            try:
                said = _listen(process, hear)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            errors.seek(0)
            raise _explain(errors.read().decode("utf-8", errors="replace"), process.returncode)
    return said


def _listen(process: subprocess.Popen[bytes], hear: Callable[[str], None] | None) -> str:
    """All that a program prints."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.decode("utf-8", errors="replace"))
        if hear is not None:
            hear(lines[-1].strip())
    return "".join(lines)


def _explain(said: str, code: int) -> UsageError:
    if "No module named pip" in said:
        return Uninstallable(f"{sys.executable} has no pip; install it: {sys.executable} -m ensurepip")
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("WARNING:")]
    words = " ".join(lines[-_LAST_LINES:]) or f"exit code {code}"
    if (silent := _UNREACHABLE.search(said)) is not None:
        return Unreachable(f"the package index does not answer ({said[silent.start() :].splitlines()[0][:200]})")
    return Uninstallable(words)
