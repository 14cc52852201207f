"""Rules of qbench/environments/environment.py: what a process of an environment imports, and in which version."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from qbench.environments.environment import (
    Environment,
    Locked,
    describe_present,
    find_present,
    list_needed,
    list_present,
)
from qbench.environments.pins import parse_pin

FOLDER = Path("/cache/packages")


def lay(*pins: str) -> Environment:
    """An environment with these in its folder."""
    return Environment(digest="0" * 64, folder=FOLDER, lock=tuple(Locked(pin=parse_pin(pin)) for pin in pins))


def test_a_folder_comes_before_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a child, and in a program that is started anew, before what its own variable names; nothing empty is a
    path."""
    environment = lay("onnxruntime==1.20.0")
    monkeypatch.setattr(sys, "path", ["", "/a", "/b"])
    assert environment.paths == (str(FOLDER), "/a", "/b")
    assert not environment.is_present
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert environment.program_variables == {"PYTHONPATH": str(FOLDER), "PYTHONDONTWRITEBYTECODE": "1"}
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert environment.program_variables["PYTHONPATH"] == f"{FOLDER}{os.pathsep}/mine"
    assert str(FOLDER) in environment.worker_variables["QBENCH_IMPORT_PATHS"]


def test_what_lies_in_it_hides_what_is_here() -> None:
    """However a name is written; what neither has is none."""
    environment = lay("numpy==0.1", "qbt-alpha==2")
    scipy = importlib.metadata.version("scipy")
    assert environment.list_versions(["NumPy", "QBT_alpha", "scipy", "qbt-none"]) == {
        "NumPy": "0.1", "QBT_alpha": "2", "scipy": scipy, "qbt-none": None,
    }  # fmt: skip
    assert find_present().version_of("numpy") == importlib.metadata.version("numpy")


@pytest.mark.parametrize(
    ("pins", "text"),
    [((), ""), (("a==1",), "a 1"), (("a==1", "b==2"), "a 1 and b 2"), (("a==1", "b==2", "c==3"), "a 1, b 2 and c 3")],
)
def test_it_is_told_by_what_lies_in_it(pins: tuple[str, ...], text: str) -> None:
    """Nothing where it is the present one."""
    assert lay(*pins).text == text


def test_a_lock_names_the_wheel() -> None:
    """By its hash, where that is known."""
    assert str(Locked(pin=parse_pin("a==1"))) == "a==1"
    assert str(Locked(pin=parse_pin("a==1"), sha256="b" * 64)) == f"a==1 --hash=sha256:{'b' * 64}"


def test_what_a_library_needs_is_what_that_needs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, whoever needs whom; extras are not needed, nor is what is not here."""
    required = {"a": ["b>=1", "c[x] ; python_version > '3'", 'd ; extra == "more"'], "b": ["a"], "c": None, "d": []}
    monkeypatch.setattr("qbench.environments.environment.list_present", lambda: dict.fromkeys(required, "1"))
    monkeypatch.setattr(importlib.metadata, "requires", required.__getitem__)
    assert list_needed(["A", "nobody"]) == {"a": "1", "b": "1", "c": "1"}


def test_of_a_package_that_lies_twice_the_first_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python finds it; a folder of remains that names nothing is none."""
    installed = [("A_b", "1"), (None, "7"), ("a-b", "2"), ("c", "3")]
    laid = [SimpleNamespace(metadata={"Name": name}, version=version) for name, version in installed]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: laid)
    assert list_present.__wrapped__() == {"a-b": "1", "c": "3"}


def test_the_present_is_this_python_and_what_it_finds() -> None:
    """Another one of these is another environment."""
    described = describe_present()
    assert described["python"] != []
    assert described["installed"]["numpy"] == importlib.metadata.version("numpy")  # type: ignore[index]
    assert find_present() == find_present()
    assert find_present().is_present
