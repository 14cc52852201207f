"""The server of child processes: what it imports, and what it leaves to the garbage collector."""

from __future__ import annotations

import gc
import os
import pickle
import runpy
import sys
from collections.abc import Callable
from multiprocessing import spawn
from pathlib import Path
from typing import Any

import pytest

from qbench.process import imports


@pytest.fixture
def preloaded(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The module as the server runs it, without what it imports."""
    monkeypatch.setattr(imports, "import_modules", lambda names: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    return runpy.run_path(str(Path(imports.__file__).with_name("preload.py")))


def test_what_the_server_has_imported_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """No collection meanwhile, garbage is gone before, and whoever is forked has a collector that works."""
    done: list[object] = []
    for name in ("disable", "collect", "freeze", "enable"):
        monkeypatch.setattr(gc, name, lambda name=name: done.append(name))
    monkeypatch.setattr(imports, "import_modules", done.append)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    modules = runpy.run_path(str(Path(imports.__file__).with_name("preload.py")))["MODULES"]
    assert done == ["disable", modules, "collect", "freeze", "enable"]


def raise_of(function: Callable[[], object]) -> Any:
    """The error, as its hook is told."""
    try:
        function()
    except Exception:
        return sys.exc_info()
    raise AssertionError("no error")


def start_with(content: bytes) -> object:
    """What a new child does with what its parent has written, which is gone."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return spawn._main(reading, None)  # type: ignore[attr-defined]


def test_a_child_of_a_parent_that_was_killed_meanwhile_says_nothing(
    preloaded: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """It had read nothing, or half; every other error is told, also of the same kind."""
    assert sys.excepthook is preloaded["tell_error"]
    whole = pickle.dumps({"name": "child"})
    for content in b"", whole[:-1], whole[:4]:
        sys.excepthook(*raise_of(lambda content=content: start_with(content)))
    assert capsys.readouterr().err == ""
    for function, words in (
        (lambda: start_with(b"\x80\x04cno_module\nname\n."), "ModuleNotFoundError: No module named 'no_module'"),
        (lambda: pickle.loads(b""), "EOFError: Ran out of input"),
        (lambda: int("x"), "ValueError: invalid literal"),
    ):
        sys.excepthook(*raise_of(function))
        assert words in capsys.readouterr().err
