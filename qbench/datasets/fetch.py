"""Where a named data set's files lie: ``QBENCH_DATA``, the system's path, then a download that is checked and kept.

A download goes on where it stopped, is kept only with the right sha256, and is made once however many processes ask.
"""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from qbench.cache import root as cache_root
from qbench.cache import store
from qbench.errors import DataError
from qbench.files import regular_file

VARIABLE = "QBENCH_DATA"
CHUNK = 1 << 20
TIMEOUT_SECONDS = 30.0  # without a byte


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A file at its official address: ``sha256`` as 64 hex digits, ``size_bytes`` what it must have."""

    name: str
    url: str
    sha256: str
    size_bytes: int


def search_folders(dataset: str, system: Iterable[str] = ()) -> list[Path]:
    """Where copies of a data set are looked for, first to last: ``$QBENCH_DATA/<dataset>``, ``$QBENCH_DATA``, then
    the system's folders. Only those that exist."""
    named = [regular_file.expand_home(folder)] if (folder := os.environ.get(VARIABLE)) else []
    candidates = [*(folder / dataset for folder in named), *named]
    return [folder for folder in (*candidates, *map(Path, system)) if folder.is_dir()]


def fetch_file(dataset: str, file: Remote, *, advice: str, root: Path | None = None) -> Path:
    """The file in the cache, downloaded if it is not there; raises ``DataError`` with ``advice`` where it cannot be."""
    from filelock import FileLock

    root = store.open_cache(root)
    folder = root / cache_root.DOWNLOADS / dataset
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / file.name
    with FileLock(root / "locks" / f"download-{dataset}-{file.name}.lock"):
        if not target.exists():
            part = target.with_name(f"{file.name}.part")
            try:
                _download(file, part)
            except (OSError, urllib.error.URLError) as error:  # a timeout, a refused connection, a full disk
                raise DataError(
                    f"{dataset}: {file.name} is in none of the known folders and cannot be downloaded from {file.url} "
                    f"({_reason(error)}); {advice}"
                ) from error
            _require(file, part, dataset, advice)
            part.replace(target)
    return target


def _download(file: Remote, part: Path) -> None:
    """Fills ``part`` up, from where it ends; starts again where the server cannot go on, or it is too long."""
    have = part.stat().st_size if part.exists() else 0
    if have > file.size_bytes:
        part.unlink()
        have = 0
    if have == file.size_bytes:
        return
    request = urllib.request.Request(file.url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        goes_on = have > 0 and answer.status == HTTPStatus.PARTIAL_CONTENT and _starts_at(answer, have)
        with part.open("ab" if goes_on else "wb") as stream:
            while piece := answer.read(CHUNK):
                stream.write(piece)
                if stream.tell() > file.size_bytes:
                    return  # the size tells that this is another file; what follows need not be fetched


def _starts_at(answer: Any, position: int) -> bool:
    return str(answer.headers.get("Content-Range", "")).startswith(f"bytes {position}-")


def _require(file: Remote, part: Path, dataset: str, advice: str) -> None:
    """Raises ``DataError`` for a file that is short (kept, so that it can go on) or another one (removed)."""
    size = part.stat().st_size
    if size < file.size_bytes:
        raise DataError(
            f"{dataset}: {file.url} broke off after {size:,} of {file.size_bytes:,} bytes; run again to go on there"
        )
    with part.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if size > file.size_bytes or digest != file.sha256:
        part.unlink()
        raise DataError(
            f"{dataset}: {file.url} is not the file that was published: "
            + (f"more than {file.size_bytes:,} bytes" if size > file.size_bytes else f"its sha256 is {digest}")
            + f"; it was thrown away: {advice}"
        )


def _reason(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    return " ".join(str(reason or error).split()) or type(error).__name__
