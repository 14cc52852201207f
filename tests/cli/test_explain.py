"""``qbench explain RUN --all``: cut, continued, and what a case that fails does to the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_explanations import ACCURACY, explain_time
from made_records import accuracy, failed, fp32, info, int8, latency, speedup
from made_runs import run_folder

from qbench.cli import explain
from qbench.errors import CaseError
from qbench.explain import story
from qbench.record.explained import ErrorFigures, TimeFigures, keep_explained, read_explained
from qbench.record.stored_run import SuiteInfo

TEXT = "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {modes: [fp32, static]}\n"
FP32 = "net/fp32/torch/t1/b1"
SLOW = [f"net/static/{backend}/t1/b1" for backend in ("qnnpack", "fbgemm", "onednn")]  # that lose most first
SECONDS = {SLOW[0]: 3e-3, SLOW[1]: 2e-3, SLOW[2]: 1e-3}


class Explainer:
    """Explains in no time, and keeps that in the run as the command does; ``fail``: what to raise for a case."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.concerns: list[tuple[str, ...]] = []
        self.fail: dict[str, BaseException] = {}

    def explain_case(self, run, case, *, concerns, **options):
        """The case's name and what was asked, or what stops it."""
        self.asked.append(case)
        self.concerns.append(concerns)
        if case in self.fail:
            raise self.fail.pop(case)
        return case, concerns

    @staticmethod
    def show(shown, explained):
        """Keeps it."""
        case, concerns = explained
        if "time" in concerns:
            keep_explained(shown.folder, explain_time(case, 1e-3, 1e-3))
        if "accuracy" in concerns:
            keep_explained(shown.folder, replace(ACCURACY, case=case))


@pytest.fixture
def explainer(monkeypatch):
    """In place of trials."""
    replaced = Explainer()
    monkeypatch.setattr(story, "explain_case", replaced.explain_case)
    monkeypatch.setattr(explain._Answers, "show", lambda shown, explained: replaced.show(shown, explained))
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
    assert [kept.case for kept in read_explained(folder, TimeFigures)] == SLOW[:1]
    explainer.asked.clear()
    explain_all(folder)
    assert explainer.asked == SLOW[1:]
    assert {kept.case for kept in read_explained(folder, TimeFigures)} == set(SLOW)


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
    assert {kept.case for kept in read_explained(folder, TimeFigures)} == set(SLOW[1:])
    assert f"{SLOW[0]}, time: not explained: it cannot be built" in capsys.readouterr().err
    explainer.asked.clear()
    explain_all(folder)
    assert explainer.asked == SLOW[:1]


def test_where_all_is_explained_nothing_is_done(folder, explainer, capsys):
    """Nor the report built."""
    for case in SLOW:
        keep_explained(folder, explain_time(case, 1.0, 1.0))
    explain_all(folder)
    assert explainer.asked == []
    assert "no int8 case that is slow or not right is left to explain" in capsys.readouterr().err


@pytest.fixture
def wrong(tmp_path) -> Path:
    """A run with two cases that lose accuracy, of which the first is slow, too, and one that is only slow."""
    file = tmp_path / "suites/wrong.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(TEXT, encoding="utf-8")
    slow, lost = speedup(0.5), accuracy(harmful=300)
    records = [
        fp32(FP32), int8(SLOW[0], speedup=slow, latency=latency(1e-3), accuracy=lost),
        int8(SLOW[1], speedup=slow, latency=latency(2e-3)),
        int8(SLOW[2], speedup=speedup(4.0), accuracy=accuracy(harmful=100)),
    ]  # fmt: skip
    described = info(suite=SuiteInfo(name="wrong", file=str(file), text=TEXT, overrides=()))
    return run_folder(tmp_path / "work/reports/wrong/1", records, described)


def test_slow_cases_and_those_that_are_not_right_are_taken_in_turns(wrong, explainer):
    """The worst of each first; a case that is both is asked both."""
    explain_all(wrong)
    assert list(zip(explainer.asked, explainer.concerns, strict=True)) == [
        (SLOW[1], ("time",)), (SLOW[0], ("accuracy",)), (SLOW[0], ("time",)), (SLOW[2], ("accuracy",))
    ]  # fmt: skip
    assert {kept.case for kept in read_explained(wrong, ErrorFigures)} == {SLOW[0], SLOW[2]}
    assert "Why not right" in (wrong / "report.html").read_text(encoding="utf-8")
    explainer.asked.clear()
    explain_all(wrong)
    assert explainer.asked == []


@pytest.mark.parametrize(("of", "asked"), [("time", [SLOW[1], SLOW[0]]), ("accuracy", [SLOW[0], SLOW[2]])])
def test_one_question_alone_can_be_asked(wrong, explainer, of, asked):
    """Of all cases."""
    explain_all(wrong, of=explain.Concerns(of))
    assert explainer.asked == asked


@pytest.mark.parametrize("as_json", [False, True])
def test_an_explanation_is_words_or_json_as_asked(tmp_path, monkeypatch, capsys, as_json):
    """One of the two, never both."""
    monkeypatch.setattr("qbench.explain.json_text.as_json", lambda explained: "JSON")
    monkeypatch.setattr(explain, "_show", lambda explained, titles, width: print("words"))
    shown = explain._Answers(folder=tmp_path, as_json=as_json)
    shown.show(SimpleNamespace(time=None, losses=None))
    assert capsys.readouterr().out.strip() == ("JSON" if as_json else "words")


@pytest.mark.parametrize("of", ["time", "losses", "both"])
def test_what_is_explained_is_kept_in_the_run(tmp_path, monkeypatch, of):
    """Of time, of accuracy, or of both; nothing of what was not asked for."""
    timed = explain_time(SLOW[0], 1.0, 1.0)
    monkeypatch.setattr("qbench.explain.json_text.as_json", lambda explained: "JSON")
    monkeypatch.setattr("qbench.explain.json_text.store_time", lambda opened, result, titles: timed)
    monkeypatch.setattr("qbench.explain.json_text.store_error", lambda opened, result, titles: ACCURACY)
    asked = {name: "an answer" if of in (name, "both") else None for name in ("time", "losses")}
    explain._Answers(folder=tmp_path, as_json=True).show(SimpleNamespace(opened=None, **asked))
    assert read_explained(tmp_path, TimeFigures) == ((timed,) if asked["time"] else ())
    assert read_explained(tmp_path, ErrorFigures) == ((ACCURACY,) if asked["losses"] else ())
