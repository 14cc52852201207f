"""Rules of qbench/quant/onnx/graph_process.py: which work gets a process of its own, and what is given back."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.errors import BuildError, UsageError
from qbench.quant.onnx import graph_process

LARGE = graph_process.LARGE


def sized(file: Path, size: int) -> Path:
    """A file of so many bytes."""
    with file.open("wb") as stream:
        stream.truncate(size)
    return file


@pytest.fixture(name="daemon")
def daemon_(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The process as others see it, which may have children."""
    process = SimpleNamespace(daemon=False)
    monkeypatch.setattr(graph_process.multiprocessing, "current_process", lambda: process)
    return process


def test_work_on_a_large_model_is_apart(tmp_path: Path, daemon: Any) -> None:
    """From 4 MB on, what lies beside it included; not where children may have none."""
    assert LARGE == 4 * 1024 * 1024
    file = sized(tmp_path / "net.onnx", LARGE - 1)
    assert not graph_process.is_apart(file)
    sized(tmp_path / "other.data", LARGE)
    (tmp_path / "net.folder").mkdir()
    assert not graph_process.is_apart(file)
    sized(tmp_path / "net.onnx.data", 1)
    assert graph_process.is_apart(file)
    daemon.daemon = True
    assert not graph_process.is_apart(file)
    daemon.daemon = False
    assert not graph_process.is_apart(tmp_path / "missing.onnx")
    assert not graph_process.is_apart(tmp_path)


def test_a_folder_that_cannot_be_read_has_no_large_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads the file says what is wrong."""
    file = sized(tmp_path / "net.onnx", LARGE)

    def refuse(_: Path) -> Any:
        raise PermissionError

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert graph_process._size(file) == 0


def add(first: int, second: int) -> tuple[int, int]:
    """Their sum, and the process that made it."""
    return first + second, os.getpid()


def refuse(kind: type[Exception]) -> None:
    """Raises it."""
    raise kind("no luck")


def test_a_small_model_is_worked_on_here(tmp_path: Path, daemon: Any) -> None:
    """Its errors are the function's."""
    file = sized(tmp_path / "net.onnx", 1)
    assert graph_process.run(file, add, 3, 4) == (7, os.getpid())
    with pytest.raises(ZeroDivisionError):
        graph_process.run(file, refuse, ZeroDivisionError)


def test_errors_of_a_process_are_those_of_qbench(tmp_path: Path) -> None:
    """By kind and text; any other goes its way."""
    assert graph_process._caught(add, (1, 2), progress=None)[0][0] == 3
    assert graph_process._caught(add, (1, 2), progress=None)[1] is None
    for kind in (BuildError, UsageError):
        value, error = graph_process._caught(refuse, (kind,), progress=None)
        assert (value, type(error), str(error)) == (None, kind, "no luck")
    with pytest.raises(ValueError, match="no luck"):
        graph_process._caught(refuse, (ValueError,), progress=None)


@pytest.mark.parametrize("error", [None, UsageError("no luck")])
def test_a_process_is_asked_once_and_swept_after(
    error: Any, tmp_path: Path, daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For an hour at most, fresh; each folder that was written to is swept once, whatever came of it."""
    from qbench.process import child_process

    calls: list[Any] = []

    class Worker:
        def __init__(self, kind: Any, function: Any, *, limits: Any, fresh: bool, name: str) -> None:
            calls.append((function, limits.seconds, fresh, name))

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: Any) -> None:
            calls.append("ended")

        def ready(self) -> None:
            calls.append("ready")

        def ask(self, what: str, arguments: Any) -> Any:
            calls.append((what, arguments))
            return None if error else 7, error

    monkeypatch.setattr(child_process, "Worker", Worker)
    swept: list[Path] = []
    monkeypatch.setattr(graph_process.atomic, "sweep", swept.append)
    file = sized(tmp_path / "net.onnx", LARGE)
    outputs = [tmp_path / "a" / "x", tmp_path / "a" / "y"]
    if error:
        with pytest.raises(UsageError, match="^no luck$"):
            graph_process.run(file, add, 3, 4, written=outputs)
    else:
        assert graph_process.run(file, add, 3, 4, written=outputs) == 7
    assert calls == [
        (graph_process._caught, 3600.0, True, "graph"), "ready", ("run", (add, (3, 4))), "ended",
    ]  # fmt: skip
    assert swept == [tmp_path / "a"]


def test_memory_is_given_back_before_a_long_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After what nobody holds is collected; of a small model, and on another C library, nothing is done."""
    calls: list[Any] = []
    monkeypatch.setattr(graph_process.gc, "collect", lambda: calls.append("collect"))
    functions: dict[str, Any] = {
        "malloc_trim": lambda pad: calls.append(("trim", pad)), "mallopt": lambda *words: calls.append(words),
    }  # fmt: skip
    monkeypatch.setattr(graph_process, "_of_glibc", functions.get)
    graph_process.release_memory(sized(tmp_path / "small.onnx", LARGE - 1))
    assert calls == []
    large = sized(tmp_path / "large.onnx", LARGE)
    graph_process.release_memory(large)
    assert calls == ["collect", ("trim", 0)]
    graph_process.return_arrays_at_once()
    assert calls[2:] == [(-3, 131072)]
    functions.clear()
    graph_process.release_memory(large)
    graph_process.return_arrays_at_once()
    assert calls[3:] == ["collect"]


def test_functions_of_glibc_are_there_on_linux_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that it does not have is none."""
    assert graph_process._of_glibc("no_such_function") is None
    assert callable(graph_process._of_glibc("abs"))
    monkeypatch.setattr(graph_process.sys, "platform", "darwin")
    assert graph_process._of_glibc("abs") is None
