"""Rules of qbench/ship/provenance.py: what is to be installed, and what a folder says of where it came from."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from made_records import info, int8
from made_runs import run_folder

import qbench
from qbench.backends.program import Program
from qbench.record.commit import Commit
from qbench.record.stored_run import SuiteInfo, read_run
from qbench.ship.provenance import describe, list_requirements

PROGRAM = Program(file="net.pt", libraries=("torch",), imports=(), load=(), call=())


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("2.13.0+cpu", "torch==2.13.0"),
        ("2.14.0.dev20261101", "torch==2.14.0.dev20261101"),
        (None, "torch"),
        ("1 --index-url=http://127.0.0.1", "torch"),
        ("@ file:///tmp/evil", "torch"),
        ("", "torch"),
    ],
)
def test_a_line_of_the_requirements_holds_a_version_and_nothing_else(version: str | None, line: str) -> None:
    """The run may be somebody else's: what is no version is left out, and the newest is taken."""
    lines = list_requirements(PROGRAM, {"numpy": "2.4.6", "torch": version})
    assert [line for line in lines if not line.startswith("#")] == ["numpy==2.4.6", line]


def test_the_build_of_torch_is_said_beside_its_line() -> None:
    """pip takes several gigabytes of graphics libraries on Linux where nobody says otherwise; a comment alone, since
    an index belongs to whoever installs."""
    numpy, remark, torch = list_requirements(PROGRAM, {"numpy": "2.4.6", "torch": "2.13.0+cpu"})
    assert (numpy, torch) == ("numpy==2.4.6", "torch==2.13.0")
    assert remark.startswith("# torch: its build for CPUs alone is enough")
    assert list_requirements(replace(PROGRAM, libraries=("openvino",)), {}) == ["numpy", "openvino"]


def test_where_a_folder_came_from(tmp_path: Path) -> None:
    """The run, the suite with its digest and overrides, the digests of the data and of this model alone, versions,
    machine and record."""
    digests = {"data": "1", "model net": "2", "weights of net": "3", "model other": "4", "weights of other": "5",
               "model net2": "6"}  # fmt: skip
    suite = SuiteInfo(name="demo", file="s.yaml", text="suite: demo", overrides=("a=1",))
    described = info(suite=suite, digests=digests, versions={"numpy": "2"}, commit=None)
    run = read_run(run_folder(tmp_path / "run", [int8()], described))
    told = describe(run, run.records[0])
    assert told == {
        "schema": 1,
        "qbench": qbench.__version__,
        "run": "run",
        "suite": {
            "name": "demo",
            "sha256": hashlib.sha256(b"suite: demo").hexdigest(),
            "overrides": ["a=1"],
            "commit": None,
        },
        "digests": {"data": "1", "model net": "2", "weights of net": "3"},
        "versions": {"numpy": "2"},
        "machine": described.environment,
        "record": asdict(run.records[0]),
    }
    commit = Commit(sha="a" * 40, subject="s", changed=True)
    committed = replace(run, info=replace(run.info, commit=commit))
    assert describe(committed, run.records[0])["suite"]["commit"] == asdict(commit)
