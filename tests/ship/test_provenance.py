"""Rules of qbench/ship/provenance.py: what is to be installed, and what a folder says of where it came from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qbench.backends.program import Program
from qbench.ship.provenance import list_requirements

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
