"""Imports of a child process: missing libraries, and the cores that it may use meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qbench.process import imports

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
LOOK = "import os\ncores = sorted(os.sched_getaffinity(0))\n"
IMPORT = """
import json, os, sys
os.sched_setaffinity(0, json.loads(sys.argv[1]))
from qbench.process.imports import import_modules
import_modules(["other", "no_such_module", "onnxruntime"])
import onnxruntime, other
print(json.dumps([other.cores, onnxruntime.cores, sorted(os.sched_getaffinity(0))]))
"""

pytestmark = pytest.mark.skipif(not CORES, reason="this system tells no affinity")


def import_on(own: list[int], folder: Path, variables: dict[str, str]) -> list[list[int]]:
    """The cores that a process on ``own`` may use while it imports a module, ``onnxruntime``, and afterwards."""
    for name in ("other", "onnxruntime"):
        (folder / f"{name}.py").write_text(LOOK)
    inherited = {name: value for name, value in os.environ.items() if name != imports.CORES}  # a run here sets it
    environment = {**inherited, **variables, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", IMPORT, json.dumps(own)]
    answer: list[list[int]] = json.loads(
        subprocess.run(command, check=True, capture_output=True, env=environment).stdout
    )
    return answer


def test_without_the_variable_all_is_imported_on_its_own_cores(tmp_path: Path) -> None:
    """What a user restricts qbench to holds for imports as well."""
    own = CORES[-1:]
    assert import_on(own, tmp_path, {}) == [own, own, own]


def test_only_a_library_that_chooses_by_cores_is_imported_on_the_named_ones(tmp_path: Path) -> None:
    """Other imports stay on the own cores, where all is again afterwards; a missing module stops nothing."""
    own = CORES[-1:]
    assert import_on(own, tmp_path, imports.name_own_cores()) == [own, CORES, own]


def test_a_named_folder_is_where_everything_comes_from(tmp_path: Path) -> None:
    """With the variable a library comes from its folders, and one that is elsewhere alone is missing."""
    for folder, name in (("here", "only_here"), ("here", "both"), ("there", "both")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{name}.py").write_text(f"folder = {folder!r}\n")
    paths = [
        *(path for path in sys.path if path.endswith((".zip", "python3.11", "lib-dynload"))),
        str(tmp_path / "there"),
    ]
    look = (
        "from qbench.process.imports import import_modules\n"
        "import sys\nimport_modules(['both', 'only_here'])\n"
        "print(sys.modules['both'].folder, 'only_here' in sys.modules)"
    )
    environment = {**os.environ, **imports.name_paths(paths), "PYTHONPATH": f"{tmp_path / 'here'}:{Path.cwd()}"}
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, env=environment, text=True)
    assert done.stdout.split() == ["there", "False"]


@pytest.mark.parametrize("value", ["", "x,y", "99999"])
def test_cores_that_are_none_change_nothing(value: str, tmp_path: Path) -> None:
    """A variable that names no core of this machine leaves imports where they are."""
    own = CORES[-1:]
    assert import_on(own, tmp_path, {imports.CORES: value}) == [own, own, own]


def test_the_variable_lists_cores() -> None:
    """It is read back as it is written, on the machine and for others."""
    assert imports.name_cores((0, 3)) == {"QBENCH_IMPORT_CORES": "0,3"}
    assert imports.name_own_cores() == imports.name_cores(CORES)


def test_what_is_imported_ahead_is_there_at_the_end_of_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has begun when it is returned, and holds no process open."""
    (tmp_path / "imported_ahead.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    thread = imports.import_ahead(["imported_ahead"])
    thread.join()
    assert thread.daemon
    assert sys.modules.pop("imported_ahead").__name__ == "imported_ahead"


def test_a_system_without_affinity_imports_as_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable is passed on there, and one that names cores changes nothing."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "sched_setaffinity")
    monkeypatch.setenv(imports.CORES, "0")
    assert imports.name_own_cores() == {}
    with imports._named_cores():
        pass
