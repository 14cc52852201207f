"""The cache's root folder: whose it is, what lies in it by kind and name, and who uses it right now.

    <root>/CACHEDIR.TAG                       says that qbench made the folder, or found it empty
    <root>/<kind>/<sha256>/                   an entry (``cache``), or what a killed build goes on from
    <root>/<kind>/.<16 digits>-<random>/      an entry in the making
    <root>/downloads/<data set>/              files as they were fetched
    <root>/locks/                             one file per entry in the making, one per process that uses the cache

A folder that holds anything else when qbench first comes to it is somebody's own: it is never tagged, its mode is
never changed, and nothing in it is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from qbench.errors import UsageError
from qbench.files import regular_file

SIGNATURE = "Signature: 8a477f597d28d172789f06886806bc55\n"  # of every CACHEDIR.TAG: bford.info/cachedir
TAG = f"{SIGNATURE}# This folder is a cache made by qbench; `qbench clean` empties it.\n"
TAG_FILE = "CACHEDIR.TAG"
LOCKS = "locks"
DOWNLOADS = "downloads"
ENVIRONMENTS = "environments"  # libraries in other versions
UNFINISHED = "unfinished"  # what a killed build or training goes on from
KINDS = (
    *("answers", "artifacts", "data", "emulators", ENVIRONMENTS, "files", "held-out", "layers", "networks", "peak"),
    *("predictions", "saturation", "shared", "spreads", "trained", "weights"),
    UNFINISHED,
)
_CLEANING = "clean.lock"
_CLEANING_SECONDS = 600.0  # emptying a large cache on a slow disk
_ENTRY = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{16}-[a-z0-9_]+")


def cache_folder() -> Path:
    """Where the cache lies; it need not exist yet. Raises ``UsageError`` where a user has no home folder."""
    variable = os.environ.get("QBENCH_CACHE")
    if variable:
        folder = regular_file.expand_home(variable)
        if variable.startswith("~") and str(folder).startswith("~"):
            raise UsageError(f"QBENCH_CACHE={variable}: no home of that user is known; name a folder of your own")
        return folder.absolute()
    import platformdirs

    folder = platformdirs.user_cache_path("qbench")
    if not folder.is_absolute():  # below the folder that one works in, native code may be anybody's
        raise UsageError("no home folder is known to hold the cache; set QBENCH_CACHE to a folder of your own")
    return folder


def open_cache(root: Path | None = None) -> Path:
    """The cache's root, made if need be; raises ``UsageError`` where it cannot be written or is somebody's own."""
    root = cache_folder() if root is None else root
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_own(root):
            _take(root)
        root.chmod(0o700)
        (root / LOCKS).mkdir(exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise UsageError(
            f"{root}: the cache cannot be written ({error.strerror}); "
            "set QBENCH_CACHE to a folder that can, or change its permissions"
        ) from error
    return root


def is_own(root: Path) -> bool:
    """Whether a folder has the tag of qbench, as a plain file."""
    tag = root / TAG_FILE
    try:
        return not tag.is_symlink() and regular_file.read_text(tag) == TAG
    except (OSError, UnicodeDecodeError):
        return False


def is_entry(name: str) -> bool:
    """Whether a name below a kind is one that qbench gives."""
    return _ENTRY.fullmatch(name) is not None


def _take(root: Path) -> None:
    """Tags an empty folder; raises ``UsageError`` for one that holds anything."""
    others = {path.name for path in root.iterdir()} - {TAG_FILE}
    if is_own(root):  # another process was faster
        return
    tag = root / TAG_FILE
    cut_short = not tag.is_symlink() and (
        not tag.exists() or TAG.startswith(regular_file.read_text(tag, errors="replace"))
    )
    if others or not cut_short:
        raise UsageError(
            f"{root}: holds files that qbench did not put there, so it is not taken as the cache; "
            f"set QBENCH_CACHE to a new or an empty folder, such as {root / 'qbench-cache'}"
        )
    tag.write_text(TAG, encoding="utf-8")


@contextlib.contextmanager
def in_use(root: Path) -> Iterator[None]:
    """Keeps ``qbench clean`` away from an open cache meanwhile; many processes may do so at once.

    Raises ``UsageError`` where a `clean` that is at work does not end.
    """
    import filelock

    file = root / LOCKS / f"user-{os.getpid()}-{secrets.token_hex(4)}.lock"
    with contextlib.ExitStack() as held:
        held.callback(file.unlink, missing_ok=True)
        try:
            with filelock.FileLock(root / LOCKS / _CLEANING, timeout=_CLEANING_SECONDS):
                _users(root)
                held.enter_context(filelock.FileLock(file))
        except filelock.Timeout as error:
            raise UsageError(
                f"{root}: `qbench clean` is emptying this cache and does not end; stop it first"
            ) from error
        yield


@contextlib.contextmanager
def hold_folder(root: Path, folder: Path) -> Iterator[None]:
    """No other process with this cache works on a folder meanwhile; what is held ends with the process.

    Raises ``UsageError`` where one does.
    """
    import filelock

    name = hashlib.sha256(os.fsencode(regular_file.real_path(folder))).hexdigest()
    try:
        with filelock.FileLock(root / LOCKS / f"folder-{name}.lock", timeout=0):
            yield
    except filelock.Timeout as error:
        raise UsageError(f"{folder}: another qbench writes here now; wait until it has ended, or stop it") from error


@contextlib.contextmanager
def nobody_uses(root: Path) -> Iterator[None]:
    """Keeps every process from beginning to use the cache; raises ``UsageError`` where one does already."""
    import filelock

    with contextlib.ExitStack() as locks:
        try:
            locks.enter_context(filelock.FileLock(root / LOCKS / _CLEANING, timeout=0))
        except filelock.Timeout as error:
            raise UsageError(
                f"{root}: another `qbench clean`, or a qbench that is starting, has it; try again"
            ) from error
        if users := _users(root):
            raise UsageError(
                f"{root}: process {' and '.join(users)} of qbench uses this cache, so nothing was removed; "
                "clean when it has ended"
            )
        yield


def _users(root: Path) -> list[str]:
    """The processes that use the cache; the files of those that were killed go."""
    import filelock

    users = []
    for file in sorted((root / LOCKS).glob("user-*.lock")):
        try:
            with filelock.FileLock(file, timeout=0):
                file.unlink(missing_ok=True)
        except filelock.Timeout:
            users.append(file.name.split("-")[1])
    return users
