"""git, so that no program runs which the configuration of a repository, or of this user, names.

Configured are filters of files, hooks, a monitor of files, a check of signatures, and what reaches other machines. None
of it is needed to read a repository.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

# What git sets for a hook, from which qbench may be called: it would name another repository than the folder's.
_OF_A_HOOK = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"),
    *("GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS"),
)
_PLAIN = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.pager": "cat",
    "core.sshCommand": "false",
    "core.gitProxy": "none",
    "core.alternateRefsCommand": "true",
    "credential.helper": "",
    "log.showSignature": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "advice.detachedHead": "false",
}
_ONE_CALL = 250  # names of files, of up to 4 kB each, on a command line of up to 2 MB
_FILTER = {"smudge": "", "clean": "", "process": "", "required": "false"}
_NOTHING = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_GLOBAL": os.devnull}
# Else git reads the user's attributes, which the empty configuration of a new folder does not turn off.
_NO_ATTRIBUTES = {"core.attributesFile": os.devnull}


class GitFailed(Exception):
    """git is not installed, does not answer in time, or says what its text says."""


def ask_git(folder: Path, *words: str, seconds: float | None = None) -> bytes:
    """What git says of the repository that a folder lies in; raises ``GitFailed``."""
    return _run(folder, words, _PLAIN | _switch_off(_list_filters(folder, seconds)), {}, seconds)


def check_out(repository: Path, commit: str, folder: Path) -> None:
    """Puts a commit into a new folder, which gets a repository of its own there: it reads the objects of the other, and
    its configuration is empty, as is that of the user meanwhile. Raises ``GitFailed``."""
    objects = ask_git(repository, "rev-parse", "--path-format=absolute", "--git-path", "objects").rstrip(b"\n")
    form = ask_git(repository, "rev-parse", "--show-object-format").decode().strip()
    _run(repository, ("init", "--quiet", "--template=", f"--object-format={form}", str(folder)), _PLAIN, _NOTHING)
    alternates = folder / ".git" / "objects" / "info" / "alternates"
    alternates.parent.mkdir(exist_ok=True)
    alternates.write_bytes(objects + b"\n")
    _run(folder, ("checkout", "--quiet", "--detach", "--force", commit), _PLAIN | _NO_ATTRIBUTES, _NOTHING)


def find_filtered(folder: Path, files: Sequence[bytes], *, seconds: float | None) -> set[bytes]:
    """Those of a repository's files, named from its top, that git reads through a configured program, as it does those
    of git-lfs. It does not run here, so that git may take them for changed. Raises ``GitFailed``."""
    drivers = {name.encode(errors="surrogateescape") for name in _list_filters(folder, seconds)}
    if not drivers:
        return set()
    top = Path(os.fsdecode(ask_git(folder, "rev-parse", "--show-toplevel", seconds=seconds).rstrip(b"\n")))
    listed: set[bytes] = set()
    for start in range(0, len(files), _ONE_CALL):
        names = map(os.fsdecode, files[start : start + _ONE_CALL])
        told = ask_git(top, "check-attr", "-z", "filter", "--", *names, seconds=seconds).split(b"\0")
        listed |= {name for name, driver in zip(told[::3], told[2::3], strict=False) if driver in drivers}
    return listed


def _list_filters(folder: Path, seconds: float | None) -> set[str]:
    """The names of the filters that are configured."""
    names = _run(folder, ("config", "--null", "--name-only", "--list"), _PLAIN, {}, seconds)
    keys = (name.partition(".") for name in names.decode(errors="surrogateescape").split("\0"))
    return {rest.rpartition(".")[0] for section, _, rest in keys if section == "filter"} - {""}


def _switch_off(filters: Iterable[str]) -> dict[str, str]:
    """The settings that take its programs from each filter."""
    return {f"filter.{driver}.{key}": value for driver in filters for key, value in _FILTER.items()}


def _run(
    folder: Path,
    words: tuple[str, ...],
    settings: Mapping[str, str],
    variables: Mapping[str, str],
    seconds: float | None = None,
) -> bytes:
    git = shutil.which("git")
    if git is None:
        raise GitFailed("git is not installed")
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    # In variables, not as `-c`: a name may hold an equals sign.
    environment["GIT_CONFIG_COUNT"] = str(len(settings))
    for number, (key, value) in enumerate(settings.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
    environment |= {"GIT_ALLOW_PROTOCOL": "none", **variables}  # it is stronger than `protocol.allow`
    try:
        done = subprocess.run(
            [git, "--no-optional-locks", "-C", str(folder), *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise GitFailed(f"git {words[0]}: {error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
        raise GitFailed(f"git {words[0]}: {said[-1] if said else f'exit code {done.returncode}'}")
    return done.stdout
