"""Where the verdicts of a gate go: the terminal, files, and what GitHub Actions shows."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from qbench.errors import UsageError
from qbench.files import regular_file

if TYPE_CHECKING:
    from qbench.gating.gate import Gated

SUMMARY, WORKSPACE = "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"


def require_writable(*files: Path | None) -> None:
    """Raises ``UsageError`` before anything is measured where a file cannot be written."""
    for file in files:
        if file is not None:
            write_file(file, "", append=True)


def write_file(file: Path, text: str, *, append: bool = False) -> None:
    """Writes the text, behind what is there where it is to ``append``; raises ``UsageError``."""
    try:
        with regular_file.open_to_write(file, append=append) as stream:
            stream.write(text)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror or error}") from error


def show(gated: Gated, *, junit: Path | None, markdown: Path | None, github: bool, as_json: bool) -> None:
    """Writes the files, prints the text or the JSON, and tells GitHub."""
    from qbench.gating import github as annotations
    from qbench.gating import markdown as comment
    from qbench.gating import text

    write_files(gated, junit=junit, markdown=markdown, comment=comment.markdown(gated))
    print(text.as_json(gated).rstrip() if as_json else text.text(gated))
    if github:
        print(annotations.github(gated, _folder_below(os.environ)), end="", file=_stream(as_json=as_json))
        _add_to_summary(os.environ.get(SUMMARY), comment.markdown(gated))


def write_files(gated: Gated, *, junit: Path | None, markdown: Path | None, comment: str) -> None:
    """Writes the verdicts as JUnit XML and the comment, where these are asked for."""
    from qbench.gating import junit as xml

    if junit is not None:
        write_file(junit, xml.junit(gated))
    if markdown is not None:
        write_file(markdown, comment)


@contextlib.contextmanager
def without_commands(*, github: bool, as_json: bool) -> Iterator[None]:
    """While inside, GitHub's runner takes nothing that is printed for a command to itself: names of cases and messages
    of libraries come from the suite that is judged."""
    if not github:
        yield
        return
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", file=_stream(as_json=as_json), flush=True)
    try:
        yield
    finally:
        print(f"::{token}::", file=_stream(as_json=as_json), flush=True)


def _stream(*, as_json: bool) -> TextIO:
    """Standard output, unless that is one JSON object; past what keeps foreign text from being a command."""
    stream = sys.stderr if as_json else sys.stdout
    return getattr(stream, "stream", stream)


def _folder_below(environment: Mapping[str, str]) -> str:
    """Where this process works, from the top of the repository that GitHub has checked out; empty at the top."""
    top = environment.get(WORKSPACE)
    here = regular_file.real_path(Path.cwd())
    if not top or not here.is_relative_to(regular_file.real_path(Path(top))):
        return ""
    folder = here.relative_to(regular_file.real_path(Path(top))).as_posix()
    return "" if folder == "." else folder


def _add_to_summary(file: str | None, text: str) -> None:
    """Adds the comment to what the job shows on its page, where there is one."""
    if not file:
        return
    try:
        with regular_file.open_to_write(Path(file), append=True) as summary:
            summary.write(text)
    except OSError as error:
        print(f"note: {SUMMARY}: {file}: cannot be written: {error.strerror or error}", file=sys.stderr)
