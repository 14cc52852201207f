"""Rules of qbench/usage_reports.py: no library reports its use from a process of qbench's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from qbench import usage_reports


def test_libraries_leave_nothing_at_home(tmp_path: Path) -> None:
    """An id of the machine and what is to be sent: ONNX Runtime's in the cache, openvino's in the home folder. Neither
    do they leave anything with the temporary files."""
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    places = {"HOME": "home", "TMPDIR": "tmp", "QBENCH_CACHE": "cache", "XDG_STATE_HOME": "state"}
    for name in places.values():
        (tmp_path / name).mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in usage_reports.VARIABLES}
    environment |= {name: str(tmp_path / place) for name, place in places.items()} | {"CI": "", "XDG_CACHE_HOME": ""}
    command = [sys.executable, "-m", "qbench", "check", "net.onnx"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "ONNX Runtime" in ended.stdout
    assert [path for place in ("home", "tmp") for path in (tmp_path / place).rglob("*") if path.is_file()] == []


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
