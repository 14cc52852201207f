"""Rules of qbench/suite/cross_checks.py: what several keys say together, also where one of them says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbench.errors import SuiteError
from qbench.suite.suite import parse


@pytest.mark.parametrize("data", ["", "data: digits\n", "data: []\n", "data: 3\n", "data:\n"])
def test_a_suite_without_data_is_told_so_and_nothing_else(data: str) -> None:
    """What compares the splits of its data says nothing: there are none."""
    with pytest.raises(SuiteError) as raised:
        parse(f"suite: s\nmodels: [digits-cnn]\n{data}matrix: {{}}\n", file="s.yaml")
    (problem,) = raised.value.problems
    assert "data" in str(problem)


def told(text: str) -> list[str]:
    """What is wrong with a suite."""
    try:
        parse(text, file="s.yaml")
    except SuiteError as error:
        return [str(problem) for problem in error.problems]
    return []


SMALL = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"
QAT = "quantize: {qat: {fp32_twin: true}}\n"


@pytest.mark.parametrize(
    ("matrix", "problems"),
    [
        ("{modes: [static], include: [{backend: x86}]}", ["matrix.include[0].mode", "quantize.qat.fp32_twin"]),
        ("{modes: [static], include: [{backend: x86}, {mode: qat, backend: x86}]}", ["matrix.include[0].mode"]),
        ("{modes: [static], include: 3}", ["matrix.include", "quantize.qat.fp32_twin"]),
        ("{modes: 3}", ["matrix.modes"]),
        ("{modes: }", ["matrix.modes"]),
        ("3", ["matrix"]),
    ],
)
def test_a_twin_is_held_against_the_modes_that_are_there(matrix: str, problems: list[str]) -> None:
    """Also beside a cell without a mode; where the modes are no list, that alone is told."""
    said = told(SMALL.replace("{}", matrix) + QAT)
    assert [line.split(": ")[1] for line in said] == problems


@pytest.mark.parametrize("key", ["include", "exclude"])
def test_every_cell_names_a_model_of_the_suite(key: str) -> None:
    """Whatever the cells before it say."""
    cells = "{mode: static, backend: x86}, {model: 3, mode: static, backend: x86}, {model: digits-cnn, mode: static, "
    cells += "backend: x86}, {model: digits-cmm, mode: static, backend: x86}"
    said = told(SMALL.replace("{}", f"{{{key}: [{cells}]}}"))
    assert len(said) == 2
    assert any(
        f"matrix.{key}[3].model: no model named 'digits-cmm' in this suite; did you mean 'digits-cnn'?" in line
        for line in said
    )


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ("{dataset: digits, overlap: error, calibrate: {split: test}}", "s.yaml:3:60: data.calibrate.split: "),
        ("{dataset: digits, evaluate: {split: train}}", "s.yaml:3:43: data.evaluate.split: "),
        ("{dataset: digits, overlap: allow, calibrate: {split: test}}", None),
    ],
)
def test_one_split_for_two_purposes_is_told_where_it_is_written(data: str, place: str | None) -> None:
    """Unless it is meant."""
    said = told(SMALL.replace("{dataset: digits}", data))
    assert len(said) == (place is not None)
    assert all(place is not None and line.startswith(place) for line in said)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("{name: m, source: {python: ':build'}}", "models[0].source.python: expected file.py:function"),
        ("{name: m, source: {onnx: ' '}}", "models[0].source.onnx: expected text"),
        ("{name: m, source: {onnx: gone.onnx}}", "models[0].source.onnx: no such file or folder"),
        ("{name: m, source: {python: 'gone.py:build'}}", "models[0].source.python: no such file or folder"),
        ("{name: m, source: {torchscript: gone.pt}}", "models[0].source.torchscript: no such file or folder"),
    ],
)
def test_a_path_that_is_none_is_told_once(
    model: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that, or as a file that is not there."""
    monkeypatch.chdir(tmp_path)
    text = SMALL.replace("digits-cnn", model)
    Path("s.yaml").write_text(text)
    (said,) = told(text)
    assert problem in said
