"""Rules of qbench/process/usage_reports.py: no library reports its use from a process of qbench's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from qbench.process import usage_reports


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Sockets lie in the temporary folder, and their paths may have 107 characters: pytest's own are too long."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_libraries_leave_nothing_at_home(short_folder: Path) -> None:
    """An id of the machine and what is to be sent: ONNX Runtime's in the cache, openvino's in the home folder. Neither
    do they leave anything with the temporary files."""
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), short_folder / "net.onnx")
    places = {"HOME": "home", "TMPDIR": "tmp", "QBENCH_CACHE": "cache", "XDG_STATE_HOME": "state"}
    for name in places.values():
        (short_folder / name).mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in usage_reports.VARIABLES}
    environment |= {name: str(short_folder / place) for name, place in places.items()} | {
        "CI": "",
        "XDG_CACHE_HOME": "",
    }
    command = [sys.executable, "-m", "qbench", "check", "net.onnx"]
    ended = subprocess.run(command, cwd=short_folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "ONNX Runtime" in ended.stdout
    assert [path for place in ("home", "tmp") for path in (short_folder / place).rglob("*") if path.is_file()] == []


def test_a_sender_that_is_there_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to whoever imported it; else it is as if missing. What the user's environment said is overruled."""
    for name in usage_reports.VARIABLES:
        monkeypatch.setenv(name, "the user's")
    monkeypatch.setitem(sys.modules, "openvino_telemetry", usage_reports)
    usage_reports.turn_off()
    assert sys.modules["openvino_telemetry"] is usage_reports
    assert {name: os.environ[name] for name in usage_reports.VARIABLES} == usage_reports.VARIABLES
    monkeypatch.delitem(sys.modules, "openvino_telemetry")
    usage_reports.turn_off()
    with pytest.raises(ImportError):
        import openvino_telemetry  # noqa: F401
