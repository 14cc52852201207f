"""Rules of qbench/api.py: qbench from Python."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from made_records import CASE, FP32, RUN_V1, fp32, int8, same_as_golden
from made_runs import run_folder

import qbench
import qbench.onnx
from qbench import api
from qbench.errors import UsageError


def test_importing_qbench_is_light_and_its_functions_are_there() -> None:
    """No heavy library is loaded by the import; the functions stay there after the rooms that serve them are."""
    code = (
        "import sys, qbench; early = set(sys.modules); assert callable(qbench.run) and callable(qbench.gate); "
        "import qbench.running.run, qbench.gating.gate; assert callable(qbench.run) and callable(qbench.gate); "
        "print(sorted(early & {'torch', 'numpy', 'pandas', 'matplotlib', 'scipy', 'pydantic'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="no attribute 'runs'"):
        qbench.runs  # noqa: B018


def test_several_runs_are_stacked(tmp_path: Path) -> None:
    """One row per case and run, told apart by the column ``run``."""
    names = [run_folder(tmp_path / name, [fp32(), int8()]) for name in ("old", "new")]
    frame = qbench.load(names)
    assert frame[["run", "case.id"]].values.tolist() == [["old", FP32], ["old", CASE], ["new", FP32], ["new", CASE]]
    assert list(frame.index) == [0, 1, 2, 3]
    assert list(qbench.load(str(names[0])).columns) == list(frame.columns)


def test_calls_and_layers_have_their_run() -> None:
    """The other frames of a run, for the pictures that need them."""
    calls = qbench.load(RUN_V1, "calls")
    assert set(calls.columns) == {"run", "case.id", "process", "seconds"}
    assert calls["run"].unique().tolist() == ["v1"]
    assert isinstance(qbench.load(RUN_V1, "layers"), pd.DataFrame)


def test_a_run_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    """With the command line's message."""
    with pytest.raises(UsageError, match="no run is there"):
        qbench.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: qbench.load([]),
            r"runs: \[\] is not a run's folder, a suite's name or what qbench.run gives, or several",
        ),
        (lambda: qbench.load(5), "runs: 5 is not a run's folder"),
        (lambda: qbench.load([RUN_V1, None]), "run: None is not a run's folder"),
        (lambda: qbench.load(RUN_V1, "case"), "what: 'case' is not one of cases, calls, layers"),
        (lambda: qbench.load(RUN_V1, ["calls"]), "what: .* is not one of cases, calls, layers"),
        (lambda: qbench.run(5), "suite: 5 is not a path or a qbench.suite.Suite"),
        (lambda: qbench.run("x.yaml", overrides="a=1"), "overrides: 'a=1' is not a list of texts KEY=VALUE"),
        (lambda: qbench.run("x.yaml", jobs=0), "jobs: 0 is not a number of builds, 1 or more"),
        (lambda: qbench.run("x.yaml"), "x.yaml"),
        (lambda: qbench.gate(5), "run: 5 is not a run's folder"),
        (lambda: qbench.gate(RUN_V1, max_minutes=0), "max_minutes: 0 is not a number of minutes above 0"),
    ],
)
def test_what_cannot_be_is_a_usage_error_that_names_it(call: Callable[[], object], told: str) -> None:
    """No error of pandas' or Python's own reaches the user, whatever is given."""
    with pytest.raises(UsageError, match=told):
        call()


def test_a_gate_gives_verdicts_and_a_code() -> None:
    """As the command does; without a baseline some rule is missing."""
    gated = qbench.gate(RUN_V1, stored=True)
    assert gated.exit_code in (1, 3)
    assert {verdict.outcome for verdict in gated.verdicts} & {"MISSING", "FAIL"}


def sign(name: str, function: Callable[..., object]) -> str:
    """A callable as it is called: its parameters, with the defaults that are no functions or factories."""
    shown = []
    for parameter in inspect.signature(function).parameters.values():
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        shown.append(f"  {parameter.name}{re.sub(r'<function .*>', '(function)', default)}")
    return "\n".join([name, *shown])


def test_what_is_public_has_the_defaults_that_are_written_down() -> None:
    """Who calls it from Python names little; tests name much, so that none would notice another default.
    ``QBENCH_WRITE_GOLDEN=1`` writes the list anew."""
    from qbench.quant.recipe import Recipe

    public = {f"qbench.{name}": getattr(api, name) for name in ("run", "gate", "load")}
    public |= {f"qbench.onnx.{name}": getattr(qbench.onnx, name) for name in sorted(qbench.onnx.__all__)}
    public |= {"qbench.quant.recipe.Recipe": Recipe}
    lines = [sign(name, function) for name, function in public.items() if callable(function)]
    lines += [f"{name} = {value!r}" for name, value in public.items() if not callable(value)]
    assert same_as_golden("api.txt", "\n".join(lines) + "\n")
