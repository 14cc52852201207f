"""Rules of qbench/process/child.py: what an error of a child becomes on its way home, and what its memory may be."""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from qbench.errors import BuildError, CaseError, CaseSkipped, MemoryExhausted, UsageError, WorkerError
from qbench.process import child

INTERPRETER = "The following operation failed in the TorchScript interpreter."
TORCHSCRIPT = f"{INTERPRETER}\nTraceback:\n\n  RuntimeError: the cause\n"


def caught(error: BaseException) -> BaseException:
    """The error as it was raised."""
    try:
        raise error
    except BaseException as raised:
        return raised


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (BuildError("no kernel"), BuildError, "no kernel"),
        (CaseSkipped("not here"), CaseSkipped, "not here"),
        (UsageError("half \udcff"), CaseError, "half \\udcff"),
        (BuildError("half \udcff"), BuildError, "half \\udcff"),
        (MemoryError("9 GB"), MemoryExhausted, "ran out of memory (9 GB); free some, raise limits.memory_bytes, or"),
        (SystemExit(3), WorkerError, "SystemExit: 3 (at test_child.py:"),
        (ValueError(""), WorkerError, "ValueError: no message (at test_child.py:"),
        (ValueError("\n\n  first \nsecond"), WorkerError, "ValueError: first (at test_child.py:"),
        (RuntimeError(TORCHSCRIPT), WorkerError, "RuntimeError: RuntimeError: the cause (at test_child.py:"),
        (KeyError("x" * 600), WorkerError, f"KeyError: '{'x' * 499} (at test_child.py:"),
    ],
)
def test_an_error_travels_as_one_that_a_record_can_hold(error: BaseException, kind: type, words: str) -> None:
    """qbench's own as they are, any other as one line with its place; without a half of a letter."""
    portable = child._portable(caught(error))
    assert type(portable) is kind
    assert str(portable).startswith(words)


def test_an_error_that_was_never_raised_has_no_place() -> None:
    """Nor is one made up."""
    assert str(child._portable(ValueError("a"))) == "ValueError: a"


@pytest.mark.parametrize(("error", "told"), [(ValueError("a"), True), (OSError("a"), False)])
def test_a_full_disk_is_told_where_nothing_else_says_so(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: bool
) -> None:
    """An error of the system says it by itself."""
    monkeypatch.setattr(child, "is_full", lambda folder: True)
    portable = child._portable(error)
    assert type(portable) is WorkerError
    assert str(portable).endswith("is full: make room, or set TMPDIR (a)") is told


@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit no private memory")
@pytest.mark.parametrize(
    ("asked", "hard", "soft"),
    [
        (500, resource.RLIM_INFINITY, 500),
        (500, 400, 400),
        (300, 400, 300),
        (None, resource.RLIM_INFINITY, 900),
        (None, 100, 100),
    ],
)
def test_memory_is_limited_to_what_is_asked_or_free(
    monkeypatch: pytest.MonkeyPatch, asked: int | None, hard: int, soft: int
) -> None:
    """Nine tenths of what is free where nothing is asked; never above what the system allows."""
    limits: list[Any] = []
    monkeypatch.setattr(child, "count_free_bytes", lambda: 1000)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (7, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, both: limits.append((kind, both)))
    child._limit_memory(asked)
    assert limits == [(resource.RLIMIT_DATA, (soft, hard))]


def test_a_system_that_limits_no_private_memory_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """There running out of it is the system's to tell."""
    monkeypatch.setattr(child.sys, "platform", "darwin")
    monkeypatch.setattr(resource, "setrlimit", lambda *words: pytest.fail("it was limited"))
    child._limit_memory(500)


def test_a_folder_that_is_gone_is_made_again_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With those above it; one that is there is taken."""
    monkeypatch.setenv("TMPDIR", "elsewhere")
    monkeypatch.setattr(tempfile, "tempdir", None)
    configuration: Any = multiprocessing.current_process()
    monkeypatch.setitem(configuration._config, "tempdir", None)
    folder = tmp_path / "above" / "own"
    for _ in range(2):
        child._use_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (os.environ["TMPDIR"], tempfile.gettempdir()) == (str(folder), str(folder))
    assert configuration._config["tempdir"] == str(folder)
