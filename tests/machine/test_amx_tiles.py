"""AMX tiles: whether a library's kernels used them is read back from the thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qbench.machine import amx_tiles, fingerprint

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
HAS_AMX = "amx_int8" in fingerprint.isa()
ORT_LOOKS_AT_CORES = (1, 32)

MULTIPLY = """
import json, os, sys
cores = json.loads(sys.argv[1])
own = os.sched_getaffinity(0)
os.sched_setaffinity(0, cores)
from qbench.hosts import read_back
from qbench.machine import amx_tiles
import onnxruntime
os.sched_setaffinity(0, own)
before = amx_tiles.are_in_use()
read_back.read_here("onnxruntime")
print(json.dumps([before, amx_tiles.are_in_use()]))
"""


def multiply(cores: list[int]) -> list[bool | None]:
    """Whether tiles are in use before and after an int8 product of ONNX Runtime, imported on these cores."""
    command = [sys.executable, "-c", MULTIPLY, json.dumps(cores)]
    answer: list[bool | None] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return answer


def test_without_amx_nothing_is_told(tmp_path: Path) -> None:
    """A machine without AMX has no tiles to be in use; no instruction is run that it lacks."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nflags : fpu avx2 avx512f avx512_vnni\n")
    assert amx_tiles.are_in_use(tmp_path) is None


@pytest.mark.skipif(sys.platform != "linux", reason="memory that may be executed, as Linux gives it")
def test_the_instruction_is_read_from_memory_that_may_be_executed() -> None:
    """It is laid there and not run: a CPU without AMX may not have it."""
    reader = amx_tiles._load_reader()
    assert reader is not None
    memory, _ = reader
    assert memory[:19] == bytes.fromhex("b9010000000f01d048c1e2204809d0c3").ljust(19, b"\0")
    assert amx_tiles._load_reader() is reader


@pytest.mark.skipif(not HAS_AMX, reason="needs a CPU with AMX")
def test_a_thread_that_computed_nothing_has_none_in_use() -> None:
    """A process starts with its tiles empty."""
    code = "from qbench.machine import amx_tiles; print(amx_tiles.are_in_use())"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"False\n"


@pytest.mark.skipif(not HAS_AMX or len(CORES) < 2, reason="needs a CPU with AMX, and two of its cores")
def test_onnxruntime_uses_them_as_it_was_imported() -> None:
    """Imported on two cores it uses AMX, whatever it is pinned to later; on one, from 1.32 on, it does not."""
    import onnxruntime

    version = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    assert multiply(CORES[:2]) == [False, True]
    assert multiply(CORES[-1:]) == [False, version < ORT_LOOKS_AT_CORES]


def test_only_linux_lets_a_process_read_the_state_of_its_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """With AMX, too; where no memory may be executed, nothing is told either."""
    monkeypatch.setattr(fingerprint, "isa", lambda root: ("amx_tile",))
    monkeypatch.setattr(amx_tiles, "_load_reader", lambda: (None, lambda: 1 << 18))
    assert amx_tiles.are_in_use() is (True if sys.platform == "linux" else None)
    monkeypatch.setattr(amx_tiles, "_load_reader", lambda: (None, lambda: (1 << 17) | (1 << 19)))
    assert amx_tiles.are_in_use() is (False if sys.platform == "linux" else None)
    monkeypatch.setattr(amx_tiles, "_load_reader", lambda: None)
    assert amx_tiles.are_in_use() is None
    monkeypatch.setattr(amx_tiles.sys, "platform", "darwin")
    monkeypatch.setattr(amx_tiles, "_load_reader", lambda: pytest.fail("it was read"))
    assert amx_tiles.are_in_use() is None
