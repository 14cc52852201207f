"""The process above a child: what it and the child do where qbench is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BEGINS = """
import multiprocessing, sys
from pathlib import Path
from qbench.process import guard

reading, report = multiprocessing.Pipe(duplex=False)
if sys.argv[2] == "gone":
    reading.close()
guard.fork_under_guard(report, Path(sys.argv[1]), ())
print("the child", file=sys.stderr)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child does not look who is above it")
@pytest.mark.parametrize(("qbench", "said"), [("there", "the child\n"), ("gone", "")])
def test_a_child_that_begins_as_qbench_ends_goes_without_a_word(tmp_path: Path, qbench: str, said: str) -> None:
    """Ctrl-C may come while children start: nobody hears of them any more, and a traceback of one would be the last
    that the terminal shows. What lies in its folder goes with it."""
    folder = tmp_path / "of the child"
    folder.mkdir()
    done = subprocess.run([sys.executable, "-c", BEGINS, folder, qbench], capture_output=True, text=True, check=False)
    assert done.stderr == said
    assert not folder.exists()
