"""What pytest's session is held against, and whether artifacts run again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.errors import UsageError
from qbench.gating import gate as gates
from qbench.gating.rerun import Rerunner
from qbench.pytest_plugin import judged
from qbench.pytest_plugin.judged import ItemVerdict, JudgedRun, RunRequest, judge_run, match_exactly
from qbench.running import run as story
from qbench.suite import parse

SUITE = parse("suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n", file="s.yaml")


@pytest.fixture(name="asked")
def asked_(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the gate was asked for."""
    asked: list[dict[str, Any]] = []

    def gate_run(folder: Path, baseline: Path | None, **options: Any) -> Any:
        asked.append({"folder": folder, "baseline": baseline, **options})
        return SimpleNamespace(verdicts=())

    monkeypatch.setattr(gates, "gate_run", gate_run)
    monkeypatch.setattr(judged, "committed_baseline", lambda suite: Path(f"committed-{suite}"))
    return asked


@pytest.mark.parametrize(("stored", "again"), [(False, True), (True, False)])
def test_artifacts_run_again_unless_stored_figures_are_asked_for(
    asked: list[dict[str, Any]], stored: bool, again: bool
) -> None:
    """As by `qbench gate`: side by side, where ``--qbench-stored`` does not say otherwise."""
    judged._judge(RunRequest(suite=SUITE, cases=None, stored=stored), Path("run"))
    assert isinstance(asked[0]["rerun"], Rerunner) is again
    assert (asked[0]["rerun"] is None) is not again


def test_what_is_named_is_judged_and_nothing_else(asked: list[dict[str, Any]]) -> None:
    """The baseline that is given before the committed one; the cases of the session by their exact names."""
    judged._judge(RunRequest(suite=SUITE, cases=None), Path("run"))
    judged._judge(RunRequest(suite=SUITE, cases=("m/static/x/t1/b1", "m[1]/x"), baseline=Path("given")), Path("run"))
    assert [(each["baseline"], each["only"], each["as_run"]) for each in asked] == [
        (Path("committed-s"), None, True),
        (Path("given"), "m/static/x/t1/b1,m[[]1]/x", True),
    ]
    assert all(isinstance(each["rerun"], Rerunner) for each in asked)
    assert match_exactly(["a*b"]) == "a[*]b"


VERDICTS = tuple(ItemVerdict(case=case, effect="fail", text=f"{case} is slow") for case in ("a", "b", "run"))


def test_verdicts_are_those_on_a_case_or_on_none_of_the_cases() -> None:
    """Each is heard once: by its case, or by the gate."""
    run = JudgedRun(folder=None, verdicts=VERDICTS)
    assert run.about("b") == VERDICTS[1:2]
    assert run.about_others(["a", "b", "c"]) == VERDICTS[2:]
    assert run.about("c") == ()


def test_the_first_worker_of_a_session_runs_and_the_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same folder, verdicts and error; another session runs by itself, and without one everybody does."""
    monkeypatch.chdir(tmp_path)
    requests: list[RunRequest] = []

    def make_run(request: RunRequest) -> JudgedRun:
        requests.append(request)
        return JudgedRun(folder=tmp_path / "run", verdicts=VERDICTS, error="no baseline")

    monkeypatch.setattr(judged, "_make_run", make_run)
    first, second = (judge_run(RunRequest(suite=SUITE, cases=None, out=Path("o"), session="7")) for _ in range(2))
    assert first == second == JudgedRun(folder=tmp_path / "run", verdicts=VERDICTS, error="no baseline")
    assert len(requests) == 1
    judge_run(RunRequest(suite=SUITE, cases=None, out=Path("o"), session="8"))
    assert len(requests) == 2
    for _ in range(2):
        judge_run(RunRequest(suite=SUITE, cases=None, out=Path("o")))
    assert len(requests) == 4
    judge_run(RunRequest(suite=SUITE, cases=None, session="7"))
    assert len(requests) == 5
    judge_run(RunRequest(suite=SUITE, cases=None, out=Path("deep/er"), session="7"))
    assert {path.parent.name for path in tmp_path.rglob(".pytest-7-s.json")} == {"o", "reports", "er"}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the run was asked for; it ends as the last one says."""
    asked: list[dict[str, Any]] = []

    def run(suite: Any, **options: Any) -> Any:
        asked.append(options)
        if options["out"] == Path("wrong"):
            raise UsageError("no such folder")
        return SimpleNamespace(folder=Path("run"), interrupted=options["out"] == Path("interrupted"))

    monkeypatch.setattr(story, "run", run)
    return asked


def test_the_cases_of_the_session_are_run_whole(ran: list[dict[str, Any]], asked: list[dict[str, Any]]) -> None:
    """By their exact names; nothing is resumed."""
    run = judge_run(RunRequest(suite=SUITE, cases=("a*", "b"), out=Path("o")))
    assert run == JudgedRun(folder=Path("run"))
    judge_run(RunRequest(suite=SUITE, cases=None))
    assert [(each["only"], each["out"], each["resume"], each["jobs"]) for each in ran] == [
        ("a[*],b", Path("o"), None, None),
        (None, None, None, None),
    ]
    assert [each["folder"] for each in asked] == [Path("run")] * 2


def test_the_error_of_a_run_or_of_its_gate_is_kept(ran: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was not made has no folder; one that cannot be judged has its own."""

    def gate_run(*_: Any, **options: Any) -> Any:
        raise UsageError("no baseline")

    monkeypatch.setattr(gates, "gate_run", gate_run)
    assert judge_run(RunRequest(suite=SUITE, cases=None, out=Path("wrong"))) == JudgedRun(
        folder=None, error="no such folder"
    )
    assert judge_run(RunRequest(suite=SUITE, cases=None)) == JudgedRun(folder=Path("run"), error="no baseline")
    with pytest.raises(KeyboardInterrupt):
        judge_run(RunRequest(suite=SUITE, cases=None, out=Path("interrupted")))
