"""A Python environment for a commit whose requirements are not those of the commit that this one was made for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from qbench import installation
from qbench.errors import UsageError
from qbench.files import regular_file

# Files at the top of a repository that say what must be installed, and the keys of the project's own file that do.
_FILES = ("requirements*.txt", "setup.py", "setup.cfg", "*.lock")
_PROJECT, _KEYS = "pyproject.toml", ("dependencies", "optional-dependencies", "requires-python", "dynamic")
Run = Callable[[Sequence[str], Path], None]


def compare_requirements(old: Path, new: Path) -> list[str]:
    """The files of two trees in which other things are required."""
    before, after = _read_requirements(old), _read_requirements(new)
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _read_requirements(tree: Path) -> dict[str, object]:
    files = {file for pattern in _FILES for file in tree.glob(pattern) if file.is_file()}
    contents: dict[str, object] = {file.name: regular_file.read_bytes(file) for file in files}
    project = tree / _PROJECT
    if project.is_file():
        try:
            content = tomllib.loads(regular_file.read_text(project))
        except ValueError:
            return contents | {_PROJECT: regular_file.read_bytes(project)}
        table = content.get("project", {})
        required = {key: table[key] for key in _KEYS if key in table}
        contents[_PROJECT] = (required, content.get("tool", {}).get("poetry", {}).get("dependencies"))
    return contents


def make_environment(tree: Path, home: Path, *, run: Run | None = None) -> Path:
    """The interpreter of a new environment in ``home`` with what the commit in ``tree`` requires, and qbench.

    ``requirements.txt`` is installed where there is one, else the project itself, together with qbench, so that
    requirements that contradict qbench's are an error and not replaced. ``run`` runs a command in a folder. Raises
    ``UsageError`` with pip's last words: without a network or a mirror nothing can be installed.
    """
    run = run or _run
    python = home / "bin" / "python"
    run([sys.executable, "-m", "venv", str(home)], tree)
    listed = tree / "requirements.txt"
    wanted = ["-r", str(listed)] if listed.is_file() else [str(tree)]
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if _is_qbench(tree):  # its own former commit: the gate is that of this one
        run([*install, *wanted], tree)
        wanted = ["--upgrade-strategy", "only-if-needed"]
    run([*install, *wanted, describe_qbench()], tree)
    return python


def _is_qbench(tree: Path) -> bool:
    """Whether a tree is qbench's own source."""
    return (tree / "qbench" / "registry.py").is_file()


def describe_qbench() -> str:
    """What pip is told to install this qbench; with OpenVINO where that is here, since both sides are to have the same
    backends."""
    return installation.find_requirement("openvino" if importlib.util.find_spec("openvino") else "")


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode("utf-8", errors="replace").strip().splitlines()[-3:]
        raise UsageError(
            "the requirements of the other commit cannot be installed: "
            + (" ".join(said) or f"exit code {done.returncode}")
            + "; --same-environment builds both sides in this one"
        )
