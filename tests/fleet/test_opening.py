"""A run on a cluster as a process of its own, which is told to end."""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from qbench.process import reaper

if importlib.util.find_spec("ray") is None:
    pytest.skip("a cluster needs Ray: pip install -e '.[cluster]'", allow_module_level=True)

SUITE = """
suite: ended
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [fp32], backends: [onnxruntime]}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc, which Linux has")
def test_sigterm_ends_a_run_with_everything_on_its_nodes(tmp_path: Path) -> None:
    """Exit code 143 and how to go on; no process of qbench or Ray and no temporary folder is left. Ctrl-C does not
    break that off."""
    (tmp_path / "ended.yaml").write_text(SUITE)
    temporary, mark = tmp_path / "t", secrets.token_hex(16)
    temporary.mkdir()
    own = {"QBENCH_CACHE": str(tmp_path / "cache"), "TMPDIR": str(temporary), "QBENCH_TEST": mark}
    command = [sys.executable, "-m", "qbench", "run", "ended.yaml", "--on", "local-cluster"]
    running = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **own}, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: any(tmp_path.glob("cache/locks/user-*")) or running.poll() is not None)  # its stages begin
        processes = list(reaper.marked(f"QBENCH_TEST={mark}".encode()))
        running.send_signal(signal.SIGTERM)
        wait_until(lambda: any(not Path(f"/proc/{pid}").exists() for pid in processes))
        running.send_signal(signal.SIGINT)
        _, messages = running.communicate(timeout=60)
    finally:
        if running.poll() is None:  # it hangs: the next tests are not to see it
            running.kill()
            running.communicate()
    assert running.returncode == 143, messages
    assert "qbench run ended.yaml --on local-cluster --resume" in messages
    assert len(processes) > 5
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes))
    assert list(reaper.marked(f"QBENCH_TEST={mark}".encode())) == []
    assert [path.name for path in temporary.iterdir() if path.name.startswith(("qb-", "pymp-"))] == []


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
