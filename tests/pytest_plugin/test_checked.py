"""A model file as a test: its faults fail it, whatever else is there."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import people_files
import pytest

from qbench.check.finding import FileCheck, Finding
from qbench.pytest_plugin.checked import CheckItem

pytest_plugins = ["pytester"]


@pytest.fixture
def project(pytester):
    """A folder with models."""
    people_files.float_model(pytester.path / "float.onnx")
    people_files.folded(pytester.path / "folded.onnx")
    people_files.newer_ir(pytester.path / "newer.onnx")
    return pytester


def run(project, *options):
    return project.runpytest_subprocess("-p", "no:cacheprovider", *options)


def test_a_fault_fails_and_a_sound_file_passes(project):
    """With the words of the command, which a report of the tests keeps; each file is one test, collected alone."""
    project.makepyfile(test_other="def test_other(): pass")
    result = run(project, "--qbench-check", "float.onnx", "--qbench-check", "folded.onnx", "-v", "--junitxml=out.xml")
    result.assert_outcomes(passed=1, failed=1)
    properties = ElementTree.parse(project.path / "out.xml").iter("property")
    lines = [entry.get("value") for entry in properties if entry.get("name") == "qbench"]
    assert any("fault: 0 % of the multiply-accumulates run in int8" in str(line) for line in lines)
    result.stdout.fnmatch_lines(["*folded.onnx: * fault*", "fault: 0 % of the multiply-accumulates run in int8*"])


def test_what_it_cannot_check_is_one_message(project):
    """A file that is refused, one that is missing its shapes."""
    (project.path / "model.pte").write_bytes(b"")
    result = run(project, "--qbench-check", "newer.onnx", "--qbench-check", "model.pte")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*IR version 99*", "*name their shapes, as in --shape 1x3x224x224, or --data*"])


@pytest.mark.parametrize("sound", [True, False])
def test_what_is_said_of_a_file_stands_behind_what_the_report_has(monkeypatch, sound):
    """Of a sound file, too; shapes and data are those of the options."""
    asked = []
    finding = Finding(severity="note" if sound else "fault", code="c", text="something")

    def check_file(path, *, shapes, data):
        asked.append((path, shapes, data))
        return FileCheck(file="m.onnx", format="ONNX", bytes=1, findings=(finding,))

    monkeypatch.setattr("qbench.check.check_file.check_file", check_file)
    options = {"qbench_shape": ["x=1x3"], "qbench_check_data": "d.npz"}
    item = SimpleNamespace(
        path=Path("m.onnx"), user_properties=[("own", 1)], config=SimpleNamespace(getoption=options.__getitem__)
    )
    with contextlib.nullcontext() if sound else pytest.raises(pytest.fail.Exception, match="fault: something"):
        CheckItem.runtest(item)
    assert asked == [(Path("m.onnx"), ("x=1x3",), "d.npz")]
    assert item.user_properties[0] == ("own", 1)
    assert ("qbench", f"{finding.severity}: something") in item.user_properties
