"""``qbench explain RUN --all``: cut, continued, and what a case that fails does to the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_records import failed, fp32, info, int8, latency, speedup
from made_runs import run_folder

from qbench.cli import explain
from qbench.errors import CaseError
from qbench.explain import story
from qbench.record.explained import ExplainedCase, keep_explained, read_explained
from qbench.record.stored_run import SuiteInfo

TEXT = "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {modes: [fp32, static]}\n"
FP32 = "net/fp32/torch/t1/b1"
SLOW = [f"net/static/{backend}/t1/b1" for backend in ("qnnpack", "fbgemm", "onednn")]  # that lose most first
SECONDS = {SLOW[0]: 3e-3, SLOW[1]: 2e-3, SLOW[2]: 1e-3}


class Explainer:
    """Explains in no time, and keeps that in the run as the command does; ``fail``: what to raise for a case."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fail: dict[str, BaseException] = {}

    def explain_case(self, run, case, **options):
        """The case's name, or what stops it."""
        self.asked.append(case)
        if case in self.fail:
            raise self.fail.pop(case)
        return case

    @staticmethod
    def show(shown, case):
        """Keeps it."""
        shown.done.append(case)
        kept = ExplainedCase(case=case, seconds=1e-3, fp32_seconds=None, best_seconds=1e-3, best="the case")
        keep_explained(shown.folder, kept)


@pytest.fixture
def explainer(monkeypatch):
    """In place of trials."""
    replaced = Explainer()
    monkeypatch.setattr(story, "explain_case", replaced.explain_case)
    monkeypatch.setattr(explain._Shown, "show", lambda shown, case: replaced.show(shown, case))
    return replaced


@pytest.fixture
def folder(tmp_path) -> Path:
    """A run with three slow int8 cases, a fast one, and one that failed."""
    file = tmp_path / "suites/demo.yaml"
    file.parent.mkdir()
    file.write_text(TEXT, encoding="utf-8")
    records = [fp32(FP32), failed("net/static/x86/t1/b1"), int8("net/static/openvino/t1/b1", speedup=speedup(4.0))]
    records += [int8(case, speedup=speedup(0.5), latency=latency(SECONDS[case])) for case in reversed(SLOW)]
    described = info(suite=SuiteInfo(name="demo", file=str(file), text=TEXT, overrides=()))
    return run_folder(tmp_path / "work/reports/demo/1", records, described)


def explain_all(folder, **options):
    """The command."""
    explain.explain(str(folder), every=True, quiet=True, **options)


def test_a_command_that_was_interrupted_goes_on_with_the_rest(folder, explainer):
    """What is explained is kept at once, and is not tried again."""
    explainer.fail[SLOW[1]] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        explain_all(folder)
    assert [kept.case for kept in read_explained(folder)] == SLOW[:1]
    explainer.asked.clear()
    explain_all(folder)
    assert explainer.asked == SLOW[1:]
    assert {kept.case for kept in read_explained(folder)} == set(SLOW)


def test_no_case_is_begun_once_the_time_is_up(folder, explainer, capsys):
    """What is left is named, and the same command without the limit takes it."""
    explain_all(folder, max_minutes=0.0)
    assert explainer.asked == []
    assert f"time is up; the same command goes on with {SLOW[0]}" in capsys.readouterr().err
    explain_all(folder)
    assert explainer.asked == SLOW


def test_a_case_that_cannot_be_explained_stops_no_other(folder, explainer, capsys):
    """Its reason is told at the end; the next command tries it again."""
    explainer.fail[SLOW[0]] = CaseError("it cannot be built")
    explain_all(folder)
    assert {kept.case for kept in read_explained(folder)} == set(SLOW[1:])
    assert f"{SLOW[0]}: not explained: it cannot be built" in capsys.readouterr().err
    explainer.asked.clear()
    explain_all(folder)
    assert explainer.asked == SLOW[:1]


def test_where_all_is_explained_nothing_is_done(folder, explainer, capsys):
    """Nor the report built."""
    for case in SLOW:
        keep_explained(folder, ExplainedCase(case=case, seconds=1.0, fp32_seconds=None, best_seconds=1.0, best="-"))
    explain_all(folder)
    assert explainer.asked == []
    assert "no int8 case is slow and not explained yet" in capsys.readouterr().err
