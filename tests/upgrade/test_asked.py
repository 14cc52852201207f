"""Rules of qbench/upgrade/asked.py: what would differ, which cases that concerns, and what is refused at once."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
from made_records import info
from made_runs import run_folder

from qbench import suite as suites
from qbench.environments.pins import Pin, parse_pins
from qbench.errors import NotComparable, UsageError
from qbench.record.stored_run import SuiteInfo
from qbench.upgrade import asked
from qbench.upgrade.asked import Request, find_sides, list_concerned, read_run_request

TEXT = """\
suite: small
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [fp32, dynamic, static], backends: [onnxruntime, fbgemm]}
"""
HERE = importlib.metadata.version("onnxruntime")
TO = parse_pins(["onnxruntime==99.0"])


@pytest.fixture
def suite(tmp_path: Path) -> suites.Suite:
    """Two backends, of which one is run by ONNX Runtime."""
    (tmp_path / "small.yaml").write_text(TEXT)
    return suites.read(tmp_path / "small.yaml")


@pytest.fixture
def environments(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Pin, ...]]:
    """The environments that were asked for; none is made."""
    every: list[tuple[Pin, ...]] = []

    def make(pins: Any, tell: Any) -> Any:
        every.append(tuple(pins))
        return len(every)

    monkeypatch.setattr(asked, "make_environment", make)
    return every


def test_only_the_cases_that_the_package_makes_or_runs(suite: suites.Suite) -> None:
    """fp32 comes along as what they are compared with; a filter leaves out more."""
    request = Request(suite=suite, to=TO, since=())
    assert list_concerned(request) == ("digits-cnn/dynamic/onnxruntime/t1/b1", "digits-cnn/static/onnxruntime/t1/b1")
    filtered = Request(suite=suite, to=TO, since=(), only="*/static/*")
    assert list_concerned(filtered) == ("digits-cnn/static/onnxruntime/t1/b1",)


def test_a_package_that_makes_and_runs_nothing(suite: suites.Suite) -> None:
    """The message names those that do."""
    with pytest.raises(UsageError, match=r"no int8 case is made or run by pillow; its cases are by .*onnxruntime"):
        list_concerned(Request(suite=suite, to=parse_pins(["pillow==1"]), since=()))


def test_without_an_old_side_it_is_what_is_here(suite: suites.Suite, environments: list[tuple[Pin, ...]]) -> None:
    """Both are made, the old one first."""
    sides = find_sides(Request(suite=suite, to=TO, since=()), lambda text: None)
    assert environments == [(Pin(name="onnxruntime", version=HERE),), TO]
    assert (sides.old, sides.new) == (1, 2)


@pytest.mark.parametrize(
    ("to", "since", "told"),
    [
        ([f"onnxruntime=={HERE}"], [], f"both sides have onnxruntime {HERE}, so nothing can differ"),
        (["onnxruntime==2"], ["onnxruntime==2"], "both sides have onnxruntime 2, so nothing can differ"),
        (["onnxruntime==2"], ["onnxruntime==2.0"], r"both sides have onnxruntime 2\.0, so nothing can differ"),
        (["onnxruntime==2"], ["numpy==1"], r"--from numpy==1: name it with --to as well"),
        (["qbt-none==2"], [], "qbt-none is not installed here; say with --from what it replaces"),
    ],
)
def test_what_cannot_be_asked(
    suite: suites.Suite, environments: list[tuple[Pin, ...]], to: list[str], since: list[str], told: str
) -> None:
    """Nothing is fetched for it."""
    with pytest.raises(UsageError, match=told):
        find_sides(Request(suite=suite, to=parse_pins(to), since=parse_pins(since)), lambda text: None)
    assert environments == []


def test_a_run_is_the_old_side_with_the_versions_that_it_had(suite: suites.Suite, tmp_path: Path) -> None:
    """Its suite, its filter and its overrides are taken; another old side than its own is refused."""
    described = info(
        suite=SuiteInfo(name="small", file=suite.file, text=TEXT), versions={"onnxruntime": "1.5"}, filter="*/static/*"
    )
    folder = run_folder(tmp_path / "run", [], described)
    request = read_run_request(folder, TO, (), only=None)
    assert request.since == (Pin(name="onnxruntime", version="1.5"),)
    assert (request.only, request.run, request.suite.suite) == ("*/static/*", folder, "small")
    assert read_run_request(folder, TO, parse_pins(["onnxruntime==1.5"]), only=None).since == request.since
    assert read_run_request(folder, TO, parse_pins(["onnxruntime==1.5.0"]), only=None).since == request.since
    with pytest.raises(UsageError, match=r"was made under onnxruntime 1\.5; leave it out, or name the suite"):
        read_run_request(folder, TO, parse_pins(["onnxruntime==1.4"]), only=None)
    numpy = parse_pins(["numpy==1"])  # of which the run says nothing, so that nothing speaks against it
    assert read_run_request(folder, TO, numpy, only=None).since == (*numpy, *request.since)
    assert read_run_request(folder, TO, (), only="*/qat/*").only == "*/qat/*"
    assert (request.quiet, read_run_request(folder, TO, (), only=None, quiet=True).quiet) == (False, True)
    with pytest.raises(NotComparable, match="does not say in which version it had openvino"):
        read_run_request(folder, parse_pins(["openvino==2"]), (), only=None)
