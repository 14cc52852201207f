"""A test that takes its process with it: the run ends, and says which test it was."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIES = "import os\n\ndef test_before():\n    pass\n\ndef test_that_dies():\n    os._exit(9)\n"


def test_a_lost_worker_ends_the_run_and_names_its_test(tmp_path: Path) -> None:
    """xdist would start another worker and try again; one that is lost near the end is given files that are done
    already, and then waits for ever."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "test_dies.py").write_text(DIES, encoding="utf-8")
    (tmp_path / "test_lives.py").write_text("def test_lives():\n    pass\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", *options["addopts"], "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 1
    assert "crashed while running 'test_dies.py::test_that_dies'" in ended.stdout
    assert "replacing crashed worker" not in ended.stdout
    assert "1 failed, 2 passed" in ended.stdout
