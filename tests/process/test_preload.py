"""The server of child processes: what it imports, and what it leaves to the garbage collector."""

from __future__ import annotations

import gc
import runpy
from pathlib import Path

import pytest

from qbench.process import imports


def test_what_the_server_has_imported_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """No collection meanwhile, garbage is gone before, and whoever is forked has a collector that works."""
    done: list[object] = []
    for name in ("disable", "collect", "freeze", "enable"):
        monkeypatch.setattr(gc, name, lambda name=name: done.append(name))
    monkeypatch.setattr(imports, "import_modules", done.append)
    modules = runpy.run_path(str(Path(imports.__file__).with_name("preload.py")))["MODULES"]
    assert done == ["disable", modules, "collect", "freeze", "enable"]
