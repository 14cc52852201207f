"""Rules of qbench/api.py: qbench from Python."""

from __future__ import annotations

import inspect
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from made_records import CASE, FP32, RUN_V1, fp32, int8, same_as_golden
from made_runs import run_folder

import qbench
import qbench.onnx
from qbench import api
from qbench.errors import UsageError
from qbench.gating import gate as gates
from qbench.progress.live import Silent
from qbench.report import build
from qbench.running import run as story
from qbench.suite import parse


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
    assert calls.columns[0] == qbench.load(RUN_V1).columns[0] == "run"
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
        (lambda: qbench.run("x.yaml", jobs="2"), "jobs: '2' is not a number of builds, 1 or more"),
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


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the run and the gate were asked for; the run of the suite ``some`` has a record."""
    calls: list[dict[str, Any]] = []

    def run(suite: Any, **options: Any) -> Any:
        calls.append({"suite": suite.suite, **options})
        return SimpleNamespace(folder=Path("run"), records=["a"] if suite.suite == "some" else [], exit_code=1)

    def gate_run(folder: Path, baseline: Path | None, **options: Any) -> str:
        calls.append({"folder": folder, "baseline": baseline, **options})
        return "gated"

    monkeypatch.setattr(story, "run", run)
    monkeypatch.setattr(gates, "gate_run", gate_run)
    monkeypatch.setattr(build, "build_report", lambda folder: folder / "report.html")
    return calls


def test_a_run_is_asked_for_as_by_the_command(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    """Where it lands, which cases, what it goes on with, how many builds; without a record there is no report."""
    none, some = (
        parse(f"suite: {name}\nmodels: [digits-cnn]\ndata: {{dataset: digits}}\nmatrix: {{}}\n")
        for name in ("none", "some")
    )
    interrupted = run_folder(tmp_path / "v1", [fp32()])
    assert qbench.run(none) == api.Run(folder=Path("run"), report=None, exit_code=1)
    summary = qbench.run(some, out="there", only="*/fp32/*", resume=interrupted, jobs=2)
    assert summary.report == Path("run/report.html")
    shown = [{key: call[key] for key in ("suite", "out", "only", "resume", "jobs")} for call in asked]
    assert shown == [
        {"suite": "none", "out": None, "only": None, "resume": None, "jobs": None},
        {"suite": "some", "out": Path("there"), "only": "*/fp32/*", "resume": interrupted.resolve(), "jobs": 2},
    ]
    assert type(asked[0]["progress"]) is Silent
    qbench.run(none, jobs=1)
    assert asked[-1]["jobs"] == 1
    qbench.run(none, quiet=False)
    assert type(asked[-1]["progress"]) is not Silent


def test_a_gate_is_asked_for_as_by_the_command(asked: list[dict[str, Any]]) -> None:
    """Artifacts run again, for as many minutes, unless the stored figures are asked for; beside a run's folder nothing
    is trusted."""
    qbench.gate(RUN_V1)
    qbench.gate(api.Run(folder=RUN_V1, report=None, exit_code=0), "b.jsonl", only="a", suite="s.yaml", max_minutes=1.5)
    qbench.gate(RUN_V1, stored=True)
    first, second, third = asked
    qbench.gate(RUN_V1, max_minutes=0.5)
    assert asked[3]["rerun"].most_seconds == 30
    assert (first["rerun"].most_seconds, first["rerun"].trust_beside, first["baseline"]) == (math.inf, False, None)
    assert (second["rerun"].most_seconds, second["rerun"].suite_file) == (90, Path("s.yaml"))
    assert [second[key] for key in ("folder", "baseline", "only", "newest", "suite_file")] == [
        *(RUN_V1, Path("b.jsonl"), "a", None, Path("s.yaml"))
    ]
    assert third["rerun"] is None


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


def test_a_run_with_a_damaged_file_is_shown_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a frame, as its decisions and in a notebook: what is damaged beside the records is noted, not refused."""
    from qbench.record import stored_run
    from qbench.report import notebook

    asked: list[bool] = []
    read = stored_run.read_run
    monkeypatch.setattr(
        stored_run, "read_run", lambda folder, *, lenient=False: asked.append(lenient) or read(folder, lenient=lenient)
    )
    monkeypatch.setattr(notebook, "draw_answer", lambda run, report: f"{run.folder.name} {report}")
    run = api.Run(folder=RUN_V1, report=None, exit_code=0)
    assert len(run.frame) == len(qbench.load(RUN_V1))
    assert run.decisions
    assert run._repr_html_() == "v1 None"
    assert asked == [True] * 4
