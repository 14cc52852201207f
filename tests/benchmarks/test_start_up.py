"""How long the commands that must answer at once take, whole process.

Run with ``pytest tests/benchmarks/test_start_up.py --benchmark-enable -n 0``.

The bare interpreter is measured beside them, so that the share that is qbench's own can be read on any machine.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.benchmark(group="start-up")
@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "pass"],
        ["-m", "qbench", "--help"],
        ["-m", "qbench", "list"],
        ["-m", "qbench", "schema"],
        ["-m", "qbench", "plan", "suites/quickstart.yaml"],
    ],
    ids=["bare interpreter", "--help (0.3 s)", "list (0.3 s)", "schema", "plan (0.6 s)"],
)
def test_start_up(benchmark: Any, arguments: list[str]) -> None:
    """The time of one whole process, which must end well; the bound in the name is issue 2's."""

    def process() -> int:
        done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=False)
        return done.returncode

    assert benchmark(process) == 0
