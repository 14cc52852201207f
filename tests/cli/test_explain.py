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
from qbench.errors import CaseError, UsageError
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


def test_what_was_and_what_was_not_explained_is_counted(folder, explainer, capsys, monkeypatch):
    """With the time that is up, what is left, and the report where anything is new in it."""
    explainer.fail[SLOW[0]] = CaseError("it cannot be built")
    clock = iter([0.0, 1.0, 59.0, 60.0])
    monkeypatch.setattr(explain.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr("qbench.report.build.build_report", lambda folder: folder / "report.html")
    explain_all(folder, max_minutes=1.0)
    assert capsys.readouterr().err.splitlines() == [
        "answered 1 of 3 questions",
        f"{SLOW[0]}, time: not explained: it cannot be built",
        f"time is up; the same command goes on with {SLOW[2]}",
        f"report: {folder / 'report.html'}",
    ]


@pytest.mark.parametrize(("case", "every"), [("", False), ("net/static/x86/t1/b1", True)])
def test_either_a_case_is_named_or_all_are(case, every):
    """Neither, or both, is no question."""
    with pytest.raises(UsageError, match="name one CASE, or --all for every slow or wrong one"):
        explain.explain("run", case, every=every)


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


@pytest.fixture
def parts(monkeypatch):
    """Each part of an explanation is its name in the place of its words; keys and variables are those of a change."""
    from qbench.explain import suite_text, tables, text

    lists = ("time_head", "other_formats", "causes", "other_times", "costs", "other_errors")
    for name in (f"list_{part}" for part in lists):
        monkeypatch.setattr(text, name, lambda *_, name=name: [name.removeprefix("list_")])
    for name in ("describe_watching", "describe_error_head"):
        monkeypatch.setattr(text, name, lambda *_, name=name: name.removeprefix("describe_"))
    monkeypatch.setattr(text, "describe_not_covered", lambda not_covered: not_covered)
    for name in ("make_kind_table", "make_time_table", "make_error_table"):
        monkeypatch.setattr(tables, name, lambda *_, name=name: name.removeprefix("make_"))
    monkeypatch.setattr("qbench.progress.table.format_table", lambda table, width: table)
    monkeypatch.setattr(suite_text, "write_suite_keys", lambda change, *_: change and f"{change}: keys")
    monkeypatch.setattr(suite_text, "list_environment", lambda change, case: [f"{change}: variable"])


def explained(*, losses=True, floor=None, **changes):
    """Of a case whose time and accuracy were asked for, or one of the two."""
    accuracy_gate = SimpleNamespace(margin=1.5, floor=floor)
    opened = SimpleNamespace(
        notes=["note"], record=None, run=SimpleNamespace(records=()), metric_info=None,
        case=SimpleNamespace(id="net/case"), suite=SimpleNamespace(gate=SimpleNamespace(accuracy=accuracy_gate)),
    )  # fmt: skip
    alternative = SimpleNamespace(trial=SimpleNamespace(counterfactual=SimpleNamespace(change="other")))
    timed = {
        "explanation": SimpleNamespace(single="one", change="all"), "times": "times", "no_times": "nobody looked",
        "not_covered": "not covered", "alternative": alternative,
    } | changes  # fmt: skip
    lost = SimpleNamespace(tried=(), layers=("layer",), change="mended")
    time = SimpleNamespace(**timed) if changes.get("asked", True) else None
    return SimpleNamespace(opened=opened, time=time, losses=lost if losses else None, loses_little=False)


KEYS = "In the suite (into the sections that it has; a list in place of the list there):"


def lines_of(shown, capsys):
    """What is printed, without empty lines."""
    explain._show(shown, {}, None)
    return [line for line in capsys.readouterr().out.splitlines() if line]


def test_an_explanation_of_time_and_accuracy_is_told_in_order(parts, capsys):
    """Head, where the time goes, causes, what was tried besides, what to write; then the same of accuracy."""
    of_time = [
        "time_head", "other_formats", "kind_table", "watching", "time_table", "causes", "other_times", "not covered",
        KEYS, "one: keys", "one: variable", "costs", KEYS, "other: keys", "other: variable",
    ]  # fmt: skip
    of_accuracy = ["net/case, accuracy", "error_head", "causes", "other_errors", "error_table", KEYS, "mended: keys"]
    assert lines_of(explained(), capsys) == ["note", *of_time, *of_accuracy]
    assert lines_of(explained(losses=False), capsys) == ["note", *of_time]
    assert lines_of(explained(asked=False), capsys) == ["note", *of_accuracy]


def test_what_is_not_known_of_time_is_not_told(parts, capsys):
    """But why nobody knows where it goes."""
    bare = explained(losses=False, times=None, not_covered=None, alternative=None)
    bare.time.explanation.single = None
    unknown = "Where its time goes is not known: nobody looked."
    assert lines_of(bare, capsys) == [
        "note", "time_head", "other_formats", unknown, "causes", "other_times", "None: variable", "costs",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("floor", "held"), [(None, "lose no more than the margin of 1.5"), (98.5, "reach the least score of 98.5")]
)
def test_a_loss_within_the_limit_needs_no_change(parts, capsys, floor, held):
    """Nothing is to be written into the suite then; without layers there is no table of them."""
    little = explained(asked=False, floor=floor)
    little.loses_little, little.losses.layers = True, ()
    assert lines_of(little, capsys)[1:] == [
        "net/case, accuracy", "error_head", "causes", "other_errors",
        f"It is shown to {held}: nothing needs to be done.",
    ]  # fmt: skip


def test_each_question_is_numbered_as_it_begins(folder, explainer, capsys):
    """Where progress is shown; of one case that is named there is nothing to count."""
    explain.explain(str(folder), every=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if " of 3: " in line]
    assert lines == [f"{number} of 3: {case}, time" for number, case in enumerate(SLOW, 1)]
    explain.explain(str(folder), SLOW[0])
    assert " of " not in capsys.readouterr().err


def test_one_case_that_is_named_is_explained_or_says_why_not(folder, explainer, capsys):
    """Whatever time there is for all of them; what stops it is the command's own error, and no report is built."""
    explain.explain(str(folder), SLOW[1], max_minutes=0.0, quiet=True)
    assert (explainer.asked, explainer.concerns) == ([SLOW[1]], [("time",)])
    explainer.fail[SLOW[0]] = CaseError("it cannot be built")
    with pytest.raises(CaseError, match="it cannot be built"):
        explain.explain(str(folder), SLOW[0], quiet=True)
    assert capsys.readouterr().err == ""


def test_explanations_are_set_apart(tmp_path, monkeypatch, capsys):
    """By an empty line between two, none before the first; JSON has none."""
    monkeypatch.setattr("qbench.explain.json_text.as_json", lambda explained: "{}\n")
    monkeypatch.setattr(explain, "_show", lambda explained, titles, width: print("words"))
    for as_json, printed in ((False, "words\n\nwords\n"), (True, "{}\n{}\n")):
        shown = explain._Answers(folder=tmp_path, as_json=as_json)
        for _ in range(2):
            shown.show(SimpleNamespace(time=None, losses=None))
            shown.done.append(("c", ("time",)))
        assert capsys.readouterr().out == printed


def test_parts_of_an_explanation_are_set_apart(parts, capsys):
    """Causes from the tables before them, accuracy from time; what comes first has nothing above it."""
    explain._show(explained(), {}, None)
    out = capsys.readouterr().out
    assert "time_table\n\ncauses\n" in out
    assert "other: variable\n\nnet/case, accuracy\n" in out
    explain._show(explained(asked=False), {}, None)
    assert capsys.readouterr().out.startswith("note\nnet/case, accuracy\n")


@pytest.mark.parametrize(
    ("below", "least", "count"), [(None, None, 3), (0.4, None, 0), (0.4, 5.0, 0), (4.5, None, 4), (None, 5.0, 4)]
)
def test_what_is_slow_is_said_or_is_the_gates(folder, explainer, monkeypatch, below, least, count):
    """Less than twice as fast where neither says; what the command line says goes before the gate."""
    gate = SimpleNamespace(latency=SimpleNamespace(min_speedup=least))
    monkeypatch.setattr("qbench.explain.open_case.read_suite", lambda stored, suite: SimpleNamespace(gate=gate))
    explain_all(folder, below=below)
    assert len(explainer.asked) == count


def test_three_cases_that_are_left_are_named(tmp_path, capsys):
    """And how many more there are."""
    asked = [(name, ("time",)) for name in "abcde"]
    explain._Answers(folder=tmp_path, as_json=False, failures={asked[4]: "no"}).finish(asked)
    assert "time is up; the same command goes on with a, b, c and 1 more\n" in capsys.readouterr().err
